from __future__ import annotations

import pytest

from fedops.core.facts import Marker

MARKER = Marker("submission", "hospital-a")


def test_the_marker_is_a_hidden_line() -> None:
    assert MARKER.text == "<!-- fedops:submission hospital-a -->"


@pytest.mark.parametrize("body", ["", "text", "a\nb\r\n", "\n", "x <!-- fedops:submission hospital-a -->"])
def test_a_stamped_body_is_marked_and_stamped_once(body: str) -> None:
    stamped = MARKER.stamp(body)
    assert stamped == f"{MARKER.text}\n{body}"
    assert MARKER.marks(stamped)
    assert MARKER.stamp(stamped) == stamped
    assert not MARKER.marks(body)


def test_line_ends_that_a_forge_changed_do_not_hide_the_marker() -> None:
    assert MARKER.marks(f"{MARKER.text}\r\nbody")


@pytest.mark.parametrize(
    "body",
    [f"\n{MARKER.text}", f" {MARKER.text}", f"> {MARKER.text}", f"{MARKER.text} x", Marker("submission", "b").text],
)
def test_a_marker_elsewhere_or_of_another_key_is_none(body: str) -> None:
    assert not MARKER.marks(body)
