"""The generated reference: a page for each public name, and no table that leaves a meaning out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pairmark
import pairmark.client
from docs import python_pages, reference_pages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    (folder / "python").mkdir()
    (folder / "python" / "RenamedLearner.md").write_text("# RenamedLearner\n")
    reference_pages.write(folder)
    return folder


def test_every_public_name_has_a_page_with_its_example_and_a_row_of_the_index(folder: Path) -> None:
    index = (folder / "python.md").read_text()
    for name in pairmark.__all__:
        page = (folder / "python" / f"{name}.md").read_text()
        assert page.startswith(f"# {name}\n")
        assert "**Examples**\n\n```python\n>>> " in page
        assert index.count(f"| [`{name}`](python/{name}.md) | ") == 1
        assert index.count(f"\npython/{name}\n") == 1


def test_every_public_name_of_the_client_has_a_heading(folder: Path) -> None:
    pages = (python_pages.CLIENT, python_pages.ANSWERS, python_pages.ERRORS)
    headings = [
        heading
        for page in pages
        for heading in re.findall(r"^##? (\w+)$", (folder / f"{page}.md").read_text(), re.M)
    ]
    assert [name for name in pairmark.client.__all__ if headings.count(name) != 1] == []


def test_the_page_of_a_name_that_is_gone_goes(folder: Path) -> None:
    assert not (folder / "python" / "RenamedLearner.md").exists()
