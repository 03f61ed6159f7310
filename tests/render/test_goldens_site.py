from __future__ import annotations

import pytest

from tests.render.goldens import FOLDER
from tests.render.goldens_site import SITE_GOLDENS


@pytest.mark.parametrize("name", sorted(SITE_GOLDENS))
def test_output_is_the_one_that_was_read_and_approved(name: str) -> None:
    assert SITE_GOLDENS[name]() == (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(SITE_GOLDENS))
def test_no_text_of_others_acts_on_a_terminal(name: str) -> None:
    assert all(c.isprintable() for line in SITE_GOLDENS[name]().splitlines() for c in line)
