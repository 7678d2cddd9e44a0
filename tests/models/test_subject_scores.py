"""Subjects of several samples: one score for each pair of people, by every learner that scores pairs."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark import MetricSimilarity, Plda, SimilarityAuto, SimilarityTree
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.pairs.sampling import SubjectPairs, TooFewSamples, subject_pairs

RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.standard_normal((30, 6))
X = (CENTRES[np.repeat(np.arange(30), 6)] + 0.7 * RANDOM.standard_normal((180, 6))).astype(np.float32)
Y = np.repeat(np.arange(30), 6)
MODELS: dict[str, Any] = {
    "cosine": MetricSimilarity("cosine").fit(X, Y),
    "euclidean": MetricSimilarity("euclidean", whiten=True).fit(X, Y),
    "tree": SimilarityTree(random_state=0).fit(X, Y),
    "plda": Plda(marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1).fit(X, Y),
    "plda with trees": Plda(
        marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1, residual_rounds=25
    ).fit(X, Y),
    "plda cosine": Plda(
        marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1, scoring="cosine"
    ).fit(X, Y),
    "auto": SimilarityAuto(candidates=["plda"], random_state=0).fit(X, Y),
}
WAYS = {"mean": np.mean, "best": np.max, "median": np.median}
CASES = [(name, way) for name, model in MODELS.items() for way in model.aggregations]


def sides(seed: int, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(seed)

    def side() -> list[np.ndarray]:
        return [X[random.permutation(180)[: random.integers(1, 6)]] for _ in range(n)]

    return side(), side()


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_samples_become_one_score(name: str) -> None:
    model = MODELS[name]
    left, right = sides(1, 20)
    for way, of in WAYS.items():
        expected = [
            of(model.score_against(a, b).astype(np.float64)) for a, b in zip(left, right, strict=True)
        ]
        got = model.subject_score(left, right, aggregation=way)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "way"), CASES)
def test_sides_and_order_change_no_bit(name: str, way: str) -> None:
    model, random = MODELS[name], np.random.default_rng(2)
    left, right = sides(3, 40)
    got = model.subject_score(left, right, aggregation=way)
    shuffled = [random.permutation(samples) for samples in left]
    assert model.subject_score(right, shuffled, aggregation=way).tobytes() == got.tobytes()
    taken = [[side[at] for at in (3, 0, 17)] for side in (left, right)]
    assert model.subject_score(*taken, aggregation=way).tobytes() == got[[3, 0, 17]].tobytes()


@pytest.mark.parametrize(("name", "way"), CASES)
def test_one_sample_scores_as_the_vector_does(name: str, way: str) -> None:
    model = MODELS[name]
    a, b = X[:50], X[100:150]
    got = model.subject_score([row[None] for row in a], [row[None] for row in b], aggregation=way)
    assert got.tobytes() == model.pair_score(a, b).tobytes()
    many = model.subject_score([a[:1]], [row[None] for row in b], aggregation=way)
    assert many.tobytes() == model.pair_score(a[:1], b).tobytes()


def test_sparse_samples_are_taken() -> None:
    model = MODELS["cosine"]
    left, right = sides(5, 6)
    dense = model.subject_score(left, right)
    np.testing.assert_allclose(
        model.subject_score([csr_array(a) for a in left], [csr_array(b) for b in right]), dense, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("left", "right", "aggregation", "said"),
    [
        ([X[:2]], [X[2:3]], "plda", r"'plda' needs a PLDA model .* MetricSimilarity has mean, best, median"),
        ([X[:2]], [X[2:3]], "max", "aggregation is 'max'; expected one of auto, mean"),
        ([X[:2], X[0]], [X[:1]], "auto", "subject 1 has samples of shape"),
        ([], [X[:1]], "auto", "samples names no subject"),
        ([X[:2], X[:2, :3]], [X[:1]], "auto", "different numbers of features"),
        ([X[:1]] * 2, [X[:1]] * 3, "auto", "left has 2 subjects and right 3"),
    ],
)
def test_what_is_wrong_is_said(left: Any, right: Any, aggregation: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MODELS["cosine"].subject_score(left, right, aggregation=aggregation)


COUNTS = np.array([12, 5, 11, 30, 4, 10, 11, 12])
WHO = np.repeat(np.arange(COUNTS.size), COUNTS)


def samples(pairs: SubjectPairs, subject: int) -> np.ndarray:
    ends = np.cumsum(pairs.counts)
    return pairs.index[ends[subject] - pairs.counts[subject] : ends[subject]]


@pytest.mark.parametrize(("k", "p"), [(10, 1), (3, 3), (1, 4)])
def test_every_two_people_meet_both_ways(k: int, p: int) -> None:
    pairs = subject_pairs(WHO, k, p, n_pairs=4_000, random_state=1)
    able = np.flatnonzero(max(k, p) <= COUNTS)
    assert pairs.n_people == able.size
    assert pairs.n_mated == np.count_nonzero(k + p <= COUNTS)
    directions: Counter[tuple[int, int]] = Counter()
    for at in range(len(pairs)):
        left, right = samples(pairs, pairs.left[at]), samples(pairs, pairs.right[at])
        assert sorted((left.size, right.size)) == sorted((k, p))
        assert np.unique(left).size == left.size
        whose = WHO[left[0]], WHO[right[0]]
        assert (WHO[left] == whose[0]).all()
        assert (WHO[right] == whose[1]).all()
        assert (pairs.units[at].tolist(), pairs.same[at]) == (list(whose), whose[0] == whose[1])
        if pairs.same[at]:
            assert not np.intersect1d(left, right).size
        else:
            enrolled, probe = whose if left.size == k else whose[::-1]
            directions[enrolled, probe] += 1
    if k != p:
        # As often k samples of one with p of the other as the reverse: the kernel is symmetric.
        assert all(directions[i, j] == directions[j, i] for i, j in directions)
    assert {frozenset(pair) for pair in directions} == {
        frozenset((i, j)) for i in able.tolist() for j in able.tolist() if i < j
    }


def test_the_draw_repeats_and_keeps_to_its_budget() -> None:
    who = np.repeat(np.arange(400), 6)
    one, two = (subject_pairs(who, 4, 2, n_pairs=5_000, random_state=7) for _ in range(2))
    assert len(one) <= 5_000 * 1.3
    for name in ("index", "left", "right", "same", "units"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    assert subject_pairs(who, 4, 2, n_pairs=5_000, random_state=8).index.tobytes() != one.index.tobytes()


def test_people_of_one_unit_are_never_paired_as_different() -> None:
    pairs = subject_pairs(WHO, 3, 1, n_pairs=2_000, units=WHO // 2)
    apart = pairs.units[~pairs.same]
    assert (apart[:, 0] != apart[:, 1]).all()
    assert (pairs.units[pairs.same, 0] == pairs.units[pairs.same, 1]).all()


def test_too_few_samples_say_what_there_is() -> None:
    with pytest.raises(TooFewSamples, match="1 of 8 people have 20 samples") as caught:
        subject_pairs(WHO, 20, 1)
    assert (caught.value.n_samples, caught.value.n_people, caught.value.largest) == (20, 1, 12)


def test_a_calibration_counts_people_not_draws() -> None:
    pairs = subject_pairs(np.repeat(np.arange(60), 8), 5, 1, n_pairs=20_000)
    scores = np.random.default_rng(0).normal(size=len(pairs)) + 3 * pairs.same
    made = Calibration.fit(scores, pairs.same, pairs.units, protocol="open-set")
    assert made.operating_point(0.2).n_units == 60
    assert made.smallest_fpr()["finite-sample"] == pytest.approx(1 - 0.05 ** (1 / 30), rel=0.02)
