"""The kernel, its embedding and its inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

import pairmark
from pairmark.models import RankBoostKernel
from pairmark.models.core.artefact import read_artefact
from pairmark.models.registry import restore_learner
from tests.models.saving import reloaded

X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)


def fitted(**how: Any) -> RankBoostKernel:
    return RankBoostKernel(**{"n_estimators": 15, "random_state": 0, **how}).fit(X, y)


@pytest.mark.parametrize("center", [False, True])
def test_kernel_is_the_inner_product_of_its_map(center: bool) -> None:
    model = fitted(center=center)
    phi = model.map_rows(X).toarray()
    if center:
        phi = phi - phi.mean(axis=0)
    np.testing.assert_allclose(model.score_against(X, X), phi @ phi.T, atol=2e-5)
    assert np.linalg.eigvalsh(model.score_against(X, X).astype(float)).min() > -1e-3


def test_map_holds_alpha_where_rankers_fire() -> None:
    model = fitted()
    rules = model.rules_
    column = X[:, rules.features[:, 0]]
    fires = (column > rules.low[:, 0]) & (column <= rules.high[:, 0]) & (column != 0)
    np.testing.assert_array_equal(model.map_rows(X).toarray(), fires * rules.alpha)
    scores = np.stack([(fires * rules.alpha)[:, model.task_ == task].sum(axis=1) for task in range(3)], 1)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)


@pytest.mark.parametrize("whiten", [False, True])
def test_embedding_is_the_chain_of_its_stages(whiten: bool) -> None:
    phi = fitted().map_rows(X).toarray()
    np.testing.assert_allclose(fitted(chain="A").transform(X), phi, rtol=1e-6)
    embedded = fitted(chain="A-B", n_pivots=150, whiten=whiten).transform(X).astype(float)
    gram = phi @ phi.T
    if whiten:
        # All rows are pivots, so every row is in their span and the projection changes no inner product.
        np.testing.assert_allclose(embedded @ embedded.T, gram, atol=1e-4)
    else:
        np.testing.assert_allclose(embedded, gram, rtol=1e-4, atol=1e-6)
    for chain in ("A-C", "A-B-C"):
        embedded = fitted(chain=chain, n_components=7, whiten=whiten).transform(X)
        assert embedded.shape == (150, 7)
        assert LinearSVC(random_state=0).fit(embedded, y).score(embedded, y) > 0.85


def test_pivots_are_chosen_in_two_ways() -> None:
    for how in ("random", "kmeans"):
        assert np.isfinite(fitted(pivots=how, n_pivots=20).transform(X)).all()


def test_pivots_come_from_unlabelled_rows_when_there_are_any() -> None:
    more = np.vstack([X] * 3)
    model = RankBoostKernel(n_estimators=5, n_pivots=400, chain="A-B", random_state=0)
    assert model.fit(X, y, unlabelled=csr_array(more)).transform(X).shape == (150, 400)
    with pytest.raises(ValueError, match="n_pivots is 400 and there are 150 rows"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"unlabelled has shape \(450, 3\)"):
        model.fit(X, y, unlabelled=more[:, :3])
    with pytest.raises(ValueError, match=r"unlabelled.*NaN"):
        model.fit(X, y, unlabelled=np.full_like(more, np.nan))


def test_pairs_learn_what_both_sides_share() -> None:
    rng = np.random.default_rng(0)
    # Rows of a kind share one of eight columns, and hold noise beside.
    kinds = rng.integers(0, 8, 400)
    rows = np.hstack([np.eye(8)[kinds], rng.random((400, 20)) < 0.3]).astype(np.float32)
    i, j = rng.integers(0, 400, (2, 3000))
    same = kinds[i] == kinds[j]
    how = {"n_estimators": 16, "center": False, "random_state": 0}
    model = RankBoostKernel(**how).fit_pairs(rows[i], rows[j], same)
    assert (model.rules_.alpha > 0).all()
    phi = model.map_rows(rows).toarray()
    np.testing.assert_allclose(model.pair_score(rows[i], rows[j]), (phi[i] * phi[j]).sum(axis=1), atol=1e-5)
    scores = model.pair_score(rows[i], rows[j])
    assert np.median(scores[same]) > np.quantile(scores[~same], 0.95)
    with pytest.raises(ValueError, match="pairs"):
        model.decision_function(rows)
    # A weight is a number of copies.
    weight = rng.integers(0, 3, 3000)
    copies = np.repeat(np.arange(3000), weight)
    weighted = RankBoostKernel(**how).fit_pairs(rows[i], rows[j], same, sample_weight=weight)
    repeated = RankBoostKernel(**how).fit_pairs(rows[i[copies]], rows[j[copies]], same[copies])
    alike = weighted.pair_score(rows[i], rows[j]), repeated.pair_score(rows[i], rows[j])
    assert np.corrcoef(*alike)[0, 1] > 0.999
    negative = -rows - (rows != 0) * rng.random(rows.shape).astype(np.float32)  # type: ignore[attr-defined]
    assert np.isfinite(RankBoostKernel(**how).fit_pairs(negative[i], negative[j], same).rules_.alpha).all()


def test_columns_never_seen_are_ignored_and_counted() -> None:
    model = fitted()
    wide = csr_array(np.hstack([X[:3], [[0, 7.0], [0, 0], [1.0, 2.0]]]).astype(np.float32))
    with pytest.warns(UserWarning, match="3 values in columns from 4 on"):
        scores = model.decision_function(wide)
    assert scores.tobytes() == model.decision_function(X[:3]).tobytes()
    with pytest.raises(ValueError, match="5 features"):
        model.decision_function(np.ones((1, 5)))


def test_empty_rows_are_like_nothing_and_useless_columns_are_passed_over() -> None:
    padded = np.hstack([X, np.zeros((150, 2)), np.ones((150, 1))]).astype(np.float32)
    padded[::10] = 0.0
    model = RankBoostKernel(n_estimators=10, center=False, random_state=0).fit(csr_array(padded), y)
    assert set(model.rules_.features[:, 0]) <= {0, 1, 2, 3, 6}
    empty = csr_array((1, 7), dtype=np.float32)
    assert model.pair_score(empty, csr_array(padded[1:2])) == 0.0
    assert np.isfinite(model.transform(empty)).all()
    for useless in (np.zeros((150, 3)), np.ones((150, 3))):
        with pytest.raises(ValueError, match="no feature separates the labels"):
            RankBoostKernel(n_estimators=3).fit(useless, y)


def test_many_identities_are_ranked_by_halves() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 12)) * 3
    people = np.repeat(np.arange(60), 6)
    rows = (centres[people] + 0.5 * rng.normal(size=(360, 12))).astype(np.float32)
    model = RankBoostKernel(n_estimators=10, random_state=0).fit(rows, people)
    assert model.decision_function(rows).shape == (360, 32)
    i, j = rng.integers(0, 360, (2, 4000))
    scores, same = model.pair_score(rows[i], rows[j]), people[i] == people[j]
    assert (scores[same][:, None] > scores[~same][None, :500]).mean() > 0.95


def test_folds_of_one_class_are_judged_beside_those_learned_from() -> None:
    # Sorted labels: each third is one class, of which no two rows differ.
    assert cross_val_score(RankBoostKernel(n_estimators=5), X, y, cv=3).min() > 0.6


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"n_pivots": 151}, "n_pivots is 151 and there are 150 rows"),
        ({"chain": "A-E"}, "chain"),
        ({"criterion": "q"}, "criterion"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(**how)


@pytest.mark.parametrize("how", [{}, {"weak": "grid"}, {"chain": "A"}])
def test_everything_it_can_do_survives_the_disk(how: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(**how)
    loaded = reloaded(model, tmp_path / "model")
    for name in ("decision_function", "transform"):
        assert np.asarray(getattr(loaded, name)(X)).tobytes() == np.asarray(getattr(model, name)(X)).tobytes()


def test_models_that_held_a_linear_svm_load_without_it(tmp_path: Path) -> None:
    model = fitted()
    pairmark.save(model, tmp_path / "model")
    now = read_artefact(tmp_path / "model")
    svm = {"svm_coef": np.zeros((3, 100)), "svm_intercept": np.zeros(3)}
    before = replace(now, params={**now.params, "chain": "A-B-C-D"}, arrays={**now.arrays, **svm})
    assert restore_learner(before).transform(X).tobytes() == model.transform(X).tobytes()


def test_bags_rank_wide_rows_better_than_one_ranking() -> None:
    """More features than rows, each weakly informative: one ranking of stumps looks at too few of them."""
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.5
    rows = rng.random((400, 600)) < np.where(y[:, None], 0.13, 0.10)
    X = csr_array(rows.astype(np.float32))
    one = RankBoostKernel(n_bags=1, random_state=0).fit(X[:200], y[:200]).decision_function(X[200:])
    model = RankBoostKernel(random_state=0).fit(X[:200], y[:200])
    assert roc_auc_score(y[200:], model.decision_function(X[200:])) > roc_auc_score(y[200:], one) + 0.02
