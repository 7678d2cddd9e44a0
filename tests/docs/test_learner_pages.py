"""The Python of pages that explain learners runs, on data that stand for the reader's."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs import blocks
from tests.serving import ROOT

PAGES = (
    "explanation/papers",
    "ghost",
    "plda",
    "rsbl",
    "similarity-auto",
    "similarity-forests",
)
RUN_WITH_A_SERVICE = ("rankboost",)
"""By `tests/e2e/test_serve.py`, on texts of its own."""


def reader_data() -> dict[str, Any]:
    """What the pages take as given: rows of 20 people, two each since the race costs, and pairs of them."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 2)
    X = rng.normal(size=(20, 5))[y] + 0.3 * rng.normal(size=(40, 5))
    Y = np.argsort(np.argsort(-X[:, :3], axis=1), axis=1).astype(float)
    return {"X": X, "y": y, "Y": Y, "X_new": X[:6], "A": X[:5], "B": X[5:10], "left": X[:5], "right": X[5:10]}


@pytest.mark.nightly
@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_shows_in_python_runs(page: str, tmp_path: Path) -> None:
    shown = [block for block in blocks.blocks(ROOT / "docs" / f"{page}.md") if block.language == "python"]
    assert shown
    scope = reader_data()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for block in shown:
            exec(compile(block.code, f"{page}.md, line {block.line}", "exec"), scope)  # the page's own words
    finally:
        os.chdir(before)


def test_every_block_is_run_or_says_why_not() -> None:
    """`test_blocks.py` runs how-to pages, tutorials and the README; pages made of docstrings are run with these."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if not name.startswith(("how-to/", "tutorials/", "_build/", "reference/python/")):
            languages = {block.language for block in blocks.blocks(page)}
            assert languages <= ({"python"} if name in PAGES + RUN_WITH_A_SERVICE else set()), name
