"""Splits, score-blind designs of pairs, and sampling of training pairs."""

import tracemalloc
from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pairmark.models.pairs.lists import (
    ListedUnits,
    contradictory_pairs,
    distinct_rows,
    fold_pairs,
    identities_of_pairs,
    list_blocks,
    listed_units,
)
from pairmark.models.pairs.samples import independent_blocks
from pairmark.models.pairs.sampling import MAX_PAIRS, held_out_pairs, pair_features, sample_pairs
from pairmark.models.pairs.splits import Split, identity_folds, split_data, split_pairs


@given(
    m=st.integers(8, 60),
    per=st.integers(2, 9),
    protocol=st.sampled_from(["open-set", "closed-set"]),
    seed=st.integers(0, 2**31),
)
def test_parts_are_disjoint_and_cover_every_row(m: int, per: int, protocol: str, seed: int) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(m), per))
    split = split_data(y, protocol=protocol, random_state=seed)
    parts = [split.train, split.calibration, split.test]
    assert sorted(np.concatenate(parts)) == list(range(y.size))
    if protocol == "open-set":
        identities = [set(y[part].tolist()) for part in parts]
        assert len(set.union(*identities)) == sum(map(len, identities)), "nobody is in two parts"


def test_auto_holds_out_identities_from_thirty_on() -> None:
    assert split_data(np.repeat(np.arange(30), 4), random_state=0).protocol == "open-set"
    assert split_data(np.repeat(np.arange(29), 4), random_state=0).protocol == "closed-set"


def test_fractions_are_shares_of_units() -> None:
    y = np.repeat(np.arange(100), 5)
    split = split_data(y, protocol="open-set", calibration_fraction=0.3, test_fraction=0.1, random_state=0)
    assert [np.unique(y[part]).size for part in (split.train, split.calibration, split.test)] == [60, 30, 10]
    assert split_data(y, protocol="closed-set", test_fraction=0, random_state=0).test.size == 0


def test_test_rows_hold_pairs_of_one_class_even_when_classes_are_small() -> None:
    y = np.repeat(np.arange(29), 2)
    for seed in range(50):
        split = split_data(y, protocol="closed-set", random_state=seed)
        assert np.bincount(y[split.test]).max() > 1
        assert np.bincount(y[split.train]).max() > 1


def test_test_identities_with_one_row_are_shared_out() -> None:
    y = np.concatenate([np.arange(90), np.repeat(np.arange(90, 100), 5)])
    for seed in range(20):
        counts = np.bincount(y[split_data(y, protocol="open-set", random_state=seed).test])
        assert 1 <= (counts > 1).sum() <= 4


def test_same_seed_same_split() -> None:
    y = np.repeat(np.arange(40), 3)
    first, second = (split_data(y, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(first.calibration, second.calibration)
    assert not np.array_equal(first.calibration, split_data(y, random_state=8).calibration)


@pytest.mark.parametrize(
    ("y", "options", "said"),
    [
        (np.zeros(10), {}, "single identity"),
        (np.arange(10), {}, "every identity has one row"),
        (np.repeat([0, 1], 2), {}, "bring more data"),
        (np.repeat([0, 1, 2, 3], 5), {"protocol": "open-set"}, "4 identities give"),
        (np.repeat(np.arange(9), 5), {"protocol": "openset"}, "expected 'auto', 'open-set' or 'closed-set'"),
        (np.repeat(np.arange(9), 5), {"calibration_fraction": 0}, "above 0"),
        (np.repeat(np.arange(9), 5), {"calibration_fraction": 0.6, "test_fraction": 0.5}, "left to train on"),
        (np.repeat(np.arange(9), 5), {"test_fraction": float("nan")}, "test_fraction is nan"),
        (np.concatenate([np.zeros(99), [1.0]]), {}, "part holds 1 identities"),
    ],
)
def test_what_is_short_is_named(y: np.ndarray, options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        split_data(y, random_state=0, **options)


@given(
    counts=st.lists(st.integers(1, 7), min_size=2, max_size=25),
    n_pairs=st.integers(1, 4_000),
    protocol=st.sampled_from(["open-set", "closed-set"]),
    seed=st.integers(0, 2**31),
)
def test_held_out_pairs_are_distinct_and_labelled(
    counts: list[int], n_pairs: int, protocol: str, seed: int
) -> None:
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    pairs = held_out_pairs(y, protocol=protocol, n_pairs=n_pairs, random_state=seed)
    drawn = {frozenset(pair) for pair in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)}
    assert len(drawn) == len(pairs)
    assert (pairs.left != pairs.right).all()
    np.testing.assert_array_equal(pairs.same, y[pairs.left] == y[pairs.right])
    ends = np.stack([pairs.left, pairs.right], axis=1)
    # Identities are numbered as they first appear: what they are called plays no part.
    number = {identity: at for at, identity in enumerate(dict.fromkeys(y.tolist()))}
    units = np.vectorize(number.get)(y[ends]) if protocol == "open-set" else ends
    np.testing.assert_array_equal(pairs.units, units)
    # At least one pair a unit is kept even when the budget is smaller than that.
    assert len(pairs) <= max(n_pairs, 2 * y.size + len(counts))


def test_everything_is_scored_when_it_fits() -> None:
    y = np.repeat(np.arange(6), 4)
    for protocol in ("open-set", "closed-set"):
        assert len(held_out_pairs(y, protocol=protocol, n_pairs=10_000, random_state=0)) == 24 * 23 // 2


def test_every_pair_of_identities_weighs_the_same_while_they_fit() -> None:
    pairs = held_out_pairs(
        np.repeat(np.arange(20), [2, 9] * 10), protocol="open-set", n_pairs=1_200, random_state=0
    )
    edges, rows = np.unique(np.sort(pairs.units[~pairs.same], axis=1), axis=0, return_counts=True)
    assert edges.shape[0] == 190
    assert rows.min() >= 4
    assert rows.max() - rows.min() <= 1
    assert pairs.same.sum() <= 300


@pytest.mark.parametrize("protocol", ["open-set", "closed-set"])
@pytest.mark.parametrize("m", [101, 400, 403])
@pytest.mark.parametrize("each", [1, 5, 20])
def test_more_units_than_pairs_fall_into_cells_with_all_their_pairs(protocol: str, m: int, each: int) -> None:
    """Whatever the number of pairs, floor(m / 2) of them share no unit."""
    y = np.arange(m) if protocol == "open-set" else np.arange(m) % 10
    pairs = held_out_pairs(y, protocol=protocol, n_pairs=each * m, random_state=3)
    assert len(pairs) < m * (m - 1) // 2
    edges = np.unique(np.sort(pairs.units, axis=1), axis=0)
    assert edges.shape[0] == len(pairs)
    assert 0.7 * each * m - m < edges.shape[0] <= max(each * m, m // 2 + 2)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(m, m))
    sizes = np.bincount(connected_components(graph, directed=False)[1])
    assert edges.shape[0] == (sizes * (sizes - 1) // 2).sum()
    assert (sizes % 2).sum() == m % 2
    assert sizes.max() - sizes.min() <= 3


def test_the_design_does_not_look_at_labels_in_closed_set_use() -> None:
    y = np.random.default_rng(0).integers(0, 5, 300)
    first = held_out_pairs(y, protocol="closed-set", n_pairs=2_000, random_state=1)
    second = held_out_pairs(np.roll(y, 7), protocol="closed-set", n_pairs=2_000, random_state=1)
    np.testing.assert_array_equal(first.left, second.left)
    np.testing.assert_array_equal(first.right, second.right)


def test_sample_pairs_are_drawn_evenly() -> None:
    """Each of the 3 x 4 sample pairs of two identities must be equally likely, or rates would be biased."""
    y = np.repeat([0, 1], [3, 4])
    hits = np.zeros((7, 7))
    for seed in range(600):
        pairs = held_out_pairs(y, protocol="open-set", n_pairs=4, random_state=seed)
        for i, j in zip(pairs.left[~pairs.same], pairs.right[~pairs.same], strict=True):
            hits[min(i, j), max(i, j)] += 1
    table = hits[:3, 3:]
    assert table.sum() == hits[: 3 + 4].sum() - hits[3:, 3:].sum() - hits[:3, :3].sum()
    assert table.min() > 0.6 * table.mean()
    assert table.max() < 1.4 * table.mean()


def split_listed(left: Any, right: Any, same: Any, *, protocol: str = "auto", **options: Any) -> Split:
    listed = listed_units(left, right, same, protocol=protocol)
    truth = np.asarray(same).astype(bool)
    return split_pairs(listed.units, truth, listed.usable, protocol=listed.protocol, **options)


def test_explicit_pairs_are_split_by_what_same_pairs_join() -> None:
    rng = np.random.default_rng(0)
    identity = np.repeat(np.arange(60), 4)
    left = rng.integers(0, 240, 6_000)
    right = (left + rng.integers(1, 240, 6_000)) % 240
    chain = np.arange(240)[identity == np.roll(identity, -1)]
    left, right = np.concatenate([left, chain]), np.concatenate([right, chain + 1])
    same = identity[left] == identity[right]
    split = split_listed(left, right, same, random_state=0)
    assert split.protocol == "open-set"
    assert split.train.size + split.calibration.size + split.test.size + split.n_dropped == left.size
    whose = [
        set(identity[np.concatenate([left[p], right[p]])])
        for p in (split.train, split.calibration, split.test)
    ]
    assert len(set.union(*whose)) == sum(map(len, whose)), "nobody is in two parts"
    # Same pairs never cross.
    crossing = np.setdiff1d(
        np.arange(left.size), np.concatenate([split.train, split.calibration, split.test])
    )
    assert not same[crossing].any()
    units = listed_units(left, right, same).units
    np.testing.assert_array_equal(units[:, 0] == units[:, 1], same)


def test_explicit_pairs_that_contradict_each_other_are_refused() -> None:
    left, right = np.array([0, 1, 0, 3]), np.array([1, 2, 2, 4])
    with pytest.raises(ValueError, match=r"the first is \(0, 2\)"):
        listed_units(left, right, np.array([1, 1, 0, 0]), protocol="open-set")


def test_explicit_pairs_too_few_to_split() -> None:
    with pytest.raises(ValueError, match="bring more data"):
        split_listed([0, 1], [1, 2], [1, 0], protocol="closed-set", random_state=0)


@pytest.mark.parametrize("protocol", ["open-set", "closed-set"])
def test_without_a_training_part_everybody_outside_the_test_part_calibrates(protocol: str) -> None:
    y = np.repeat(np.arange(40), 5)
    split = split_data(y, protocol=protocol, calibration_fraction=None, random_state=0)
    units = np.unique(y[split.calibration]).size if protocol == "open-set" else split.calibration.size
    assert split.train.size == 0
    assert units == (32 if protocol == "open-set" else 160)
    assert sorted(np.concatenate([split.calibration, split.test])) == list(range(y.size))


def test_units_of_listed_pairs_are_people_where_something_says_who_they_are() -> None:
    """60 people with 40 photos each, few of them compared: labels, groups or units make them 60, not hundreds."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(60), 40)
    left = rng.integers(0, person.size, 4_000)
    right = (left + rng.integers(1, person.size, 4_000)) % person.size
    mates = rng.integers(0, person.size - 1, 600)
    left, right = np.concatenate([left, mates]), np.concatenate([right, mates + 1])
    same = person[left] == person[right]
    guessed = listed_units(left, right, same)
    assert guessed.assumed
    assert guessed.units.max() >= 200
    sides = np.stack([person[left], person[right]], axis=1)
    for known in ({"labels": person}, {"units": sides}, {"groups": person}):
        found = listed_units(left, right, same, **known)
        assert not found.assumed
        assert found.units.max() == 59
        assert found.usable.all()
        split = split_pairs(found.units, same, found.usable, protocol=found.protocol, random_state=0)
        parts = [set(sides[part].ravel()) for part in (split.train, split.calibration, split.test)]
        assert len(set.union(*parts)) == sum(map(len, parts)), "nobody is in two parts"


def test_two_people_of_one_group_are_one_unit_and_their_pairs_say_nothing() -> None:
    left, right, same = np.array([0, 0, 2]), np.array([1, 2, 3]), np.array([0, 0, 0])
    found = listed_units(left, right, same, protocol="open-set", groups=[7, 7, 8, 9])
    np.testing.assert_array_equal(found.usable, [False, True, True])
    assert found.units[0, 0] == found.units[0, 1]
    with pytest.raises(ValueError, match="one person's"):
        listed_units(left, right, same, protocol="open-set", labels=[7, 7, 8, 9])
    closed = listed_units(
        [0, 0, 1, 2], [1, 2, 2, 3], [0, 0, 1, 0], protocol="closed-set", groups=[7, 7, 8, 9]
    )
    # Within one group nothing is independent, and one pair stands for all pairs of two groups.
    np.testing.assert_array_equal(closed.usable, [False, True, False, True])


def test_calibration_people_are_a_simple_random_sample() -> None:
    """How many calibration people have more than one row must spread as in independent draws."""
    y = np.concatenate([np.arange(100), np.repeat(np.arange(100, 200), 2)])
    counts = [
        int((np.unique(y[split_data(y, protocol="open-set", random_state=seed).calibration]) >= 100).sum())
        for seed in range(300)
    ]
    assert np.std(counts) == pytest.approx(np.sqrt(50 * 0.25 * 150 / 199), rel=0.15)


def test_equal_rows_are_one_whatever_the_sign_of_their_zeros() -> None:
    rows = np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0], [2.0, 3.0], [0.0, 1.5]], dtype=np.float32)
    first, number = distinct_rows(rows)
    assert (rows[first][number] == rows).all()
    assert np.unique(number).size == first.size == 3


def test_identities_follow_from_points_in_common() -> None:
    points = np.array([[0.0], [1.0], [5.0], [1.0], [2.0], [6.0]], dtype=np.float32)
    # 0-1 and 1-2 are same pairs (1 occurs twice), 5-6 differ.
    assert identities_of_pairs(points, np.array([True, True, False])).tolist() == [0, 0, 1, 0, 0, 2]


def random_list(n_pairs: int, n_rows: int, seed: int) -> tuple[ListedUnits, Any]:
    """Pairs of rows at random, labels that contradict each other left out."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, n_rows, n_pairs)
    right = (left + rng.integers(1, n_rows, n_pairs)) % n_rows
    same = rng.random(n_pairs) < 0.4
    same &= ~np.isin(np.arange(n_pairs), contradictory_pairs(left, right, same))
    return listed_units(left, right, same), same


@settings(max_examples=60, deadline=None)
@given(n_pairs=st.integers(40, 300), n_rows=st.integers(60, 400), seed=st.integers(0, 2**32 - 1))
def test_no_fold_shares_a_unit_or_a_block_with_what_it_learns_from(
    n_pairs: int, n_rows: int, seed: int
) -> None:
    try:
        listed, same = random_list(n_pairs, n_rows, seed)
        folds = fold_pairs(listed.units, same, listed.usable)
    except ValueError:
        return
    sides = folds.fold[listed.units]
    assert folds.scored.size + folds.n_crossing == np.count_nonzero(listed.usable)
    assert (sides[folds.scored, 0] == sides[folds.scored, 1]).all()
    assert 0 < same[folds.scored].sum() < folds.scored.size
    for number in range(folds.n_folds):
        learned = folds.learned(listed.units, number)
        own = listed.units[folds.scored[sides[folds.scored, 0] == number]]
        assert not np.intersect1d(listed.units[learned], own).size
        assert not np.intersect1d(folds.block[listed.units[learned]], folds.block[own]).size
    np.testing.assert_array_equal(fold_pairs(listed.units, same, listed.usable).fold, folds.fold)


def test_few_pairs_cross_between_folds_of_a_list_made_by_a_rule() -> None:
    """Each record is compared with records near it, as blocking makes lists."""
    rng = np.random.default_rng(0)
    left = rng.integers(0, 2_000, 9_000)
    right = (left + rng.integers(1, 12, 9_000)) % 2_000
    same = np.zeros(9_000, dtype=bool)
    same[rng.permutation(9_000)[:600]] = True
    same[contradictory_pairs(left, right, same)] = True
    listed = listed_units(left, right, same)
    folds = fold_pairs(listed.units, same, listed.usable)
    assert folds.n_crossing / 9_000 < 0.2
    assert np.bincount(folds.fold).min() > 0.8 * folds.fold.size / folds.n_folds
    sizes = np.bincount(list_blocks(listed.units[listed.usable], int(listed.units.max()) + 1))
    assert sizes.max() <= 1.1 * (listed.units.max() + 1) / 24 + 2


@pytest.mark.parametrize("n_pairs", [42, 61, 120])
def test_pairs_that_share_nobody_never_cross_between_folds(n_pairs: int) -> None:
    same = np.arange(n_pairs) % 2 == 0
    listed = listed_units(2 * np.arange(n_pairs), 2 * np.arange(n_pairs) + 1, same)
    assert fold_pairs(listed.units, same, listed.usable).n_crossing == 0


def test_identities_are_shared_out_evenly_over_folds() -> None:
    codes = np.concatenate([np.repeat(np.arange(20), 3), np.arange(20, 50)])
    fold = identity_folds(codes)
    assert all(np.unique(fold[codes == who]).size == 1 for who in range(50))
    np.testing.assert_array_equal(np.bincount(fold[:60]), [12] * 5)
    np.testing.assert_array_equal(np.bincount(fold[60:]), [6] * 5)


def test_people_of_a_guarantee_are_drawn_once() -> None:
    """Another draw until the labels suit would make the calibration part no simple random sample."""
    pairs = 2 * np.arange(42), 2 * np.arange(42) + 1, np.arange(42) % 2 == 0
    answered = 0
    for seed in range(50):
        with suppress(ValueError):
            split_listed(*pairs, random_state=seed)
            answered += 1
    assert 0 < answered < 40


def test_the_fewest_pairs_that_contradict_a_list_are_left_out() -> None:
    """Two people of five rows each, joined by one wrong positive pair; and one person with a wrong negative pair."""
    first, second = np.triu_indices(5, 1)
    left = np.concatenate(
        [first, 5 + first, [4], np.repeat(np.arange(5), 5), 20 + first, [20], 30 + np.arange(0, 900, 2)]
    )
    right = np.concatenate(
        [second, 5 + second, [5], np.tile(np.arange(5, 10), 5), 20 + second, [24], 31 + np.arange(0, 900, 2)]
    )
    same = np.concatenate([np.ones(21), np.zeros(25), np.ones(10), [0], np.arange(450) % 2]).astype(bool)
    listed = listed_units(left, right, same, protocol="open-set")
    # The bridge and, beside 25 right ones, the one wrong negative pair.
    np.testing.assert_array_equal(listed.contradictory, [20, 56])
    assert not listed.usable[listed.contradictory].any()
    assert listed.units[0, 0] != listed.units[10, 0]
    with pytest.raises(ValueError, match="2 of 57 pairs contradict the others"):
        listed_units(left[:57], right[:57], same[:57], protocol="open-set")


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
    assert as_set(sample_pairs(labels, n_pairs, random_state=seed)) == as_set(pairs)


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
        assert (f.shape, f.dtype) == ((5, 6), np.float32)
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
