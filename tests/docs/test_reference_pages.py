"""The generated reference: a page for each public name, and no table that leaves a meaning out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import pairmark
import pairmark.client
from docs import python_pages, reference_pages
from pairmark.service.api import document_values
from pairmark.service.app import create_app
from pairmark.service.settings import Settings


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


def test_a_long_signature_has_an_argument_a_line_and_its_answer_whole(folder: Path) -> None:
    page = (folder / "python" / "Plda.md").read_text()
    shown = page.partition("## explain")[2].partition("```python\n")[2].partition("```")[0]
    assert shown.splitlines()[-2:] == [
        "    feature_names: Sequence[str] | None = None,",
        ") -> dict[str, Any]",
    ]


def test_no_table_of_the_http_reference_leaves_a_meaning_empty(folder: Path) -> None:
    page = (folder / "http.md").read_text()
    rows = re.findall(r"^\| (`[^`]+`)(?:<br>.*?)? \| (.*?) ?\|$", page, re.M)
    assert len(rows) > 500
    assert [name for name, meaning in rows if not meaning.strip()] == []


def test_requests_and_answers_in_json_are_shown_by_example(folder: Path) -> None:
    page = (folder / "http.md").read_text()
    section = page.partition("### `POST /similarity`")[2].partition("\n### ")[0]
    body, answer = re.findall(r"```json\n(.*?)```", section, re.S)
    assert set(json.loads(body)) == {"left", "right"}
    assert set(json.loads(answer)) == {"model", "scores"}


def test_each_meaning_is_of_a_member_that_says_none_itself() -> None:
    document = create_app(Settings(), warm=False).openapi()
    members = [
        (schema, member, shape["description"])
        for schema, declared in document["components"]["schemas"].items()
        for member, shape in declared.get("properties", {}).items()
    ]
    shown = {(member, text) for _, member, text in members}
    assert [
        name for name, (text, *_) in document_values.FIELDS.items() if text and (name, text) not in shown
    ] == []
    of_a_schema = {(f"{schema}.{member}", text) for schema, member, text in members}
    listed = [(name, text) for name, (text, *_) in document_values.OF_A_SCHEMA.items() if text]
    assert [meaning for meaning in listed if meaning not in of_a_schema] == []
