"""Cut `GET /meta` out of GitHub's OpenAPI description, as trim_openapi.py does the rest; writes meta.openapi.json.

    npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
    python -m tests.github_face.trim_meta package

The descriptions of Enterprise Server in the same package have the operation too, but no `ssh_keys` in its answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest.mock import patch

from tests.github_face import trim_openapi

META = Path(__file__).parent / "meta.openapi.json"


def main(package: Path) -> None:
    description = json.loads((package / "generated" / "api.github.com.json").read_bytes())
    with patch.object(trim_openapi, "OPERATIONS", {"/meta": ["get"]}):
        document = trim_openapi.trim(description)
    META.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
