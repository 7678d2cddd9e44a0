"""Figures of links where it is known which records are the same."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pairmark.models.linking.evaluation import UNKNOWN, Identities, ListedPairs, evaluate_links, identities_of


def evaluate(truth, entity, tables=None, scores=None, **options):
    """Of rows in entities, each linked to the first of its own."""
    entity = np.asarray(entity)
    rows = np.flatnonzero(entity != np.arange(entity.size))
    links = {"a": entity[rows], "b": rows, "score": np.ones(rows.size) if scores is None else scores}
    links["kept"] = np.ones(rows.size, dtype=bool)
    tables = np.zeros(entity.size, dtype=np.int64) if tables is None else np.asarray(tables)
    return evaluate_links(links, {"row": np.arange(entity.size), "first": entity}, truth, tables, **options)


@pytest.mark.parametrize("within", [True, False])
def test_figures_are_those_of_a_count_pair_by_pair(within):
    random = np.random.default_rng(0)
    true, tables = random.integers(-1, 12, 40), random.integers(0, 3, 40)
    drawn = random.integers(0, 15, 40)
    entity = np.array([np.flatnonzero(drawn == of)[0] for of in drawn])
    found = evaluate(Identities(true), entity, tables, within=within).decided
    known = np.flatnonzero(true != UNKNOWN).tolist()
    pairs = [(i, j) for i, j in combinations(known, 2) if within or tables[i] != tables[j]]
    joined = {(i, j) for i, j in pairs if entity[i] == entity[j]}
    same = {(i, j) for i, j in pairs if true[i] == true[j]}
    assert (found.joined, found.right, found.same) == (len(joined), len(joined & same), len(same))
    assert found.precision.value == pytest.approx(len(joined & same) / len(joined))
    assert found.f1.value == pytest.approx(2 * len(joined & same) / (len(joined) + len(same)))
    together = [[j for j in known if entity[j] == entity[i]] for i in known]
    precise = np.mean([np.mean(true[of] == true[i]) for i, of in zip(known, together, strict=True)])
    assert found.b_cubed[0].value == pytest.approx(precise)


def test_listed_pairs_are_all_that_counts():
    listed = ListedPairs(np.array([0, 0, 4]), np.array([1, 2, 5]), np.array([True, False, True]))
    found = evaluate(listed, [0, 0, 0, 0, 4, 5])
    assert (found.decided.joined, found.decided.right, found.decided.same, found.entities) == (2, 1, 2, 2)
    assert found.decided.b_cubed is None
    assert (identities_of(listed.a[:1], listed.b[:1], 3).codes == [0, 0, 1]).all()


def test_a_cut_that_leaves_false_links_out_is_the_best():
    found = evaluate(Identities(np.array([0, 0, 1, 1, 2])), [0, 0, 2, 2, 2], scores=np.array([0.9, 0.9, 0.3]))
    assert (found.best.cut, found.best.f1.value) == (0.3, 1.0)
    assert found.decided.precision.value == 0.5


@pytest.mark.parametrize("truth", [np.arange(3), np.full(3, UNKNOWN)])
def test_where_nothing_is_the_same_nothing_is_said(truth):
    found = evaluate(Identities(truth), [0, 1, 2]).decided
    assert np.isnan(found.precision.value)
    assert found.recall[1:] == (0, 1)


def worked_world(n: int, seed: int):
    """Figures where a tenth of the entities is split into single records, another joined to the one before."""
    random = np.random.default_rng(seed)
    true = np.repeat(np.arange(n), random.integers(1, 6, n))
    split, joined = random.random(n) < 0.1, random.random(n) < 0.1
    joined[0] = False
    starts = np.searchsorted(true, np.arange(n))
    entity = np.where(joined[true], starts[true - 1], starts[true])
    entity = np.where(split[true], np.arange(true.size), entity)
    decided = evaluate(Identities(true), entity).decided
    assert decided.b_cubed is not None
    return np.array([decided.precision, decided.recall, decided.f1, decided.b_cubed[2]])


def test_intervals_hold_where_mistakes_come_by_entity():
    true = worked_world(20_000, 0)[:, 0]
    found = np.array([worked_world(60, 1 + seed) for seed in range(120)])
    covered = ((found[:, :, 1] <= true) & (true <= found[:, :, 2])).sum(axis=0)
    assert covered.min() >= 110, covered
    assert (found[:, :, 2] - found[:, :, 1]).mean() < 0.25
