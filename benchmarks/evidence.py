"""Scores as evidence on people who were never seen: likelihood ratios, cohort normalisation, fusion.

*Likelihood ratios.* People (digits on MNIST) are divided into three: some train the learner, others fit the map from
scores to log likelihood ratios, and the rest test it. Cllr is in bits: 0 is perfect and 1 is worth nothing; Cllr_min is
the least that a rising map could have on the very test pairs, so their difference is what calibration lost. It holds
the chance of which people calibrate and which test, and Cllr_min looks at the test pairs, so it is never 0.

*Cohort normalisation and fusion.* The first two parts train, the third tests: what normalisation changes, chosen by
itself (`auto`) and forced; and a fusion beside each of its learners alone. The figure is the true positive rate, the
mean over false positive rates of .1, .03, .01 and .003. PLDA has fixed settings there, as its own choice of settings
would be repeated on each of eight folds.

Repetitions divide the people anew, so their test people overlap, and intervals (Student's t over repetitions, of the
mean or of the paired difference) are somewhat too short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from benchmarks import _people
from benchmarks._verification import rates
from benchmarks.common import Claim, Parts, Preset, Result
from pairmark.models import CohortSimilarity, Fusion, MetricSimilarity, Plda, SimilarityForest
from pairmark.models.calibration.likelihood_ratios import DEFAULT_METHOD, LikelihoodRatios
from pairmark.models.evaluation.likelihood import likelihood_report
from pairmark.models.evaluation.validation import JUDGED_FPR
from pairmark.models.pairs.splits import held_out_pairs

N_PAIRS = {"quick": 40_000, "full": 100_000}
LOST = 0.03
FIXED = {"marginals": "normal", "length_norm": True, "shrink_within": 0.3, "shrink_between": 0.1}
PLDA = {"learner": "plda", "params": {**FIXED, "n_components": 128}}
WHITENED = {"learner": "metric", "params": {"whiten": True}}
FOREST = {"learner": "similarity-forest", "params": {"n_estimators": 20, "n_pairs": 20_000}}
COSINE = {"learner": "metric", "params": {}}
NORMALISED = {
    "keystroke": {"cosine": COSINE, "whitened cosine": WHITENED, "plda": PLDA},
    "faces": {"cosine": COSINE, "whitened cosine": WHITENED},
    "digits never met": {"cosine": COSINE, "whitened cosine": WHITENED},
}
FUSED = {
    "keystroke": {"plda": PLDA, "forest": FOREST},
    "faces": {"plda": PLDA, "whitened cosine": WHITENED},
}
LEARNERS: dict[str, Callable[..., Any]] = {
    "plda": Plda,
    "metric": MetricSimilarity,
    "similarity-forest": SimilarityForest,
}
REPETITIONS = {
    "quick": {
        "ratios": {"keystroke": 4, "faces": 2, "digits never met": 3},
        "cohort": {"keystroke": 3},
        "fusion": {"keystroke": 2},
    },
    "full": {
        "ratios": {"keystroke": 20, "faces": 8, "digits never met": 12},
        "cohort": {"keystroke": 10, "faces": 6, "digits never met": 8},
        "fusion": {"keystroke": 8, "faces": 4},
    },
}
"""How often the people of a set are divided, by what is measured."""


def run(preset: Preset) -> Result:
    """Quick: few divisions, faces for likelihood ratios only. Full: up to 20 divisions."""
    size = "full" if preset == "full" else "quick"
    repetitions, n_pairs = REPETITIONS[size], N_PAIRS[size]
    parts = Parts("evidence", f"{size} {repetitions} {n_pairs}")
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    measures = (
        ("ratios", _lost, _of_ratios),
        ("cohort", _cohort, _of_cohort),
        ("fusion", _fusion, _of_fusion),
    )
    with threadpool_limits(1):
        for what, measure, described in measures:
            for name, n in repetitions[what].items():
                found = [
                    parts.get(
                        f"{what}, {name}, {repetition}",
                        lambda measure=measure, name=name, repetition=repetition: measure(
                            name, repetition, n_pairs
                        ),
                    )
                    for repetition in range(n)
                ]
                some_rows, some_claims = described(name, found)
                rows += some_rows
                claims += some_claims
    parts.forget()
    return Result(rows=rows, claims=claims, facts={"repetitions": repetitions, "pairs": n_pairs})


Found = dict[str, list[float]]


def _row(
    name: str, what: str, learner: str, form: str, values: np.ndarray, apart: np.ndarray
) -> dict[str, Any]:
    return {
        "set": name,
        "what": what,
        "learner": learner,
        "form": form,
        "measured": float(values.mean()),
        "difference": float(apart.mean()),
        "+-": _reach(apart),
        "worst": float(apart.max() if what == "Cllr, bits" else apart.min()),
        "divisions": int(values.size),
    }


def _reach(values: np.ndarray) -> float:
    return float(student.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size))


# ---------------------------------------------------------------- likelihood ratios


def _lost(name: str, repetition: int, n_pairs: int) -> Found:
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
    return found


def _of_ratios(name: str, found: list[Found]) -> tuple[list[dict[str, Any]], list[Claim]]:
    rows, claims = [], []
    for key in found[0]:
        learner, method = key.split("|")
        cllr, least = np.array([one[key] for one in found]).T
        rows.append(_row(name, "Cllr, bits", learner, f"map {method}, less Cllr_min", cllr, cllr - least))
        if learner == "plda" and method == DEFAULT_METHOD:
            lost = cllr - least
            claims.append(
                Claim(
                    what=f"{name}: Cllr - Cllr_min of PLDA with the default map, people never seen",
                    goal=f"at most {LOST:g} (mean of {lost.size} divisions, +-{_reach(lost):.3f})",
                    measured=float(lost.mean()),
                    holds=bool(lost.mean() <= LOST),
                )
            )
    return rows, claims


# ---------------------------------------------------------------- cohorts and fusion


def _two_parts(name: str, repetition: int) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Rows and identities that train, of the first two parts, and those of the test people."""
    people = _people.parts(name, repetition)
    return (
        np.concatenate([people.train[0], people.calibration[0]]),
        np.concatenate([people.train[1], people.calibration[1]]),
        people.test,
    )


def _mean_tpr(estimator: Any, test: tuple[np.ndarray, np.ndarray], n_pairs: int, seed: int) -> float:
    X, y = test
    pairs = held_out_pairs(y, protocol="open-set", n_pairs=n_pairs, random_state=seed)
    scores = estimator.score_pairs(X, pairs.left, pairs.right)
    return float(np.mean(rates(scores, pairs.same, JUDGED_FPR).tpr))


def _cohort(name: str, repetition: int, n_pairs: int) -> Found:
    """Mean TPR without, with what was chosen, and with either way forced; and whether one was chosen."""
    X, y, test = _two_parts(name, repetition)
    found: Found = {}
    for learner, given in NORMALISED[name].items():
        values = []
        chosen = ""
        for how in ("none", "auto", "s", "adaptive-s"):
            model = CohortSimilarity(
                learner=given["learner"],
                learner_params=given["params"],
                normalisation=how,
                protocol="open-set",
                random_state=repetition,
            ).fit(X, y)
            chosen = model.normalisation_ if how == "auto" else chosen
            values.append(_mean_tpr(model, test, n_pairs, repetition))
        found[learner] = [*values, float(chosen != "none")]
    return found


def _of_cohort(name: str, found: list[Found]) -> tuple[list[dict[str, Any]], list[Claim]]:
    rows, claims = [], []
    for learner in found[0]:
        plain, auto, s, adaptive, chosen = np.array([one[learner] for one in found]).T
        share = f"chosen in {int(chosen.sum())} of {chosen.size}"
        for form, values in (
            ("none", plain), (f"auto: {share}", auto), ("s, forced", s), ("adaptive-s, forced", adaptive),
        ):  # fmt: skip
            rows.append(_row(name, "cohort, mean TPR", learner, form, values, values - plain))
        apart = auto - plain
        claims.append(
            Claim(
                what=f"{name}, {learner}: mean TPR with cohort normalisation as chosen ({share}), less that without",
                goal=f"not below 0 by more than its interval, +-{_reach(apart):.3f}",
                measured=float(apart.mean()),
                holds=bool(apart.mean() >= -_reach(apart)),
            )
        )
    return rows, claims


def _fusion(name: str, repetition: int, n_pairs: int) -> Found:
    """Mean TPR of each learner alone and of both as one."""
    X, y, test = _two_parts(name, repetition)
    found: Found = {}
    for learner, given in FUSED[name].items():
        known = {} if given["learner"] == "metric" else {"random_state": repetition}
        model = LEARNERS[given["learner"]](**given["params"], **known).fit(X, y)
        found[learner] = [_mean_tpr(model, test, n_pairs, repetition)]
    fused = Fusion(
        models=list(FUSED[name].values()), keep="always", protocol="open-set", random_state=repetition
    ).fit(X, y)
    gain, error = fused.rates_["gain"], fused.rates_["standard_error"]
    value = _mean_tpr(fused, test, n_pairs, repetition)
    best = list(FUSED[name])[fused.rates_["best"]]
    found["fused, always"] = [value]
    # What keep="if-better" does, without learning everything again.
    found["fused, if better"] = [value if gain > error else found[best][0]]
    return found


def _of_fusion(name: str, found: list[Found]) -> tuple[list[dict[str, Any]], list[Claim]]:
    table = {key: np.array([one[key][0] for one in found]) for key in found[0]}
    best = max(FUSED[name], key=lambda key: float(table[key].mean()))
    rows, claims = [], []
    for key, values in table.items():
        learner = key if key in FUSED[name] else " and ".join(FUSED[name])
        form = "alone" if key in FUSED[name] else key
        rows.append(_row(name, "fusion, mean TPR", learner, form, values, values - table[best]))
        if key not in FUSED[name]:
            apart = values - table[best]
            claims.append(
                Claim(
                    what=f"{name}, {' and '.join(FUSED[name])}: mean TPR {key}, less that of the best alone, {best}",
                    goal=f"not below 0 by more than its interval, +-{_reach(apart):.3f}",
                    measured=float(apart.mean()),
                    holds=bool(apart.mean() >= -_reach(apart)),
                )
            )
    return rows, claims
