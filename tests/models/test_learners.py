"""What every registered learner must do; a new family is tested here by being in ``learner_specs``."""

import json
from copy import copy
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import pairmark
from pairmark.models.core.artefact import ArtefactError, read_artefact
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.registry import learner_specs, spec_for, spec_of

SMALL: dict[str, Any] = {
    "n_estimators": 4,
    "n_pairs": 600,
    "max_depth": 5,
    "random_state": 3,
    "n_folds": 2,
    "depth": 2,
    "k_max": 5,
    "candidates": ["logistic", "extra-trees"],
}
OF_KIND: dict[str, dict[str, Any]] = {
    "similarity-auto": {"candidates": ["cosine", "plda"]},
    "aligned-kernel": {"hidden": (6,), "n_iter": 60},
}
HUGE = float(np.float32(1e18))
CONSTANT_WITHOUT_BOTH_KINDS = {"similarity-tree", "similarity-forest"}
"""Kinds that give every pair one score where the others refuse pairs of one kind; see the family's own tests."""
WITHOUT_LABELS = {"fellegi-sunter"}
"""Kinds that never look at who rows are of."""
SCORERS = [spec for spec in learner_specs() if "similarity" in spec.capabilities]
RANKERS = [spec for spec in learner_specs() if "rank-labels" in spec.capabilities]
FROM_IDENTITIES = [spec for spec in learner_specs() if spec.needs == "identities"]
X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
Y = np.argsort(
    np.argsort(X @ np.random.default_rng(1).standard_normal((4, 5)) + 2.0 * np.eye(3, 5)[y], axis=1), axis=1
).astype(np.float64)


def by_kind(specs: Any) -> Any:
    return pytest.mark.parametrize("spec", specs, ids=lambda spec: spec.kind)


def build(spec: Any, **params: Any) -> Any:
    asked = {**SMALL, **OF_KIND.get(spec.kind, {}), **params}
    known = {name: value for name, value in asked.items() if name in spec.params.model_fields}
    return spec.estimator(**known)


def target(spec: Any) -> Any:
    """What a learner learns from beside X: identities, or positions of five labels."""
    return Y if spec.needs == "rankings" else y


_fitted: dict[str, Any] = {}


def fitted(spec: Any) -> Any:
    """One fitted learner a kind, shared by the tests that only read it."""
    if spec.kind not in _fitted:
        _fitted[spec.kind] = build(spec).fit(X, target(spec))
    return _fitted[spec.kind]


def some_pairs(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return X[rng.integers(0, len(X), n)], X[rng.integers(0, len(X), n)]


@by_kind(SCORERS)
class TestPairScorers:
    @given(data=st.data())
    def test_scores_are_symmetric_to_the_last_bit(self, spec: Any, data: st.DataObject) -> None:
        vector = st.lists(
            st.floats(-HUGE, HUGE, width=32) | st.floats(-10, 10, width=32) | st.sampled_from([0.0, -0.0]),
            min_size=4,
            max_size=4,
        )
        a = np.array(data.draw(st.lists(vector, min_size=3, max_size=3)), dtype=np.float32)
        b = np.array(data.draw(st.lists(vector, min_size=3, max_size=3)), dtype=np.float32)
        forward, backward = fitted(spec).pair_score(a, b), fitted(spec).pair_score(b, a)
        assert (forward.dtype, forward.tobytes()) == (np.float32, backward.tobytes())
        assert np.isfinite(forward).all()

    def test_batches_single_rows_and_galleries_score_alike(self, spec: Any) -> None:
        model = fitted(spec)
        queries, gallery = X[:3], X[40:57]
        grid = model.score_against(queries, gallery)
        assert (grid.shape, grid.dtype) == ((3, 17), np.float32)
        one_by_one = [[model.pair_score(q[None], g[None])[0] for g in gallery] for q in queries]
        assert grid.tobytes() == np.array(one_by_one, dtype=np.float32).tobytes()
        assert grid[2].tobytes() == model.pair_score(queries[2:3], gallery).tobytes()
        assert grid[2].tobytes() == model.pair_score(gallery, queries[2:3]).tobytes()
        assert grid.tobytes() == model.score_against(queries, model.index(gallery)).tobytes()

    def test_pairs_of_rows_by_number_score_as_pairs_of_rows(self, spec: Any) -> None:
        model, rng = fitted(spec), np.random.default_rng(2)
        left, right = rng.integers(
            0, 40, (2, 300)
        )  # most rows in many pairs, some with themselves, some in none
        done: list[float] = []
        got = model.score_pairs(X[30:90], left, right, done.append)
        assert got.dtype == np.float32
        assert got.tobytes() == model.pair_score(X[30:90][left], X[30:90][right]).tobytes()
        assert done[-1] == 1.0
        assert model.score_pairs(X, [], []).shape == (0,)
        for wrong in ([60], [-1], [0.5], [[0]]):
            with pytest.raises(ValueError, match="left"):
                model.score_pairs(X[30:90], wrong, [0])
        with pytest.raises(ValueError, match="left names 2 rows and right 1"):
            model.score_pairs(X, [0, 1], [0])

    def test_top_k_is_exact_best_first_and_ties_by_row(self, spec: Any) -> None:
        model = fitted(spec)
        gallery = np.vstack([X[50:100], X[50:60]])  # repeated rows tie
        ids, scores = model.top_k(X[:5], gallery, 12)
        grid = model.score_against(X[:5], gallery)
        for row in range(5):
            expected = sorted(range(60), key=lambda i, row=row: (-grid[row, i], i))[:12]
            assert ids[row].tolist() == expected
            assert scores[row].tolist() == grid[row, expected].tolist()
        assert model.top_k(X[:1], gallery, 1000)[0].shape == (1, 60)
        with pytest.raises(ValueError, match="k is 0"):
            model.top_k(X[:1], gallery, 0)

    def test_top_k_keeps_to_the_allowed_rows_and_above_the_floor(self, spec: Any) -> None:
        model = fitted(spec)
        gallery, rng = np.vstack([X[50:100], X[50:60]]), np.random.default_rng(5)
        index, grid = model.index(gallery), model.score_against(X[48:52], gallery)
        for mask in (rng.random(60) < 0.5, np.zeros(60, dtype=bool), np.arange(60) == 7):
            for floor in (None, float(np.median(grid)), float(grid.max())):
                ids, scores = model.top_k(X[48:52], index, 9, allowed=mask, above=floor)
                for row in range(4):
                    good = [i for i in np.flatnonzero(mask) if floor is None or grid[row, i] > floor]
                    expected = sorted(good, key=lambda i, row=row: (-grid[row, i], i))[:9]
                    assert ids[row].tolist() == expected + [-1] * (9 - len(expected))
                    assert scores[row, : len(expected)].tolist() == grid[row, expected].tolist()
                    assert (scores[row, len(expected) :] == -np.inf).all()

    def test_a_saved_index_is_opened_by_the_same_model_only(self, spec: Any, tmp_path: Path) -> None:
        model = fitted(spec)
        index = model.index(X[20:90])
        index.save(tmp_path / "index")
        pairmark.save(model, tmp_path / "model")
        for reader in (model, pairmark.load(tmp_path / "model")):
            opened = reader.open_index(tmp_path / "index", verify=True)
            assert len(opened) == 70
            for mine, theirs in zip(
                model.top_k(X[:9], index, 4), reader.top_k(X[:9], opened, 4), strict=True
            ):
                assert mine.tobytes() == theirs.tobytes()
        # A logistic regression is the same whatever the seed.
        if {
            "n_estimators",
            "n_pairs",
        } & spec.params.model_fields.keys() and spec.kind != "similarity-classes":
            other = build(spec, random_state=4).fit(X, y)
            with pytest.raises(ArtefactError, match="another model"):
                other.open_index(tmp_path / "index")
            with pytest.raises(ValueError, match="another model"):
                other.top_k(X[:1], index, 1)

    def test_read_only_and_non_contiguous_input_is_taken(self, spec: Any) -> None:
        model = fitted(spec)
        a, b = some_pairs(50)
        expected = model.pair_score(a, b)
        frozen = np.frombuffer(a.tobytes(), dtype=np.float32).reshape(a.shape)
        assert model.pair_score(frozen, np.asfortranarray(b)).tobytes() == expected.tobytes()
        assert (
            model.pair_score(np.repeat(a, 2, axis=0)[::2], b.astype(np.float64)).tobytes()
            == expected.tobytes()
        )
        assert model.pair_score(a.tolist(), b.tolist()).tobytes() == expected.tobytes()

    def test_learns_something(self, spec: Any) -> None:
        i, j = np.triu_indices(len(y), 1)
        scores, same = fitted(spec).pair_score(X[i], X[j]), y[i] == y[j]
        better = (np.searchsorted(np.sort(scores[~same]), scores[same]) / (~same).sum()).mean()
        assert better > (0.7 if spec.kind in WITHOUT_LABELS else 0.8)

    def test_learns_from_explicit_pairs(self, spec: Any) -> None:
        i, j = np.triu_indices(len(y), 1)
        keep = np.random.default_rng(0).permutation(len(i))[:800]
        i, j = i[keep], j[keep]
        same = y[i] == y[j]
        assert np.isfinite(build(spec).fit_pairs(X[i], X[j], same).pair_score(X[i], X[j])).all()
        weight = np.where(np.arange(len(i)) % 3 == 0, 0.0, 1.0)
        weighted = build(spec).fit_pairs(X[i], X[j], same.astype(int), sample_weight=weight)
        assert np.isfinite(weighted.pair_score(X[i], X[j])).all()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"same": [0, 1, 2, 0]}, "0 and 1"),
            ({"same": [0, 1]}, "shape"),
            ({"same": [1, 1, 1, 1]}, "different"),
            ({"same": [0, 0, 0, 0]}, "same"),
            ({"right": X[:3]}, "right"),
            ({"right": X[:4, :3]}, "right"),
            ({"sample_weight": [1.0, -1.0, 1.0, 1.0]}, "sample_weight"),
            ({"sample_weight": [1.0]}, "sample_weight"),
            ({"sample_weight": [1.0, np.nan, 1.0, 1.0]}, "sample_weight"),
        ],
    )
    def test_refuses_bad_pairs_by_name(self, spec: Any, change: dict[str, Any], message: str) -> None:
        if spec.kind in CONSTANT_WITHOUT_BOTH_KINDS and message in ("same", "different"):
            scores = build(spec).fit_pairs(X[:4], X[50:54], change["same"]).pair_score(*some_pairs())
            assert np.unique(scores).size == 1
            return
        good = {"left": X[:4], "right": X[50:54], "same": [0, 1, 1, 0], "sample_weight": None}
        with pytest.raises(ValueError, match=message):
            build(spec).fit_pairs(**{**good, **change})

    @pytest.mark.parametrize(
        ("left", "right", "message"),
        [
            (X[:2], X[:3], "left has 2 rows and right 3"),
            (X[:2], X[:2, :3], "right.*3 features.*4 features"),
            (X[0], X[0], "left has one dimension"),
            (np.full((1, 4), np.nan), X[:1], "left.*NaN"),
            (X[:1], np.full((1, 4), np.inf), "right.*infinity"),
            (np.empty((0, 4)), X[:1], "left.*0 sample"),
            ([["a", "b", "c", "d"]], X[:1], "left"),
        ],
    )
    def test_refuses_bad_queries_by_name(self, spec: Any, left: Any, right: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            fitted(spec).pair_score(left, right)

    def test_unfitted_says_so(self, spec: Any) -> None:
        with pytest.raises(NotFittedError):
            build(spec).pair_score(X[:1], X[:1])
        with pytest.raises(NotFittedError):
            build(spec).top_k(X[:1], X, 3)

    def test_the_seed_decides_not_the_number_of_threads(self, spec: Any) -> None:
        a, b = some_pairs(20_000)
        again = build(spec, n_jobs=2).fit(X, y)
        assert again.pair_score(a, b).tobytes() == fitted(spec).pair_score(a, b).tobytes()


@by_kind(FROM_IDENTITIES)
class TestFittingFromIdentities:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"y": np.zeros(len(y))}, "single identity"),
            ({"y": np.arange(len(y))}, "every identity has one row"),
            ({"y": y[:-1]}, "shape"),
            ({"y": np.where(y == 0, np.nan, y)}, "NaN"),
            ({"X": np.where(X > 7.5, np.nan, X)}, "X.*NaN"),
            ({"X": X[:, 0]}, "one dimension"),
            ({"X": np.empty((0, 4)), "y": []}, "X.*0 sample"),
        ],
    )
    def test_refuses_bad_data_by_name(self, spec: Any, change: dict[str, Any], message: str) -> None:
        if message == "X.*NaN" and build(spec).__sklearn_tags__().input_tags.allow_nan:
            assert np.isfinite(build(spec).fit(change["X"], y).pair_score(*some_pairs())).all()
            return
        with pytest.raises(ValueError, match=message):
            build(spec).fit(**{"X": X, "y": y, **change})

    def test_identities_may_be_words(self, spec: Any) -> None:
        words = np.array(["ada", "grace", "edsger"])[y]
        a, b = some_pairs()
        assert np.isfinite(build(spec).fit(X, words).pair_score(a, b)).all()


@by_kind(RANKERS)
class TestLabelRankers:
    def test_learns_something(self, spec: Any) -> None:
        assert fitted(spec).score(X, Y) > 0.6
        # On rows that it has not seen, better than one ranking for all of them.
        best_constant = np.argsort(np.argsort(Y[::2].mean(axis=0), kind="stable"))
        constant = pairmark.kendall_tau(np.broadcast_to(best_constant, Y[1::2].shape), Y[1::2]).mean()
        assert build(spec).fit(X[::2], Y[::2]).score(X[1::2], Y[1::2]) > constant + 0.1

    def test_positions_and_scores_agree_in_form(self, spec: Any) -> None:
        model = fitted(spec)
        positions, scores = model.predict(X), model.predict_scores(X)
        assert positions.shape == scores.shape == Y.shape
        assert (np.sort(positions, axis=1) == np.arange(5)).all()
        ordered = np.take_along_axis(scores, np.argsort(positions, axis=1), axis=1)
        assert (np.diff(ordered, axis=1) <= 0).all()

    def test_batches_and_single_rows_rank_alike(self, spec: Any) -> None:
        model = fitted(spec)
        many = np.repeat(X, 40, axis=0)
        scores = model.predict_scores(many)
        for row in (0, 2_999, len(many) - 1):
            np.testing.assert_allclose(model.predict_scores(many[row][None])[0], scores[row], atol=1e-12)
        assert (model.predict(X[::-1].tolist())[::-1] == model.predict(X)).all()

    def test_label_order_changes_nothing_but_the_answers_order(self, spec: Any) -> None:
        shuffled = np.array([3, 0, 4, 2, 1])
        rankings = partly(Y)
        model, other = build(spec).fit(X, rankings), build(spec).fit(X, rankings[:, shuffled])
        assert other.predict(X).tobytes() == np.ascontiguousarray(model.predict(X)[:, shuffled]).tobytes()
        assert (other.predict_scores(X) == model.predict_scores(X)[:, shuffled]).all()
        # Incomplete and partial rankings teach as well.
        assert (np.sort(model.predict(X), axis=1) == np.arange(5)).all()
        assert model.score(X, Y) > 0.5

    def test_only_the_order_of_positions_matters(self, spec: Any) -> None:
        assert build(spec).fit(X, 10.0 + 7.5 * Y**3).predict(X).tobytes() == fitted(spec).predict(X).tobytes()

    def test_two_labels_and_many(self, spec: Any) -> None:
        assert set(build(spec).fit(X, Y[:, :2]).predict(X).ravel()) == {0.0, 1.0}
        wide = np.argsort(np.argsort(np.hstack([Y * (i + 1) % 7 for i in range(4)]), axis=1), axis=1)
        assert build(spec).fit(X[::5], wide[::5]).predict(X[:3]).shape == (3, 20)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"Y": Y[:, :1]}, "Y orders 1 label; expected 2"),
            ({"Y": Y[:-1]}, "Y has shape"),
            ({"Y": Y[:, 0]}, "Y has shape"),
            ({"Y": np.where(np.arange(len(Y))[:, None] == 7, np.nan, Y)}, "row 7 of Y shows no label"),
            ({"Y": np.where(np.arange(5) == 3, np.nan, Y)}, "label 3 of Y is absent in every row"),
            ({"Y": np.where(np.arange(len(Y))[:, None] == 9, np.inf, Y)}, "infinity in row 9"),
            ({"Y": np.where(np.arange(5) == 3, -1, Y)}, "Y holds -1 in row 0.*NaN where a label is absent"),
            ({"Y": np.zeros_like(Y)}, "no row of Y orders two labels"),
            ({"Y": np.full(Y.shape, "first")}, "Y: .*expected"),
            ({"X": np.where(X > 7.5, np.nan, X)}, "X.*NaN"),
            ({"X": X[:, 0]}, "one dimension"),
            ({"X": np.empty((0, 4)), "Y": np.empty((0, 5))}, "X.*0 sample"),
        ],
    )
    def test_refuses_bad_data_by_name(self, spec: Any, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            build(spec).fit(**{"X": X, "Y": Y, **change})

    def test_refuses_bad_queries(self, spec: Any) -> None:
        with pytest.raises(ValueError, match=r"3 features.*4 features"):
            fitted(spec).predict(X[:2, :3])
        with pytest.raises(ValueError, match="NaN"):
            fitted(spec).predict_scores(np.full((1, 4), np.nan))
        with pytest.raises(NotFittedError):
            build(spec).predict(X)

    def test_few_rows_are_enough(self, spec: Any) -> None:
        for n in (1, 2):
            assert (np.sort(build(spec).fit(X[:n], Y[:n]).predict(X[:2]), axis=1) == np.arange(5)).all()

    def test_the_seed_decides_not_the_number_of_threads(self, spec: Any) -> None:
        many = np.repeat(X, 40, axis=0)
        expected, again = fitted(spec), build(spec, n_jobs=2).fit(X, Y)
        assert again.predict_scores(many).tobytes() == expected.predict_scores(many).tobytes()


def partly(rankings: np.ndarray) -> np.ndarray:
    """The same rankings with labels absent here and tied there."""
    rng = np.random.default_rng(5)
    less = np.where(rng.random(rankings.shape) < 0.3, np.nan, rankings)
    less[rng.random(len(rankings)) < 0.3] = np.nan
    return np.where(np.isnan(less).all(axis=1)[:, None], rankings // 2, less)


@by_kind(learner_specs())
class TestEveryLearner:
    def test_params_model_and_estimator_agree(self, spec: Any) -> None:
        assert spec.params().model_dump() == spec.estimator().get_params()
        assert spec_of(spec.kind) is spec
        assert spec_for(spec.estimator()) is spec

    def test_params_have_a_public_schema_with_bounds_and_words(self, spec: Any) -> None:
        schema = spec.params.model_json_schema()
        json.dumps(schema)
        assert schema["additionalProperties"] is False
        assert all("description" in field for field in schema["properties"].values())

    def test_bad_parameters_are_named_at_fit(self, spec: Any) -> None:
        for name, value in {"max_depth": 0, "n_estimators": -1, "random_state": "x"}.items():
            if name in spec.params.model_fields:
                with pytest.raises(ValueError, match=name):
                    build(spec, **{name: value}).fit(X, target(spec))

    def test_remembers_feature_names_and_parameters(self, spec: Any, tmp_path: Path) -> None:
        model = copy(fitted(spec))
        model.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
        model.save(tmp_path / "named")
        loaded = pairmark.load(tmp_path / "named")
        assert loaded.feature_names_in_.tolist() == ["a", "b", "c", "d"]
        assert loaded.get_params() == model.get_params()

    def test_artefacts_hold_plain_arrays_only(self, spec: Any, tmp_path: Path) -> None:
        digest = pairmark.save(fitted(spec), tmp_path / "model")
        artefact = read_artefact(tmp_path / "model")
        assert (artefact.sha256, artefact.kind) == (digest, spec.kind)
        assert all(array.dtype.kind in "biufSU" for array in artefact.arrays.values())
        assert not [file.name for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_unknown_kinds_and_strangers_are_named() -> None:
    with pytest.raises(KeyError, match="plda"):
        spec_of("no-such-kind")
    with pytest.raises(KeyError, match="int is not a registered learner"):
        spec_for(3)


def test_public_names_are_sorted_and_exist() -> None:
    assert sorted(pairmark.__all__) == sorted(" ".join(pairmark.models._MODULES.values()).split())
    assert all(hasattr(pairmark, name) for name in pairmark.__all__)
    assert {spec.estimator.__name__ for spec in learner_specs()} <= set(pairmark.__all__)


def test_a_class_that_is_no_learner_is_refused_as_it_is_declared() -> None:
    needs: list[Literal["identities", "rankings"]] = ["identities", "rankings"]
    for needed in needs:
        with pytest.raises(TypeError, match="twins: dict is no"):
            LearnerSpec(kind="twins", title="", estimator=dict, capabilities=frozenset(), needs=needed)
