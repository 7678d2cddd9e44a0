"""Boosted trees on features."""

import numpy as np

from pairmark.models.trees.boosted import TreeSettings, fit_trees


def test_rows_that_all_lack_features_score_the_same_alone_and_together() -> None:
    """To the last bit; trees are cut back for many rows of which all lack something."""
    g = np.random.default_rng(5)
    X = g.normal(size=(3_000, 6)).astype(np.float32)
    same = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + 0.3 * g.normal(size=3_000) > 0
    X[g.random(X.shape) < 0.2] = np.nan
    trees = fit_trees(X, same, np.ones(3_000), TreeSettings(40, 0.1, 5), np.random.default_rng(0))
    for lacked in ([], [0], [1, 4], [0, 1, 2, 3, 4], range(6)):
        rows = X.copy()
        rows[:, list(lacked)] = np.nan
        together = trees.score(rows)
        assert np.unique(together).size > 1 or len(lacked) == 6
        np.testing.assert_array_equal(
            together, np.concatenate([trees.score(part) for part in np.split(rows, 10)])
        )


def test_a_feature_with_a_direction_never_moves_a_score_against_it() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(800, 3)).astype(np.float32)
    X[random.random(X.shape) < 0.1] = np.nan
    # What they truly say turns around, so that trees which are not bound follow it.
    same = np.sin(2 * np.nan_to_num(X)).sum(axis=1) + 0.3 * random.normal(size=800) > 0
    rows = np.repeat(random.normal(size=(50, 3)).astype(np.float32), 40, axis=0)
    rows[::7, 1] = np.nan
    steps = np.tile(np.linspace(-3, 3, 40, dtype=np.float32), 50)

    def turns(feature: int, directions: np.ndarray | None) -> float:
        """The largest fall of a score while a feature rises."""
        trees = fit_trees(
            X,
            same,
            np.ones(800),
            TreeSettings(40, 0.1, 5),
            np.random.default_rng(1),
            directions=directions,
        )
        asked = rows.copy()
        asked[:, 2 - feature] = np.repeat(asked[::40, 2 - feature], 40)
        asked[:, 1] = np.repeat(asked[::40, 1], 40)
        asked[:, feature] = steps
        return float(-np.diff(trees.score(asked).reshape(50, 40), axis=1).min())

    directions = np.array([1.0, 0.0, -1.0])
    assert turns(0, None) > 0.05
    assert turns(0, directions) <= 0
    assert turns(2, -directions) <= 0
    assert turns(2, directions) > 0.05
