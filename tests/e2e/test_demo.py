"""``make demo``: a newcomer's first five minutes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import ROOT, free_port

DEMO = "import sys; from pairmark.service import demo; demo.BUDGET_S = 5.0; sys.exit(demo.main())"
"""With a shorter race."""


def demo(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
    environment = {**kept, "PAIRMARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", DEMO, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
    )


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_once_answers_and_stops_and_a_second_run_reuses(tmp_path: Path) -> None:
    port = free_port()
    first = demo(tmp_path, "--once", "--port", str(port))
    assert first.returncode == 0, first.stderr
    assert len(re.findall(r"^curl -s ", first.stdout, re.MULTILINE)) == 3
    assert re.search(r"^similarity: \S+ for 3 and 3", first.stdout, re.MULTILINE)
    points = [
        json.loads(line.partition(": ")[2])
        for line in first.stdout.splitlines()
        if line.startswith("operating point")
    ]
    assert [point["guarantee"] for point in points] == ["finite-sample"]
    assert [point["fpr"] for point in points] == [0.01]
    assert points[0]["protocol"] == "closed-set"
    assert points[0]["fpr_upper_bound"] <= 0.01
    # The default learner, without a policy that weakens the promise; what the labels are is said.
    assert "(similarity-auto)" in first.stdout
    assert "asymptotic" not in first.stdout
    assert "uploaded as `classes`" in first.stdout
    assert re.search(r"^match at fpr=0.01: 3 and 3 are the same$", first.stdout, re.MULTILINE)
    assert re.search(r"^match at fpr=0.01: 3 and 0 are different$", first.stdout, re.MULTILINE)
    assert re.search(r"^fpr=0.0001 is refused: ", first.stdout, re.MULTILINE)
    assert f"Console: http://127.0.0.1:{port}/" in first.stdout
    # The bodies that the lines send are in a file that curl can read.
    assert first.stdout.count(f"-d @{tmp_path / 'pair.json'}") == 2
    assert set(json.loads((tmp_path / "pair.json").read_text())) == {"model", "left", "right"}
    second = demo(tmp_path, "--once", "--port", str(port))
    assert second.returncode == 0, second.stderr
    assert second.stdout.count("exists already") == 2
    # The same questions get the same answers from the model that was kept.
    assert second.stdout.partition("Ask it")[2] == first.stdout.partition("Ask it")[2]
