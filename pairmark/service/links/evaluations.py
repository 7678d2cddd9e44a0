"""Links against what is known: identities of records, or pairs that somebody judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from pairmark.models.linking.evaluation import (
    UNKNOWN,
    Identities,
    ListedPairs,
    evaluate_links,
)
from pairmark.schemas.links import LinkEvaluation
from pairmark.service.errors import InvalidInput
from pairmark.service.links import duck


def evaluate(connection: Any, truth: Identities | ListedPairs, confidence: float) -> LinkEvaluation:
    """Links of a connection that has the tables ``links``, ``members`` and ``sides``."""
    links, members, sides = (
        connection.execute(sql).fetchnumpy()
        for sql in (
            "SELECT a, b, score, kept FROM links",
            "SELECT row, first FROM members",
            "SELECT side FROM sides ORDER BY row",
        )
    )
    tables = np.asarray(sides["side"], dtype=np.int64)
    figures = evaluate_links(
        links, members, truth, tables, within=len(np.unique(tables)) != 2, confidence=confidence
    )
    # JSON has null for what is not known, which is NaN.
    return LinkEvaluation.model_validate_json(
        to_json(asdict(figures) | {"best_cut": figures.best.cut}, inf_nan_mode="null")
    )


def is_file(truth: str) -> bool:
    """Whether what is known is in a file of pairs; else in a column."""
    return Path(truth).suffix in (".csv", ".parquet")


def truth_of(connection: Any, truth: str, names: Sequence[str]) -> Identities | ListedPairs:
    """What a column of the table ``whole`` says, by the names of its columns; or a file of pairs: ids of a left and a
    right record and, perhaps, whether they are the same."""
    if not is_file(truth):
        cell = f"c{names.index(truth)}"
        codes = connection.execute(
            f"SELECT dense_rank() OVER (ORDER BY {cell}) AS code, {cell} IS NULL AS unknown FROM whole ORDER BY row"
        ).fetchnumpy()
        return Identities(np.where(codes["unknown"], UNKNOWN, codes["code"]).astype(np.int64))
    _, lines = duck.read_table(Path(truth))
    rows_by_id = connection.execute("SELECT id, row FROM sides ORDER BY side").fetchall()
    # An id that several tables have is of the first one on the left, and of the last one on the right.
    row_of = [dict(reversed(rows_by_id)), dict(rows_by_id)]
    rows = []
    for number, (left, right, *same) in enumerate(lines, 1):
        if left not in row_of[0] or right not in row_of[1]:
            raise InvalidInput(
                f"{truth}, row {number}: there are no records {left!r} and {right!r}", field="truth"
            )
        pair = sorted((row_of[0][left], row_of[1][right]))
        rows.append(
            [*pair, str(same[0] if same else 1).strip().lower() in ("1", "1.0", "true", "yes", "same")]
        )
    a, b, is_same = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return ListedPairs(a, b, is_same.astype(np.bool_))
