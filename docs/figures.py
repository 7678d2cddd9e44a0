"""Writes the README's figures from the result files of the benchmarks, and draws the pictures of the docs that are no
screenshots: ``python -m docs.figures``."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from docs import diagrams
from pairmark import Plda, operating_point
from pairmark.models import plot_histograms

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = ROOT / "docs" / "pictures"
PLACE = re.compile(r"(?<=from benchmarks/results -->\n).*?(?=<!-- /figures -->)", re.DOTALL)


def main() -> None:
    """Rewrite the README, and draw the pictures."""
    drawn = {
        "decision": decision_picture,
        "people": diagrams.people_picture,
        "pairs": diagrams.pairs_picture,
        "request": diagrams.request_picture,
    }
    for name, draw in drawn.items():
        (PICTURES / f"{name}.svg").write_bytes(draw())
    page = ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(PLACE.sub(lambda _: figures(), text), encoding="utf-8")


def decision_picture() -> bytes:
    """Scores of made-up people, and the threshold at 1 % that half of them support: an SVG, light and dark."""
    rng = np.random.default_rng(0)
    n_people, n_calibrating = 2_400, 1_196
    rows = np.repeat(rng.normal(size=(n_people, 12)), 3, axis=0)
    rows = rows + 0.55 * rng.normal(size=rows.shape)
    people = np.repeat(np.arange(n_people), 3)
    training = people >= n_calibrating
    model = Plda().fit(rows[training], people[training])
    first, second = rows[~training][::3], rows[~training][1::3]
    left, right = np.triu_indices(n_calibrating, 1)
    scores = np.concatenate([model.pair_score(first, second), model.pair_score(first[left], first[right])])
    same = np.arange(scores.size) < n_calibrating
    own = np.arange(n_calibrating)
    units = np.column_stack([np.concatenate([own, left]), np.concatenate([own, right])])
    point = operating_point(scores, same, 0.01, units=units, listing="all", random_state=0)
    title = f"made-up people: a score above {point.threshold:.1f} is a match"
    return plot_histograms(np.maximum(scores, -30), same, threshold=point.threshold, title=title).encoded(
        "svg", adaptive=True
    )


def figures() -> str:
    """The lines, as they stand in the README."""
    made = [_promise(), _price(), _keystrokes(), _faces(), _request(), _gallery(), _strangers()]
    text = "".join(f"{number}. {line}\n" for number, line in enumerate(made, 1))
    return re.sub(r"(?<=\d)%", "\u00a0%", text)


def _result(name: str, set: str | None = None) -> tuple[dict[str, Any], str]:
    """A result file, and where its figures come from in words: of one ``set``, where each has a commit."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    measured = next((row for row in found["rows"] if set is not None and row["set"] == set), found)
    return found, f"(`{name}`, {commit(name, measured)})"


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
    worst = max(kept, key=lambda row: row["failed"])
    naive = max(row["failed"] for row in rows if row["method"] == "naive")
    n_worlds = len({row["scenario"] for row in kept})
    calibrations = [row["calibrations"] for row in kept]
    errors = (worst["failed"] - 0.05) / worst["error"]
    verdict = "within chance of that" if errors < 2 else f"{errors:.1f} standard errors too many"
    return (
        f"**The guarantee holds.** We simulated {n_worlds} settings, with {min(calibrations):,} to "
        f"{max(calibrations):,} calibrations each. At 95 % confidence at most 5 % of calibrations may give a threshold "
        f"whose true FPR is too high. In the worst setting {worst['failed']:.1%} of the simulated ones did, {verdict}. "
        f"With a plain percentile of the scores, up to {naive:.1%} did {source}."
    )


def _price() -> str:
    found, source = _result("near_the_floor")
    rows = {row["people"]: row for row in found["rows"] if row["broken"] is not None}
    fewest, least = next(iter(rows.items()))
    most = list(rows.values())[-1]
    return (
        f"**What the guarantee costs.** PLDA on {found['facts']['data sets']} data sets like [the "
        f"tutorial's](docs/tutorials/embeddings.md), at an FPR of 1 % with 95 % confidence: the mean TPR is "
        f"{least['mean']:.1%} with {fewest.split()[-1]} people who calibrate, the fewest that may, and "
        f"{most['mean']:.1%} with twice as many. A threshold without a guarantee, the plain percentile of the same "
        f"scores, has {most['plain percentile']:.1%}, but its true FPR is above 1 % in "
        f"{most['percentile broken']:.0%} of the data sets {source}."
    )


def _keystrokes() -> str:
    found, source = _result("defaults", "keystroke")
    one = {row["contestant"]: row["TPR at 0.01"] for row in found["rows"] if row["set"] == "keystroke"}
    several, several_source = _result("subjects")
    n_enrolled = 10
    ten = {
        row["contestant"]: 1 - row["FNMR at FMR 1e-2"]
        for row in several["rows"]
        if row["set"] == "keystroke" and row["enrolled"] == n_enrolled
    }
    peer = max(share for name, share in ten.items() if name.startswith("XGBoost"))
    return (
        f"**The default learner on typing rhythms.** At an FPR of 1 %, `similarity-auto` recognises "
        f"{one['pairmark similarity-auto']:.1%} of pairs of the same person, XGBoost on pairs "
        f"{one['XGBoost on pairs']:.1%} {source}. With {n_enrolled} enrolled samples a person, `plda` recognises "
        f"{ten['pairmark: PLDA, exact']:.1%}, XGBoost {peer:.1%} {several_source}."
    )


def _faces() -> str:
    found, source = _result("defaults", "faces")
    rows = {row["contestant"]: row for row in found["rows"] if row["set"] == "faces"}
    auto, peer = rows["pairmark similarity-auto"], rows["XGBoost on pairs"]
    return (
        f"**Faces**, as plain pixels: at an FPR of 1 %, `similarity-auto` recognises {auto['TPR at 0.01']:.1%} "
        f"({auto['repetitions']} repetitions). In the {peer['repetitions']} repetitions shared with XGBoost on pairs "
        f"it is ahead by {100 * peer['auto ahead at 0.01']:.0f} ± {100 * peer['+-']:.0f} percentage points {source}."
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
    found, source = _result("default_search")
    most = max(row["items"] for row in found["rows"])
    rows = {row["search"]: row for row in found["rows"] if row["items"] == most}
    plda, trees = rows["plda"], rows["plda + 50 trees"]
    return (
        f"**Exact search of {most:,} vectors** of {found['facts']['features']} numbers with a trained PLDA takes "
        f"{plda['CPU ms a query']:.0f} ms of CPU for the ten nearest, {plda['over FAISS flat']:.2f} times what FAISS "
        f"flat takes; where training chose PLDA with 50 trees, {trees['over FAISS flat']:.2f} times {source}."
    )


def _strangers() -> str:
    found, source = _result("defaults", "digits never met")
    rates = {
        row["contestant"]: row["TPR at 0.01"] for row in found["rows"] if row["set"] == "digits never met"
    }
    return (
        f"**Where learning gains little.** Trained on five digits and tested on pairs of the other five, "
        f"`similarity-auto` recognises {rates['pairmark similarity-auto']:.1%} of pairs of the same digit at an FPR of "
        f"1 %, plain cosine, which learns nothing, {rates['pairmark cosine']:.1%}, and our similarity forest "
        f"{rates['pairmark forest']:.1%} {source}."
    )


if __name__ == "__main__":
    main()
