"""Keys and levels of single cells, by prepared statements: to bind one takes longer than to run it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any

from pairmark.models.linking.candidates import key_values
from pairmark.models.records.compare import KINDS, LinkField
from pairmark.service.links.duck import quoted_text

_MISSING, _EQUAL = 0, 4


def form_of(kind: str, cell: str | None) -> str | None:
    """A cell's normal form; None where it is missing."""
    return None if cell is None else KINDS[kind].form(cell) or None


class CellComparer:
    """One connection without tables, for all threads: what it prepares depends on kinds of columns alone."""

    def __init__(self) -> None:
        import duckdb

        self._lock, self._prepared = Lock(), set[str]()
        self._con = duckdb.connect(config={"threads": "1", "memory_limit": "256MB"})

    def keys(self, fields: Sequence[LinkField], forms: Sequence[str | None]) -> list[list[str]]:
        """Of each column, texts that its cell shares with those that it is like."""
        lists = ", ".join(key_values(field, f"a{at}") for at, field in enumerate(fields))
        cells = ", ".join(f"${at + 1}::VARCHAR AS a{at}" for at in range(len(fields)))
        literals = ["NULL" if form is None else quoted_text(form) for form in forms]
        name = "_".join(["keys", *(field.kind for field in fields)])
        value_lists = self._run(name, f"SELECT {lists} FROM (SELECT {cells})", *literals)[0]
        return [[value for value in values or () if value is not None] for values in value_lists]

    def levels(self, kind: str, form: str | None, others: Sequence[str | None]) -> list[int]:
        """How far a normal form agrees with each of some others."""
        level: dict[str | None, int] = {form: _EQUAL}
        unlike = sorted({other for other in others if other is not None and other != form})
        if form is not None and unlike:
            sql = f"SELECT b, {KINDS[kind].level('a', 'b')} FROM (SELECT $1::VARCHAR AS a, unnest($2::VARCHAR[]) AS b)"
            listed = f"[{', '.join(map(quoted_text, unlike))}]"
            level |= dict(self._run(f"level_{kind}", sql, quoted_text(form), listed))
        return [_MISSING if None in (form, other) else level[other] for other in others]

    def _run(self, name: str, sql: str, *literals: str) -> list[tuple[Any, ...]]:
        with self._lock:
            if name not in self._prepared:
                self._con.execute(f"PREPARE {name} AS {sql}")
                self._prepared.add(name)
            rows: list[tuple[Any, ...]] = self._con.execute(
                f"EXECUTE {name}({', '.join(literals)})"
            ).fetchall()
            return rows


comparer = cache(CellComparer)
"""The one of this process."""
