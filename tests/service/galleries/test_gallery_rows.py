"""Bulk rows are checked at once where all are plain, and one by one where one is not: the same rows come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairmark.service.errors import InvalidInput
from pairmark.service.galleries.items.item_forms import VectorForm
from pairmark.service.galleries.items.metadata import checked_column
from pairmark.service.galleries.items.rows import RowChecks, RowErrors, StoredRows, id_text

IDS: list[Any] = [
    "a",
    "b",
    "c",
    "d",
    "e",
    "é",
    "",
    "x" * 600,
    "a\n",
    7,
    None,
    "..",
    "a/./b",
    "a..",
    "e\u0301",
    "a\u200f",
]
SUBJECTS: list[Any] = [None, "s", "é", "", 3, ".", "x/.."]


@given(st.data())
def test_rows_checked_together_are_those_checked_one_by_one(data: st.DataObject) -> None:
    reported = []
    batches = data.draw(
        st.lists(st.lists(st.sampled_from(IDS), min_size=1, max_size=4), min_size=1, max_size=3)
    )
    subjects = [[data.draw(st.sampled_from(SUBJECTS)) for _ in batch] for batch in batches]
    vectors = [
        np.array([[data.draw(st.sampled_from([0.0, 1.5, np.nan]))] for _ in batch], dtype=np.float32)
        for batch in batches
    ]
    for together in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not together:
                patch.setattr(RowChecks, "_whole", lambda *_: None)
            errors = RowErrors()
            checks = RowChecks(VectorForm(1), errors)
            found = [
                checks.rows(10 * at, list(ids), vectors[at], list(subjects[at]), None)
                for at, ids in enumerate(batches)
            ]
        reported.append(
            (
                [(one.ids, one.subjects, one.vectors.tolist(), one.metadata, one.places) for one in found],
                errors.items,
            )
        )
    assert reported[0] == reported[1]


FACTS: list[Any] = [
    None,
    {},
    {"a": 1},
    {"b": "ü", "a": None},
    '{"a": 1.5, "b": "x"}',
    '{"a": true}',
    "{}",
    "",
    "[1]",
    '{"a": 1},{"a": 2}',
    '{"a": [1',
    "2]}",
    '{"a": 9007199254740993}',
    '{"a": NaN}',
    '{"a": "\\ud800"}',
    '{"a": "\\u0000"}',
    {"": 1},
    {"long": "x" * 5_000},
    {str(at): at for at in range(65)},
]


@given(st.lists(st.sampled_from(FACTS), max_size=5))
@example([{"a": 1}, '{"a": 9007199254740993}'])
@example([{"a": 1}, '{"a": NaN}'])
def test_metadata_checked_together_is_that_checked_one_by_one(facts: list[Any]) -> None:
    reported = []
    for together in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not together:
                patch.setattr(RowChecks, "_whole", lambda *_: None)
            errors = RowErrors()
            ids = [f"i{at}" for at in range(len(facts))]
            rows = RowChecks(VectorForm(1), errors).rows(0, ids, np.zeros((len(facts), 1)), None, list(facts))
            reported.append((rows.ids, rows.metadata, errors.items))
    assert reported[0] == reported[1]
    if not reported[0][2]:
        # Nothing to refuse: these went the way of bulk rows, all at once.
        assert checked_column(facts) == reported[0][1]


ODD = (
    *(".", "..", "../x", "a/../b", "a/.", "..\\x", "a\\."),
    *(
        "a\x00",
        "a\n",
        "a\x7f",
        "a\x85",
        "a\u061c",
        "\u200ea",
        "a\u200f",
        "\u202ab",
        "a\u202eb",
        "\u2066b",
        "a\u2069",
    ),
    *("", "x" * 513, "é" * 257, "\u0958" * 171, "\ud800"),
)


@pytest.mark.parametrize("text", ODD, ids=lambda text: ascii(text[:10]))
def test_texts_that_could_pass_for_another_are_no_ids(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^subject (has|holds) .*(expected|characters)"):
        id_text(text, "subject")
    errors = RowErrors()
    rows = RowChecks(VectorForm(1), errors).rows(
        0, [text, "a"], np.zeros((2, 1), dtype=np.float32), None, None
    )
    assert (rows.ids, errors.count) == (["a"], 1)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("Zoe\u0308", "Zo\u00eb"),
        ("e\u0301" * 256, "\u00e9" * 256),
        ("x" * 512, "x" * 512),
        ("a..b/.c/...", "a..b/.c/..."),
        ("%2e%2e", "%2e%2e"),
        ("//", "//"),
        (np.str_("a"), "a"),
        (np.int64(7), "7"),
    ],
)
def test_other_texts_are_stored_in_nfc(text: Any, stored: str) -> None:
    assert id_text(text, "id") == stored
    assert type(id_text(text, "id")) is str


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=4))
def test_parts_are_joined_by_id(numbers: list[list[int]]) -> None:
    parts = [
        StoredRows(
            seqs=np.array(some, dtype=np.int64),
            ids=[f"{one:02}" for one in some],
            subjects=[f"s{one}" for one in some],
            vectors=np.array([[one, -one] for one in some], dtype=np.float32).reshape(-1, 2),
            metadata=[None for _ in some],
        )
        for some in numbers
    ]
    joined = StoredRows.sorted(parts, 2)
    expected = sorted(one for some in numbers for one in some)
    assert joined.ids == [f"{one:02}" for one in expected]
    assert joined.subjects == [f"s{one}" for one in expected]
    assert joined.seqs.tolist() == expected
    assert joined.vectors.tolist() == [[one, -one] for one in expected]
