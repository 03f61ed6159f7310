"""Models to and from a real registry on this machine, beside curl and sha256sum with the same bytes.

    python bench/registry.py [--mib 512] [--repeats 3] [--work DIR]

needs docker-registry, curl and sha256sum. Whole processes are timed, hashing included; the registry works on the same
processors. Bars: push at most 1.3 times `curl -T` plus `sha256sum`; peak memory less than 64 MB above the interpreter. Writes registry.md.
"""

from __future__ import annotations

import argparse
import hashlib
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pages
from measure import Command, Row, measure
from quiet import Waiter

RATIO, ROOM_MB = 1.3, 64.0
REPOSITORY = "global"

# An upload is opened, and then the file put where the registry says.
PUSH_BY_CURL = """
set -e
url="http://$1/v2/curl/$(date +%s%N)/blobs/uploads/"
digest=$(sha256sum < "$2" | cut -d' ' -f1)
place=$(curl -sS -X POST -o /dev/null -w '%{redirect_url}%header{location}' "$url")
curl -sS --fail -o /dev/null -T "$2" -H 'Content-Type: application/octet-stream' "$place&digest=sha256:$digest"
"""
PULL_BY_CURL = """
set -e
curl -sS --fail -o "$3" "http://$1/v2/bench/global/blobs/sha256:$2"
sha256sum < "$3"
"""


def push(host: str, file: Path, path: str) -> None:
    """Put a file into a new path of a registry, as `fedops submit` does."""
    _store(host, path).put(REPOSITORY, file, {})


def pull(host: str, sha256: str, size: int, target: Path) -> None:
    """Get a model, as `fedops pull` does."""
    from fedops.core.facts import Layer

    _store(host, "bench").get(REPOSITORY, Layer(sha256, size, "model.safetensors"), target)


def _store(host: str, path: str):  # type: ignore[no-untyped-def]  # its type is imported late, as in the command
    from fedops.adapters.store_registry import RegistryStore
    from fedops.cli.wire import SystemClock
    from fedops.core.registry_address import parse_registry_url

    return RegistryStore(parse_registry_url(f"oci://{host}/{path}"), clock=SystemClock(), lookup=lambda _: None)


def own_peak_mb() -> float:
    """Peak resident MB of this process since it was started; what `wait4` tells counts the starting process in."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def compare(folder: Path, mib: int, repeats: int) -> bool:
    """Time everything in turn; True if the bars hold."""
    file, target = folder / "model.safetensors", folder / "pulled"
    with file.open("wb") as out:
        for _ in range(mib):
            out.write(secrets.token_bytes(1 << 20))
    own = [sys.executable, str(Path(__file__))]
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.registry.server import registry_server  # started as the tests do it

    with registry_server(folder / "registry") as server:
        with file.open("rb") as handle:
            sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
        push(server.host, file, "bench")
        peaks: dict[str, float] = {}

        def noted(name: str) -> Callable[[str], None]:
            return lambda text: peaks.update({name: float(text)})

        commands = [
            Command("interpreter", [*own, "--nothing"], inspect=noted("interpreter")),
            Command("push: sha256sum + curl -T", ["sh", "-c", PUSH_BY_CURL, "push", server.host, str(file)]),
            Command("push: fedops", [*own, "--push", server.host, str(file)], inspect=noted("push")),
            Command(
                "pull: curl + sha256sum", ["sh", "-c", PULL_BY_CURL, "pull", server.host, sha256, str(target)], target
            ),
            Command(
                "pull: fedops",
                [*own, "--pull", server.host, sha256, str(file.stat().st_size), str(target)],
                target,
                inspect=noted("pull"),
            ),
        ]
        rows = measure(commands, repeats, Waiter(0.0), extra=0)
    return report(rows, peaks, mib, repeats)


def report(rows: Mapping[str, Row], peaks: Mapping[str, float], mib: int, repeats: int) -> bool:
    """Write registry.md; True if the bars hold."""
    kept = True
    lines = [
        "| | fedops, wall s | by hand, wall s | ratio | peak MB above the interpreter |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for what, reference in (("push", "sha256sum + curl -T"), ("pull", "curl + sha256sum")):
        ours, theirs = rows[f"{what}: fedops"], rows[f"{what}: {reference}"]
        ratio, room = ours.wall / theirs.wall, peaks[what] - peaks["interpreter"]
        lines.append(
            f"| {what}, against {reference} | {ours.wall:.2f} | {theirs.wall:.2f} | {ratio:.2f}x | {room:.0f} |"
        )
        kept &= room < ROOM_MB and (what == "pull" or ratio <= RATIO)
    page = f"""# Models to and from a registry

Written by `python bench/registry.py`; do not edit. One model of {mib} MiB and a real registry (distribution) on this machine; whole
processes, hashing included; medians of {repeats} runs in turn. Bars: push at most {RATIO}x, less than {ROOM_MB:.0f} MB above the
interpreter: {"met" if kept else "**not met**"}.

"""
    (Path(__file__).parent / "registry.md").write_text(page + "\n".join(lines) + "\n", "utf-8")
    pages.refresh()
    print(page, *lines, sep="\n")
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--work", type=Path, help="folder for the data; default: that of the system for temporary files"
    )
    parser.add_argument("--push", nargs=2, metavar=("HOST", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--pull", nargs=4, metavar=("HOST", "SHA256", "SIZE", "TARGET"), help=argparse.SUPPRESS)
    parser.add_argument("--nothing", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.push:
        push(given.push[0], Path(given.push[1]), f"bench-{secrets.token_hex(4)}")
    elif given.pull:
        pull(given.pull[0], given.pull[1], int(given.pull[2]), Path(given.pull[3]))
    elif not given.nothing:
        with TemporaryDirectory(prefix="fedops-bench-", dir=given.work) as folder:
            sys.exit(0 if compare(Path(folder), given.mib, given.repeats) else 1)
    print(own_peak_mb())


if __name__ == "__main__":
    main()
