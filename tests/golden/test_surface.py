"""Learners, OpenAPI, help and signatures are those written down (`surface.py` writes them anew)."""

import pytest

from tests.golden.surface import FILES, FOLDER


@pytest.mark.parametrize("name", FILES)
def test_what_users_see_is_what_is_written_down(name: str) -> None:
    assert FILES[name]() == (FOLDER / name).read_text(), "python -m tests.golden.surface writes it anew"
