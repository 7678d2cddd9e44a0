"""The documentation site: Sphinx, MyST Markdown and the Furo theme. Reference pages are generated from the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import reference_pages

from pairmark.version import VERSION

project = "Pairmark"
author = "the Pairmark authors"
copyright = "2026, the Pairmark authors"
version = release = VERSION
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]
html_theme = "furo"
html_title = f"Pairmark {VERSION}"
html_static_path = ["_static"]
html_css_files = ["pairmark.css"]
html_copy_source = False
html_show_sourcelink = False


def setup(app: Any) -> None:
    """Write the generated pages before anything is read."""
    app.connect("builder-inited", lambda _: reference_pages.write(Path(__file__).parent / "reference"))
