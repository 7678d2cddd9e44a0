"""The matching-product bound against enumeration and its own promise; what stands for the rest is blind to scores."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models.calibration import finite_sample
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.finite_sample import (
    AllPairs,
    ListedPairs,
    ScoredGraph,
    mixture,
    multiple_of_floor,
)
from pairmark.models.calibration.kernels import log_mean_product
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.pairs.samples import matched_scores, pair_sample
from pairmark.models.pairs.sampling import held_out_pairs
from tests.models.pair_worlds import People

ONE = ((1.0, 0.8),)


def permanent(matrix: np.ndarray) -> float:
    n = matrix.shape[0]
    return sum(math.prod(matrix[i, p[i]] for i in range(n)) for p in itertools.permutations(range(n)))


def lower(hits: np.ndarray, shrink: float, scale: np.ndarray | None = None) -> float:
    n = hits.shape[0]
    rows, columns = np.nonzero(hits)
    block = np.zeros(n, dtype=np.int32)
    return float(
        log_mean_product(
            rows.astype(np.int32),
            columns.astype(np.int32),
            hits[rows, columns].astype(np.float64),
            rows.size,
            block,
            np.array([n]),
            shrink,
            np.ones(n) if scale is None else scale,
        )
    )


@given(seed=st.integers(0, 2**31), n=st.integers(1, 6), shrink=st.sampled_from([0.999, 0.8, 0.3]))
def test_scaling_never_exceeds_the_permanent_and_falls_with_every_hit(
    seed: int, n: int, shrink: float
) -> None:
    rng = np.random.default_rng(seed)
    hits = (rng.random((n, n)) < rng.random()) * rng.choice([1.0, 0.5, 0.02], (n, n))
    exact = math.log(permanent(1 - shrink * hits) / math.factorial(n))
    # A start off the optimum, within the range that is allowed, must not exceed it either.
    start = np.exp(-rng.random(n) * math.log(1 / (1 - shrink)))
    for bound in (lower(hits, shrink), lower(hits, shrink, start)):
        assert bound <= exact
    assert lower(np.minimum(1.0, hits + (rng.random((n, n)) < 0.3)), shrink) <= lower(hits, shrink) + 2e-3


def matchings(units: list[int]) -> Iterator[list[tuple[int, int]]]:
    """All matchings that leave at most one unit alone."""
    if len(units) < 2:
        yield []
        return
    first, rest = units[0], units[1:]
    for at, other in enumerate(rest):
        for found in matchings(rest[:at] + rest[at + 1 :]):
            yield [(first, other), *found]
    if len(units) % 2:
        yield from matchings(rest)


@pytest.mark.parametrize("m", [6, 7])
@pytest.mark.parametrize("closed", [False, True])
def test_the_average_over_splits_is_below_that_over_all_matchings_on_the_mean(
    m: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The splits' permanents average to that of all matchings, so the mean over many may not exceed it."""
    rng = np.random.default_rng(m)
    fpr, shrink = 0.2, 0.8
    first, second = np.triu_indices(m, 1)
    y = rng.integers(0, 3, m) if closed else np.arange(m)
    same = y[first] == y[second]
    scores = rng.random(first.size).astype(np.float32)
    sample = pair_sample(
        scores, same, np.stack([first, second], axis=1), protocol="closed-set" if closed else "open-set"
    )
    thresholds, above = sample.different.steps()
    graph = ScoredGraph.of(sample, thresholds)
    at = thresholds.size // 3
    share = np.where(same, fpr if closed else 0.0, scores > thresholds[at])
    of_pair = {(i, j): a for i, j, a in zip(first.tolist(), second.tolist(), share, strict=True)}
    every = list(matchings(list(range(m))))
    exact = np.mean([math.prod(1 - shrink * of_pair[pair] for pair in one) for one in every])
    monkeypatch.setattr(finite_sample, "N_SPLITS", 2_400)
    entries = AllPairs(graph, above).matrices(at, fpr)
    means = [math.exp(one.log_mean(at, shrink, np.ones((m + 1) // 2))) for one in entries]
    assert np.mean(means) <= exact + 4 * np.std(means) / math.sqrt(len(means))
    assert np.mean(means) > 0.75 * exact


def test_the_lowest_admitted_threshold_is_found() -> None:
    """Against trying every threshold: admitted ones are a run from the highest score down."""
    drawn = People(m=60, per=1, effect=0.5, n_pairs=5_000, step=0.1).draw(np.random.default_rng(0))
    sample = pair_sample(drawn.scores, drawn.same, drawn.units)
    thresholds, above = sample.different.steps()
    bound = AllPairs(ScoredGraph.of(sample, thresholds), above)
    for fpr, parts in ((0.2, ONE), (0.3, ((0.8, 0.999), (0.2, 0.8)))):
        admitted = [at for at in range(above.size) if bound.admits(at, fpr, math.log(10), parts)]
        assert admitted == list(range(len(admitted)))
        assert abs(bound.lookup(fpr, math.log(10), parts) - admitted[-1]) <= 1
    assert bound.lookup(0.01, math.log(10), ONE) is None


def test_which_lambda_answers_is_a_matter_of_sizes() -> None:
    assert multiple_of_floor(299, 0.01, 0.95) == pytest.approx(1, rel=0.01)
    for multiple in (1.0, 1.6, 2.5, 4.0, 9.0):
        parts = mixture(multiple)
        assert sum(share for share, _ in parts) == pytest.approx(1)
        assert all(0 < shrink < 1 for _, shrink in parts)


def test_states_of_earlier_versions_load_or_say_what_to_do() -> None:
    people = People(m=90, n_pairs=30_000).draw(np.random.default_rng(0))
    now = Calibration.fit(people.scores, people.same, people.units, listing="random-people")
    arrays, meta = now.to_state()
    # Seeds and random numbers of earlier versions play no part: they are decided anew.
    loaded = Calibration.from_state(arrays, {**meta, "state_version": 1, "seed": 7, "uniform": 0.01})
    assert loaded.operating_point(0.2) == now.operating_point(0.2)
    with pytest.raises(ValueError, match="calibrate the version again"):
        Calibration.from_state(arrays, {name: meta[name] for name in meta.keys() - {"origin"}})
    broken = {**arrays, "graph_row_edge": np.full_like(arrays["graph_row_edge"], 2**30)}
    with pytest.raises(ValueError, match="graph_row_edge"):
        Calibration.from_state(broken, meta)
    # What no version wrote is no calibration.
    incomplete = {name: array for name, array in arrays.items() if not name.startswith("graph_")}
    with pytest.raises(ValueError, match="lacks 'graph_different'"):
        Calibration.from_state(incomplete, meta)


def test_what_the_plan_says_is_enough_is_answered() -> None:
    """Doing what `units_needed` says, with any number of pairs, is never refused; one person fewer is."""
    from pairmark.models.calibration.guarantees import reach, units_needed

    rng = np.random.default_rng(0)
    for fpr, n_pairs in ((0.05, 10**6), (0.02, 2_000), (0.01, 700), (0.001, 200_000)):
        needed = units_needed(fpr)["finite-sample"]
        assert needed is not None
        for people in (needed, needed - 1):
            pairs = held_out_pairs(np.arange(people), protocol="open-set", n_pairs=n_pairs, random_state=0)
            made = Calibration.fit(
                rng.standard_normal(len(pairs)), pairs.same, pairs.units, listing="drawn", n_replicates=1_000
            )
            reported = reach(people)
            if people > 2_000:
                # Its refusal would take a bootstrap of six thousand people.
                assert people != needed or made.operating_point(fpr).guarantee == "finite-sample"
                continue
            assert made.smallest_fpr()["finite-sample"] == pytest.approx(reported.smallest_fpr, rel=1e-9)
            if people == needed:
                assert made.operating_point(fpr).guarantee == "finite-sample"
                assert reported.smallest_fpr <= fpr * (1 + 1e-9)
            else:
                with pytest.raises(InsufficientCalibrationData):
                    made.operating_point(fpr)


def test_reach_says_what_the_next_power_of_ten_takes() -> None:
    from pairmark.models.calibration.guarantees import reach

    reported = reach(40)
    assert reported.smallest_fpr == pytest.approx(1 - 0.05 ** (1 / 20))
    assert (reported.next_fpr, reported.next_units) == (0.1, 58)
    assert reach(58).next_fpr == 0.01
    assert reach(1).smallest_fpr is None
    assert reach(58, different_share=0.5).smallest_fpr > reach(58).smallest_fpr
    with pytest.raises(ValueError, match="at least 0"):
        reach(-1)


def exact(edges: list[tuple[int, int]], order: list[int], factor: dict[tuple[int, int], float]) -> float:
    """The mean over P0 of the product, visiting in this order: every path of the draw, by its probability."""
    if not order:
        return 1.0
    unit, rest = order[0], order[1:]
    mates = sorted({a + b - unit for a, b in edges if unit in (a, b)})
    if not mates:
        return exact(edges, rest, factor)
    total = 0.0
    for mate in mates:
        left = [e for e in edges if unit not in e and mate not in e]
        pair = (min(unit, mate), max(unit, mate))
        total += factor[pair] * exact(left, [u for u in rest if u != mate], factor)
    return total / len(mates)


def listed(scores: np.ndarray, units: np.ndarray) -> ListedPairs:
    sample = pair_sample(scores, np.zeros(scores.size), units)
    thresholds, above = sample.different.steps()
    graph = ScoredGraph.of(sample, thresholds)
    assert not graph.cell.size
    return ListedPairs(graph, above)


def test_matchings_are_those_of_the_list_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their mean is that over every path of the visits, and each is a matching."""
    monkeypatch.setattr(finite_sample, "N_MATCHINGS", 20_000)
    rng = np.random.default_rng(1)
    edges = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4), (4, 5), (2, 5), (1, 6)]
    units = np.array([*edges, (0, 1), (4, 5)])
    bound = listed(rng.random(len(units)).astype(np.float32), units)
    fpr, shrink = 0.2, 0.8
    for at in (2, 7):
        shares = bound.shares(at, fpr)
        different = bound._graph.different
        factor = {
            (min(a, b), max(a, b)): (1 - shrink * share) / (1 - shrink * fpr)
            for (a, b), share in zip(different.tolist(), shares.tolist(), strict=True)
        }
        degree = np.bincount(different.ravel())
        orders = [
            list(itertools.chain(*parts))
            for parts in itertools.product(
                *(itertools.permutations(np.flatnonzero(degree == d).tolist()) for d in np.unique(degree))
            )
        ]
        truth = np.mean([exact(list(factor), order, factor) for order in orders])
        gain = np.append(np.log1p(-shrink * shares) - math.log1p(-shrink * fpr), 0.0)
        values = np.exp(gain[bound.matchings].sum(axis=1))
        assert values.mean() == pytest.approx(truth, abs=4 * values.std() / math.sqrt(values.size))
        assert bound.admits(at, fpr, math.log(values.mean()) - 1e-9, ((1.0, shrink),))
        assert not bound.admits(at, fpr, math.log(values.mean()) + 1e-9, ((1.0, shrink),))
    for row in bound.matchings[:50]:
        taken = different[row[row >= 0]].ravel()
        assert np.unique(taken).size == taken.size


def test_matchings_are_blind_to_scores_and_labels() -> None:
    rng = np.random.default_rng(2)
    units = rng.permutation(np.stack(np.triu_indices(40, 1), axis=1))[:200]
    found = set()
    for _ in range(5):
        same = rng.random(200) < 0.3
        sample = pair_sample(rng.random(200), same, units, protocol="closed-set")
        graph = ScoredGraph.of(sample, sample.different.steps()[0])
        ends = np.concatenate([graph.different, graph.same, [[-1, -1]]])[
            ListedPairs(graph, np.zeros(1)).matchings
        ]
        found.add(np.sort(ends, axis=2).tobytes())
    assert len(found) == 1


def partial_list(protocol: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Units and labels of some of the pairs of 40 samples, or people: so few that orders of matching them differ."""
    units = np.random.default_rng(seed).permutation(np.stack(np.triu_indices(40, 1), axis=1))[:60]
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
        graph = ScoredGraph.of(
            pair_sample(scores, same, units, protocol="closed-set"), np.unique(scores[~same])[::-1]
        )
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
        sample = pair_sample(scores, y[units[:, 0]] == y[units[:, 1]], units, protocol="closed-set")
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
