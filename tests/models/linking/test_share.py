"""The share of false links, as columns that are held out say it."""

from __future__ import annotations

import numpy as np

from pairmark.models.linking.mixture import SYMBOL_OF, Mixture, chances, plain_column
from pairmark.models.linking.share import calibrate_matches


def test_a_number_that_few_pairs_have_says_how_many_of_the_others_match() -> None:
    random = np.random.default_rng(0)
    n = 30_000
    is_match = random.random(n) < 0.03
    is_named = random.random(n) < np.where(is_match, 0.9, 0.3)
    has_number = random.random(n) < 0.2
    is_numbered = random.random(n) < np.where(is_match, 0.98, 0.001)
    levels = np.stack(
        [np.where(is_named, 4, 1), np.where(has_number, np.where(is_numbered, 4, 1), 0)], axis=1
    )
    u = np.array([[0.698, 0.001, 0.001, 0.3], [0.9975, 0.0005, 0.0005, 0.0015]])
    m = np.array([[0.098, 0.001, 0.001, 0.9], [0.02, 0.001, 0.001, 0.978]])
    symbols, counts = np.unique(SYMBOL_OF[levels], axis=0, return_counts=True)
    lacking = SYMBOL_OF[levels[~has_number]]
    for share in (0.003, 0.03, 0.1):
        model = Mixture(
            [plain_column(of) for of in u], m, np.ones((1, 2)), u[None, :, 1], np.array([share]), ("match",)
        )
        found = chances(calibrate_matches(model, symbols, counts.astype(float)).log_odds(lacking))
        assert abs(found.sum() / is_match[~has_number].sum() - 1) < 0.15
