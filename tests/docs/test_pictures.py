"""Every picture of the docs stands on a page, and is the one that the code draws."""

from __future__ import annotations

import re

from docs import diagrams
from tests.serving import ROOT

PICTURES = ROOT / "docs" / "pictures"


def test_every_picture_stands_on_a_page() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+\.\w+)\)", page.read_text())}
    assert shown == {path.name for path in PICTURES.iterdir()}


def test_the_diagrams_say_what_the_code_draws() -> None:
    # Not their bytes: another Matplotlib writes other paths.
    text = re.compile(r"<text.*?>(.*?)</text>", re.DOTALL)
    for name, draw in (
        ("people", diagrams.people_picture),
        ("pairs", diagrams.pairs_picture),
        ("request", diagrams.request_picture),
    ):
        committed = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        assert text.findall(committed) == text.findall(draw().decode()), "run: python -m docs.figures"
        assert "prefers-color-scheme:dark" in committed
