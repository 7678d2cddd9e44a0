"""Which pairs stand for the rest is settled before anybody looks at a score, or (closed-set) at a label."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.calibration import finite_sample
from pairmark.models.calibration.finite_sample import AllPairs, ScoredGraph
from pairmark.models.pairs.samples import matched_scores, pair_sample


def partial_list(protocol: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Units and labels of some of the pairs of 40 samples, or people: so few that orders of matching them differ."""
    rng = np.random.default_rng(seed)
    units = rng.permutation(np.stack(np.triu_indices(40, 1), axis=1))[:60]
    if protocol == "closed-set":
        return units, np.arange(60) < 5
    return np.concatenate([units, np.repeat(np.arange(40), 2).reshape(40, 2)]), np.arange(100) >= 60


@pytest.mark.parametrize("protocol", ["open-set", "closed-set"])
def test_how_many_pairs_are_matched_is_blind_to_scores(protocol: str) -> None:
    units, same = partial_list(protocol, 0)
    rng = np.random.default_rng(1)
    sizes = set()
    for _ in range(5):
        sample = pair_sample(rng.permutation(len(same)) / len(same), same, units, protocol=protocol)
        sizes.add(matched_scores(sample)[1])
    assert len(sizes) == 1


def test_how_many_splits_are_averaged_is_blind_to_labels_in_closed_set_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer splits where there are many pairs, of either kind: else classes would choose the statistic."""
    units = np.stack(np.triu_indices(60, 1), axis=1)
    scores = np.random.default_rng(0).random(len(units)).astype(np.float32)
    monkeypatch.setattr(finite_sample, "MOST_ENTRIES", 0.1 * len(units))
    numbers = set()
    for y in (np.arange(60) % 2, np.arange(60) % 20):
        same = y[units[:, 0]] == y[units[:, 1]]
        sample = pair_sample(scores, same, units, protocol="closed-set")
        graph = ScoredGraph.of(sample, np.unique(scores[~same])[::-1])
        numbers.add(len(AllPairs(graph, np.zeros(1)).matrices(1, 0.3)))
    assert numbers == {2}


def test_the_halves_that_people_are_split_into_are_blind_to_scores() -> None:
    units = np.stack(np.triu_indices(30, 1), axis=1)
    rng = np.random.default_rng(0)
    halves = set()
    for _ in range(5):
        sample = pair_sample(rng.random(len(units)), np.zeros(len(units)), units)
        thresholds, above = sample.different.steps()
        entries = AllPairs(ScoredGraph.of(sample, thresholds), above).matrices(3, 0.3)
        halves.add(b"".join(one.split.side.tobytes() + one.split.place.tobytes() for one in entries))
    assert len(halves) == 1


def test_all_splits_answer_not_the_best_of_them() -> None:
    units = np.stack(np.triu_indices(30, 1), axis=1)
    sample = pair_sample(np.random.default_rng(0).random(len(units)), np.zeros(len(units)), units)
    thresholds, above = sample.different.steps()
    bound = AllPairs(ScoredGraph.of(sample, thresholds), above)
    fpr, shrink, at = 0.3, 0.8, 100
    logs = np.array([one.log_mean(at, shrink, np.ones(15)) for one in bound.matrices(at, fpr)])
    logs -= 15 * np.log1p(-shrink * fpr)
    mean = float(np.log(np.exp(logs).mean()))
    assert logs.max() > mean + 0.02
    assert bound.admits(at, fpr, mean - 0.01, ((1.0, shrink),))
    assert not bound.admits(at, fpr, mean + 0.01, ((1.0, shrink),))


@pytest.mark.parametrize("listed", [False, True])
def test_how_many_pairs_count_as_independent_is_blind_to_labels_in_closed_set_use(listed: bool) -> None:
    """Else rare classes, of which a draw may hold few, would choose the bound."""
    first, second = np.triu_indices(40, 1)
    kept = np.random.default_rng(3).permutation(first.size)[: 200 if listed else None]
    units = np.stack([first, second], axis=1)[kept]
    scores = np.random.default_rng(4).random(len(units))
    found = set()
    for n_classes in (2, 5, 20, 40):
        y = np.random.default_rng(n_classes).integers(0, n_classes, 40)
        same = y[units[:, 0]] == y[units[:, 1]]
        sample = pair_sample(scores, same, units, protocol="closed-set")
        found.add((sample.different.n_blocks, sample.n_units))
    assert len(found) == 1
    # Labels that differ pair by pair, as a list may have them, change nothing either.
    torn = np.random.default_rng(5).random(len(units)) < 0.3
    assert found == {
        (one.different.n_blocks, one.n_units)
        for one in [pair_sample(scores, torn, units, protocol="closed-set")]
    }


def test_which_row_stands_for_a_person_is_blind_to_scores() -> None:
    """Of rows in one order the same ones are taken, however they score."""
    units = np.repeat(np.arange(30), 4)
    people = np.concatenate([np.stack([units, units], axis=1), np.stack(np.triu_indices(30, 1), axis=1)])
    same = np.arange(len(people)) < units.size
    taken = set()
    for seed in range(5):
        scores = np.random.default_rng(seed).permutation(len(people)).astype(np.float32)
        chosen = matched_scores(pair_sample(scores, same, people))[0]
        taken.add(tuple(np.flatnonzero(np.isin(scores, chosen) & same)))
    assert len(taken) == 1
    assert len(taken.pop()) == 30
