from __future__ import annotations

import pytest

from tests.render.goldens import FOLDER
from tests.render.goldens_verify import VERIFY_GOLDENS


@pytest.mark.parametrize("name", sorted(VERIFY_GOLDENS))
def test_output_is_the_one_that_was_read_and_approved(name: str) -> None:
    assert VERIFY_GOLDENS[name]() == (FOLDER / name).read_text(encoding="utf-8")
