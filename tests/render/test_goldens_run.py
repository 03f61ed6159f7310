from __future__ import annotations

import pytest

from fedops.render.demo import WIDTH
from fedops.render.text import width
from tests.render.goldens import FOLDER
from tests.render.goldens_run import RUN_GOLDENS


@pytest.mark.parametrize("name", sorted(RUN_GOLDENS))
def test_output_is_the_one_that_was_read_and_approved(name: str) -> None:
    assert RUN_GOLDENS[name]() == (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(RUN_GOLDENS))
def test_no_text_of_others_acts_on_a_terminal(name: str) -> None:
    assert all(c.isprintable() for line in RUN_GOLDENS[name]().splitlines() for c in line)


@pytest.mark.parametrize("name", ["demo.txt", "demo_short.txt"])
def test_the_demo_fits_a_terminal(name: str) -> None:
    assert max(map(width, RUN_GOLDENS[name]().splitlines())) <= WIDTH
