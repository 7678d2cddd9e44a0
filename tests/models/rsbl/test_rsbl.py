"""Recursive similarity-based learning, held against the paper's algorithm written out literally."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris, make_moons
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from pairmark.models import RSBL
from pairmark.models.rsbl.growth import Distances, folds

X, y = load_iris(return_X_y=True)
moons, moon = make_moons(90, noise=0.25, random_state=2)


def hard(n: int = 60, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that no plane and no row's nearest neighbor separates without errors."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    return rows.astype(np.float32), ((rows[:, 0] * rows[:, 1] + 0.4 * rng.standard_normal(n)) > 0).astype(int)


def literal(
    rows: np.ndarray,
    labels: np.ndarray,
    test: np.ndarray,
    *,
    depth: int,
    k_max: int,
    final: str,
    beta: float = 0.1,
) -> dict[str, Any]:
    """Algorithm 1 as it stands: every one of the n k features is a column of its own; the error is the training error,
    a 1NN's without the row itself."""
    mean, std = rows.mean(axis=0), rows.std(axis=0)
    train, test = (rows - mean) / std, (test - mean) / std
    names: list[tuple[int, ...]] = []
    ks, errors = [], []

    def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.array([[((x - z) ** 2).sum() for z in b] for x in a])

    def predicted(H: np.ndarray, other: np.ndarray, leave_out: bool) -> np.ndarray:
        if final == "svm":
            return SVC(kernel="linear", C=32.0).fit(H, labels).predict(other)
        found = distances(other, H).astype(np.float32)
        if leave_out:
            np.fill_diagonal(found, np.inf)
        return labels[found.argmin(axis=1)]

    for _ in range(depth):
        to_train, to_test = distances(train, train), distances(test, train)
        near = to_train.astype(np.float32)
        np.fill_diagonal(near, np.inf)
        order = np.argsort(near, axis=1, kind="stable")
        tried = []
        for k in range(1, k_max + 1):
            columns = order[:, :k].ravel()
            H = np.hstack([train, np.exp(-beta * to_train[:, columns])])
            tried.append(float((predicted(H, H, True) != labels).mean()))
        k = int(np.argmin(tried)) + 1
        columns = order[:, :k].ravel()
        train = np.hstack([train, np.exp(-beta * to_train[:, columns])])
        test = np.hstack([test, np.exp(-beta * to_test[:, columns])])
        names.append(tuple(sorted(columns.tolist())))
        ks.append(k)
        errors.append(tried)
    return {"ks": ks, "errors": errors, "train": train, "test": test, "columns": names,
            "predicted": predicted(train, test, False)}  # fmt: skip


@pytest.mark.parametrize("final", ["svm", "1nn"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_paper_written_out_gives_the_same_features_k_and_predictions(final: str, seed: int) -> None:
    rows, labels = hard(seed=seed)
    others = hard(40, seed=seed + 100)[0]
    reported = literal(rows.astype(float), labels, others.astype(float), depth=3, k_max=5, final=final)
    model = RSBL(depth=3, k_max=5, final=final, selection="training").fit(rows, labels)
    assert model.k_ == reported["ks"]
    for mine, theirs in zip(model.errors_, reported["errors"], strict=True):
        # The search ends at the first k without errors, which no later one can beat.
        np.testing.assert_allclose(mine, theirs[: len(mine)], atol=1e-12)
        assert len(mine) == 5 or mine[-1] == 0
    # Equal features are kept as one, times the root of their number: whose they are, how many and what they are.
    for layer, columns in zip(model.layers_, reported["columns"], strict=True):
        assert sorted(layer.counts.astype(int)) == sorted(np.unique(columns, return_counts=True)[1])
    for given, expected in ((rows, reported["train"]), (others, reported["test"])):
        mine = model.transform(given)  # type: ignore[assignment]
        start, at = 4, 4
        for layer, columns in zip(model.layers_, reported["columns"], strict=True):
            wide = np.repeat(
                mine[:, start : start + layer.columns.size] / np.sqrt(layer.counts),
                layer.counts.astype(int),
                axis=1,
            )
            block = expected[:, at : at + len(columns)]
            np.testing.assert_allclose(np.sort(wide, axis=1), np.sort(block, axis=1), atol=2e-6)
            start, at = start + layer.columns.size, at + len(columns)
        np.testing.assert_allclose(mine @ mine.T, expected @ expected.T, atol=1e-3)  # type: ignore[attr-defined]
    assert model.predict(others).tolist() == reported["predicted"].tolist()


def test_inner_folds_choose_by_rows_that_neither_train_nor_standardise() -> None:
    rows, labels = hard(50, seed=5)
    model = RSBL(depth=1, k_max=4, n_folds=3).fit(rows, labels)
    rng = np.random.default_rng(0)
    parts = folds(labels.astype(np.int64), 3, rng)
    wrong = np.zeros(4)
    for train, held in parts:
        mean, std = rows[train].mean(axis=0), rows[train].std(axis=0)
        a, b = ((rows[part] - mean) / std for part in (train, held))
        apart = ((a[:, None] - a[None]) ** 2).sum(axis=2)
        away = ((b[:, None] - a[None]) ** 2).sum(axis=2)
        order = np.argsort(np.where(np.eye(len(a)) > 0, np.inf, apart), axis=1, kind="stable")
        for k in range(1, 5):
            columns = order[:, :k].ravel()
            H, other = (
                np.hstack([start, np.exp(-0.1 * found[:, columns])])
                for start, found in ((a, apart), (b, away))
            )
            wrong[k - 1] += (
                SVC(kernel="linear", C=32.0).fit(H, labels[train]).predict(other) != labels[held]
            ).sum()
    np.testing.assert_allclose(model.errors_[0], wrong / 50, atol=1e-12)
    assert model.k_ == [int(np.argmin(wrong)) + 1]
    assert sorted(np.concatenate([held for _, held in parts]).tolist()) == list(range(50))


def test_probabilities_are_calibrated_and_name_the_predicted_class() -> None:
    for final in ("svm", "1nn"):
        model = RSBL(depth=1, k_max=3, final=final).fit(X[::2], y[::2])
        chances = model.predict_proba(X[1::2])
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        assert (model.classes_[chances.argmax(axis=1)] == model.predict(X[1::2])).all()
    # Rows of noise: nothing is known, and the probabilities say so.
    rng = np.random.default_rng(1)
    noise, coin = rng.standard_normal((120, 5)), rng.integers(0, 2, 120)
    sure = RSBL(depth=1, k_max=3).fit(noise, coin).predict_proba(rng.standard_normal((200, 5))).max(axis=1)
    assert sure.mean() < 0.7
    assert RSBL(depth=1, k_max=3).fit(X[:100], y[:100]).predict_proba(X[:100]).max(axis=1).mean() > 0.9


def test_it_is_a_classifier_to_scikit_learn() -> None:
    words = np.array(["ada", "grace"])[moon]
    found = cross_val_score(RSBL(depth=1, k_max=3), moons, words, cv=3)
    plain = cross_val_score(SVC(kernel="linear", C=32.0), moons, words, cv=3)
    assert found.mean() > plain.mean() + 0.02
    model = RSBL(depth=1, k_max=2).fit(moons, words)
    assert model.classes_.tolist() == ["ada", "grace"]
    assert ((model.decision_function(moons) > 0) == (model.predict(moons) == "grace")).all()


@pytest.mark.parametrize("metric", ["manhattan", "cosine"])
def test_every_metric_classifies(metric: str) -> None:
    assert RSBL(depth=2, k_max=3, metric=metric, n_folds=3).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.85
    near = RSBL(depth=1, k_max=3, metric=metric, final="1nn", n_folds=3).fit(X[::2], y[::2])
    assert near.score(X[1::2], y[1::2]) > 0.8


def test_widths_may_be_found_from_the_data() -> None:
    rng = np.random.default_rng(0)
    # Far apart in many dimensions: at the fixed width every similarity is nothing.
    wide = rng.standard_normal((100, 400)).astype(np.float32)
    labels = (np.linalg.norm(wide[:, :3], axis=1) > 1.5).astype(int)
    fixed, median = (RSBL(depth=2, k_max=3, beta=beta).fit(wide, labels) for beta in (0.1, "median"))
    assert fixed.transform(wide[:1] + 0.5)[0, 400:].max() < 1e-3
    similar = median.transform(wide[:1] + 0.5)[0, 400 : 400 + median.layers_[0].columns.size]
    assert 0.2 < np.median(similar / np.sqrt(median.layers_[0].counts)) < 0.8


def test_only_some_rows_are_references_of_large_data() -> None:
    rows, labels = hard(400, seed=1)
    model = RSBL(depth=2, k_max=3, max_references=50).fit(rows, labels)
    assert all(layer.columns.size <= 50 for layer in model.layers_)
    assert model.score(rows, labels) > 0.8


def test_what_is_not_dense_or_not_informative_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"X: Sparse data was passed.*dense data is required\. Use '\.toarray\(\)'"
    ):
        RSBL().fit(csr_array(X), y)
    fitted = RSBL(depth=1, k_max=1).fit(X, y)
    for call in (fitted.predict, fitted.transform, fitted.index):
        with pytest.raises(ValueError, match="dense data is required"):
            call(csr_array(X))
    with pytest.raises(ValueError, match=r"beta is 0: expected a number above 0"):
        RSBL(beta=0).fit(X, y)
    with pytest.raises(ValueError, match="join all rows, directly or through others, into a single identity"):
        RSBL().fit_pairs(X[[0, 1, 0]], X[[1, 2, 2]], [1, 1, 0])


def test_constant_features_repeated_rows_and_few_rows_are_no_trouble() -> None:
    rows = np.hstack([X, np.full((len(X), 1), 0.1), np.zeros((len(X), 1))]).astype(np.float32)
    model = RSBL(depth=2, k_max=3).fit(rows, y)
    plain = RSBL(depth=2, k_max=3).fit(X, y)
    assert (model.predict(rows) == plain.predict(X)).all()
    assert RSBL(depth=2, k_max=3).fit(np.vstack([X, X]), np.concatenate([y, y])).score(X, y) > 0.95
    tiny = RSBL(depth=2, k_max=50, n_folds=2).fit(X[48:53], y[48:53])
    assert tiny.predict(X[48:53]).shape == (5,)
    assert max(tiny.k_) <= 4
    equal = RSBL(depth=2, k_max=3).fit(np.ones((12, 3)), np.arange(12) % 2)
    np.testing.assert_allclose(equal.predict_proba(np.ones((1, 3))).sum(), 1.0)


SCIPY = {"euclidean": "euclidean", "manhattan": "cityblock", "cosine": "cosine"}


@pytest.mark.parametrize("metric", SCIPY)
def test_features_kept_as_one_measure_as_if_they_were_several(metric: str) -> None:
    rng = np.random.default_rng(0)
    rows, refs = rng.integers(0, 3, (9, 5)).astype(float), rng.integers(0, 3, (140, 5)).astype(float)
    more, ref_more = rng.choice([0.25, 0.5, 1.0], (9, 4)), rng.choice([0.25, 0.5, 1.0], (140, 4))
    counts = np.array([1.0, 4.0, 2.0, 7.0])
    grown = Distances(metric, 9, 140)
    grown.extend(rows.astype(np.float32), np.ascontiguousarray(refs.T, dtype=np.float32), np.ones(5))
    expected = cdist(rows, refs, SCIPY[metric]) ** 2
    # A row of zeros has no direction: it is as far from every other as if they were not related.
    expected = np.nan_to_num(expected, nan=1.0)
    np.testing.assert_allclose(grown.squared(), expected, atol=1e-5)
    before = deepcopy(grown)
    root = np.sqrt(counts)
    grown.extend(
        (more * root).astype(np.float32), np.ascontiguousarray((ref_more * root).T, dtype=np.float32), counts
    )
    whole, whole_refs = (
        np.hstack([a, np.repeat(b, counts.astype(int), axis=1)]) for a, b in ((rows, more), (refs, ref_more))
    )
    np.testing.assert_allclose(grown.squared(), cdist(whole, whole_refs, SCIPY[metric]) ** 2, atol=1e-5)
    np.testing.assert_allclose(before.squared(), expected, atol=1e-5)


def test_scores_compare_in_the_space_that_grew() -> None:
    rows = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    model = RSBL(depth=2, k_max=2).fit(rows, rows[:, 0] * rows[:, 1] > 0)
    H = model.transform(rows).astype(np.float64)
    unit = H / np.linalg.norm(H, axis=1, keepdims=True)
    np.testing.assert_allclose(model.score_against(rows, rows), unit @ unit.T, atol=2e-3)
    ids, scores = model.top_k(rows, np.repeat(rows, 3, axis=0), 6)
    np.testing.assert_array_equal(ids[:, :3], np.arange(60)[:, None] * 3 + np.arange(3))
    np.testing.assert_allclose(scores[:, 0], 1.0, atol=1e-6)
