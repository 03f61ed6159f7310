"""README.md shows commands that exist, files that are there, and output in the form that the program prints."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from fedops.render.demo import PLACES, WIDTH, demo_text
from fedops.render.history import show_text
from fedops.render.text import width
from fedops.render.verify import verify_text
from tests.pages import ROOT, command_of, fedops_lines, links
from tests.readme import BLOCKS, README, SHOWN, block, filled
from tests.render.goldens_run import demo_result
from tests.render.goldens_site import made
from tests.template.test_workflows import option_names

TEXT = README.read_text("utf-8")


def commands() -> Iterator[list[str]]:
    """Each fedops command line that is shown, the demo's advice included, as words."""
    yield from fedops_lines(TEXT)
    demo = block(TEXT, "demo").splitlines()
    yield from (shlex.split(line)[1:] for line in demo[demo.index("try") + 1 :] if line.strip().startswith("fedops "))


def test_every_command_and_option_that_is_shown_exists() -> None:
    shown = list(commands())
    assert len(shown) > 10
    for words in shown:
        if words[0] == "dvc":
            continue  # what follows is DVC's own
        given = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--help"}
        assert given <= option_names(command_of(words)), words


def test_every_make_target_that_is_shown_exists() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    shown = set(re.findall(r"(?:`|\$ )make ([a-z-]+)", TEXT))
    assert shown
    assert shown <= targets


def test_every_file_that_is_linked_is_there() -> None:
    assert links(TEXT)
    assert [link for link in links(TEXT) if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", BLOCKS)
def test_output_that_is_shown_fits_a_terminal(name: str) -> None:
    lines = block(TEXT, name).splitlines()
    assert lines
    assert max(map(width, lines)) <= WIDTH


def fixed_parts(demo: str) -> list[str]:
    """Headings, the legend and the advice of the demo's output, with N for each number."""
    lines = demo.strip("\n").splitlines()
    headings = [line for line in lines if line and not re.match(r" |v\d", line)]
    return [re.sub(r"\d+", "N", line) for line in headings + lines[lines.index("try") :]]


def test_the_demos_output_has_the_form_that_the_program_prints() -> None:
    shown = block(TEXT, "demo")
    example = demo_result(sites=["hospital-a", "hospital-b", "clinic-c", "clinic-d"])
    assert fixed_parts(shown) == fixed_parts(demo_text(example, "demo-federation"))
    assert all(f"  {name:<17}  {what}\n" in shown for name, what in PLACES)
    assert "CI wrote:\n" in shown


def test_the_other_outputs_have_the_form_that_the_program_prints() -> None:
    verify = block(TEXT, "verify")
    found = re.findall(r"(?m)^v(\d+)  ([0-9a-f]{12})  ok \((\w+)\)$", verify)
    rows = [{"version": int(n), "commit": commit, "level": level, "ok": True} for n, commit, level in found]
    assert verify == verify_text(rows, whole=True) + "\n"
    assert {row["level"] for row in rows} == {"inputs"}

    def labels(text: str) -> list[str]:
        """First words of the lines of facts, and the heading of the table."""
        return [line.split()[0] for line in text.splitlines() if re.match(r"[a-z]+   *\S", line)]

    shown = block(TEXT, "show")
    assert re.match(r"version +v\d+ \(fedavg, \d sites\)\n", shown)
    names = {"hospital-a", "hospital-b", "clinic-c", "clinic-d"}
    assert [w for w in labels(shown) if w not in names] == [w for w in labels(show_text(made())) if w not in names]
    (asked,) = set(re.findall(r"contributed what to (v\d+)\?", TEXT))
    assert asked == SHOWN
    assert f"tag       global@{SHOWN}.0.0\n" in shown
    answer = TEXT.partition(f"contributed what to {SHOWN}?")[2].partition("<!-- show -->")[0]
    told = dict(re.findall(r"([a-z]+-[a-z]) (\d+) %", answer))
    rows = re.findall(r"(?m)^(\S+) +v\d+ .* (\d+\.\d) %", shown)
    assert told == {site: f"{float(share):.0f}" for site, share in rows}


def test_a_block_is_filled_and_nothing_else_is_changed() -> None:
    text = "a\n<!-- demo -->\n```\nold\n```\n<!-- /demo -->\n<!-- show -->\n```\n```\n<!-- /show -->\nz\n"
    done = filled(text, "demo", "\nnew \\1 $x\n\n")
    assert block(done, "demo") == "new \\1 $x\n"
    assert block(filled(done, "show", "s"), "show") == "s\n"
    assert filled(done, "demo", "old") == text
    with pytest.raises(AssertionError, match="no block verify"):
        filled(text, "verify", "")
