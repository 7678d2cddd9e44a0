"""Forests of few people: nobody is all that is learned of."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.pairs.sampling import PairPopulation


@pytest.mark.parametrize("n_pairs", [50, 400, 3_000])
def test_same_pairs_are_drawn_evenly_where_one_person_has_most_rows(n_pairs: int) -> None:
    codes = np.concatenate([np.repeat(np.arange(20), 8), np.full(160, 20)])
    table, n_same = PairPopulation(codes).table(n_pairs, random_state=0)
    left, right = table[:, :n_same]
    assert (codes[left] == codes[right]).all()
    assert (left != right).all()
    assert np.unique(np.sort(table[:, :n_same], axis=0), axis=1).shape[1] == n_same
    counts = np.bincount(codes[left], minlength=21)
    # A person of eight rows has 28 pairs.
    short = counts < np.r_[np.full(20, 28), 12_720]
    assert counts[short].max() - counts[short].min() <= 1
