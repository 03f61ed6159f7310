"""How text is written as a YAML scalar; the inverse, reading, is in `documents.py`."""

from __future__ import annotations

import json
import re

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
# Words that some YAML reader takes for something other than text.
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def is_bare(text: str) -> bool:
    """True if every YAML reader takes the bare word for text."""
    return _BARE.match(text) is not None and text.lower() not in _WORDS


def scalar(text: str) -> str:
    """Text as a YAML scalar on one line: bare where that is safe, in double quotes otherwise."""
    return text if is_bare(text) else json.dumps(text)
