"""How the docs and the product's texts are written: percentages one way, and pages of a length that is read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.serving import ROOT

PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]
LONGEST_PAGE = 4_000
GENERATED = {"http.md", "command-line.md", "learners.md", "Client.md", "settings.md"}
TIGHT = re.compile(r"\d%(?![\da-fA-F]{2}|[sdif(])")
INPUT = re.compile(r"`1%`|0\.01,? or 1%")
"""A rate as somebody types it: one word."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_space_stands_before_the_sign_of_a_percentage(page: Path) -> None:
    text = re.sub(r"<!-- results:.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert TIGHT.findall(INPUT.sub("", text)) == []


def test_the_product_writes_percentages_as_the_docs_do() -> None:
    wrong = []
    for path in sorted((ROOT / "pairmark").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            spec = node.format_spec if isinstance(node, ast.FormattedValue) else None
            if TIGHT.search(INPUT.sub("", text)) or (spec and ast.unparse(spec).endswith("%'")):
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}")
            # `{rate:.0f}%`: the text that follows a value begins with the sign.
            if isinstance(node, ast.JoinedStr):
                wrong += [
                    f"{path.relative_to(ROOT)}:{node.lineno}"
                    for before, after in zip(node.values, node.values[1:], strict=False)
                    if isinstance(before, ast.FormattedValue)
                    and isinstance(after, ast.Constant)
                    and str(after.value).startswith("%")
                ]
    assert wrong == []


def test_no_page_is_longer_than_anybody_reads() -> None:
    words = {
        page.name: len(page.read_text(encoding="utf-8").split())
        for page in PAGES
        if page.name not in GENERATED
    }
    assert {name: n for name, n in words.items() if n > LONGEST_PAGE} == {}
