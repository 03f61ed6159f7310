"""What is read of act's messages, and what a person finds in the log."""

from __future__ import annotations

import io
import json
from typing import Any

from fedops.adapters.act_output import read_messages


def read(*messages: Any) -> tuple[Any, str]:
    log = io.StringIO()
    told = read_messages([m if isinstance(m, str) else json.dumps(m) + "\n" for m in messages], log)
    return told, log.getvalue()


def printed(text: str, job: str = "a", step: str = "Look") -> dict[str, Any]:
    return {"jobID": job, "step": step, "raw_output": True, "msg": text}


def output(steps: list[str], name: str = "x", value: str = "1", **more: Any) -> dict[str, Any]:
    return {"jobID": "a", "stepID": steps, "command": "set-output", "name": name, "arg": value, "msg": "", **more}


def test_jobs_end_and_others_are_not_named() -> None:
    told, log = read({"jobID": "a", "jobResult": "success", "msg": "ok"}, {"jobID": "b", "jobResult": "failure"})
    assert told.jobs == {"a": "success", "b": "failure"}
    assert log == "== a: success\n== b: failure\n"


def test_outputs_of_named_steps_alone_are_taken() -> None:
    told, _ = read(
        output(["merge"], "due", "true"), output(["0"], "ref"), output(["0", "checkout"], "ref"), output(["m"], "y")
    )
    assert told.outputs == {"a": {"due": "true", "y": "1"}}
    assert read({**output(["m"]), "jobID": ""})[0].outputs == {}


def test_the_log_has_what_steps_printed_under_their_names_once() -> None:
    _, log = read(
        printed("one\n"),
        printed("two\n"),
        {"jobID": "a", "step": "Look", "level": "info", "msg": "noise"},
        printed("x", step="Next"),
    )
    assert log == "== a: Look\none\ntwo\n== a: Next\nx\n"


def test_nothing_in_the_log_acts_on_a_terminal() -> None:
    _, log = read(printed("updates: 0/2\x1b[K\rupdates: 2\x1b[K\r\n"), printed("\x1b]0;title\x07\u202eevil\ttab"))
    assert log.splitlines()[1:] == ["updates: 2", "?]0;title??evil\ttab"]


def test_what_act_says_of_itself_is_kept_for_the_message() -> None:
    told, log = read(
        "Error: nothing matches\n",
        "\n",
        {"level": "error", "msg": "no such file\n"},
        {"level": "warning", "msg": "docker"},
    )
    assert told.complaints == ["Error: nothing matches", "no such file"]
    assert "docker" not in log
    assert read({"jobID": "a", "step": "Look", "level": "error", "msg": "exit status 2"})[1] == "exit status 2\n"


def test_lines_that_are_no_messages_are_text() -> None:
    told, _ = read("{broken\n", "[1]\n", '{"a": ' + "1" * 2_000_000 + "}\n", "{}\n")
    assert [line[:7] for line in told.complaints] == ["{broken", "[1]", '{"a": 1']
    assert max(map(len, told.complaints)) == 300
    assert told.jobs == {}
