"""The README's figures are those of the result files."""

from __future__ import annotations

import re

from docs import figures
from tests.serving import ROOT


def test_the_readme_states_what_the_result_files_hold() -> None:
    found = figures.PLACE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    # The commit that brought a file is not known before it is made.
    named = re.compile(r"(?<=`, )[0-9a-f]*(?=\))")
    assert named.sub("", found[0]) == named.sub("", figures.figures()), "run: python -m docs.figures"
