"""How much of GHOST's weight lies on features that tell classes apart, by the strength of its penalty (`tau`).

Made rows of four classes, 20 of whose 60 features tell; accuracy is of 4,000 others. The default is .5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import Claim, Preset, Result
from pairmark.models import Ghost

TAUS = (0.5, 5.0, 15.0, 50.0, 150.0)
SIZES = (200, 800)
TELLING, FEATURES = 20, 60
GOAL, MOST_LOST = 0.8, 0.01


def run(preset: Preset) -> Result:
    """A row a size and penalty: means over draws of rows and centres."""
    draws = 3 if preset == "quick" else 10
    rows: list[dict[str, Any]] = []
    claims = []
    for n in SIZES:
        measured = np.array([[_shares(n, draw, tau) for tau in TAUS] for draw in range(draws)]).mean(axis=0)
        for tau, (share, kept, accuracy) in zip(TAUS, measured, strict=True):
            rows.append(
                {
                    "rows": n,
                    "tau": tau,
                    "weight on telling features": None if np.isnan(share) else share,
                    "features kept": kept,
                    "accuracy": accuracy,
                    "less than by default": measured[0, 2] - accuracy,
                }
            )
        able = measured[measured[0, 2] - measured[:, 2] <= MOST_LOST, 0].max()
        claims.append(
            Claim(
                what=f"{n} rows: most weight on telling features by a penalty that costs at most {MOST_LOST} accuracy",
                goal=f"at least {GOAL}",
                measured=float(able),
                holds=bool(able >= GOAL),
            )
        )
    return Result(rows=rows, claims=claims, facts={"draws": draws})


def _shares(n: int, draw: int, tau: float) -> tuple[float, float, float]:
    """Share of weight, features kept and accuracy of one fit."""
    rng = np.random.default_rng(draw)
    centres = np.zeros((4, FEATURES))
    centres[:, :TELLING] = 0.6 * rng.normal(size=(4, TELLING))
    y = rng.integers(0, 4, n + 4_000)
    X = centres[y] + rng.normal(size=(y.size, FEATURES))
    try:
        model = Ghost(tau=tau).fit(X[:n], y[:n])
    except ValueError:
        # Every weight fell to 0.
        return float("nan"), 0.0, 0.25
    accuracy = float((model.predict(X[n:]) == y[n:]).mean())
    weights = model.weights_
    return float(weights[:TELLING].sum() / weights.sum()), float((weights > 0).sum()), accuracy
