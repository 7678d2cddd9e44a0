"""How often intervals hold the truth: TPR, AUC and EER of an evaluation, the TPR beside a promise.

Worlds are simulated, from thirty people up; the truth is that of a million fresh pairs of each kind.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.evaluation.pairs import pair_report, roc_curve_pairs
from pairmark.models.pairs.sampling import held_out_pairs

CONFIDENCE = 0.95
TARGETS = (0.01, 0.1)
FRESH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Measured:
    """People whose score is effect + effect + noise, and ``apart`` more for two samples of one person."""

    name: str
    m: int = 30
    effect: float = 0.5
    apart: float = 3.0
    uneven: bool = False
    closed: bool = False
    n_pairs: int = 2_000

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Scores, same, units."""
        if self.closed:
            y = rng.integers(0, 4, self.m)
        else:
            counts = np.clip(rng.geometric(0.25, self.m), 2, 20) if self.uneven else np.full(self.m, 2)
            y = np.repeat(np.arange(self.m), counts)
        pairs = held_out_pairs(
            y,
            protocol="closed-set" if self.closed else "open-set",
            n_pairs=self.n_pairs,
            random_state=rng,
        )
        effects = self.effect * rng.standard_normal(self.m)
        scores = effects[pairs.units].sum(axis=1) + rng.standard_normal(len(pairs)) + self.apart * pairs.same
        return scores.astype(np.float32), pairs.same, pairs.units


@lru_cache
def truth(world: Measured) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Figures of the whole population, and scores of same pairs in order."""
    rng = np.random.default_rng(96)
    effects = world.effect * rng.standard_normal((3, FRESH))
    mates = effects[0] + effects[1] if world.closed else 2 * effects[0]
    different = np.sort(effects[1] + effects[2] + rng.standard_normal(FRESH))
    same = np.sort(mates + world.apart + rng.standard_normal(FRESH))
    fpr, tpr, _ = roc_curve_pairs(np.concatenate([different, same]), np.arange(2 * FRESH) >= FRESH)
    # To the right of where the curves cross, as the evaluation has it.
    cross = int(np.searchsorted(fpr - (1 - tpr), 0))
    found = {
        "AUC": float(np.searchsorted(different, same).mean() / FRESH),
        "EER": float((fpr[cross] + 1 - tpr[cross]) / 2),
    }
    for target in TARGETS:
        cut = different[-int(target * FRESH) - 1]
        found[f"TPR at FPR {target:g}"] = above(same, cut)
    return found, same


def above(ordered: NDArray[np.float64], threshold: float) -> float:
    """Share above a threshold."""
    return 1 - float(np.searchsorted(ordered, threshold, side="right")) / ordered.size


WORLDS = (
    Measured(name="30 people"),
    Measured(name="30 people, unequal samples", uneven=True),
    Measured(name="30 people, strong effects", effect=1.0),
    Measured(name="30 people, separated", apart=12.0),
    Measured(name="60 people, unequal samples", m=60, uneven=True, n_pairs=6_000),
    Measured(name="closed-set, 60 samples", m=60, closed=True),
)


def misses(world: Measured, draws: Sequence[int]) -> list[tuple[str, int, int]]:
    """By figure: its intervals, and those among them that miss the truth."""
    figures, same = truth(world)
    asked: Counter[str] = Counter()
    missed: Counter[str] = Counter()

    def ask(what: str, true: float, interval: Any) -> None:
        asked[what] += 1
        # The truth is known to a few parts in ten thousand.
        missed[what] += not interval[0] - 2e-4 <= true <= interval[1] + 2e-4

    for draw in draws:
        rng = np.random.default_rng([20_261_122, draw])
        scores, kind, units = world.draw(rng)
        metrics = pair_report(
            scores, kind, units, fpr_targets=TARGETS, random_state=draw, n_jobs=1, confidence=CONFIDENCE
        ).metrics
        ask("AUC", figures["AUC"], metrics["auc"]["interval"])
        ask("EER", figures["EER"], metrics["eer"]["interval"])
        for target in TARGETS:
            name = f"TPR at FPR {target:g}"
            ask(name, figures[name], metrics["tpr_at_fpr"][f"{target:g}"]["interval"])
        point = Calibration.fit(scores, kind, units).operating_point(0.2)
        ask("TPR beside a promise", above(same, point.threshold), point.tpr_interval)
    return [(what, count, missed[what]) for what, count in asked.items()]
