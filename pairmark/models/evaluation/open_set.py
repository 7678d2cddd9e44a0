"""Open-set identification, simulated with held-out people, and labels that scores make doubtful."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.calibration.bounds import wilson_interval
from pairmark.models.calibration.held_out import pick_points
from pairmark.models.calibration.identification import cmc
from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.base import PairScorerMixin

DIVISIONS = 2
MAX_COMPARISONS = 200_000
CONFIDENCE = 0.95
FPIRS = (0.3, 0.1, 0.03, 0.01)
LEAST_PEOPLE = 10
_POINTS = 200


def play_gallery(
    scorer: PairScorerMixin,
    X: Any,
    y: ArrayLike,
    *,
    random_state: int = 0,
) -> dict[str, Any] | None:
    """FNIR against FPIR, and the CMC, of galleries of held-out people: estimates on these people.

    Half of the people are enrolled with one sample each, another sample of each is searched, and so is one sample of
    each of the others, who are strangers. Samples are chosen without looking at scores.

    FPIR is the share of strangers' searches that return anybody; FNIR the share of enrolled people's searches that
    do not return them, both at ``score > threshold`` (ISO/IEC 19795-1).

    Parameters
    ----------
    X : (n, d) held-out points. y : (n,) their identities.

    Returns
    -------
    JSON-able: ``gallery_size``, ``n_mated``, ``n_strangers`` (people in one of ``divisions`` divisions, over which
    rates are averaged), ``at`` (by FPIR its ``threshold``, ``fnir`` and ``interval``), ``curve`` (``fpir``, ``fnir``,
    ``thresholds``) and ``cmc``. None with fewer than `LEAST_PEOPLE` people to enrol.
    """
    rng, rows = np.random.default_rng([random_state, 21]), _rows_of_people(y)
    twice = [name for name, rows_of in enumerate(rows) if rows_of.size > 1]
    size = min(len(twice), len(rows) // 2, int(np.sqrt(MAX_COMPARISONS / (2 * DIVISIONS))))
    if size < LEAST_PEOPLE:
        return None
    best, mated_scores, ranks, n_strangers = [], [], [], 0
    for _ in range(DIVISIONS):
        enrolled = [twice[at] for at in rng.permutation(len(twice))[:size]]
        enrolled_set = set(enrolled)
        strangers = [name for name in rng.permutation(len(rows)).tolist() if name not in enrolled_set][:size]
        n_strangers = len(strangers)
        draws = np.array([rng.choice(rows[name], 2, replace=False) for name in enrolled])
        probes = np.array([rng.choice(rows[name]) for name in strangers])
        gallery = X[draws[:, 0]]
        mated = np.asarray(scorer.score_against(X[draws[:, 1]], gallery))
        diagonal = np.diagonal(mated)
        mated_scores.append(diagonal)
        impostors = mated.copy()
        np.fill_diagonal(impostors, -np.inf)
        # A tie with another counts against the right one.
        ranks.append(1 + (impostors >= diagonal[:, None]).sum(axis=1))
        best.append(np.asarray(scorer.score_against(X[probes], gallery)).max(axis=1))
    fpir, fnir, thresholds = identification_curve(np.concatenate(best), np.concatenate(mated_scores))
    points = pick_points(fpir, _POINTS)
    at = []
    for rate in FPIRS:
        if rate * n_strangers < 1:
            continue
        # The smallest threshold at which no more strangers are returned than that.
        place = int(np.searchsorted(fpir, rate, side="right")) - 1
        missed = float(fnir[place])
        at.append(
            {
                "fpir": rate,
                "threshold": float(thresholds[place]),
                "fnir": missed,
                "interval": list(wilson_interval(missed, size, CONFIDENCE)),
            }
        )
    return {
        "gallery_size": size,
        "n_mated": size,
        "n_strangers": n_strangers,
        "divisions": DIVISIONS,
        "confidence": CONFIDENCE,
        "at": at,
        "curve": {
            "fpir": fpir[points].tolist(),
            "fnir": fnir[points].tolist(),
            "thresholds": thresholds[points].astype(np.float64).tolist(),
        },
        "cmc": cmc(np.concatenate(ranks), max_rank=min(20, size), confidence=CONFIDENCE),
    }


def identification_curve(best: ArrayLike, mated: ArrayLike) -> tuple[Float64, Float64, Float32]:
    """FPIR and FNIR of ``score > threshold`` at each stranger's best score, and below all of them.

    Parameters
    ----------
    best : (n,) best score of each stranger's search. mated : (m,) score of each enrolled person's probe with their own.

    Returns
    -------
    fpir (ascending), fnir, thresholds (descending).
    """
    top = np.sort(np.asarray(best, dtype=np.float32))
    mates = np.sort(np.asarray(mated, dtype=np.float32))
    distinct = np.unique(top)[::-1]
    thresholds = np.append(distinct, np.nextafter(distinct[-1], np.float32(-np.inf))).astype(np.float32)
    fpir = 1 - np.searchsorted(top, thresholds, side="right") / top.size
    fnir = np.searchsorted(mates, thresholds, side="right") / mates.size
    return fpir, fnir, thresholds


def _rows_of_people(y: ArrayLike) -> list[Int64]:
    codes = np.unique(np.asarray(y), return_inverse=True)[1]
    return np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])


TOLD = 20
"""Suspects of each kind that are listed."""
_RARE = 0.05


def suspects(
    scores: ArrayLike, same: ArrayLike, rows: ArrayLike, identities: ArrayLike
) -> tuple[Int64, Int64]:
    """Codes of pairs of identities, (n, 2), and rows, (m,), that scored pairs make doubtful, most doubtful first.

    Two identities are doubtful when the mean of their pairs is above the median score of same pairs. A row is doubtful
    when it is in at least two same pairs and even their best is below what one in twenty different pairs scores; where
    more than one row in twenty is, the scores cannot tell, and no row is called doubtful.

    Parameters
    ----------
    scores : (n,) finite. same : (n,) 0 or 1. rows : (n, 2) row of each side. identities : (n, 2) code of each side.
    """
    values, is_same = np.asarray(scores, dtype=np.float64), np.asarray(same).astype(np.bool_)
    ends, owners = np.asarray(rows), np.asarray(identities)
    no_pairs = np.empty((0, 2), np.int64), np.empty(0, np.int64)
    if is_same.all() or not is_same.any():
        return no_pairs
    typical_same, typical_different = float(np.median(values[is_same])), float(np.median(values[~is_same]))
    if typical_same <= typical_different:
        return no_pairs
    couples, of, counts = np.unique(
        np.sort(owners[~is_same], axis=1), axis=0, return_inverse=True, return_counts=True
    )
    means = np.bincount(of.ravel(), weights=values[~is_same], minlength=counts.size) / counts
    doubtful = np.flatnonzero(means > typical_same)
    double = couples[doubtful[np.argsort(-means[doubtful], kind="stable")]]
    sides, at = np.unique(ends[is_same], return_inverse=True)
    at = at.reshape(-1, 2)
    best = np.full(sides.size, -np.inf)
    n_pairs = np.zeros(sides.size, dtype=np.int64)
    for side in range(2):
        np.maximum.at(best, at[:, side], values[is_same])
        n_pairs += np.bincount(at[:, side], minlength=sides.size)
    wrong = np.flatnonzero((n_pairs >= 2) & (best < float(np.quantile(values[~is_same], 1 - _RARE))))
    if wrong.size > _RARE * sides.size:
        wrong = wrong[:0]
    labels = sides[wrong[np.argsort(best[wrong], kind="stable")]]
    return double.astype(np.int64), labels.astype(np.int64)
