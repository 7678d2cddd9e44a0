"""Table 1 of Clemencon & Vogel: how close a similarity tree comes to the optimal ROC curve, on synthetic pairs.

Pairs are drawn from a random tree over f(x, x') = (|x - x'|, x + x') / sqrt 2 in [0, 1]^3 x [-1, 1]^3 (section 6.4 and
the authors' published code): a coordinate drawn uniformly, a border drawn uniformly in the cell, down to depth D_gt;
uniform in every leaf, with F+ and F- that fall and rise as delta^(-+ l / L) over the leaves, shuffled. So ROC* is
known. `D_1` is AUC* less the tree's AUC (the mean distance of the two curves, as the published code has it), `D_inf`
the largest distance on the code's grid of 998 false positive rates; both on 100,000 test pairs. Training pairs number
``int(150 * 1.25^(D_gt^2))``. Where they hold no positive pair at all, as most draws at p+ = 2e-4, there is nothing to
learn from and every pair scores alike, in the paper's figures too; a tree refuses such pairs.

The tree splits each cell by one threshold (`leaf_depth=1`), as the paper's does in this experiment.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import Claim, Preset, Result
from pairmark.models import SimilarityTree

DIMENSIONS, DELTA, N_TEST, LEAF_DEPTH = 3, 0.01, 100_000, 1
GRID = np.linspace(1e-3, 1 - 1e-3, 998)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of the paper's table, with its two means there."""

    block: str
    p: float = 0.5
    true_depth: int = 3
    depth: int = 3
    paper_d1: float
    paper_dinf: float


SETTINGS = (
    Setting(block="class asymmetry", p=0.5, paper_d1=0.07, paper_dinf=0.30),
    Setting(block="class asymmetry", p=1e-1, paper_d1=0.08, paper_dinf=0.31),
    Setting(block="class asymmetry", p=1e-3, paper_d1=0.42, paper_dinf=0.75),
    Setting(block="class asymmetry", p=2e-4, paper_d1=0.45, paper_dinf=0.81),
    Setting(block="model complexity", true_depth=1, depth=1, paper_d1=0.00, paper_dinf=0.06),
    Setting(block="model complexity", true_depth=2, depth=2, paper_d1=0.03, paper_dinf=0.20),
    Setting(block="model complexity", true_depth=3, depth=3, paper_d1=0.07, paper_dinf=0.30),
    Setting(block="model complexity", true_depth=4, depth=4, paper_d1=0.12, paper_dinf=0.43),
    Setting(block="model bias", depth=1, paper_d1=0.21, paper_dinf=0.65),
    Setting(block="model bias", depth=2, paper_d1=0.11, paper_dinf=0.43),
    Setting(block="model bias", depth=3, paper_d1=0.07, paper_dinf=0.30),
    Setting(block="model bias", depth=8, paper_d1=0.06, paper_dinf=0.28),
)


class TrueTree:
    """A random law of pairs whose optimal ROC curve is known."""

    def __init__(self, depth: int, rng: np.random.Generator) -> None:
        cells = [np.array([[0.0, 1.0]] * DIMENSIONS + [[-1.0, 1.0]] * DIMENSIONS)]
        for _ in range(depth):
            cells = [half for cell in cells for half in _halves(cell, rng)]
        self.cells = np.stack(cells)
        ladder = np.arange(len(cells)) / len(cells)
        places = rng.permutation(len(cells))
        same, other = DELTA**-ladder, DELTA**ladder
        self.same, self.other = (same / same.sum())[places], (other / other.sum())[places]
        best_first = np.argsort(-self.same / self.other)
        self.roc = (
            np.r_[0.0, np.cumsum(self.other[best_first])],
            np.r_[0.0, np.cumsum(self.same[best_first])],
        )

    def sample(self, n: int, p: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``n`` pairs, and whether they are positive with probability ``p``."""
        flags = rng.random(n) < p
        leaf = np.where(
            flags,
            rng.choice(len(self.cells), n, p=self.same),
            rng.choice(len(self.cells), n, p=self.other),
        )
        low, high = self.cells[leaf, :, 0], self.cells[leaf, :, 1]
        f = low + (high - low) * rng.random(low.shape)
        apart, total = f[:, :DIMENSIONS], f[:, DIMENSIONS:]
        swap = rng.random((n, 1)) < 0.5
        a, b = (total + apart) / math.sqrt(2), (total - apart) / math.sqrt(2)
        return np.where(swap, b, a).astype(np.float32), np.where(swap, a, b).astype(np.float32), flags


def _halves(cell: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    axis = rng.integers(cell.shape[0])
    below, above = cell.copy(), cell.copy()
    below[axis, 1] = above[axis, 0] = rng.uniform(*cell[axis])
    return below, above


def roc(scores: np.ndarray, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knots of the broken-line ROC, ties together."""
    _, groups = np.unique(-scores, return_inverse=True)
    same = np.bincount(groups, flags)
    other = np.bincount(groups, ~flags)
    return np.r_[0.0, np.cumsum(other) / max(other.sum(), 1)], np.r_[
        0.0, np.cumsum(same) / max(same.sum(), 1)
    ]


def distances(setting: Setting, seed: int) -> tuple[float, float]:
    """``D_1`` and ``D_inf`` of one run."""
    rng = np.random.default_rng(seed)
    truth = TrueTree(setting.true_depth, rng)
    n_train = int(150 * 1.25 ** (setting.true_depth**2))
    left, right, flags = truth.sample(n_train, setting.p, rng)
    best = np.interp(GRID, *truth.roc)
    best_auc = float(np.trapezoid(truth.roc[1], truth.roc[0]))
    if flags.all() or not flags.any():
        return best_auc - 0.5, float(np.abs(best - GRID).max())
    tree = SimilarityTree(max_depth=setting.depth, leaf_depth=LEAF_DEPTH, random_state=seed)
    tree.fit_pairs(left, right, flags)
    left, right, flags = truth.sample(N_TEST, setting.p, rng)
    alpha, beta = roc(tree.pair_score(left, right), flags)
    return best_auc - float(np.trapezoid(beta, alpha)), float(
        np.abs(best - np.interp(GRID, alpha, beta)).max()
    )


def run(preset: Preset) -> Result:
    """All three blocks: 60 runs a row (quick) or the paper's 400 (full)."""
    n_runs = 60 if preset == "quick" else 400
    rows: list[dict[str, Any]] = []
    claims = []
    for at, setting in enumerate(SETTINGS):
        found = np.array([distances(setting, 10_000 * at + run) for run in range(n_runs)])
        mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / math.sqrt(n_runs)
        paper = (setting.paper_d1, setting.paper_dinf)
        rows.append(
            {
                "block": setting.block,
                "p+": setting.p,
                "D_gt": setting.true_depth,
                "D": setting.depth,
                "D_1": mean[0],
                "+-": 1.96 * error[0],
                "paper's D_1": paper[0],
                "D_inf": mean[1],
                "+- ": 1.96 * error[1],
                "paper's D_inf": paper[1],
                "runs": n_runs,
            }
        )
        name = f"{setting.block}, p+ {setting.p:g}, D_gt {setting.true_depth}, D {setting.depth}"
        for what, value, figure, spread in zip(("D_1", "D_inf"), mean.tolist(), paper, error, strict=True):
            # Few runs leave a mean uncertain by more than the goal's margin.
            slack = 1.96 * float(spread) if preset == "quick" else 0.0
            goal = f"at most the paper's {figure:.2f} + .01" + (", within its interval" if slack else "")
            claims.append(
                Claim(
                    what=f"{name}: {what}",
                    goal=goal,
                    measured=value,
                    holds=bool(value <= figure + 0.01 + slack),
                )
            )
    return Result(rows=rows, claims=claims, facts={"n_test": N_TEST, "leaf_depth": LEAF_DEPTH})
