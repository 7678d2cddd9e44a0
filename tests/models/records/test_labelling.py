"""Which pairs to label: chosen ones tell most, drawn ones are a sample of a stated list."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.records.inference import infer
from pairmark.models.records.labelling import LabellingPool
from tests.models.records.people import people

NOBODY: Any = np.empty(0, dtype=np.int64)
NOTHING: Any = np.empty(0, dtype=np.bool_)


def pool_of(n: int = 150, *, two: bool = False) -> tuple[LabellingPool, np.ndarray]:
    table, who = people(n, seed=2)
    if two:
        order = np.argsort(np.arange(who.size) % 2, kind="stable")
        table, who = {name: [cells[row] for row in order] for name, cells in table.items()}, who[order]
    inference = infer(table, {})
    return LabellingPool(inference.schema, inference.schema.read(table), n if two else None), who


class TestPool:
    def test_candidates_of_two_tables_lie_between_them(self) -> None:
        pool, who = pool_of(two=True)
        assert (pool.left < 150).all()
        assert (pool.right >= 150).all()
        same = who[pool.left] == who[pool.right]
        assert same.sum() > 140

    def test_chosen_pairs_are_new_and_soon_of_both_kinds(self) -> None:
        pool, who = pool_of()
        left, right = NOBODY, NOBODY
        for _ in range(4):
            pairs = pool.choose(10, left, right, who[left] == who[right])
            assert len(pairs) == 10
            assert np.unique(pairs).size == 20
            left, right = np.concatenate([left, pairs[:, 0]]), np.concatenate([right, pairs[:, 1]])
        assert np.unique(pool.codes(left, right)).size == 40
        assert 4 <= (who[left] == who[right]).sum() <= 36

    def test_pairs_that_only_look_the_same_do_not_hide_those_that_are(self) -> None:
        # Two of a household share name, street, town and telephone, and score above nearly everything.
        random = np.random.default_rng(0)
        table: dict[str, list[str]] = {
            name: [] for name in ("given", "surname", "street", "phone", "born", "code")
        }
        who = np.tile(np.arange(160), 2)
        for row in who:
            home = np.random.default_rng([1, int(row) // 2]).integers(10**6, size=3)
            own = np.random.default_rng([2, int(row)]).integers(10**6, size=3)
            cells = (
                f"n{own[0]}",
                f"s{home[0]}",
                f"street {home[1]}",
                f"{home[2]}",
                f"b{own[1]}",
                f"c{own[2]}",
            )
            for name, cell in zip(table, cells, strict=True):
                table[name].append(cell if random.random() < 0.8 else "")
        schema = infer(table, dict.fromkeys(table, "text")).schema
        pool = LabellingPool(schema, schema.read(table))
        left, right = NOBODY, NOBODY
        for _ in range(2):
            pairs = pool.choose(20, left, right, who[left] == who[right])
            left, right = np.concatenate([left, pairs[:, 0]]), np.concatenate([right, pairs[:, 1]])
        assert 4 <= (who[left] == who[right]).sum() <= 36

    def test_what_nobody_can_tell_is_not_asked_again(self) -> None:
        pool, _ = pool_of(20)
        pairs = pool.choose(5, NOBODY, NOBODY, NOTHING)
        again = pool.choose(len(pool), NOBODY, NOBODY, NOTHING, pool.codes(pairs[:, 0], pairs[:, 1]).tolist())
        assert len(again) == len(pool) - 5
        assert not set(map(tuple, pairs.tolist())) & set(map(tuple, again.tolist()))

    def test_draws_are_all_candidates_but_the_chosen_in_an_order_that_stays(self) -> None:
        pool, _ = pool_of()
        chosen = pool.left[::7], pool.right[::7]
        order = pool.draws(*chosen)
        assert np.array_equal(order, pool_of()[0].draws(*chosen))
        drawn, rest = pool.codes(order[:, 0], order[:, 1]), pool.codes(pool.left, pool.right)
        assert not np.array_equal(drawn, np.sort(drawn))
        assert np.array_equal(np.sort(drawn), np.setdiff1d(rest, pool.codes(*chosen)))

    def test_labels_lower_what_is_uncertain(self) -> None:
        pool, who = pool_of()
        rows = np.random.default_rng(0).permutation(len(pool))[:200]
        left, right = pool.left[rows], pool.right[rows]
        same = who[left] == who[right]
        assert same.sum() >= 4
        chance = pool.chances(left, right, same)
        truth = who[pool.left] == who[pool.right]
        assert chance[truth].mean() > 0.6 > 0.2 > chance[~truth].mean()
