"""Bulk rows are checked at once where all are plain, and one by one where one is not: the same rows come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pairmark.service.errors import InvalidInput
from pairmark.service.galleries.rows import RowChecks, RowErrors, VectorForm, id_text

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


def test_subjects_are_stored_in_one_spelling_and_none_is_a_word_for_nobody() -> None:
    errors = RowErrors()
    subjects = ["p1 ", " Zoe\u0308", "p1", None, "unknown", "N/A ", " "]
    rows = RowChecks(VectorForm(1), errors).rows(
        0, [f"i{at}" for at in range(7)], np.zeros((7, 1), dtype=np.float32), subjects, None
    )
    assert rows.subjects == ["p1", "Zo\u00eb", "p1", None]
    assert [error["row"] for error in errors.items] == [4, 5, 6]
    assert "names nobody" in errors.items[0]["detail"]
