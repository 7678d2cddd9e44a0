"""PLDA against its definition: densities of Gaussians, brute force, and data drawn from the model itself."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pairmark import MetricSimilarity, Plda
from pairmark.models.evaluation.validation import tpr_at

D = 6
PLAIN: dict[str, Any] = {
    "marginals": "raw",
    "length_norm": False,
    "shrink_within": 0.0,
    "shrink_between": 0.0,
}


def people(n: int, each: int, seed: int = 0, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Identities as the model has them."""
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(99).standard_normal((d, d))
    y = np.repeat(np.arange(n), each)
    centres = rng.standard_normal((n, d)) * np.linspace(3.0, 0.2, d)
    return ((centres[y] + rng.standard_normal((y.size, d))) @ mix).astype(np.float32), y


X, Y = people(60, 8)


@cache
def fitted() -> Plda:
    """To `X` and `Y`; where tests are listed only, nothing is fitted."""
    return Plda(**PLAIN).fit(X, Y)


def tpr(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    scores, upper = model.score_against(X, X), np.triu_indices(y.size, 1)
    same = y[upper[0]] == y[upper[1]]
    return tpr_at(scores[upper][same], scores[upper][~same], (0.1, 0.01))


def log_density(samples: np.ndarray) -> float:
    """Of the latent coordinates of one subject's samples, jointly."""
    total = 0.0
    for j, psi in enumerate(fitted().psi_):
        k = samples.shape[0]
        total += multivariate_normal(cov=psi * np.ones((k, k)) + np.eye(k)).logpdf(samples[:, j])  # type: ignore[assignment]
    return total


def test_scores_are_log_likelihood_ratios_of_the_gaussian_model() -> None:
    z = fitted().transform(X).astype(np.float64)
    for i, j in ((0, 1), (0, 200), (5, 477)):
        expected = log_density(z[[i, j]]) - log_density(z[[i]]) - log_density(z[[j]])
        assert fitted().pair_score(X[[i]], X[[j]])[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_subjects_of_several_samples_are_scored_exactly() -> None:
    z = fitted().transform(X).astype(np.float64)
    left, right = [slice(0, 3), slice(8, 9), slice(16, 21)], [slice(3, 7), slice(9, 14), slice(40, 42)]
    got = fitted().subject_score([X[part] for part in left], [X[part] for part in right])
    for score, a, b in zip(got, left, right, strict=True):
        expected = log_density(np.concatenate([z[a], z[b]])) - log_density(z[a]) - log_density(z[b])
        assert score == pytest.approx(expected, rel=1e-4, abs=1e-3)
    back = fitted().subject_score([X[part] for part in right], [X[part] for part in left])
    assert back.tobytes() == got.tobytes()
    assert fitted().subject_score([X[left[0]]], [X[part] for part in right])[0] == got[0]


def test_latent_coordinates_have_the_covariances_that_the_model_says() -> None:
    z = fitted().transform(X).astype(np.float64)
    means = np.stack([z[person == Y].mean(axis=0) for person in range(60)])
    within = np.cov((z - means[Y]).T) * (z.shape[0] - 1) / (z.shape[0] - 60)
    np.testing.assert_allclose(within, np.eye(z.shape[1]), atol=0.02)
    np.testing.assert_allclose(np.var(means, axis=0, ddof=1) - 1 / 8, fitted().psi_, atol=0.05)


def test_new_people_are_told_apart_better_than_by_distances() -> None:
    A, y = people(80, 6, seed=7)
    fitted = Plda().fit(X, Y)
    assert (tpr(fitted, A, y) > tpr(MetricSimilarity("cosine", whiten=True).fit(X, Y), A, y)).all()
    assert set(fitted.settings_) == {
        "marginals", "length_norm", "n_components", "shrink_within", "shrink_between",
    }  # fmt: skip
    assert fitted.validated_tpr_[0.1] == pytest.approx(tpr(fitted, A, y)[0], abs=0.1)


def test_given_settings_are_fitted_without_judging_them_again() -> None:
    chosen = Plda().fit(X, Y)
    again = Plda(**chosen.settings_).fit(X, Y)
    assert chosen.validated_tpr_
    assert again.validated_tpr_ == {}
    np.testing.assert_array_equal(chosen.score_against(X, X), again.score_against(X, X))


def test_cross_validation_finds_what_skewed_features_need() -> None:
    def skewed(rows: np.ndarray) -> np.ndarray:
        return np.exp(2 * rows / rows.std(axis=0))

    A, y = people(60, 8, seed=3)
    chosen = Plda().fit(skewed(X), Y)
    assert chosen.settings_["marginals"] == "normal"
    raw = Plda(marginals="raw").fit(skewed(X), Y)
    assert (tpr(chosen, skewed(A), y) > tpr(raw, skewed(A), y) + 0.05).all()


@pytest.mark.parametrize("n_people", [2, 3, 4, 10])
def test_few_identities_and_shared_classes_work(n_people: int) -> None:
    A, y = people(n_people, 12, seed=2)
    scores = Plda().fit(A[::2], y[::2]).score_against(A[1::2], A[1::2])
    same = y[1::2][:, None] == y[1::2][None]
    assert scores[same].mean() > scores[~same].mean()


def test_as_many_rows_as_identities_and_one_are_enough_to_learn() -> None:
    A, y = people(8, 1, seed=2)
    model = Plda().fit(np.vstack([A, A[:1] + 0.1]), np.append(y, 0))
    assert np.isfinite(model.pair_score(A, A)).all()
    assert model.validated_tpr_ == {}


def test_more_features_than_rows_are_reduced_inside() -> None:
    wide = np.random.default_rng(1).standard_normal((D, 400)).astype(np.float32)
    A, y = people(20, 6, seed=4)
    model = Plda(marginals="raw", length_norm=False, random_state=1).fit(X @ wide, Y)
    assert model.settings_["n_components"] <= 256
    assert tpr(model, A @ wide, y)[0] > 0.5


def test_pairs_that_join_points_make_identities() -> None:
    left, right = np.triu_indices(Y.size, 1)
    kept = np.random.default_rng(0).permutation(left.size)[:6_000]
    kept = np.concatenate([kept, np.flatnonzero((Y[left] == Y[right]) & (right == left + 1))])
    left, right = left[kept], right[kept]
    model = Plda(**PLAIN).fit_pairs(X[left], X[right], Y[left] == Y[right])
    A = people(30, 6, seed=8)[0]
    np.testing.assert_allclose(model.score_against(A, A), fitted().score_against(A, A), rtol=1e-3, atol=1e-2)
    with pytest.raises(ValueError, match="a single identity"):
        Plda().fit_pairs(X[[0, 1, 0]], X[[1, 2, 2]], [1, 1, 0])
    with pytest.raises(ValueError, match="equal rows only"):
        Plda().fit_pairs(X[[0, 1, 0]], X[[0, 1, 2]], [1, 1, 0])


def test_an_explanation_adds_up_to_the_score() -> None:
    reported = fitted().explain(X[0], X[9], feature_names=[f"f{j}" for j in range(D)])
    total = sum(line["contribution"] for line in reported["coordinates"]) + reported["rest"]
    assert total == pytest.approx(reported["score"], rel=1e-4, abs=1e-4)
    assert {name["feature"] for line in reported["coordinates"] for name in line["features"]} <= {
        f"f{j}" for j in range(D)
    }


def bent(n: int, each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """People whose samples now and then miss by far in single features, which no Gaussian expects."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n), each)
    rows = rng.standard_normal((n, 12))[y] + 0.3 * rng.standard_normal((y.size, 12))
    missed = rng.random(rows.shape) < 0.15
    return np.where(missed, 2.0 * rng.standard_normal(rows.shape), rows).astype(np.float32), y


@cache
def with_and_without_trees() -> tuple[Plda, Plda]:
    X, y = bent(60, 12, 1)
    model = Plda(residual_rounds=100, marginals="raw", length_norm=False).fit(X, y)
    return model, Plda(**{**model.get_params(), **model.settings_, "residual_rounds": 0}).fit(X, y)


class TestResidual:
    X, y = bent(60, 12, 1)

    @property
    def model(self) -> Plda:
        return with_and_without_trees()[0]

    @property
    def base(self) -> Plda:
        return with_and_without_trees()[1]

    def test_trees_find_what_the_ratio_leaves(self) -> None:
        A, y = bent(60, 12, 2)
        assert (tpr(self.model, A, y) > tpr(self.base, A, y) + 0.03).all()

    def test_they_add_no_more_than_their_bound(self) -> None:
        apart = self.model.score_against(self.X[:80], self.X) - self.base.score_against(self.X[:80], self.X)
        bound = self.model._trees.bound
        assert 0.2 * bound < np.abs(apart).max() <= bound * (1 + 1e-5)

    def test_a_gallery_is_scanned_by_the_ratio_and_searched_exactly(self) -> None:
        A, _ = bent(300, 6, 3)
        index = self.model.index(A)
        expected = self.model.score_against(self.X[:3], index)
        ids, scores = self.model.top_k(self.X[:3], index, 7)
        for row in range(3):
            best = np.lexsort((np.arange(A.shape[0]), -expected[row]))[:7]
            assert ids[row].tolist() == best.tolist()
            assert scores[row].tobytes() == expected[row, best].tobytes()

    def test_an_explanation_states_the_correction(self) -> None:
        reported = self.model.explain(self.X[0], self.X[1])
        parts = sum(line["contribution"] for line in reported["coordinates"]) + reported["rest"]
        assert parts + reported["correction"] == pytest.approx(reported["score"], rel=1e-4, abs=1e-4)

    def test_cosines_take_no_trees(self) -> None:
        with pytest.raises(ValueError, match="residual_rounds"):
            Plda(scoring="cosine", residual_rounds=5).fit(X, Y)
