"""One reader under atheris, which looks for inputs that reach new code: python -m tests.fuzz.guided NAME -runs=100000."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    # Not among the dependencies: where it is not installed, the readers are fuzzed without guidance.
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["fedops.core", "fedops.adapters"]):
        readers = importlib.import_module("tests.fuzz.readers")
    reader = readers.READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(reader.corpus):
            (Path(folder) / str(number)).write_bytes(seed)
        kept = f"-artifact_prefix={tempfile.gettempdir()}/fedops-{name}-"  # where an input that finds a fault is put
        atheris.Setup([sys.argv[0], folder, "-timeout=60", "-rss_limit_mb=4096", kept, *options], reader.check)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
