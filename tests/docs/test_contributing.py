"""The diffs that CONTRIBUTING shows: a learner is its folder and the registry, an endpoint a row and a handler."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_diffs_shown_apply_to_this_checkout() -> None:
    diffs = re.findall(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    touched = []
    for diff in diffs:
        done = subprocess.run(
            ["git", "apply", "--check", "-"],
            input=diff,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        touched.append(re.findall(r"^\+\+\+ b/(\S+)", diff, re.M))
    assert touched == [
        ["pairmark/models/registry.py"],
        ["pairmark/service/api/learners.py", "pairmark/service/api/routes.py"],
    ]
