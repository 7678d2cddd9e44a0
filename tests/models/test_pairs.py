"""Sampling of training pairs, and the symmetric maps."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pairmark.models.pairs.samples import independent_blocks
from pairmark.models.pairs.sampling import MAX_PAIRS, pair_features, sample_pairs

codes = st.lists(st.integers(0, 4), min_size=2, max_size=14)


def all_pairs(y: np.ndarray) -> set[tuple[int, int]]:
    return {(i, j) for i in range(len(y)) for j in range(i + 1, len(y))}


def as_set(pairs: object) -> list[tuple[int, int]]:
    return [tuple(sorted(p)) for p in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)]  # type: ignore[attr-defined]


@given(y=codes)
def test_none_means_every_pair_once(y: list[int]) -> None:
    labels = np.array(y)
    pairs = sample_pairs(labels, None, random_state=0)
    assert sorted(as_set(pairs)) == sorted(all_pairs(labels))
    assert pairs.same.tolist() == (labels[pairs.left] == labels[pairs.right]).tolist()


@given(y=codes, n_pairs=st.integers(2, 40), seed=st.integers(0, 99))
def test_a_sample_is_distinct_true_and_of_both_kinds(y: list[int], n_pairs: int, seed: int) -> None:
    labels = np.array(y)
    pairs = sample_pairs(labels, n_pairs, random_state=seed)
    n_same = sum(labels[i] == labels[j] for i, j in all_pairs(labels))
    total = len(all_pairs(labels))
    assert pairs.same.size == min(n_pairs, total)
    assert len(set(as_set(pairs))) == pairs.same.size
    assert set(as_set(pairs)) <= all_pairs(labels)
    assert pairs.same.tolist() == (labels[pairs.left] == labels[pairs.right]).tolist()
    if 0 < n_same < total:
        assert pairs.same.any()
        assert not pairs.same.all()
    again = sample_pairs(labels, n_pairs, random_state=seed)
    assert as_set(again) == as_set(pairs)


def test_pairs_of_a_kind_are_drawn_uniformly() -> None:
    y = np.array([0, 0, 0, 0, 1, 1, 2])
    counts: Counter[tuple[int, int]] = Counter()
    runs = 1_000
    for seed in range(runs):
        counts.update(as_set(sample_pairs(y, 4, random_state=seed)))
    for kind, size in ((True, 7), (False, 14)):
        seen = [counts[p] for p in all_pairs(y) if (y[p[0]] == y[p[1]]) == kind]
        expected = 2 * runs / size
        assert len(seen) == size
        # Six standard deviations of a binomial count.
        assert max(abs(np.array(seen) - expected)) < 6 * np.sqrt(expected)


def test_half_of_the_pairs_are_same_as_far_as_there_are() -> None:
    y = np.repeat(np.arange(50), 20)
    assert sample_pairs(y, 4000, random_state=1).same.sum() == 2000
    assert sample_pairs(y, 40_000, random_state=1).same.sum() == 50 * 190


def test_one_giant_identity_among_ten_thousand_costs_no_square() -> None:
    y = np.concatenate([np.zeros(100_000, dtype=np.int64), np.arange(1, 10_001)])
    tracemalloc.start()
    pairs = sample_pairs(y, 10_000, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    assert pairs.same.sum() == 5000
    assert (y[pairs.left] == y[pairs.right]).tolist() == pairs.same.tolist()


@pytest.mark.parametrize(
    ("codes", "n_pairs", "said"),
    [
        (np.arange(40_000) // 2, None, str(MAX_PAIRS)),
        ([0, 0, 1], 1, "n_pairs is 1"),
        ([[0, 0, 1]], 2, "shape"),
    ],
)
def test_refuses_what_cannot_be_held(codes: Any, n_pairs: int | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sample_pairs(codes, n_pairs, random_state=0)


vectors = arrays(np.float32, (5, 3), elements=st.floats(-1e6, 1e6, width=32))


@given(a=vectors, b=vectors)
def test_maps_are_symmetric_and_lose_only_the_order(a: np.ndarray, b: np.ndarray) -> None:
    for name in ("diff-sum", "max-min"):
        f = pair_features(a, b, name)
        assert f.shape == (5, 6)
        assert f.dtype == np.float32
        assert (f == pair_features(b, a, name)).all()
    # Lemma 1: from |x - x'| and x + x' both values can be had back, up to their order.
    f = pair_features(a.astype(np.float64), b.astype(np.float64))
    assert np.allclose((f[:, 3:] + f[:, :3]) / 2, np.maximum(a, b))
    with pytest.raises(ValueError, match="pair_map"):
        pair_features(a, b, "product")


def fewest_colours(edges: list[tuple[int, int]]) -> int:
    """Colours that edges need so that no two of a colour share an end, by trying."""

    def fits(n_colours: int, taken: list[int]) -> bool:
        if len(taken) == len(edges):
            return True
        mine = set(edges[len(taken)])
        beside = {colour for edge, colour in zip(edges, taken, strict=False) if mine & set(edge)}
        choices = (
            colour for colour in range(min(n_colours, max(taken, default=-1) + 2)) if colour not in beside
        )
        return any(fits(n_colours, [*taken, colour]) for colour in choices)

    return next(n for n in range(1, len(edges) + 1) if fits(n, []))


@given(
    edges=st.sets(
        st.tuples(st.integers(0, 5), st.integers(0, 5)).filter(lambda e: e[0] < e[1]), min_size=1, max_size=9
    )
)
@example(edges={(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)})
def test_blocks_of_a_list_are_as_many_as_disjoint_pairs_can_stand_for(edges: set[tuple[int, int]]) -> None:
    """Averages over disjoint pairs of equal number: P pairs of a graph that needs c colours have at most P / c each."""
    listed = sorted(edges)
    assert independent_blocks(np.array(listed)) <= len(listed) / fewest_colours(listed)
