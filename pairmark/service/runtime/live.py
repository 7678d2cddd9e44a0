"""The live check: whether live scores look like those of the calibration.

Live pairs are same and different in a proportion nobody knows. If their scores come from where calibration's came
from, then above every threshold t lies a share pi TPR(t) + (1 - pi) FPR(t), with one pi for all t. The distance is how
far the live shares stay from the nearest such mixture, over `LEVELS` thresholds, beyond what the calibration's own
size leaves open; the alarm rule is that it exceeds what a window of live scores leaves open.

By Hoeffding's inequality (1963) with a union over thresholds for the live side, and for calibration's two rates by the
Dvoretzky-Kiefer-Wolfowitz inequality over the independent blocks that a U-statistic averages, a window of scores that
are mixtures of calibration's alarms with a chance of at most `FALSE_ALARM`, whatever the distributions.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.arrays import Float64
from pairmark.service.errors import PairmarkError
from pairmark.service.runtime.versions import LoadedVersion

FALSE_ALARM = 0.01
"""Bound on the chance that a window of scores like calibration's raises the alarm."""
WINDOW = 1_000
"""Independent scores in a window, at least. Rows that meet one vector (1:n) share it and count as one together."""
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
"""Rates, false and true positive, whose thresholds are watched."""
PICKED = 4_096
"""Most scores of one request that are counted, evenly picked, so that a batch of a million costs no more."""
MAX_WATCHED = 256
MAX_RATES = 16


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What calibration says of each watched threshold.

    Attributes
    ----------
    edges : ascending thresholds.
    different, same : shares of different and of same pairs above each.
    different_margin, same_margin : how far the shares can be from the true ones.
    """

    edges: Float64
    different: Float64
    same: Float64
    different_margin: float
    same_margin: float

    @classmethod
    def of(cls, calibration: Calibration) -> Reference | None:
        """The reference, or None for a calibration without same pairs, which has no mixture."""
        curve, facts = calibration.curve(), calibration.summary()
        if curve["tpr"] is None:
            return None
        thresholds, fpr, tpr = (
            np.asarray(curve[name], dtype=np.float64) for name in ("thresholds", "fpr", "tpr")
        )
        indices = {int(np.abs(rate - level).argmin()) for rate in (fpr, tpr) for level in LEVELS}
        at = sorted(indices, reverse=True)
        return cls(
            edges=thresholds[at],
            different=fpr[at],
            same=tpr[at],
            different_margin=_margin(int(facts["n_independent"]), FALSE_ALARM / 4),
            same_margin=_margin(int(facts["n_same_independent"]), FALSE_ALARM / 4),
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a window of live scores came to.

    Attributes
    ----------
    distance : from the nearest mixture of calibration's scores, beyond calibration's own uncertainty; 0 to 1.
    limit : above it the alarm is raised.
    n_scores : in the window. n_independent : what they are worth.
    """

    distance: float
    limit: float
    n_scores: int
    n_independent: float

    @property
    def alarm(self) -> bool:
        """Whether the scores are not those of calibration."""
        return self.distance > self.limit


def judge(counts: NDArray[np.int64], squares: float, reference: Reference) -> Verdict:
    """Hold a window against calibration.

    Parameters
    ----------
    counts : (n_edges + 1,) scores above exactly that many edges.
    squares : sum of squared sizes of the groups of scores that depend on each other.
    """
    n = int(counts.sum())
    above = counts[::-1].cumsum()[::-1][1:] / n
    n_independent = n * n / squares
    limit = math.sqrt(math.log(2 * above.size / (FALSE_ALARM / 2)) / (2 * n_independent))
    return Verdict(distance=_distance(above, reference), limit=limit, n_scores=n, n_independent=n_independent)


def _distance(above: Float64, reference: Reference) -> float:
    """The least over pi of the largest gap less the mixture's margin: convex in pi, so ever finer grids find it."""
    low, high = 0.0, 1.0
    for _ in range(3):
        shares = np.linspace(low, high, 33)[:, None]
        mixed = shares * reference.same + (1 - shares) * reference.different
        margin = shares * reference.same_margin + (1 - shares) * reference.different_margin
        gaps = (np.abs(above - mixed) - margin).max(axis=1)
        at = int(gaps.argmin())
        low, high = float(shares[max(at - 1, 0), 0]), float(shares[min(at + 1, 32), 0])
    return max(0.0, float(gaps[at]))


def _margin(n: int, chance: float) -> float:
    """How far an average over n independent blocks can be from the truth at any threshold, but for that chance.

    E exp(x sup) of an average of dependent averages is at most that of one (Jensen), and the tail of one is that of
    Dvoretzky, Kiefer and Wolfowitz (with Massart's constant): P(sup > u / sqrt n) <= e^(-4uu) + 8u sqrt(pi/2) e^(-2uu).
    """
    if n < 1:
        return 1.0

    def excess(u: float) -> float:
        return math.exp(-4 * u * u) + 8 * u * math.sqrt(math.pi / 2) * math.exp(-2 * u * u) - chance

    from scipy.optimize import brentq

    return min(1.0, float(brentq(excess, 1.0, 20.0)) / math.sqrt(n))


@dataclass(slots=True)
class Watch:
    """Counts of one version's live scores since they were last read, and of the window under way.

    A window goes on while the verdict on the one before is not read: so judging costs next to nothing.
    """

    model: str
    version: int
    reference: Reference
    edges: list[float]
    n_unpublished: int = 0
    decided: dict[str, list[int]] = field(default_factory=dict)
    window: list[int] = field(default_factory=list)
    squares: float = 0.0
    n_window: int = 0
    verdicts: list[Verdict] = field(default_factory=list)

    @classmethod
    def over(cls, model: str, version: int, reference: Reference) -> Watch:
        """Start counting."""
        bins = [0] * (reference.edges.size + 1)
        return cls(model, version, reference, reference.edges.tolist(), window=bins)

    def count(self, scores: NDArray[np.float32], shared: bool) -> None:
        """Count scores; ``shared`` when they have a vector in common."""
        edges, window = self.edges, self.window
        n = len(scores)
        if n <= 64:
            for score in scores.tolist():
                window[bisect_left(edges, score)] += 1
        else:
            counts = np.bincount(
                np.searchsorted(self.reference.edges, scores), minlength=len(window)
            ).tolist()
            for at, times in enumerate(counts):
                window[at] += times
        self.n_unpublished += n
        self.n_window += n
        self.squares += n * n if shared else n
        if not self.verdicts and self.n_window * self.n_window >= WINDOW * self.squares:
            self.verdicts.append(judge(np.array(window, dtype=np.int64), self.squares, self.reference))
            self.window, self.squares, self.n_window = [0] * len(window), 0.0, 0

    def decide(self, rate: str, n: int, matched: int) -> None:
        """Count decisions at a false positive rate."""
        entry = self.decided.get(rate)
        if entry is None:
            # Clients choose the rates: those beyond the first few share a name.
            name = rate if len(self.decided) < MAX_RATES else "other"
            entry = self.decided.setdefault(name, [0, 0])
        entry[0] += n
        entry[1] += matched


class LiveCheck:
    """Watches what each version scores in this process. Used on the event loop only."""

    def __init__(self, load: Callable[[str], Calibration]) -> None:
        self._load = load
        self._watches: dict[str, Watch | None] = {}
        self._loading: set[asyncio.Task[None]] = set()

    def watch(self, version: LoadedVersion) -> Watch | None:
        """The version's counts; None while its calibration is being read, or when it has none to hold against."""
        calibration = version.calibration_id
        if calibration is None:
            return None
        try:
            return self._watches[calibration]
        except KeyError:
            if len(self._watches) < MAX_WATCHED:
                self._watches[calibration] = None
                task = asyncio.get_running_loop().create_task(self._start(calibration, version.entry))
                self._loading.add(task)
                task.add_done_callback(self._loading.discard)
            return None

    def watches(self) -> list[Watch]:
        return [watch for watch in self._watches.values() if watch is not None]

    async def _start(self, calibration: str, entry: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            reference = await loop.run_in_executor(None, lambda: Reference.of(self._load(calibration)))
        except PairmarkError:
            # The request for a decision reports it; the next score tries again.
            self._watches.pop(calibration, None)
            return
        if reference is not None:
            self._watches[calibration] = Watch.over(entry.name, entry.version, reference)


def subsample(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """At most `PICKED` of the scores, evenly."""
    return scores if len(scores) <= PICKED else scores[:: -(-len(scores) // PICKED)]
