"""Writes the figures of the README from the result files of the benchmarks: ``python -m docs.figures``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(r"(?<=from benchmarks/results -->\n).*?(?=<!-- /figures -->)", re.DOTALL)


def main() -> None:
    """Rewrite the README."""
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(PLACE.sub(lambda _: figures(), text), encoding="utf-8")


def figures() -> str:
    """The lines, as they stand in the README."""
    made = [_promise(), _keystrokes(), _request(), _gallery(), _strangers()]
    text = "".join(f"{number}. {line}\n" for number, line in enumerate(made, 1))
    return re.sub(r"(?<=\d)%", "\u00a0%", text)


def _result(name: str) -> tuple[dict[str, Any], str]:
    """A result file, and where its figures come from in words."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found, f"(`{name}`, {commit(name, found)})"


def commit(name: str, found: dict[str, Any]) -> str:
    """The commit a result was measured at, else the one that brought its file."""
    stated = found.get("commit")
    if stated:
        return str(stated)[:7]
    asked = ["git", "log", "-1", "--format=%h", "--abbrev=7", "--", f"benchmarks/results/{name}.json"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _promise() -> str:
    found, source = _result("coverage")
    rows = [row for row in found["rows"] if row["kind"] in ("threshold", "search")]
    kept = [row for row in rows if row["method"] in ("auto", "finite-sample") and row["confidence"] == 0.95]
    ours = max(row["failed"] for row in kept)
    naive = max(row["failed"] for row in rows if row["method"] == "naive")
    n_worlds = len({row["scenario"] for row in kept})
    calibrations = [row["calibrations"] for row in kept]
    return (
        f"**The guarantee holds.** In {n_worlds} simulated settings with {min(calibrations):,} to "
        f"{max(calibrations):,} calibrations each, at 95 % confidence, the true FPR was above the promised one in at "
        f"most {ours:.1%} of calibrations (5 % is promised; the standard error is about 0.7 points). With a percentile "
        f"of the scores it was above in up to {naive:.1%} {source}."
    )


def _keystrokes() -> str:
    found, source = _result("keystroke")
    missed = {row["contestant"]: row["FNMR at FMR 1e-2"] for row in found["rows"]}
    ours = missed["pairmark forest, discriminant, boosted cells"]
    return (
        f"**Typing rhythms of {found['facts']['people']} people.** At one false match in 100, our best forest misses "
        f"{ours:.1%} of genuine pairs, XGBoost on pairs {missed['XGBoost on pairs']:.1%} {source}."
    )


def _request() -> str:
    found, source = _result("http_overhead")
    cost = next(
        row["CPU us a request"]
        for row in found["rows"]
        if row["request"].startswith("one pair as JSON, forest") and row["server"] == "route"
    )
    return (
        f"**One pair over HTTP** costs {cost / 1000:.2f} ms of CPU: two vectors of 128 numbers as JSON, a forest of "
        f"100 trees {source}."
    )


def _gallery() -> str:
    found, source = _result("gallery_write")
    row = next(one for one in found["rows"] if one["database"] == "sqlite")
    return (
        f"**A gallery of {row['items']:,} vectors** of {found['facts']['dimension']} numbers takes "
        f"{row['rows a second']:,.0f} rows a second on SQLite. After `kill -9` the first search is answered "
        f"{row['first search after a restart, s']:.1f} s after the start {source}."
    )


def _strangers() -> str:
    found, source = _result("mnist")
    rates = {
        row["contestant"]: row["TPR at 0.01"] for row in found["rows"] if row["task"] == "digits never met"
    }
    best = max(rate for name, rate in rates.items() if name.startswith("pairmark"))
    return (
        f"**Where learning loses.** Trained on digits 0 to 5 and asked about 6 to 9 at an FPR of 1 %, plain cosine "
        f"recognises {rates['cosine']:.1%} of same pairs and our best learner {best:.1%}. The leaderboard shows such a "
        f"loss before you deploy {source}."
    )


if __name__ == "__main__":
    main()
