"""Inputs that learners are not made for, and what must not change what they learn: names, buffers, one person."""

import csv
import io
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark import (
    LabelRankingTree,
    MetricSimilarity,
    Plda,
    RankBoostKernel,
    RecordSimilarity,
    SimilarityAuto,
    SimilarityForest,
    SimilarityLogistic,
    operating_point,
)
from pairmark.models.core.artefact import ArtefactError, read_artefact
from pairmark.models.registry import restore_learner
from tests.models.saving import reloaded

LEARNERS = (
    Plda(),
    MetricSimilarity(metric="euclidean", whiten=True),
    SimilarityForest(n_estimators=3, random_state=0),
    RankBoostKernel(n_estimators=5, random_state=0),
)


def people(n: int = 40, rows: int = 3, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n), rows)
    return (rng.normal(size=(n, d))[y] + 0.5 * rng.normal(size=(n * rows, d))).astype(np.float32), y


@pytest.mark.parametrize("learner", LEARNERS[:3], ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize("seed", range(3))
def test_what_people_are_called_plays_no_part(learner: Plda, seed: int) -> None:
    X, y = people(seed=seed)
    scores = learner.fit(X, y).pair_score(X[::2], X[1::2])
    for names in ([f"p{number}" for number in y], [f"{97 * number % 101:03d}" for number in y], -y):
        np.testing.assert_array_equal(learner.fit(X, np.array(names)).pair_score(X[::2], X[1::2]), scores)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_a_buffer_that_is_filled_again_does_not_change_an_index(learner: Plda) -> None:
    X, y = people()
    learner.fit(X, y)
    buffer = X[:100].copy()
    index = learner.index(buffer)
    ids, scores = learner.top_k(X[:3], index, 3)
    buffer[:] = 0
    again = learner.top_k(X[:3], index, 3)
    np.testing.assert_array_equal(again[0], ids)
    np.testing.assert_array_equal(again[1], scores)


class Frame:
    """A table as pandas shows one."""

    def __init__(self, names: list[str], cells: list[list[object]]) -> None:
        self.columns, self._cells = names, cells

    def __getitem__(self, name: str) -> list[object]:
        return self._cells[self.columns.index(name)]


class NAType:
    """As pandas' value for a cell that is not there."""


def test_rows_of_a_csv_reader_are_read_as_the_file_is() -> None:
    text = "name,age,vip\n" + "\n".join(
        f"n{at // 2} k{at % 3},{20 + at % 30 if at % 7 else 'N/A'},{'yes' if at % 2 else 'no'}"
        for at in range(60)
    )
    rows = list(csv.DictReader(io.StringIO(text)))
    who = [at // 2 for at in range(60)]
    model = RecordSimilarity(random_state=0).fit(rows, who)
    table = {name: [row[name] for row in rows] for name in rows[0]}
    other = RecordSimilarity(random_state=0).fit(table, who)
    np.testing.assert_array_equal(
        model.pair_score(rows[:9], rows[1:10]), other.pair_score(rows[:9], rows[1:10])
    )
    # What a data frame has for no cell is none, in every way of giving it.
    for nothing in (None, float("nan"), "N/A", "", NAType()):
        half = [{**row, "age": nothing} for row in rows[:9]]
        np.testing.assert_array_equal(
            model.pair_score(half, rows[1:10]),
            model.pair_score([{**row, "age": None} for row in half], rows[1:10]),
        )


def test_a_record_without_a_cell_is_refused_everywhere() -> None:
    rows = [{"name": f"n{at // 2}", "city": ("graz", "lyon")[at % 2]} for at in range(40)]
    who = [at // 2 for at in range(40)]
    model = RecordSimilarity(n_estimators=10, random_state=0).fit(rows, who)
    words = "has no cell, so there is nothing to compare"
    for nothing in ({}, {"name": ""}, {"name": "N/A", "city": None}):
        for asks in (
            lambda: model.pair_score([nothing], rows[:1]),  # noqa: B023
            lambda: model.index([*rows, nothing]),  # noqa: B023
            lambda: RecordSimilarity().fit([*rows, nothing], [*who, 0]),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=words):
                asks()


def test_labels_of_one_spelling_are_one_and_words_for_nobody_are_none() -> None:
    X = np.random.default_rng(0).normal(size=(80, 3))
    who = [f"é{at // 2}" for at in range(80)]
    spelled = [normalize("NFD", name) + " " if at % 2 else name for at, name in enumerate(who)]
    np.testing.assert_array_equal(
        Plda().fit(X, spelled).pair_score(X[:9], X[1:10]), Plda().fit(X, who).pair_score(X[:9], X[1:10])
    )
    for word in ("unknown", "N/A", "-"):
        with pytest.raises(ValueError, match=f"8 of 80 rows name nobody.*'{word}' 8"):
            Plda().fit(X, [word] * 8 + who[8:])
    # Of few labels, which may be classes, one may be `none`.
    Plda().fit(X, ["none", "mild"] * 40)
    with pytest.raises(ValueError, match="no identity in 2 of 80 rows"):
        Plda().fit(X, np.array([None, None, *who[2:]], dtype=object))


def test_units_of_one_spelling_are_one() -> None:
    left, right = np.triu_indices(60, 1)
    same, scores = left // 2 == right // 2, np.random.default_rng(0).normal(size=left.size)
    names = np.array([f"p{at // 2}" for at in range(60)])
    plain = operating_point(scores, same, 0.4, units=(names[left], names[right]))
    assert operating_point(scores, same, 0.4, units=(names[left], np.char.add(names, " ")[right])) == plain
    with pytest.raises(ValueError, match=r"name nobody.*'unknown'"):
        operating_point(
            scores, same, 0.4, units=(np.where(names == "p3", "unknown", names)[left], names[right])
        )


@pytest.mark.parametrize("first", [5, 2**63 - 8, 2**63])
@pytest.mark.parametrize("as_number", [int, np.uint64])
def test_units_are_told_apart_by_every_bit_of_their_numbers(first: int, as_number: type) -> None:
    left, right = np.triu_indices(60, 1)
    same, scores = left // 2 == right // 2, np.random.default_rng(0).normal(size=left.size)
    ids = np.array([as_number(first + at // 2) for at in range(60)], dtype=object)
    plain = operating_point(scores, same, 0.4, units=(left // 2, right // 2))
    assert operating_point(scores, same, 0.4, units=(ids[left], ids[right])) == plain


def test_scores_that_float32_does_not_tell_apart_are_refused_with_their_number() -> None:
    left, right = np.triu_indices(60, 1)
    scores = np.random.default_rng(0).normal(size=left.size)
    asks = partial(operating_point, same=left // 2 == right // 2, fpr=0.4, units=(left // 2, right // 2))
    for close in (1 + 1e-7 * scores, 1e8 + scores):
        with pytest.raises(ValueError, match=r"1,770 different ones become \d+ as float32"):
            asks(close)
    assert asks(1e4 + scores).tpr == asks(scores).tpr


def test_tables_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="two columns are called 'city'"):
        RecordSimilarity().fit(Frame(["city", "city"], [["a", "b"], ["c", "d"]]), [0, 1])
    with pytest.raises(ValueError, match="different lengths"):
        RecordSimilarity().fit({"city": ["a", "b", "c"], "name": ["x", "y"]}, [0, 0, 1])


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_one_pair_is_checked_like_many(learner: Plda) -> None:
    X, y = people()
    learner.fit(X, y)
    alone = [learner.pair_score(X[at : at + 1], X[at + 1 : at + 2])[0] for at in range(20)]
    # Lists are read by scikit-learn, which checks every row.
    np.testing.assert_array_equal(alone, learner.pair_score(X[:20].tolist(), X[1:21].tolist()))
    for wrong, message in (
        (np.full((1, 4), np.inf), "infinity"),
        (np.full((1, 4), np.nan), "NaN"),
        (np.full((1, 4), 1e300), "too large"),
        (np.zeros((1, 3)), "3 features"),
        (np.zeros((0, 4)), "0 sample"),
        (np.zeros(4), "one dimension"),
    ):
        with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
            learner.pair_score(wrong, X[:1])


RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(30), 6)
X = (RNG.standard_normal((30, 6))[Y] * 2 + RNG.standard_normal((180, 6))).astype(np.float32)
HOLES = X.copy()
HOLES[RNG.random(X.shape) < 0.1] = np.nan
FILLING: list[Any] = [
    Plda(shrink_within=0.2, shrink_between=0.1),
    MetricSimilarity(whiten=True),
    SimilarityForest(n_estimators=5),
    SimilarityAuto(candidates=["cosine", "plda"]),
]


@pytest.mark.parametrize("model", FILLING, ids=lambda model: type(model).__name__)
def test_a_model_of_rows_with_holes_takes_them_and_is_saved_with_what_fills_them(
    model: Any, tmp_path: Path
) -> None:
    model.fit(HOLES, Y)
    assert model.score(HOLES, Y) > 0.75
    scores = model.pair_score(HOLES[:90], HOLES[90:])
    index = model.index(HOLES)
    assert np.array_equal(model.top_k(HOLES[:3], index, 5)[1], model.top_k(HOLES[:3], HOLES, 5)[1])
    loaded = reloaded(model, tmp_path / "model")
    assert loaded.pair_score(HOLES[:90], HOLES[90:]).tobytes() == scores.tobytes()
    artefact = read_artefact(tmp_path / "model")
    artefact.arrays["missing-fill"] = np.zeros(5, dtype=np.float32)
    with pytest.raises(ArtefactError, match="missing-fill"):
        restore_learner(artefact)
    # Other rows fill otherwise: an index of the one model is not one of the other.
    model.fill_ = model.fill_ + 1
    with pytest.raises(ValueError, match="made by another model"):
        model.top_k(HOLES[:3], index, 5)
    model.fit(X, Y)
    with pytest.raises(ValueError, match="X contains NaN: no training row had a missing value"):
        model.score_pairs(HOLES, np.arange(90), np.arange(90, 180))


@pytest.mark.parametrize("n_empty", [1, 180])
@pytest.mark.parametrize("model", FILLING, ids=lambda model: type(model).__name__)
def test_rows_of_nothing_but_nan_are_refused(model: Any, n_empty: int) -> None:
    rows = X.copy()
    rows[:n_empty] = np.nan
    with pytest.raises(ValueError, match=f"{n_empty} of 180 training rows hold nothing but NaN"):
        model.fit(rows, Y)
    same = Y[:90] == Y[90:]
    same[:40] = True
    with pytest.raises(ValueError, match="hold nothing but NaN"):
        model.fit_pairs(rows[:90], rows[90:], same)


def test_a_forest_cuts_what_is_missing_off() -> None:
    """What is missing tells people apart here, and nothing else does."""
    rows = np.random.default_rng(1).standard_normal((180, 3)).astype(np.float32)
    rows[Y % 2 == 0, 0] = np.nan
    model = SimilarityForest(n_estimators=10, max_features=None).fit(rows, Y)
    odd, even = np.flatnonzero(Y % 2), np.flatnonzero(Y % 2 == 0)
    across = model.pair_score(rows[odd], rows[even])
    assert model.pair_score(rows[even[:-6]], rows[even[6:]]).mean() > across.mean() + 2


def test_listed_pairs_have_holes_on_either_side() -> None:
    same = Y[:90] == Y[:90][::-1]
    same[:45] = True
    left, right = X[:90].copy(), HOLES[90:]
    model = SimilarityForest(n_estimators=3).fit_pairs(left, right, same)
    assert np.isfinite(model.pair_score(HOLES[:90], right)).all()


def test_columns_without_any_value_and_infinities() -> None:
    rows = HOLES.copy()
    rows[:, 2] = np.nan
    for model in FILLING:
        assert np.isfinite(model.fit(rows, Y).pair_score(rows[:90], rows[90:])).all()
        with pytest.raises(ValueError, match="infinity"):
            model.fit(np.where(np.isnan(rows), np.inf, rows), Y)
    huge = (rows.astype(np.float64) * 1e38).clip(-3e38, 3e38)
    assert np.isfinite(SimilarityForest(n_estimators=2).fit(huge, Y).fill_).all()


def test_others_refuse_them_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"X contains NaN: fill missing values first.*or use SimilarityAuto"):
        SimilarityLogistic().fit(HOLES, Y)
    sparse = csr_array(np.where(np.isnan(HOLES), 0, HOLES))
    sparse.data[0] = np.nan
    with pytest.raises(ValueError, match="X contains NaN: fill missing values first"):
        MetricSimilarity().fit(sparse, Y)


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (SimilarityAuto(n_jobs=0), "SimilarityAuto: n_jobs is 0: Input should be -1"),
        (SimilarityForest(n_jobs=0), "n_jobs is 0"),
        (SimilarityForest(n_jobs="2"), "n_jobs is '2': Input should be the number 2, not text"),
        (SimilarityForest(n_estimators="5"), "n_estimators is '5'"),
        (LabelRankingTree(n_jobs=0), "n_jobs is 0"),
        (LabelRankingTree(), "SimpleImputer does$"),
    ],
)
def test_a_parameter_or_cell_that_a_learner_cannot_take_is_named(learner: Any, words: str) -> None:
    X, y = people()
    Y = np.argsort(X[:, :3])
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match=words):
        learner.fit(X, Y if isinstance(learner, LabelRankingTree) else y)
