"""The Python of pages that explain learners runs, on data that stand for the reader's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.docs import blocks
from tests.serving import ROOT, serving

PAGES = (
    "explanation/evidence",
    "ghost",
    "plda",
    "rankboost",
    "rsbl",
    "similarity-auto",
    "similarity-forests",
)
SERVICE = "http://127.0.0.1:8000"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a service with a worker answers."""
    home = tmp_path_factory.mktemp("learners")
    with serving(home, f"sqlite:///{home / 'pairmark.db'}", "--with-worker") as server:
        yield server.url


def reader_data() -> dict[str, Any]:
    """What the pages take as given: rows of 20 people, pairs of rows, and texts of two topics."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 4)
    X = rng.normal(size=(20, 5))[y] + 0.3 * rng.normal(size=(80, 5))
    words = ("free prize win now", "see you at home", "call now to win", "dinner at eight")
    texts = [f"{words[at % 4]} {at % 7}" for at in range(40)]
    data = {"X": X, "y": y, "X_new": X[:6], "A": X[:5], "B": X[5:10], "left": X[:5], "right": X[5:10]}
    return {**data, "texts": texts, "more_texts": texts[:9], "topics": [at % 2 for at in range(40)]}


@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_shows_in_python_runs(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shown = [block for block in blocks.blocks(ROOT / "docs" / f"{page}.md") if block.language == "python"]
    assert shown
    url = request.getfixturevalue("service") if any(SERVICE in block.code for block in shown) else SERVICE
    scope = reader_data()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for block in shown:
            code = block.code.replace(SERVICE, url)
            exec(compile(code, f"{page}.md, line {block.line}", "exec"), scope)  # the page's own words
    finally:
        os.chdir(before)


def test_every_block_is_run_or_says_why_not() -> None:
    """`test_blocks.py` runs how-to pages, tutorials and the README; pages made of docstrings are run with these."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    for page in pages:
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if not name.startswith(("how-to/", "tutorials/", "_build/", "reference/python/")):
            languages = {block.language for block in blocks.blocks(page)}
            assert languages <= ({"python"} if name in PAGES else set()), name
