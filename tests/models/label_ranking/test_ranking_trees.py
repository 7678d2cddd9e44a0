"""Label ranking trees, pairwise rankers and the automatic choice, against scikit-learn and their definitions."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeRegressor

from pairmark.models import (
    LabelRankingAuto,
    LabelRankingForest,
    LabelRankingTree,
    PairwiseLabelRanker,
    kendall_tau,
    load,
    save,
)
from pairmark.models.core.progress import listening
from pairmark.models.evaluation.rankings import mid_positions, positions_of
from pairmark.models.label_ranking.pairwise import square
from tests.models.saving import reloaded


def some_rankings(n: int, d: int, k: int, seed: int, levels: int = 1_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, levels, (n, d)).astype(np.float32)
    return X, positions_of(X @ rng.standard_normal((d, k)) + levels * 0.3 * rng.standard_normal((n, k)))


def canonical(Y: np.ndarray) -> np.ndarray:
    return 2 * Y - (Y.shape[1] - 1)


def cells_of(model: LabelRankingTree | LabelRankingForest, X: np.ndarray) -> list[tuple[int, ...]]:
    """The training cells of a tree, as sorted tuples of rows."""
    trees = model.trees_
    leaves: dict[int, list[int]] = {}
    for row, x in enumerate(X):
        node = int(trees.roots[0])
        while trees.feature[node] >= 0:
            goes_left = x[trees.feature[node]] <= trees.threshold[node]
            node = int(trees.left[node] if goes_left else trees.right[node])
        leaves.setdefault(node, []).append(row)
    return sorted(tuple(rows) for rows in leaves.values())


def error(Y: np.ndarray, rows: np.ndarray) -> float:
    y = canonical(Y)[rows]
    return float(((y - y.mean(axis=0)) ** 2).sum())


@pytest.mark.parametrize(("n", "d", "k", "depth"), [(60, 3, 4, 2), (200, 5, 6, 4), (120, 2, 3, None)])
def test_joint_tree_fits_as_well_as_scikit_learns(n: int, d: int, k: int, depth: int | None) -> None:
    X, Y = some_rankings(n, d, k, seed=n)
    ours = LabelRankingTree(max_depth=depth, random_state=0).fit(X, Y)
    theirs = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(X, Y)
    # Scores are minus the centred mean positions; equal splits may be broken otherwise, equal errors may not.
    positions = (k - 1) / 2 - ours.predict_scores(X)
    assert ((positions - Y) ** 2).sum() == pytest.approx(
        ((theirs.predict(X) - Y) ** 2).sum(), rel=1e-6, abs=1e-6
    )
    if depth is not None:
        np.testing.assert_allclose(positions, theirs.predict(X), atol=1e-6)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 24),
    d=st.integers(1, 4),
    levels=st.sampled_from([2, 3, 50]),
)
def test_breiman_takes_the_split_of_least_error(seed: int, n: int, d: int, levels: int) -> None:
    X, Y = some_rankings(n, d, 4, seed, levels)
    cells = cells_of(LabelRankingTree(max_depth=1, random_state=0).fit(X, Y), X)
    best = error(Y, np.arange(n))
    if best == 0:
        assert len(cells) == 1
        return
    possible = [
        error(Y, np.flatnonzero(low)) + error(Y, np.flatnonzero(~low))
        for f in range(d)
        for border in np.unique(X[:, f])[:-1]
        for low in (X[:, f] <= border,)
    ]
    found = sum(error(Y, np.array(cell)) for cell in cells)
    assert found == pytest.approx(min([*possible, best]) if possible else best, abs=1e-9)


@given(seed=st.integers(0, 10_000), n=st.integers(4, 20), levels=st.sampled_from([2, 40]))
def test_level_splits_takes_the_feature_of_least_total_error(seed: int, n: int, levels: int) -> None:
    """Algorithm 9 written out: at each level one feature, each impure cell split at its own best border."""
    d, depth = 3, 3
    X, Y = some_rankings(n, d, 3, seed, levels)
    cells, is_tied = [np.arange(n)], False
    for _ in range(depth):
        options = []
        for f in range(d):
            split, total = [], 0.0
            for cell in cells:
                borders = np.unique(X[cell, f])[:-1]
                if error(Y, cell) < 1e-9 or borders.size == 0:
                    split.append([cell])
                    total += error(Y, cell)
                    continue
                halves = [[cell[X[cell, f] <= b], cell[X[cell, f] > b]] for b in borders]
                errors = [error(Y, a) + error(Y, b) for a, b in halves]
                split.append(halves[int(np.argmin(errors))])
                total += min(errors)
                is_tied |= sum(each < min(errors) + 1e-9 for each in errors) > 1
            options.append((total, [one for group in split for one in group]))
        least, cells = min(options, key=lambda option: option[0])
        is_tied |= sum(total < least + 1e-9 for total, _ in options) > 1
    model = LabelRankingTree(split="level", max_depth=depth, random_state=0).fit(X, Y)
    # Where two borders or features tie, either is right, and later levels may then differ.
    assert is_tied or cells_of(model, X) == sorted(tuple(cell.tolist()) for cell in cells)
    first = LabelRankingTree(split="level", max_depth=1, random_state=0).fit(X, Y)
    one = LabelRankingTree(split="breiman", max_depth=1, random_state=0).fit(X, Y)
    assert sum(error(Y, np.array(c)) for c in cells_of(first, X)) == pytest.approx(
        sum(error(Y, np.array(c)) for c in cells_of(one, X)), abs=1e-9
    )


def test_a_level_uses_one_feature() -> None:
    X, Y = some_rankings(300, 6, 5, seed=3)
    trees = LabelRankingTree(split="level", max_depth=6, random_state=0).fit(X, Y).trees_
    depth = np.zeros(trees.feature.size, dtype=int)
    for node in range(trees.feature.size):
        if trees.feature[node] >= 0:
            depth[trees.left[node]] = depth[trees.right[node]] = depth[node] + 1
    for level in range(6):
        assert len(set(trees.feature[(depth == level) & (trees.feature >= 0)])) == 1


@pytest.mark.parametrize("split", ["breiman", "level"])
def test_honest_leaves_hold_none_of_the_rows_that_chose_their_splits(split: str) -> None:
    X, Y = some_rankings(200, 4, 4, seed=5)
    trees = LabelRankingTree(split=split, honest=True, random_state=0).fit(X, Y).trees_
    assert np.unique(trees.members).size == 100
    assert (np.diff(trees.member_start)[_reachable_leaves(trees)] > 0).all()
    assert np.isfinite(LabelRankingTree(split=split, honest=True, random_state=0).fit(X, Y).predict(X)).all()


def _reachable_leaves(trees: object) -> np.ndarray:
    todo, leaves = [0], []
    while todo:
        node = todo.pop()
        if trees.feature[node] < 0:  # type: ignore[attr-defined]
            leaves.append(node)
        else:
            todo += [int(trees.left[node]), int(trees.right[node])]  # type: ignore[attr-defined]
    return np.array(leaves)


def test_depth_and_sub_sampling_are_kept() -> None:
    X, Y = some_rankings(300, 4, 5, seed=7)
    model = LabelRankingForest(n_estimators=5, max_samples=0.5, bootstrap=False, random_state=0).fit(X, Y)
    assert np.diff(model.trees_.member_start[model.trees_.roots]).tolist() == [150] * 4
    assert (LabelRankingTree(max_depth=2, random_state=0).fit(X, Y).trees_.feature < 0).sum() == 4


def test_incomplete_rankings_cost_little() -> None:
    rng = np.random.default_rng(0)
    X, Y = some_rankings(900, 4, 6, seed=11)
    test = slice(600, None)
    shown = np.where(rng.random((600, 6)) < 0.5, np.nan, Y[:600])
    shown[np.isnan(shown).all(axis=1)] = Y[:600][np.isnan(shown).all(axis=1)]
    ours = LabelRankingForest(n_estimators=40, random_state=0).fit(X[:600], shown).score(X[test], Y[test])
    whole = LabelRankingForest(n_estimators=40, random_state=0).fit(X[:600], Y[:600]).score(X[test], Y[test])
    shown = mid_positions(shown)  # who is missing leaves no gap
    filled = np.where(np.isnan(shown), np.nanmean(shown, axis=0), shown)
    by_mean = LabelRankingForest(n_estimators=40, random_state=0).fit(X[:600], filled).score(X[test], Y[test])
    assert whole - ours < (whole - by_mean) / 2


def test_twins_are_told_apart_by_nothing_but_their_order(tmp_path: object) -> None:
    X, Y = some_rankings(80, 3, 3, seed=13)
    tied = np.hstack([Y, Y[:, :1]])
    model = LabelRankingForest(n_estimators=5, random_state=0).fit(X, tied)
    scores = model.predict_scores(X)
    np.testing.assert_array_equal(scores[:, 0], scores[:, 3])
    save(model, f"{tmp_path}/twins")
    assert (load(f"{tmp_path}/twins").predict(X) == model.predict(X)).all()
    assert kendall_tau(model.predict(X)[:, :3], Y).mean() > 0.5


def rankings(n: int = 160, k: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)).astype(np.float32)
    return X, positions_of(X @ rng.standard_normal((3, k)) + 0.3 * rng.standard_normal((n, k)))


def before(model: PairwiseLabelRanker, X: np.ndarray) -> np.ndarray:
    """How likely each label comes before each other, in the labels' given order."""
    shares = square(model.models_.shares(X), model.modelled_, model.constant_, model.n_labels_)
    back = np.argsort(model.order_)
    return shares[:, back[:, None], back] + 0.5 * np.eye(model.n_labels_)


@pytest.mark.parametrize("aggregation", ["copeland", "borda"])
@pytest.mark.parametrize("estimator", ["logistic", "forest", GaussianNB(), Perceptron()])
def test_any_classifier_ranks(estimator: object, aggregation: str) -> None:
    X, Y = rankings()
    model = PairwiseLabelRanker(estimator=estimator, aggregation=aggregation, random_state=0)
    model.fit(X[:120], Y[:120])
    assert model.score(X[120:], Y[120:]) > 0.5
    assert (np.sort(model.predict(X), axis=1) == np.arange(4)).all()


def test_pairs_are_what_the_classifier_learns_from_rows_that_show_both() -> None:
    X, Y = rankings()
    Y = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, np.nan, Y)
    Y[np.isnan(Y).all(axis=1)] = np.arange(4)
    sure = before(PairwiseLabelRanker(estimator=LogisticRegression()).fit(X, Y), X)
    for i, j in [(0, 1), (2, 3), (1, 3)]:
        both = np.isfinite(Y[:, i]) & np.isfinite(Y[:, j])
        alone = LogisticRegression().fit(X[both], Y[both, i] < Y[both, j])
        np.testing.assert_allclose(sure[:, i, j], alone.predict_proba(X)[:, 1], atol=1e-3)


def test_copeland_and_borda_read_the_probabilities() -> None:
    X, Y = rankings(k=5)
    model = PairwiseLabelRanker().fit(X, Y)
    sure = before(model, X)
    defeats = (sure < 0.5).sum(axis=2)
    transitive = [r for r in range(len(X)) if len(set(defeats[r])) == 5]
    assert len(transitive) > 100
    for r in transitive:
        np.testing.assert_array_equal(model.predict(X[r : r + 1])[0], defeats[r])
    borda = PairwiseLabelRanker(aggregation="borda").fit(X, Y)
    np.testing.assert_allclose(borda.predict_scores(X), (sure.sum(axis=2) - 0.5) / 4, atol=1e-9)


def test_unseen_pairs_are_named_and_even() -> None:
    X, _ = rankings(60)
    Y = np.full((60, 4), np.nan)
    Y[:20, :2] = [0, 1]  # 0 before 1
    Y[20:40, 1:3] = [0, 1]  # 1 before 2; label 3 is met by 2 only
    Y[40:, 2:] = [0, 1]
    with pytest.warns(UserWarning, match=r"no training row orders the labels \(0, 2\), \(0, 3\), \(1, 3\)"):
        model = PairwiseLabelRanker().fit(X, Y)
    assert sorted(model.unseen_pairs_.tolist()) == [[0, 2], [0, 3], [1, 3]]
    assert (before(model, X)[:, [0, 0, 1], [2, 3, 3]] == 0.5).all()
    assert (model.predict(X)[:, 0] == 0).all()


def test_your_own_classifier_is_refused_by_save_not_by_fit(tmp_path: Path) -> None:
    X, Y = rankings(60)
    model = PairwiseLabelRanker(estimator=GaussianNB()).fit(X, Y)
    with pytest.raises(ValueError, match="PairwiseLabelRanker of GaussianNB cannot be saved"):
        save(model, tmp_path / "model")
    for options, said in (
        ({"estimator": 3}, "'logistic', 'forest' or 'tree', or a Classifier"),
        ({"estimator": "svm"}, "estimator is 'svm'"),
        ({"estimator": GaussianNB(), "aggregation": "sum"}, "aggregation is 'sum'"),
    ):
        with pytest.raises(ValueError, match=said):
            PairwiseLabelRanker(**options).fit(X, Y)


def test_auto_hears_every_candidate_and_is_saved_whole(tmp_path: Path) -> None:
    X, Y = rankings(150)
    stages: list[str] = []
    with listening(lambda fraction, stage: stages.append(stage)):
        model = LabelRankingAuto(n_folds=2, random_state=0).fit(X, Y)
    assert all(tau > 0.5 for name, tau in model.tau_.items() if name != "constant")
    assert sum(model.weights_.values()) == pytest.approx(1.0)
    assert model.blend_tau_ >= max(model.tau_.values()) - 0.02
    assert {f"trying {name}" for name in model.tau_} <= set(stages)
    again = reloaded(model, tmp_path / "model")
    assert again.predict_scores(X).tobytes() == model.predict_scores(X).tobytes()
    assert (again.weights_, again.tau_) == (model.weights_, model.tau_)


def test_validation_on_noise_finds_nothing() -> None:
    """On rankings that no feature tells anything of, whoever is judged by rows it has seen looks good."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    Y = rng.random((200, 4)).argsort(axis=1)
    model = LabelRankingAuto(candidates=["forest", "logistic"], n_folds=4, random_state=0).fit(X, Y)
    assert abs(model.tau_["forest"]) < 0.12, model.tau_
    assert abs(model.tau_["logistic"]) < 0.12, model.tau_


@pytest.mark.parametrize("share_missing", [0.0, 0.6])
def test_where_features_tell_nothing_the_one_ranking_for_all_stays(share_missing: float) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((240, 6)).astype(np.float32)
    Y = positions_of(np.linspace(1.5, -1.5, 6) + rng.standard_normal((240, 6)))
    learned = np.where(rng.random((120, 6)) < share_missing, np.nan, Y[:120])
    learned[np.isnan(learned).all(axis=1), 0] = 0
    model = LabelRankingAuto(candidates=["constant", "forest", "logistic"], random_state=0).fit(
        X[:120], learned
    )
    assert model.weights_ == {"constant": 1.0}
    assert (model.predict(X[120:]) == model.predict(X[:1])).all()
    forest = LabelRankingAuto(candidates=["forest"], random_state=0).fit(X[:120], learned)
    assert model.score(X[120:], Y[120:]) > forest.score(X[120:], Y[120:])
