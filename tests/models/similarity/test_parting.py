"""Pairs parted in place: each keeps its rows, its weight and its learned features, in whatever order it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairmark.models import SimilarityTree
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.kernels.partition import gather_left, partition
from pairmark.models.similarity.trees import Tree, joined_arrays

# What a weight and a number are of a pair of rows, so that one that went elsewhere shows.
ROWS = 500


def table(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.random.default_rng(seed).integers(0, ROWS, (3, n)).astype(np.int32)
    pairs[2] = ROWS * pairs[0] + pairs[1]
    return pairs, (3 * pairs[0] + pairs[1]).astype(np.int32)


def contents(pairs: np.ndarray, weight: np.ndarray) -> list[tuple[int, ...]]:
    return sorted(zip(*pairs.tolist(), weight.tolist(), strict=True))


@given(
    seed=st.integers(0, 1000),
    n=st.one_of(st.integers(0, 40), st.integers(900, 1100), st.integers(1500, 6000)),
    margins=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    threshold=st.floats(-3.0, 3.0, width=32),
)
@example(seed=0, n=2048, margins=(0, 0), threshold=np.inf)
@example(seed=0, n=2049, margins=(3, 0), threshold=-np.inf)
def test_parting_exchanges_whole_pairs(seed: int, n: int, margins: tuple[int, int], threshold: float) -> None:
    column = np.random.default_rng(seed).standard_normal(ROWS).astype(np.float32)
    start, stop = margins[0], margins[0] + n
    pairs, weight = table(seed, stop + margins[1])
    before, weighed = pairs.copy(), weight.copy()
    table_of_pairs = layout.PairTable(rows=pairs, weight=weight, stride=np.uint64(1), n_same=0)
    spare = np.empty((4, 2 * layout.RUN), dtype=np.int32)
    border = partition(column, np.float32(threshold), 1, layout.DIFF_SUM, table_of_pairs, start, stop, spare)
    low = column[pairs[0]] + column[pairs[1]] <= np.float32(threshold)
    assert low[start:border].all()
    assert not low[border:stop].any()
    inside = slice(start, stop)
    assert contents(pairs[:, inside], weight[inside]) == contents(before[:, inside], weighed[inside])
    for outside in (slice(0, start), slice(stop, None)):
        assert np.array_equal(pairs[:, outside], before[:, outside])
        assert np.array_equal(weight[outside], weighed[outside])


@given(seed=st.integers(0, 10_000), depth=st.integers(1, 5))
def test_kept_leaves_come_to_the_front(seed: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    n_heap = 2 << depth
    side, segments = np.zeros(n_heap, dtype=np.int64), np.zeros((n_heap, 4), dtype=np.int64)
    n_same = int(rng.integers(0, 200))
    segments[1] = 0, n_same, n_same, n_same + int(rng.integers(0, 200))
    left = np.zeros(segments[1, 3], dtype=np.bool_)
    for h in range(1, n_heap):
        if h > 1 and side[h >> 1] != layout.INNER:
            continue
        side[h] = rng.choice([layout.INNER, layout.LEFT, layout.RIGHT])
        if h == 1 or (side[h] == layout.INNER and h < 1 << depth):
            side[h] = layout.INNER
            for kind in (0, 2):
                # Now and then nothing at all of a kind.
                start, stop = segments[h, kind : kind + 2]
                border = int(rng.integers(start, stop + 1)) if rng.random() < 0.7 else int(start)
                segments[2 * h, kind : kind + 2], segments[2 * h + 1, kind : kind + 2] = (
                    (start, border),
                    (border, stop),
                )
            continue
        side[h] = layout.LEFT if side[h] == layout.INNER else side[h]
        for kind in (0, 2):
            left[slice(*segments[h, kind : kind + 2])] = side[h] == layout.LEFT
    pairs, weight = table(seed, segments[1, 3])
    kinds = [slice(*segments[1, kind : kind + 2]) for kind in (0, 2)]
    wanted = [
        [contents(pairs[:, kind][:, left[kind] == way], weight[kind][left[kind] == way]) for way in (1, 0)]
        for kind in kinds
    ]
    borders = np.empty(2, dtype=np.int64)
    heap = layout.Heap(
        side=side,
        segments=segments,
        sums=np.zeros((n_heap, 2), dtype=np.int64),
        features=np.zeros((n_heap, 2), dtype=np.int64),
        thresholds=np.zeros(n_heap, dtype=np.float32),
    )
    numbered = layout.PairTable(rows=pairs, weight=weight, stride=np.uint64(1), n_same=n_same)
    gather_left(heap, numbered, np.empty(n_heap, dtype=np.int64), borders)
    for place, middle, (kept, others) in zip(kinds, borders, wanted, strict=True):
        front, back = slice(place.start, middle), slice(middle, place.stop)
        assert contents(pairs[:, front], weight[front]) == kept
        assert contents(pairs[:, back], weight[back]) == others


@pytest.mark.parametrize("weights", ["none", "alike", "whole"])
def test_trees_do_not_depend_on_the_order_of_pairs(weights: str) -> None:
    rng = np.random.default_rng(0)
    n = 9_000
    left, right = rng.standard_normal((2, n, 5)).astype(np.float32)
    same = np.abs(left - right)[:, 0] + 0.5 * rng.standard_normal(n) < 1.0
    weight = {"none": None, "alike": np.full(n, 3), "whole": rng.integers(1, 5, n)}[weights]

    def grown(order: np.ndarray) -> Tree:
        params: dict[str, Any] = {"max_depth": 6, "leaf_depth": 3, "random_state": 0}
        its = None if weight is None else weight[order]
        model = SimilarityTree(**params).fit_pairs(left[order], right[order], same[order], its)
        # What a cell counted is what scores there.
        each = np.ones(n) if weight is None else weight
        tree, scores = model.trees_[0], model.pair_score(left, right)
        for score, cell in zip(tree.leaf_scores(6), tree.cells[tree.leaves], strict=True):
            inside = scores == np.float32(score)
            assert cell[layout.CELL_SAME] == each[inside & same].sum()
            assert cell[layout.CELL_DIFFERENT] == each[inside & ~same].sum()
        return tree

    one, other = grown(np.arange(n)), grown(rng.permutation(n))
    assert len(one.cells) > 30
    for name, array in joined_arrays([one]).items():
        np.testing.assert_array_equal(array, joined_arrays([other])[name])
