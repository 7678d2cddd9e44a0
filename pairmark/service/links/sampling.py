"""Some rows of a table, spread over it, which say what its columns hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pairmark.models.records.inference import infer, is_id_name
from pairmark.models.records.schema import RecordError

if TYPE_CHECKING:
    import duckdb

_ROWS, _FIRST = 5_000, 1_000
"""Rows that are looked at, and of those the first ones, one after the other."""

Column = tuple[str | None, ...]


class Sample(NamedTuple):
    """Cells of every ``step``-th row, and of the first rows, by column; its different values, and which share of those
    of all rows they are."""

    step: int
    cells: dict[str, Column]
    first: dict[str, Column]
    distinct: dict[str, list[str]]
    coverage: dict[str, float]

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], n: int) -> Sample:
        """From ``table(row, c0, ...)`` of ``n`` rows."""
        step = -(-n // _ROWS)

        def columns(which: str) -> dict[str, Column]:
            rows = connection.execute(
                f"SELECT * EXCLUDE row FROM {table} WHERE {which} ORDER BY row"
            ).fetchall()
            return dict(zip(names, zip(*rows, strict=True), strict=True))

        cells = columns(f"row % {step} = 0")
        distinct = {name: list(dict.fromkeys(filter(None, texts))) for name, texts in cells.items()}
        if step == 1:
            return cls(step, cells, cells, distinct, dict.fromkeys(names, 1.0))
        counts = ", ".join(f"approx_count_distinct(c{number})" for number in range(len(names)))
        [every] = connection.execute(f"SELECT {counts} FROM {table}").fetchall()
        coverage = {
            name: min(len(distinct[name]) / max(n_values, len(distinct[name]), 1), 1.0)
            for name, n_values in zip(names, every, strict=True)
        }
        return cls(step, cells, columns(f"row < {_FIRST}"), distinct, coverage)

    def types_of_ids(self, types: Mapping[str, str]) -> dict[str, str]:
        """Types of columns that only rows which follow each other tell: that they number a table, or that what one is
        called like an id has values which repeat, in a sorted table.

        Parameters
        ----------
        types : of columns of which they are known.
        """
        if self.step == 1:
            return {}
        try:
            inferred = {column.name: column.type for column in infer(self.first, types).schema.columns}
        except RecordError:
            return {}
        of_own = [name for name, cells in self.cells.items() if len(self.distinct[name]) == len(cells)]
        repeats = {name for name, cells in self.first.items() if len({*cells}) < len(cells)}
        return {
            name: "id" if inferred[name] == "id" else "text"
            for name in of_own
            if name not in types and (inferred[name] == "id" or (is_id_name(name) and name in repeats))
        }
