"""Scores as evidence: what calibration of likelihood ratios loses on people who were never seen.

People (digits on MNIST) are divided into three: some train the learner, others fit the map from scores to log
likelihood ratios, and the rest test it. Cllr is in bits: 0 is perfect and 1 is worth nothing; Cllr_min is the least
that a rising map could have on the very test pairs, so their difference is what calibration lost. It holds the chance
of which people calibrate and which test, and Cllr_min looks at the test pairs, so it is never 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._people import SETS, Parts, parts
from benchmarks._verification import in_blocks
from benchmarks.common import Claim, Preset, Result
from pairmark.models import MetricSimilarity, Plda
from pairmark.models.calibration.likelihood_ratios import DEFAULT_METHOD, LikelihoodRatios
from pairmark.models.evaluation.likelihood import likelihood_report
from pairmark.models.pairs.splits import held_out_pairs

N_PAIRS = {"quick": 60_000, "full": 200_000}
REPETITIONS = {"quick": 4, "full": 20}


def run(preset: Preset) -> Result:
    """Measure every set, learner and map over repeated divisions of the people."""
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    for name in SETS:
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for repetition in range(REPETITIONS[preset]):
            people = parts(name, repetition)
            for learner, estimator in (
                ("plda", Plda(protocol="open-set", random_state=repetition)),
                ("whitened cosine", MetricSimilarity(whiten=True)),
            ):
                estimator.fit(*people.train)
                for method, value in _measured(estimator, people, N_PAIRS[preset], repetition).items():
                    found.setdefault((learner, method), []).append(value)
        for (learner, method), values in found.items():
            cllr, least = np.array(values).T
            rows.append(
                {
                    "set": name,
                    "learner": learner,
                    "map": method,
                    "Cllr": float(cllr.mean()),
                    "Cllr_min": float(least.mean()),
                    "lost": float((cllr - least).mean()),
                    "+-": float(2 * (cllr - least).std(ddof=1) / np.sqrt(cllr.size)),
                    "worst": float((cllr - least).max()),
                }
            )
        lost = next(
            row["lost"]
            for row in rows
            if row["set"] == name and row["learner"] == "plda" and row["map"] == DEFAULT_METHOD
        )
        claims.append(
            Claim(
                what=f"{name}: Cllr - Cllr_min of PLDA with the default map, people never seen",
                goal="at most 0.03",
                measured=lost,
                holds=lost <= 0.03,
            )
        )
    return Result(rows=rows, claims=claims, facts={"repetitions": REPETITIONS[preset]})


def _measured(estimator: Any, people: Parts, n_pairs: int, seed: int) -> dict[str, tuple[float, float]]:
    """(Cllr, Cllr_min) of each map on the test people."""
    scored = []
    for X, y in (people.calibration, people.test):
        pairs = held_out_pairs(y, protocol="open-set", n_pairs=n_pairs, random_state=seed)
        scored.append((in_blocks(estimator.pair_score, X, pairs.left, pairs.right), pairs.same, pairs.units))
    ratios = LikelihoodRatios.fit(*scored[0])
    methods = ("logistic", "pav", "own") if isinstance(estimator, Plda) else ("logistic", "pav")
    reported = {method: likelihood_report(ratios, *scored[1], method) for method in methods}
    return {method: (one["cllr"], one["cllr_min"]) for method, one in reported.items()}
