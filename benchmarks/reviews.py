"""Reviews: how often a bound is wrong at some look, and how many judgements it takes.

Populations have just more wrong items than the share asked about: a bound below it at any look is a failure. Beside
ours: a Clopper-Pearson bound of a sample whose size is fixed in advance, the same looked at after every judgement,
ALPHA with a shrunk and truncated alternative (Stark 2023), and the confidence sequence of a uniform prior
(Waudby-Smith and Ramdas 2020).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from benchmarks.common import Claim, Preset, Result
from pairmark.models.reviews.allocation import next_stratum, strata_differ
from pairmark.models.reviews.evidence import Judgements, missed_bound, mixture, next_group
from pairmark.models.reviews.kernels.evidence import log_envelope, log_likelihood, log_numerators

EPS, CONFIDENCE = 0.02, 0.95
NEEDED = -math.log1p(-CONFIDENCE)
GOALS = {0.0: 175, 0.0025: 235, 0.005: 340, 0.01: 700}
ZERO = np.zeros(1, dtype=np.int64)
Bits = NDArray[np.int64]


@numba.njit(cache=True)
def _mixture_path(x: Any, size: Any, shares: Any, log: Any, w: Any, looks: Any) -> Any:
    """log evidence against w wrong items after each judgement."""
    path = np.empty(looks)
    n, s = np.zeros(1, np.int64), np.zeros(1, np.int64)
    zero = np.zeros(1, np.int64)
    for t in range(looks):
        log_numerators(zero, x[t : t + 1], size, n, s, False, shares, log)
        n[0] += 1
        s[0] += x[t]
        top = log.max()
        path[t] = top + math.log(np.exp(log - top).sum()) - log_likelihood(size[0], n[0], s[0], w)
    return path


@numba.njit(cache=True)
def _alpha_path(x: Any, size: Any, w: Any, looks: Any, weight: Any) -> Any:
    """ALPHA for right items: the alternative is shrunk to half of the share asked about, truncated above the null."""
    path = np.empty(looks)
    log, s = 0.0, 0
    for t in range(looks):
        null = 1.0 - (w - s) / (size - t)
        if null >= 1.0:
            path[t] = -np.inf
            continue
        guess = (weight * (1.0 - 0.5 * w / size) + (t - s)) / (weight + t)
        eta = min(max(guess, null + 0.1 * (1.0 - null) / math.sqrt(weight + t)), 1.0 - 1e-9)
        log += math.log((1.0 - eta) / (1.0 - null)) if x[t] else math.log(eta / max(null, 1e-300))
        s += x[t]
        path[t] = log
    return path


@numba.njit(cache=True)
def _uniform_path(x: Any, size: Any, w: Any, looks: Any) -> Any:
    """Prior over posterior of w under a uniform prior of the number of wrong items."""
    path = np.empty(looks)
    s = 0
    for t in range(looks):
        s += x[t]
        n = t + 1
        marginal = math.lgamma(s + 1.0) + math.lgamma(n - s + 1.0) - math.lgamma(n + 2.0)
        path[t] = marginal - log_likelihood(size, n, s, w)
    return path


def ours(x: Bits, w: int, looks: int) -> Any:
    shares, weights = mixture(EPS)
    return _mixture_path(x, np.array([x.size]), shares, np.log(weights), w, looks)


PATHS = {
    "ours": ours,
    "ALPHA, shrunk and truncated": lambda x, w, looks: _alpha_path(x, x.size, w, looks, 100.0),
    "uniform prior": lambda x, w, looks: _uniform_path(x, x.size, w, looks),
}


def worlds(rng: np.random.Generator, size: int, wrong: int) -> dict[str, Bits]:
    """Which decisions of a window are wrong, in order of time."""
    scattered = np.zeros(size, dtype=np.int64)
    scattered[rng.choice(size, wrong, replace=False)] = 1
    drift = np.zeros(size, dtype=np.int64)
    drift[size - wrong - (size - wrong) // 20 :][:wrong] = 1
    wolves = np.zeros(size, dtype=np.int64)
    starts = rng.integers(0, max(1, size - wrong), 1)[0]
    wolves[starts : starts + wrong] = 1
    return {"scattered": scattered, "drift within the window": drift, "one wolf": wolves}


def claim(what: str, goal: str, measured: float, holds: bool) -> Claim:
    return Claim(what=what, goal=goal, measured=measured, holds=holds)


def clopper_pearson(n: int, s: Any) -> Any:
    return beta.ppf(CONFIDENCE, np.asarray(s) + 1, n - np.asarray(s))


def run(preset: Preset) -> Result:
    """Failures first, then judgements."""
    full = preset == "full"
    rng = np.random.default_rng(33)
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    rows += failures(rng, 10_000 if full else 1_000, (300, 3_000, 30_000, 1_000_000))
    large = [row for row in rows if row["population"] >= 30_000]
    n_reviews = 10_000 if full else 1_000
    shares = [row["fails"] for row in rows if row["bound"] in ("ours", "ours, by strata")]
    every, worst = float(np.mean(shares)), max(shares)
    noise = 3 * math.sqrt(0.05 * 0.95 / n_reviews)
    claims.append(
        claim(
            "share of reviews whose bound is wrong at some look, all populations",
            "<= .05",
            every,
            every <= 0.05,
        )
    )
    claims.append(
        claim(
            f"the same, worst of {len(shares)} worlds",
            f"<= .05, and 3 standard errors of {n_reviews:,} reviews: {0.05 + noise:.4f}",
            worst,
            worst <= 0.05 + noise,
        )
    )
    least = min(row["fails"] for row in large if row["bound"].endswith("each judgement"))
    claims.append(
        claim(
            "the same of a Clopper-Pearson bound looked at each time, 30,000 decisions or more, best world",
            "> .05",
            least,
            least > 0.05,
        )
    )
    for size in (2_000, 100_000):
        for share, goal in GOALS.items():
            for name in PATHS:
                needed = np.array([judgements(rng, name, size, share) for _ in range(2_000 if full else 200)])
                rows.append(
                    {
                        "bound": name,
                        "population": size,
                        "true share": share,
                        "judgements": float(needed.mean()),
                        "90 % within": float(np.quantile(needed, 0.9)),
                    }
                )
                if name == "ours" and size == 2_000:
                    claims.append(
                        claim(
                            f"judgements to bound 2 % at a true share of {share:.2%}, population of 2,000",
                            f"<= {goal}",
                            float(needed.mean()),
                            bool(needed.mean() <= goal),
                        )
                    )
            rows.append(
                {
                    "bound": "Clopper-Pearson, size fixed in advance",
                    "population": size,
                    "true share": share,
                    "judgements": fixed_size(share),
                    "90 % within": fixed_size(share),
                }
            )
    runs = 400 if full else 60
    for share in (0.005, 0.01):
        for near in (1.0, 0.85, 0.1):
            needed = np.array([by_strata(rng, 10_000, share, near) for _ in range(runs)])
            plain = np.array([judgements(rng, "ours", 10_000, share) for _ in range(runs)])
            ratio = float(needed.mean() / plain.mean())
            rows.append(
                {
                    "bound": f"ours, by strata, {near:.0%} of what is wrong among the tenth nearest the threshold",
                    "population": 10_000,
                    "true share": share,
                    "judgements": float(needed.mean()),
                    "90 % within": float(np.quantile(needed, 0.9)),
                    "of alike": ratio,
                }
            )
            if share == 0.01:
                limit = 1.05 if near == 0.1 else 0.7
                claims.append(
                    claim(
                        f"judgements by strata to those alike, true share 1 %, {near:.0%} near",
                        f"<= {limit}",
                        ratio,
                        ratio <= limit,
                    )
                )
    missed = np.array([missed_judgements(rng) for _ in range(100 if full else 10)])
    rows.append(
        {
            "bound": "missed matches <= 5 %",
            "population": 6_000,
            "true share": 0.02,
            "judgements": float(missed.mean()),
            "90 % within": float(np.quantile(missed, 0.9)),
        }
    )
    claims.append(
        claim(
            "judgements to bound missed matches by 5 % at true 2 %",
            "<= 500",
            float(missed.mean()),
            bool(missed.mean() <= 500),
        )
    )
    return Result(rows=rows, claims=claims)


def failures(rng: np.random.Generator, runs: int, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """At a true share of 1.5/N above: how often a bound is below it at some look."""
    rows = []
    for size in sizes:
        wrong = math.floor(EPS * size + 1e-9) + 1
        looks = min(size - 1, 1_000)
        n = np.arange(1, looks + 1)
        for world, truth in worlds(rng, size, wrong).items():
            failed = dict.fromkeys([*PATHS, "Clopper-Pearson once", "Clopper-Pearson at each judgement"], 0)
            for _ in range(runs):
                x = truth[rng.choice(size, looks, replace=False)] if size > 30_000 else rng.permutation(truth)
                padded = x if x.size == size else _padded(x, size)
                for name, path in PATHS.items():
                    failed[name] += bool(path(padded, wrong, looks).max() >= NEEDED)
                low = CP[n, np.minimum(np.cumsum(x[:looks]), CP.shape[1] - 1)] < wrong / size
                failed["Clopper-Pearson once"] += bool(low[min(looks, 300) - 1])
                failed["Clopper-Pearson at each judgement"] += bool(low.any())
            rows += [
                {"bound": name, "population": size, "world": world, "fails": count / runs}
                for name, count in failed.items()
            ]
    wrong_near = [
        int(by_strata(rng, 3_000, (math.floor(EPS * 3_000) + 1) / 3_000, near, most=600) < 600)
        for near in (0.1, 0.5, 1.0)
        for _ in range(runs // 3)
    ]
    rows.append(
        {
            "bound": "ours, by strata",
            "population": 3_000,
            "world": "near and far",
            "fails": float(np.mean(wrong_near)),
        }
    )
    return rows


def _padded(x: Bits, size: int) -> Bits:
    # Only the drawn ones are looked at; the rest makes the size right.
    return np.concatenate([x, np.zeros(size - x.size, dtype=np.int64)])


CP = np.array([[clopper_pearson(n, s) if s < n else 1.0 for s in range(60)] for n in range(1_001)])


def judgements(rng: np.random.Generator, name: str, size: int, share: float) -> int:
    """Judgements until the bound is at most 2 %."""
    truth = np.zeros(size, dtype=np.int64)
    truth[: round(share * size)] = 1
    allowed = math.floor(EPS * size + 1e-9)
    looks = min(size - 2 * allowed, 20_000)
    path = PATHS[name](rng.permutation(truth), allowed + 1, looks)
    enough = np.flatnonzero(path >= NEEDED)
    return int(enough[0]) + 1 if enough.size else looks


def fixed_size(share: float) -> int:
    """The sample that has to be planned so that its bound is at most 2 % in nine cases of ten."""
    for n in range(140, 20_000, 5):
        most = int(np.searchsorted(clopper_pearson(n, np.arange(n // 20)), EPS, side="right")) - 1
        if most >= 0 and binom.cdf(most, n, share) >= 0.9:
            return n
    return 20_000


def by_strata(rng: np.random.Generator, size: int, share: float, near: float, most: int = 10**9) -> int:
    """Judgements until the bound is at most 2 %, of draws that follow the strata; ``most`` where it is not by then."""
    sizes = np.array([size // 10, size - size // 10])
    labels = np.repeat(np.arange(2), sizes)
    wrong = round(share * size)
    in_near = round(near * wrong)
    truth = np.zeros(size, dtype=np.int64)
    truth[:in_near] = 1
    truth[sizes[0] : sizes[0] + wrong - in_near] = 1
    order = rng.permutation(size)
    queues = [list(order[labels[order] == h][::-1]) for h in range(2)]
    allowed = math.floor(EPS * size + 1e-9)
    shares, weights = mixture(EPS)
    log, near_log, whole = np.log(weights), None, np.array([size])
    n, s, later_n, later_s = (np.zeros(2, dtype=np.int64) for _ in range(4))
    first = np.zeros(2, dtype=np.int64)
    drawn: set[int] = set()
    for t in range(min(size, most)):
        if near_log is None and strata_differ(n, s):
            near_log = log + math.log(0.5)
            log, rest = near_log.copy(), sizes - n
        if near_log is None:
            item = int(order[t])
            x = truth[item : item + 1]
            log_numerators(ZERO, x, whole, first[:1], first[1:], False, shares, log)
            first += (1, x[0])
        else:
            queue = queues[next_stratum(sizes, n, s, EPS)]
            while (item := int(queue.pop())) in drawn:
                pass
            x, of = truth[item : item + 1], labels[item : item + 1]
            log_numerators(of, x, sizes, n, s, True, shares, log)
            log_numerators(of, x, sizes, n, s, False, shares, near_log)
            later_n[of[0]] += 1
            later_s[of[0]] += x[0]
        drawn.add(item)
        n[labels[item]] += 1
        s[labels[item]] += x[0]
        value = log_envelope(whole, first[:1], first[1:], allowed + 1)
        every = log
        if near_log is not None:
            value += log_envelope(rest, later_n, later_s, allowed + 1 - int(first[1]))
            every = np.concatenate([log, near_log])
        if value < np.logaddexp.reduce(every) - NEEDED:
            return t + 1
    return min(size, most)


def missed_judgements(rng: np.random.Generator, most: int = 3_000) -> int:
    """Judgements until at most 5 % of same pairs are missed: 3,000 matches, 3,000 others of which 61 are the same, nine
    tenths of them among the 300 that score highest."""
    matched, different = np.zeros(3_000, dtype=np.int64), np.zeros(3_000, dtype=np.int64)
    matched[rng.choice(3_000, 30, replace=False)] = 1
    different[rng.choice(300, 55, replace=False)] = 1
    different[300 + rng.choice(2_700, 6, replace=False)] = 1
    queues = [
        rng.permutation(3_000).tolist(),
        rng.permutation(300).tolist(),
        (300 + rng.permutation(2_700)).tolist(),
    ]
    of: list[tuple[list[int], list[int]]] = [([], []), ([], [])]
    for t in range(most):
        first = Judgements.of([3_000], *of[0], 0)
        second = Judgements.of([300, 2_700], *of[1], 0)
        if t >= 100 and t % 10 == 0 and missed_bound(first, second, 0.05, CONFIDENCE) <= 0.05:
            return t
        is_match, stratum = next_group(first, second, 0.05)
        item = queues[0 if is_match else 1 + stratum].pop()
        of[not is_match][0].append(stratum)
        of[not is_match][1].append(int((matched if is_match else different)[item]))
    return most
