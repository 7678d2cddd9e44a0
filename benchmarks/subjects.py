"""Several samples a person: strangers verified by templates, and the promise on templates.

*Verification.* Half of the people train, the other half's pairs test, over splits: keystrokes (56 people, 51 samples of
71 numbers each), faces (38 people under some 64 lights each: enrolled and probed under different lights), and digits
never met (of MNIST's ten digits six train and four are the "people"). A person is enrolled with the first 1, 5 or 10
samples of a random order and probed with single samples of the rest: same pairs within a draw, different pairs between
any two people. Exact PLDA on all samples stands beside simple rules on the same PLDA, cosine of mean vectors, XGBoost's
mean and best score, and PLDA written by hand with fixed shrinkage; for images, the last two see 100 principal
components. Reported: the false non-match rate (FNMR) at false match rates (FMR) of 1e-2 and 1e-3, and the equal error
rate. A split's figures move together, so contestants are compared split by split: the interval is that of the mean
difference, by Student's t.

*The promise.* In each world people differ by more than the model believes: their spread, their number of samples, and
in one world 3 % of them match everybody. Templates of k enrolled samples meet single probes, drawn by
`pairmark.models.pairs.subjects.subject_pairs`; a calibration of 120 people answers 10 %, and fails where the true rate,
from 2,000 fresh people, is higher. Allowed: 5 % and Monte-Carlo error (99.9 %).

What a decision and a search cost is in `benchmarks.subject_costs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import binom
from scipy.stats import t as student
from sklearn.decomposition import PCA
from sklearn.preprocessing import QuantileTransformer
from threadpoolctl import threadpool_limits

from benchmarks import _people
from benchmarks._verification import boosted, in_blocks, rates
from benchmarks.common import Claim, Parts, Preset, Result
from pairmark.models import Plda
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.core.subjects import SampleSets
from pairmark.models.pairs.subjects import subject_pairs

FMR = (1e-2, 1e-3)
ENROLLED = (1, 5, 10)
EXACT = "pairmark: PLDA, exact"
MEASURES = ("FNMR at FMR 1e-2", "FNMR at FMR 1e-3", "EER")
GOALS = {5: (0.28, 0.58, None), 10: (0.24, 0.55, 0.058)}
PROBES = 20


@dataclass(frozen=True, kw_only=True)
class People:
    """A set of people.

    Attributes
    ----------
    read : a split's number -> rows and whose they are. train : how many people train. draws : templates a person.
    components : principal components that XGBoost and PLDA by hand see; None: all features.
    """

    read: Callable[[int], tuple[np.ndarray, np.ndarray]] = field(repr=False)
    train: int
    draws: int
    components: int | None = None


SETS = {
    "keystroke": People(read=lambda split: _people.keystroke(), train=28, draws=10),
    "faces": People(read=lambda split: _people.faces(), train=19, draws=6, components=100),
    "digits never met": People(
        read=lambda split: _people.mnist(2_500, np.random.default_rng([split, 9])),
        train=6,
        draws=24,
        components=100,
    ),
}


def run(preset: Preset) -> Result:
    """Quick: half the templates a person, 4 splits of images, 100 calibrations a world. Full: 10 splits, 400."""
    parts = Parts("subjects", preset)
    quick = preset == "quick"
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    with threadpool_limits(1):
        for name, people in SETS.items():
            n_splits = 4 if quick and name != "keystroke" else 10
            draws = people.draws // 2 if quick else people.draws
            found = [
                parts.get(
                    f"{name} {split}",
                    lambda name=name, split=split, draws=draws: verified(SETS[name], split, draws),
                )
                for split in range(n_splits)
            ]
            some_rows, some_claims = _of_people(name, found)
            rows += some_rows
            claims += some_claims
        promises = [
            parts.get(f"{name} {k}", lambda name=name, k=k: promise(name, k, 100 if quick else 400))
            for name in WORLDS
            for k in (1, 10)
        ]
    parts.forget()
    return Result(rows=rows, claims=[*claims, *_of_promises(promises)], facts={"promises": promises})


# ---------------------------------------------------------------- verification


def verified(people: People, split: int, draws: int) -> dict[str, list[float]]:
    """One split: contestant and enrolled samples -> FNMR at both rates, EER."""
    X, y = people.read(split)
    random = np.random.default_rng(split)
    order = random.permutation(y.max() + 1)
    train = np.isin(y, order[: people.train])
    A, B = X[train], X[~train]
    who = np.unique(y[~train], return_inverse=True)[1]
    enrolled, probes, of_probe = _draws(who, draws, PROBES, random)
    n = enrolled.shape[0]
    template, probe = np.meshgrid(np.arange(n), np.arange(probes.size), indexing="ij")
    same_person = (np.arange(n) // draws)[:, None] == (of_probe // draws)[None, :]
    kept = ~same_person | (np.arange(n)[:, None] == of_probe[None, :])
    template, probe, same = template[kept], probe[kept], same_person[kept]
    curve = QuantileTransformer(n_quantiles=500, output_distribution="normal", random_state=0).fit(A)
    normal = curve.transform(B).astype(np.float32)
    plda = Plda(protocol="open-set", random_state=0).fit(A, y[train])
    seen_A, seen_B, hand_A, hand_B = A, B, curve.transform(A), normal
    if people.components is not None:
        axes = PCA(people.components, random_state=0).fit(A)
        seen_A, seen_B = (axes.transform(one).astype(np.float32) for one in (A, B))
        hand_A, hand_B = seen_A, seen_B
    hand = _by_hand(hand_A, y[train])
    trees = boosted(
        seen_A, y[train], n_pairs=100_000, n_trees=150, depth=6, seed=split,
        learning_rate=0.1, colsample_bytree=0.3, subsample=0.5,
    )  # fmt: skip
    singles = np.unique(enrolled)
    between = np.searchsorted(singles, enrolled)
    grids = {
        "PLDA": plda.score_against(B[singles], B[probes]),
        "XGBoost": _grid(trees, seen_B, singles, probes),
    }
    unit = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    probe_sets = plda.subjects([row[None] for row in B[probes]])
    found: dict[str, list[float]] = {}
    for k in ENROLLED:
        sets = plda.subjects([B[rows[:k]] for rows in enrolled])
        mean = normal[enrolled[:, :k]].mean(axis=1)
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        scores = {
            EXACT: np.stack([plda.subject_score(sets.take(np.array([at])), probe_sets) for at in range(n)]),
            "PLDA by hand": hand(hand_B[enrolled[:, :k]], hand_B[probes]),
            "PLDA of the mean vector": plda.score_against(B[enrolled[:, :k]].mean(axis=1), B[probes]),
            "cosine of the mean vector": mean @ unit[probes].T,
        }
        for name, grid in grids.items():
            some = grid[between[:, :k]]
            scores[f"{name}, mean of scores"] = some.mean(axis=1)
            scores[f"{name}, best score"] = some.max(axis=1)
        scores["PLDA, median of scores"] = np.median(grids["PLDA"][between[:, :k]], axis=1)
        for name, grid in scores.items():
            got = rates(np.asarray(grid, dtype=np.float32)[template, probe], same, FMR)
            found[f"{name}|{k}"] = [*(1.0 - tpr for tpr in got.tpr), got.eer]
    return found


def _draws(
    who: np.ndarray, draws: int, n_probes: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows enrolled, (people * draws, 10); probes; and the draw that each probe is of."""
    enrolled, probes, of = [], [], []
    for person in range(who.max() + 1):
        rows = np.flatnonzero(who == person)
        for draw in range(draws):
            order = random.permutation(rows)
            enrolled.append(order[:10])
            probes.append(order[10 : 10 + n_probes])
            of.append(np.full(n_probes, person * draws + draw))
    return np.array(enrolled), np.concatenate(probes), np.concatenate(of)


def _grid(score: Any, X: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    unique, place = np.unique(right, return_inverse=True)
    a, b = np.repeat(left, unique.size), np.tile(unique, left.size)
    return in_blocks(score, X, a, b).reshape(left.size, unique.size)[:, place]


def _by_hand(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The two-covariance model with fixed shrinkage, as a page of NumPy."""
    from scipy.linalg import eigh

    codes = np.unique(y, return_inverse=True)[1]
    centre = X.mean(axis=0)
    means = np.stack([X[codes == c].mean(axis=0) for c in range(codes.max() + 1)])
    d = X.shape[1]
    within = np.cov((X - means[codes]).T)
    between = np.cov(means.T) - within / (X.shape[0] / means.shape[0])
    within = 0.7 * within + 0.3 * np.trace(within) / d * np.eye(d)
    between = 0.9 * between + 0.1 * max(np.trace(between), 1e-6) / d * np.eye(d)
    psi, axes = eigh(between, within)
    psi = np.maximum(psi, 0)

    def score(enrolled: np.ndarray, probes: np.ndarray) -> np.ndarray:
        k = enrolled.shape[1]
        mean = (enrolled.mean(axis=1) - centre) @ axes * (k * psi / (k * psi + 1))
        variance = psi / (k * psi + 1) + 1
        z = (probes - centre) @ axes
        apart = ((z * z) @ (1 / variance))[None] - 2 * (mean / variance) @ z.T
        apart += (mean * mean) @ (1 / variance)[:, None] - ((z * z) @ (1 / (psi + 1)))[None]
        return -0.5 * (apart + np.log(variance / (psi + 1)).sum())

    return score


def _of_people(people: str, found: list[dict[str, list[float]]]) -> tuple[list[dict[str, Any]], list[Claim]]:
    table = {name: np.array([split[name] for split in found]) for name in found[0]}
    rows = [
        {
            "set": people,
            "contestant": name.partition("|")[0],
            "enrolled": int(name.partition("|")[2]),
            **dict(zip(MEASURES, values.mean(axis=0).tolist(), strict=True)),
            "splits": len(values),
        }
        for name, values in sorted(table.items(), key=lambda one: int(one[0].partition("|")[2]))
    ]
    claims = []
    for k, goals in GOALS.items() if people == "keystroke" else ():
        for what, value, goal in zip(MEASURES, table[f"{EXACT}|{k}"].mean(axis=0), goals, strict=True):
            if goal is not None:
                claims.append(
                    Claim(
                        what=f"{people}, {k} enrolled: {what}",
                        goal=f"at most {goal:g}",
                        measured=float(value),
                        holds=bool(value <= goal),
                    )
                )
    for k in ENROLLED:
        for at, what in enumerate(MEASURES):
            others = {
                name: values for name, values in table.items() if name.endswith(f"|{k}") and EXACT not in name
            }
            best = min(others, key=lambda name: others[name][:, at].mean())
            apart = table[f"{EXACT}|{k}"][:, at] - others[best][:, at]
            reach = float(student.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / np.sqrt(len(apart)))
            claims.append(
                Claim(
                    what=f"{people}, {k} enrolled: {what} less that of the best rule ({best.partition('|')[0]})",
                    goal=f"not above 0 by more than its interval, +-{reach:.4f}",
                    measured=float(apart.mean()),
                    holds=bool(apart.mean() <= reach),
                )
            )
    return rows, claims


# ---------------------------------------------------------------- the promise

WIDTH, PEOPLE, RATE = 6, 120, 0.1
WORLDS = ("alike", "uneven spread and counts", "wolves")


def _world(name: str, n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows and whose they are; everybody has at least 11."""
    centres = random.normal(size=(n, WIDTH))
    spread, counts = np.ones(n), np.full(n, 12)
    if name != "alike":
        spread = np.exp(0.5 * random.normal(size=n))
        # Who types unevenly has given more samples.
        counts = np.clip(np.round(11 + 10 * spread * random.random(n)), 11, 40).astype(int)
    if name == "wolves":
        wolves = random.random(n) < 0.03
        centres[wolves] *= 0.05
        spread[wolves] = 0.1
    who = np.repeat(np.arange(n), counts)
    return centres[who] + 0.8 * spread[who, None] * random.normal(size=(who.size, WIDTH)), who


def _scored(model: Plda, name: str, n: int, k: int, n_pairs: int, random: np.random.Generator) -> Any:
    X, who = _world(name, n, random)
    pairs = subject_pairs(who, k, 1, n_pairs=n_pairs, random_state=int(random.integers(2**31)))
    sets = SampleSets(rows=X.astype(np.float32), index=pairs.index, counts=pairs.counts)
    ready = model._prepared_subjects(sets, "plda")
    scores = model._subject_score(ready.take(pairs.left), ready.take(pairs.right), "plda")
    return scores, pairs


def promise(name: str, k: int, n: int) -> dict[str, Any]:
    """How often a calibration of templates of k samples fails in a world, and how much of the rate it uses."""
    random = np.random.default_rng([20_261_122, k, WORLDS.index(name)])
    X, y = _world("alike", 200, random)
    model = Plda(marginals="raw", length_norm=False, shrink_within=0.05, shrink_between=0.05).fit(X, y)
    scores, pairs = _scored(model, name, 2_000, k, 4_000_000, random)
    truth = np.sort(scores[~pairs.same])
    used, refused, tpr = [], 0, []
    for draw in range(n):
        some = np.random.default_rng([7, draw, k])
        scores, pairs = _scored(model, name, PEOPLE, k, 20_000, some)
        made = Calibration.fit(
            scores,
            pairs.same,
            pairs.units,
            protocol="open-set",
            random_state=draw,
            n_replicates=1_000,
            n_jobs=1,
        )
        try:
            point = made.operating_point(RATE)
        except InsufficientCalibrationData:
            refused += 1
            continue
        above = truth.size - np.searchsorted(truth, np.float32(point.threshold), side="right")
        used.append(above / truth.size / RATE)
        tpr.append(point.tpr)
    return {
        "world": name,
        "enrolled": k,
        "calibrations": n,
        "refused": refused,
        "failed": float(np.mean(np.array(used) > 1)),
        "median rate over asked": float(np.median(used)),
        "median TPR": float(np.median(tpr)),
        "most allowed": float(binom.ppf(0.999, n, 0.05) / n),
    }


def _of_promises(found: list[dict[str, Any]]) -> list[Claim]:
    claims = [
        Claim(
            what=f"promise of 10 %, {one['world']}, {one['enrolled']} enrolled: calibrations that fail",
            goal=f"at most 5 % and Monte-Carlo error, {one['most allowed']:.3f}",
            measured=one["failed"],
            holds=one["failed"] <= one["most allowed"] and not one["refused"],
        )
        for one in found
    ]
    for world in WORLDS:
        one, ten = (
            next(two for two in found if two["world"] == world and two["enrolled"] == k) for k in (1, 10)
        )
        claims.append(
            Claim(
                what=f"{world}: share of the promised rate used with 10 enrolled less that with 1 (medians)",
                goal="at least -.03: the bound is not looser",
                measured=ten["median rate over asked"] - one["median rate over asked"],
                holds=ten["median rate over asked"] - one["median rate over asked"] >= -0.03,
            )
        )
    return claims
