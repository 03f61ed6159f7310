"""What act prints with `--json`: one object a line, between lines of anything else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MAX_LINE = 1_000_000  # characters; a longer line is no message of act's


@dataclass
class Told:
    """What was read so far.

    Attributes:
        jobs: job -> "success" or "failure", as the jobs ended; one that was skipped is not named.
        outputs: job -> name -> value of what its own steps put out.
        complaints: lines of act itself: why a run could not start.
    """

    jobs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)


def read_messages(lines: Iterable[str], log: TextIO) -> Told:
    """Read act's messages, and write what the steps printed to a log for people, line by line as it comes."""
    told = Told()
    step = ""
    for line in lines:
        message = _message(line)
        if message is None:
            if text := line.strip():
                told.complaints.append(text[:300])
                print(text, file=log)
            continue
        here = f"{message.get('jobID')}: {message.get('step')}"
        if message.get("raw_output") and here != step:
            step = here
            print(f"== {step}", file=log)
        _take(message, told)
        if text := _printed(message):
            print(text, file=log)
    return told


def _message(line: str) -> Mapping[str, Any] | None:
    if not line.startswith("{") or len(line) > MAX_LINE:
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _take(message: Mapping[str, Any], told: Told) -> None:
    job = str(message.get("jobID", ""))
    if job and "jobResult" in message:
        told.jobs[job] = "success" if message["jobResult"] == "success" else "failure"
    # NOTE: a step without an id has its number for one, and steps inside of an action have several; none is read by a job.
    steps = message.get("stepID") or [""]
    named = len(steps) == 1 and not str(steps[0]).isdigit()
    if job and named and message.get("command") == "set-output" and "name" in message:
        told.outputs.setdefault(job, {})[str(message["name"])] = str(message.get("arg", ""))
    if message.get("level") == "error" and not message.get("raw_output") and "jobID" not in message:
        told.complaints.append(str(message.get("msg", "")).strip()[:300])


def _printed(message: Mapping[str, Any]) -> str:
    """The text of a message without what acts on a terminal; empty for act's own talk about itself."""
    if "jobResult" in message:
        return f"== {message.get('jobID')}: {message['jobResult']}"
    if not message.get("raw_output") and not ("jobID" in message and message.get("level") == "error"):
        return ""
    text = str(message.get("msg", "")).rstrip("\r\n")
    # Of a line that was drawn again and again, its last state.
    text = _ESCAPES.sub("", text.rpartition("\r")[2])
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in text)
