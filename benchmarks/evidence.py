"""Scores as evidence on people who were never seen: likelihood ratios.

People (digits on MNIST) are divided into three: some train the learner, others fit the map from scores to log
likelihood ratios, and the rest test it. Cllr is in bits: 0 is perfect and 1 is worth nothing; Cllr_min is the least
that a rising map could have on the very test pairs, so their difference is what calibration lost. It holds the chance
of which people calibrate and which test, and Cllr_min looks at the test pairs, so it is never 0.

``pav, by pairs`` is the same map with values that as many pairs could show, had they nobody in common: no people show
that much. How much Cllr the default map loses against it is the price of claiming no more than people can show.

Repetitions divide the people anew, so their test people overlap, and intervals (Student's t over repetitions, of the
mean or of the paired difference) are somewhat too short.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from benchmarks import _people
from benchmarks.common import Claim, Parts, Preset, Result
from pairmark.models import MetricSimilarity, Plda
from pairmark.models.calibration.likelihood_ratios import (
    DEFAULT_METHOD,
    LikelihoodRatios,
    by_score,
    pool_adjacent,
)
from pairmark.models.evaluation.likelihood import likelihood_report
from pairmark.models.pairs.samples import pair_sample
from pairmark.models.pairs.splits import held_out_pairs

N_PAIRS = {"quick": 40_000, "full": 100_000}
LOST = 0.03
PRICE = 0.02
REPETITIONS = {
    "quick": {"keystroke": 4, "faces": 2, "digits never met": 3},
    "full": {"keystroke": 20, "faces": 8, "digits never met": 12},
}
"""How often the people of a set are divided."""


def run(preset: Preset) -> Result:
    """Quick: few divisions. Full: up to 20."""
    size = "full" if preset == "full" else "quick"
    repetitions, n_pairs = REPETITIONS[size], N_PAIRS[size]
    parts = Parts("evidence", f"{size} {repetitions} {n_pairs}")
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    with threadpool_limits(1):
        for name, n in repetitions.items():
            divisions = [
                parts.get(
                    f"{name}, {repetition}",
                    lambda name=name, repetition=repetition: _costs(name, repetition, n_pairs),
                )
                for repetition in range(n)
            ]
            rows_of_set, claims_of_set = _of_ratios(name, divisions)
            rows += rows_of_set
            claims += claims_of_set
    parts.forget()
    return Result(rows=rows, claims=claims, facts={"repetitions": repetitions, "pairs": n_pairs})


Found = dict[str, list[float]]


def _reach(values: np.ndarray) -> float:
    return float(student.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))


def _costs(name: str, repetition: int, n_pairs: int) -> Found:
    """Cllr and Cllr_min on the test people, by learner and map."""
    people = _people.parts(name, repetition)
    found: Found = {}
    for learner, estimator in (
        ("plda", Plda(protocol="open-set", random_state=repetition)),
        ("whitened cosine", MetricSimilarity(whiten=True)),
    ):
        estimator.fit(*people.train)
        scored = []
        for X, y in (people.calibration, people.test):
            pairs = held_out_pairs(y, protocol="open-set", n_pairs=n_pairs, random_state=repetition)
            scored.append((estimator.score_pairs(X, pairs.left, pairs.right), pairs.same, pairs.units))
        ratios = LikelihoodRatios.fit(*scored[0])
        for method in ("logistic", "pav", "own") if learner == "plda" else ("logistic", "pav"):
            reported = likelihood_report(ratios, *scored[1], method)
            found[f"{learner}|{method}"] = [reported["cllr"], reported["cllr_min"]]
        reported = likelihood_report(_by_pairs(ratios, *scored[0]), *scored[1], "pav")
        found[f"{learner}|pav, by pairs"] = [reported["cllr"], reported["cllr_min"]]
    return found


def _by_pairs(
    ratios: LikelihoodRatios, scores: ArrayLike, same: ArrayLike, units: ArrayLike
) -> LikelihoodRatios:
    """The PAV map, cut off where that many pairs of people show no more."""
    sample = pair_sample(scores, same, units)
    distinct, mine, theirs = by_score(sample.same, sample.different)
    low, high = (math.log(side.edge_units.shape[0] + 1) for side in (sample.same, sample.different))
    return replace(ratios, pav_scores=distinct, pav_values=np.clip(pool_adjacent(mine, theirs), -low, high))


def _of_ratios(name: str, found: list[Found]) -> tuple[list[dict[str, Any]], list[Claim]]:
    rows, claims = [], []
    for key in found[0]:
        learner, method = key.split("|")
        cllr, least = np.array([one[key] for one in found]).T
        lost = cllr - least
        rows.append(
            {
                "set": name,
                "what": "Cllr, bits",
                "learner": learner,
                "form": f"map {method}, less Cllr_min",
                "measured": float(cllr.mean()),
                "difference": float(lost.mean()),
                "+-": _reach(lost),
                "worst": float(lost.max()),
                "divisions": int(lost.size),
            }
        )
        if learner == "plda" and method == DEFAULT_METHOD:
            claims.append(
                Claim(
                    what=f"{name}: Cllr - Cllr_min of PLDA with the default map, people never seen",
                    goal=f"at most {LOST:g} (mean of {lost.size} divisions, +-{_reach(lost):.3f})",
                    measured=float(lost.mean()),
                    holds=bool(lost.mean() <= LOST),
                )
            )
            price = cllr - np.array([one[f"{key}, by pairs"][0] for one in found])
            claims.append(
                Claim(
                    what=f"{name}: Cllr of PLDA, price of claiming no more than people can show",
                    goal=f"at most {PRICE:g} (mean of {price.size} divisions, +-{_reach(price):.3f})",
                    measured=float(price.mean()),
                    holds=bool(price.mean() <= PRICE),
                )
            )
    return rows, claims
