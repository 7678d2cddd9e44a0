"""What rows must have, or never have, in common to be one: said by people about columns, before any score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.linking.sides import Sides

if TYPE_CHECKING:
    import duckdb

_JOIN = "JOIN cells x ON x.row = a JOIN cells y ON y.row = b"


@dataclass(frozen=True)
class Constraints:
    """Columns of the table ``cells``.

    Attributes
    ----------
    must : rows that have the same values of all columns of one entry are linked.
    never : no entity has two values of one of these columns.
    """

    must: Sequence[Sequence[str]]
    never: Sequence[str]

    @property
    def _differ(self) -> str:
        return " OR ".join(f"x.{name} <> y.{name}" for name in self.never) or "false"

    def apply(self, connection: duckdb.DuckDBPyConnection, sides: Sides) -> None:
        """Take links that contradict each other out of ``scored``; put those in that must be, and into ``together``."""
        if self.never:
            connection.execute(
                f"DELETE FROM scored WHERE (a, b) IN (SELECT (a, b) FROM scored {_JOIN} WHERE {self._differ})"
            )
        for rule in self.must:
            there = " AND ".join(f"{name} IS NOT NULL" for name in rule)
            # Every row is linked to the first or the last one, of which it may be linked to either.
            connection.execute(
                "CREATE OR REPLACE TEMP TABLE forced AS SELECT DISTINCT a, b FROM (SELECT least(row, other) AS a, "
                "greatest(row, other) AS b FROM (SELECT row, unnest([min(row) OVER w, max(row) OVER w]) AS other "
                f"FROM cells WHERE {there} WINDOW w AS (PARTITION BY {', '.join(rule)}))) {_JOIN} "
                f"WHERE a < b AND {sides.may_link('a', 'b')} AND ({self._differ}) IS NOT TRUE"
            )
            connection.execute("INSERT INTO together FROM forced ANTI JOIN together USING (a, b)")
            connection.execute(
                "INSERT INTO scored SELECT a, b, 1.0, NULL FROM forced ANTI JOIN scored USING (a, b)"
            )

    def contradicts(self, connection: duckdb.DuckDBPyConnection, a: Int64, b: Int64) -> Bool:
        """Whether pairs of rows are never one."""
        connection.register("given", {"a": a, "b": b, "place": np.arange(a.size)})
        found = connection.execute(
            f"SELECT coalesce({self._differ}, false) AS differ FROM given {_JOIN} ORDER BY place"
        ).fetchnumpy()
        connection.unregister("given")
        return np.asarray(found["differ"], dtype=np.bool_)
