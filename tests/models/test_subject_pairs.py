"""Pairs of subjects to calibrate on: score-blind, both ways, disjoint samples, whole people."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.pairs.sampling import SubjectPairs, TooFewSamples, subject_pairs

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
        assert pairs.units[at].tolist() == list(whose)
        assert pairs.same[at] == (whose[0] == whose[1])
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
    other = subject_pairs(who, 4, 2, n_pairs=5_000, random_state=8)
    assert other.index.tobytes() != one.index.tobytes()


def test_people_of_one_unit_are_never_paired_as_different() -> None:
    units = WHO // 2
    pairs = subject_pairs(WHO, 3, 1, n_pairs=2_000, units=units)
    apart = pairs.units[~pairs.same]
    assert (apart[:, 0] != apart[:, 1]).all()
    assert (pairs.units[pairs.same, 0] == pairs.units[pairs.same, 1]).all()


def test_too_few_samples_say_what_there_is() -> None:
    with pytest.raises(TooFewSamples, match="1 of 8 people have 20 samples") as caught:
        subject_pairs(WHO, 20, 1)
    assert (caught.value.n_samples, caught.value.n_people, caught.value.largest) == (20, 1, 12)


def test_a_calibration_counts_people_not_draws() -> None:
    who = np.repeat(np.arange(60), 8)
    pairs = subject_pairs(who, 5, 1, n_pairs=20_000)
    scores = np.random.default_rng(0).normal(size=len(pairs)) + 3 * pairs.same
    made = Calibration.fit(scores, pairs.same, pairs.units, protocol="open-set")
    point = made.operating_point(0.2)
    assert point.n_units == 60
    assert made.smallest_fpr()["finite-sample"] == pytest.approx(1 - 0.05 ** (1 / 30), rel=0.02)
