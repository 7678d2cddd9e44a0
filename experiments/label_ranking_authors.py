"""Tables 4 and 5 of Fotakis et al. 2022 again: their random forest, tree and shallow tree, by their variant of tau.

Their tau compares the two lists of labels, not the positions; their forest is 50 trees for each label's position, with
scikit-learn's defaults, and a shallow tree has depth 5. Quick runs one division of each set (three of its folds above
2,000 rows), full runs 5 x 10 folds. A figure is reproduced when it is within the published deviation, and half of the
last printed digit.
"""

from __future__ import annotations

from typing import Any

from benchmarks._rankings import AUTHORS, cross_validated, read_sets, summary
from benchmarks.common import Claim, Preset, Result
from pairmark.models import LabelRankingForest, LabelRankingTree

ROUNDED = 0.005


def _rf() -> Any:
    return LabelRankingForest(outputs="per-label", n_estimators=50, n_jobs=1)


def _dt() -> Any:
    return LabelRankingTree(outputs="per-label", n_jobs=1)


def _shallow() -> Any:
    return LabelRankingTree(outputs="per-label", max_depth=5, n_jobs=1)


RANKERS = {"RF": _rf, "DT": _dt, "shallow": _shallow}


def run(preset: Preset) -> Result:
    """Cross-validate on every set that the tables know."""
    quick = preset == "quick"
    sets = [data for data in read_sets() if data.name in AUTHORS]
    done = cross_validated(
        sets,
        RANKERS,
        repeats=lambda _: 1 if quick else 5,
        folds=lambda data: 3 if quick and len(data.X) > 2_000 else 10,
    )
    rows, hits, of = [], dict.fromkeys(RANKERS, 0), 0
    for data in sets:
        row: dict[str, Any] = {"data": data.name}
        of += 1
        for name, (mean, deviation) in zip(RANKERS, AUTHORS[data.name], strict=True):
            reported = summary(done, data.name, name, "authors_tau")
            standard = summary(done, data.name, name)
            assert reported is not None
            assert standard is not None
            near = abs(reported[0] - mean) <= deviation + ROUNDED
            hits[name] += near
            row |= {
                name: reported[0],
                f"{name} published": f"{mean:.2f} ± {deviation:.2f}",
                f"{name} reproduced": "yes" if near else "no",
                f"{name} standard tau": standard[0],
            }
        rows.append(row)
    claims = [
        Claim(
            what=f"{name}: sets (of {of}) within one deviation of the published figure",
            goal="all",
            measured=float(count),
            holds=count == of,
        )
        for name, count in hits.items()
    ]
    return Result(rows=rows, claims=claims)
