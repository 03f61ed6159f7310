"""The figures of the other pages, gathered at the end of results.md: `python bench/pages.py` after one of them was written."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results.md"
START = "<!-- from here on: what `python bench/pages.py` gathers -->"
# Page -> what writes it.
PAGES = {
    "verify.md": "python bench/verify.py",
    "scale.md": "python bench/scale.py",
    "registry.md": "python bench/registry.py",
    "streamed.md": "python bench/streamed.py",
    "soak.md": "make soak",
}


def gathered() -> str:
    """All pages that are there, their headings one level down, without the line that says who writes them."""
    parts = [START]
    for name, command in PAGES.items():
        page = HERE / name
        if page.exists():
            text = re.sub(r"^#", "##", page.read_text("utf-8"), flags=re.MULTILINE)
            text = re.sub(
                r"^Written by [^\n]*; do not edit\. ?",
                f"From [{name}]({name}), `{command}`. ",
                text,
                flags=re.MULTILINE,
            )
            parts.append(text.strip())
    return "\n\n".join(parts) + "\n"


def refresh(results: Path = RESULTS) -> None:
    """Write what is gathered anew, and nothing else of the page."""
    before = results.read_text("utf-8").partition(START)[0].rstrip() if results.exists() else ""
    results.write_text(f"{before}\n\n{gathered()}", "utf-8")


if __name__ == "__main__":
    refresh()
