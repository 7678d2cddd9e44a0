"""Every picture of the docs stands on a page."""

from __future__ import annotations

import re

from tests.serving import ROOT

PICTURES = ROOT / "docs" / "pictures"


def test_every_picture_stands_on_a_page() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+\.\w+)\)", page.read_text())}
    assert shown == {path.name for path in PICTURES.iterdir()}
