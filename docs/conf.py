"""The documentation site: Sphinx, MyST Markdown and the Furo theme. Reference pages are generated from the code."""

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
    app.connect("build-finished", write_markdown)


def write_markdown(app: Any, error: Exception | None) -> None:
    """Beside each page its Markdown, and ``llms.txt``, which lists the pages with their titles (llmstxt.org)."""
    if error is not None or app.builder.format != "html":
        return
    lines = [
        f"# Pairmark {VERSION}",
        "",
        "> Same or different, at a false positive rate that you choose.",
        "",
    ]
    for name in sorted(app.env.found_docs):
        page = Path(app.outdir, f"{name}.md")
        page.write_text(Path(app.env.doc2path(name)).read_text(encoding="utf-8"), encoding="utf-8")
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.md)")
    readme = Path(__file__).parents[1] / "README.md"
    # It includes a part of the README, which means nothing by itself.
    Path(app.outdir, "quickstart.md").write_text(readme.read_text(encoding="utf-8"), encoding="utf-8")
    Path(app.outdir, "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
