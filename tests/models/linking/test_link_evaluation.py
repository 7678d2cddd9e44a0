"""Links measured: against known identities or pairs, the share of false ones, recall by judged records."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from pairmark.models.linking.evaluation import (
    N_SHOWN,
    UNKNOWN,
    Identities,
    ListedPairs,
    draw_records,
    evaluate_links,
    recall_so_far,
)
from pairmark.models.linking.mixture import SYMBOL_OF, Mixture, chances, plain_column
from pairmark.models.linking.share import calibrate_matches, share_of
from pairmark.models.records.compare import LinkField
from tests.models.linking.test_link_classes import KINDS, homes, linked


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
    assert found.precision[0] == pytest.approx(len(joined & same) / len(joined))
    assert found.f1[0] == pytest.approx(2 * len(joined & same) / (len(joined) + len(same)))
    together = [[j for j in known if entity[j] == entity[i]] for i in known]
    precise = np.mean([np.mean(true[of] == true[i]) for i, of in zip(known, together, strict=True)])
    assert found.b_cubed[0][0] == pytest.approx(precise)


def test_listed_pairs_are_all_that_counts():
    found = evaluate(
        ListedPairs(np.array([0, 0, 4]), np.array([1, 2, 5]), np.array([True, False, True])),
        [0, 0, 0, 0, 4, 5],
    )
    assert (found.decided.joined, found.decided.right, found.decided.same, found.entities) == (2, 1, 2, 2)
    assert found.decided.b_cubed is None


def test_a_cut_that_leaves_false_links_out_is_the_best():
    found = evaluate(Identities(np.array([0, 0, 1, 1, 2])), [0, 0, 2, 2, 2], scores=np.array([0.9, 0.9, 0.3]))
    assert (found.best_cut, found.by_cut[-1].f1[0]) == (0.3, 1.0)
    assert found.decided.precision[0] == 0.5


@pytest.mark.parametrize("truth", [np.arange(3), np.full(3, UNKNOWN)])
def test_where_nothing_is_the_same_nothing_is_said(truth):
    found = evaluate(Identities(truth), [0, 1, 2]).decided
    assert found.precision[0] is None
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
    return np.array([decided.precision, decided.recall, decided.f1, decided.b_cubed[2]])


def test_intervals_hold_where_mistakes_come_by_entity():
    true = worked_world(20_000, 0)[:, 0]
    found = np.array([worked_world(60, 1 + seed) for seed in range(120)])
    covered = ((found[:, :, 1] <= true) & (true <= found[:, :, 2])).sum(axis=0)
    assert covered.min() >= 110, covered
    assert (found[:, :, 2] - found[:, :, 1]).mean() < 0.25


def test_a_number_that_few_pairs_have_says_how_many_of_the_others_match() -> None:
    random = np.random.default_rng(0)
    n = 30_000
    is_match = random.random(n) < 0.03
    is_named = random.random(n) < np.where(is_match, 0.9, 0.3)
    has_number = random.random(n) < 0.2
    is_numbered = random.random(n) < np.where(is_match, 0.98, 0.001)
    levels = np.stack(
        [np.where(is_named, 4, 1), np.where(has_number, np.where(is_numbered, 4, 1), 0)], axis=1
    )
    u = np.array([[0.698, 0.001, 0.001, 0.3], [0.9975, 0.0005, 0.0005, 0.0015]])
    m = np.array([[0.098, 0.001, 0.001, 0.9], [0.02, 0.001, 0.001, 0.978]])
    symbols, counts = np.unique(SYMBOL_OF[levels], axis=0, return_counts=True)
    lacking = SYMBOL_OF[levels[~has_number]]
    for share in (0.003, 0.03, 0.1):
        model = Mixture(
            [plain_column(of) for of in u], m, np.ones((1, 2)), u[None, :, 1], np.array([share]), ("match",)
        )
        found = chances(calibrate_matches(model, symbols, counts.astype(float)).log_odds(lacking))
        assert abs(found.sum() / is_match[~has_number].sum() - 1) < 0.15


def test_partners_that_no_link_has_are_among_those_shown_and_count_as_missed() -> None:
    who, rows = homes("couple", 0.02)
    linking, _ = linked(rows, [LinkField(name, of) for name, of in KINDS.items()])
    connection = linking.connection
    lost = {first for (first,) in connection.execute("SELECT DISTINCT first FROM members").fetchall()[::3]}
    connection.execute(f"DELETE FROM members WHERE first IN ({', '.join(map(str, lost))})")
    partners = {
        at: [other for other in range(len(who)) if who[other] == who[at] and other != at]
        for at in range(len(who))
    }
    joined = dict(connection.execute("SELECT row, first FROM members").fetchall())
    true = float(
        np.mean([np.mean([at in joined and joined[at] == joined.get(other) for other in others])
                 for at, others in partners.items() if others])
    )  # fmt: skip
    size, drawn = draw_records(
        connection, linking.cells.source_fields, linking.sides, len(rows), np.random.default_rng(1)
    )
    assert len(rows) - 3 < size == len({each.row for each in drawn})
    assert all(len(each.others) <= N_SHOWN + 1 for each in drawn)
    answers = [
        [(is_linked, who[other] == who[each.row]) for other, is_linked in each.others] for each in drawn
    ]
    assert recall_so_far(size, answers, 0.5, 0.95).recall == pytest.approx(true, abs=0.01)
    assert 0.6 < true < 0.75
    looks = [recall_so_far(size, answers[:n], 0.9, 0.95) for n in (0, 50, 100, 300)]
    assert [look.bound <= true for look in looks] == [True] * 4
    assert looks[0].bound == 0
    assert looks[0].expected_more
    assert looks[1].bound < looks[3].bound
    assert not looks[3].enough
    # What nobody can tell makes no bound higher.
    doubtful = [[(is_linked, None) for is_linked, _ in others] for others in answers[:100]]
    assert recall_so_far(size, doubtful, 0.9, 0.95).bound == 0


@pytest.mark.parametrize(
    ("factor", "n_columns", "said"),
    [
        (1.0, 4, "agrees"),
        # Far fewer links are false than it says.
        (2e-4, 4, "doubtful"),
        # Links without one of two columns are far worse than those with both.
        (1.0, 2, "doubtful"),
    ],
)
def test_columns_agree_where_they_say_neither_more_nor_less(factor: float, n_columns: int, said: str) -> None:
    random = np.random.default_rng(1)
    n, share = 20_000, 0.1
    is_match = random.random(n) < share
    alike = random.random((n, n_columns)) < np.where(is_match, 0.95, 0.02)[:, None]
    symbols, counts = np.unique(SYMBOL_OF[np.where(alike, 4, 1)], axis=0, return_counts=True)
    m, u = (np.tile([1 - p - 2e-6, 1e-6, 1e-6, p], (n_columns, 1)) for p in (0.95, 0.02))
    ones = np.ones((1, n_columns))
    model = Mixture(
        [plain_column(of) for of in u], m, ones, 0.02 * ones, np.array([share * factor]), ("match",)
    )
    p = chances(model.log_odds(symbols))
    estimate = float(counts[p > 0.5] @ (1 - p[p > 0.5]) / counts[p > 0.5].sum())
    found = share_of(model, symbols, counts.astype(float), 0.5, 2_000, estimate)
    assert (found.check, found.estimate) == (said, estimate)


def test_firms_at_many_addresses_leave_the_share_unknown() -> None:
    # Whether these moved or are branches, no column says.
    symbols = SYMBOL_OF[np.array([[4, 4, 4], [4, 4, 1], [1, 1, 1]])]
    counts = np.array([500.0, 900.0, 5_000.0])
    u = np.tile([0.98, 0.005, 0.005, 0.01], (3, 1))
    m = np.tile([0.02, 0.01, 0.02, 0.95], (3, 1))
    plain = plain_column(u[0])
    columns = [replace(plain, role=role) for role in ("company", "phone", "place")]
    shared = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    for shares, is_known in (((0.14, 0.02), True), ((0.08, 0.14), False)):
        model = Mixture(columns, m, shared, np.full((2, 3), 0.01), np.array(shares), ("match", "moved"))
        assert (share_of(model, symbols, counts, 0.5, 1_400, 0.01).estimate is not None) == is_known
