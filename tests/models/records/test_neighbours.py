"""Candidates for one record: the rows that share most with it, as counting by hand finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models import FellegiSunter
from pairmark.models.records import neighbours
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.neighbours import Postings, keys_of, nominate
from pairmark.models.records.tables import declare_schema
from tests.models.records.people import people

SCHEMA = declare_schema({"name": "name", "note": "text", "kind": "category", "size": "number"})
WORDS = st.lists(st.sampled_from(["ann", "anna", "bo", "lee", "smith", "smyth", ""]), max_size=3).map(
    " ".join
)
RECORD = st.fixed_dictionaries(
    {
        "name": WORDS,
        "note": WORDS,
        "kind": st.sampled_from(["a", "b", None]),
        "size": st.sampled_from([1.5, None]),
    }
)
TYPES = {
    "given": "name", "surname": "name", "address": "text", "born": "date:YYYY-MM-DD", "code": "text",
    "member": "boolean", "weight": "number", "home": "place",
}  # fmt: skip


def keys_by_hand(record: dict[str, Any]) -> set[Any]:
    keys: set[Any] = set() if record["kind"] is None else {("kind", record["kind"])}
    for cell in (record["name"].strip(), record["note"].strip()):
        keys |= {("token", token) for token in cell.split()}
        padded = f" {cell} "
        keys |= {("gram", padded[at : at + 3]) for at in range(len(padded) - 2)} if cell else set()
    return keys


def nominated_by_hand(query: dict[str, Any], records: list[dict[str, Any]], alive: Any, n: int) -> list[int]:
    of_rows = [keys_by_hand(record) for record in records]
    shared = {}
    for row, keys in enumerate(of_rows):
        common = keys & keys_by_hand(query)
        if common and alive[row]:
            worth = [
                (0.25 if key[0] == "gram" else 1.0)
                * np.log2((1 + len(records)) / sum(key in other for other in of_rows))
                for key in common
            ]
            shared[row] = sum(max(round(256 * one), 1) for one in worth)
    return sorted(shared, key=lambda row: (-shared[row], row))[:n]


@given(st.data())
def test_candidates_are_those_that_counting_shared_keys_finds(data: st.DataObject) -> None:
    records = data.draw(st.lists(RECORD, min_size=2, max_size=12))
    query = data.draw(RECORD)
    alive = np.array(data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))))
    cut = data.draw(st.integers(0, len(records)))
    n = data.draw(st.integers(1, 5))
    cells = SCHEMA.records(records)
    comparators = Comparators(SCHEMA).fit(cells)
    keys = np.unique(keys_of(comparators, comparators.prepare(SCHEMA.records([query])))[0])
    # However a gallery is cut into parts, its best are the same.
    cuts = [part for part in (slice(0, cut), slice(cut, None)) if cells[part].size]
    parts = [Postings.of(*keys_of(comparators, comparators.prepare(cells[part]))) for part in cuts]
    masks, sizes = [alive[part] for part in cuts], [len(cells[part]) for part in cuts]
    candidates = nominate(keys, parts, masks, sizes, n)
    merged = sorted(
        (-int(worth), int(row) + (part.start or 0))
        for part, (rows, shared) in zip(cuts, candidates, strict=True)
        for row, worth in zip(rows, shared, strict=True)
    )
    assert [row for _, row in merged[:n]] == nominated_by_hand(query, records, alive, n)


def test_common_keys_are_passed_over_once_the_budget_is_spent() -> None:
    records = [{"name": f"common rare{row}", "note": "", "kind": "a", "size": None} for row in range(50)]
    cells = SCHEMA.records(records)
    comparators = Comparators(SCHEMA).fit(cells)
    part = Postings.of(*keys_of(comparators, comparators.prepare(cells)))
    keys = np.unique(keys_of(comparators, comparators.prepare(cells[7:8]))[0])
    rows, _ = nominate(keys, [part], [None], [50], max_postings=3)[0]
    assert rows[0] == 7
    assert rows.size < 5


@pytest.fixture(scope="module")
def model() -> FellegiSunter:
    table, _ = people(300, seed=1)
    return FellegiSunter(columns=TYPES, n_pairs=5_000).fit(table)


def test_mistyped_people_are_candidates_and_a_saved_index_finds_the_same(
    model: FellegiSunter, tmp_path: Path
) -> None:
    table, _ = people(3_000, seed=5)
    cells = model._validated(table, "table")
    enrolled, probes = cells[::2], cells[1::2]
    index = model.index(enrolled)
    index.save(tmp_path / "index")
    mapped = model.open_index(tmp_path / "index")
    assert len(index) > neighbours.MAX_SCORED
    hits = 0
    for row in range(300):
        rows, shared = model.candidates(probes[row : row + 1], neighbours.N_CANDIDATES, [index], [None])[0]
        assert rows.shape[1] <= neighbours.N_CANDIDATES
        assert (np.diff(shared[0]) <= 0).all()
        hits += row in rows[0]
        again = model.candidates(probes[row : row + 1], neighbours.N_CANDIDATES, [mapped], [None])[0]
        assert (again[0] == rows).all()
    assert hits >= 297
