from __future__ import annotations

import pytest

from tests.render.goldens import FOLDER, GOLDENS


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_output_is_the_one_that_was_read_and_approved(name: str) -> None:
    assert GOLDENS[name]() == (FOLDER / name).read_text(encoding="utf-8")
