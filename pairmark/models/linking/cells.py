"""What rows say, column by column: normal forms, which columns tell nothing, and how frequent values are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64
from pairmark.models.linking.columns import bins_sql, contradictions, count_values, lifts, tells_nothing
from pairmark.models.linking.mixture import LEVEL_OF, Column, Mixture, column_of
from pairmark.models.linking.sides import Sides
from pairmark.models.linking.symbols import coded_pairs, symbols_of, words_of
from pairmark.models.records.compare import LinkField

if TYPE_CHECKING:
    import duckdb

MAX_FIELDS = 60
"""Columns that are compared."""
BEYOND = f"{MAX_FIELDS} columns are compared, those with the most values"
_RANDOM_PAIRS = 200_000
_PSEUDO = 0.5
_MOST_SHARED = 0.1
"""Values are of one thing alone where so many rows share one within their table, for each that both tables have."""


class Cells:
    """The columns of ``source(row, c0, c1, ...)`` that are compared.

    Attributes
    ----------
    source_fields, read_as : one for each column of ``source``; and of each column of ``cells`` its place in ``source``.
    places, fields, names : of the columns of ``cells`` that are compared. distinct : of all, how many values.
    screened, contradicted : by place, why a column tells nothing, or which other one it contradicts.
    n_empty : rows without a cell.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        fields: Sequence[LinkField],
        sides: Sides,
        previous: tuple[Sequence[LinkField], Mixture | None] | None,
        frequencies: Mapping[str, str],
    ) -> None:
        self.connection, self.source_fields, self.sides = connection, list(fields), sides
        self._frequencies = frequencies
        earlier, self._model = previous or ([], None)
        self._earlier = list(earlier)
        self.notes: list[str] = []
        self.screened: dict[int, str] = {}
        self.contradicted: dict[int, str] = {}

    def read(self, *, beside: Sequence[str], counts: bool, screens: bool) -> None:
        """Tables ``cells`` of all rows that have one, and ``hashes`` of those that no earlier row equals.

        Parameters
        ----------
        beside : columns of ``cells`` in which rows that are equal otherwise may differ. counts : whether values are
            counted. screens : whether columns that agree by chance alone are left out.
        """
        con, earlier = self.connection, self._earlier
        self._beside = beside
        kinds = {field.name: field for field in earlier if field.kind != "legal_form"}
        self.source_fields = [kinds.get(field.name, field) for field in self.source_fields]
        # The place in ``source`` of each column of ``cells``. Firms of one group may differ in their legal form alone.
        self.read_as: list[tuple[int, LinkField]] = list(enumerate(self.source_fields))
        self.read_as += [
            (place, LinkField(f.name, "legal_form")) for place, f in self.read_as if f.kind == "company"
        ]
        cells = ", ".join(
            f"{f.definition.normal(f'c{source}')} AS c{place}"
            for place, (source, f) in enumerate(self.read_as)
        )
        con.execute(f"CREATE TABLE cells AS SELECT row, {cells} FROM source")
        every = [f"c{place}" for place in range(len(self.read_as))]
        distinct = ", ".join(f"approx_count_distinct({name})" for name in every)
        self.distinct = n_values = np.array(con.execute(f"SELECT {distinct} FROM cells").fetchone())
        # Of many columns those with the most values say most.
        compared = set(np.argsort(-n_values, kind="stable")[:MAX_FIELDS].tolist())
        places = list(range(len(every)))
        if earlier:
            # In the order that the model has them in.
            where = {(field.name, field.kind): place for place, (_, field) in enumerate(self.read_as)}
            keys = [(field.name, field.kind) for field in earlier]
            places = [where[key] for key in keys if key in where]
        elif self.sides.n_rows > 2:
            for place in places:
                if n_values[place] < 2:
                    self.screened[place] = (
                        "it has one value in all rows" if n_values[place] else "it has no value"
                    )
                elif self.read_as[place][1].note:
                    self.screened[place] = self.read_as[place][1].note
                elif place not in compared:
                    self.screened[place] = BEYOND
            if all(place in self.screened for place in places):
                # Rows that are all equal are duplicates all the same.
                self.screened = {place: why for place, why in self.screened.items() if not n_values[place]}
            places = [place for place in places if place not in self.screened]
        self._use(places)
        self._hash()
        if screens:
            self._screen()
        if counts:
            self._count()

    def _use(self, places: Sequence[int]) -> None:
        self.places = list(places)
        self.fields = [self.read_as[at][1] for at in places]
        self.names = [f"c{at}" for at in places]

    def _hash(self) -> None:
        con = self.connection
        hashed = ", ".join(
            f"CASE WHEN {name} IS NOT NULL THEN hash({name}) END AS {name}" for name in self.names
        )
        every = ", ".join([*self.names, *self._beside]) or "NULL"
        there = f"coalesce({every}) IS NOT NULL"
        con.execute(
            f"CREATE OR REPLACE TABLE twins AS SELECT row, first FROM (SELECT row, min(row) OVER (PARTITION BY "
            f"{self.sides.side('row')}, {every}) AS first FROM cells WHERE {there}) WHERE row <> first"
        )
        con.execute(
            f"CREATE OR REPLACE TABLE hashes AS SELECT row, {hashed} FROM cells WHERE {there} "
            "AND row NOT IN (SELECT row FROM twins)"
        )
        con.execute("CREATE TABLE IF NOT EXISTS known (row INTEGER)")
        filled = "SELECT (SELECT count(*) FROM hashes) + (SELECT count(*) FROM twins)"
        self.n_empty = self.sides.n_rows - con.execute(filled).fetchall()[0][0]

    def _equal(self, name: str) -> float:
        """Of all pairs that have a cell in a column, the share in which it is equal."""
        count = self.sides.pairs()
        cursor = self.connection.execute(
            f"SELECT coalesce(sum(pairs), 0), (SELECT {count} FROM hashes WHERE {name} IS NOT NULL) FROM "
            f"(SELECT {count} AS pairs FROM hashes WHERE {name} IS NOT NULL GROUP BY {name})"
        )
        equal, pairs = cursor.fetchall()[0]
        return float(equal) / max(float(pairs), 1)

    def _screen(self) -> None:
        """Leave out the columns that agree by chance alone."""
        self._equals = np.array([self._equal(name) for name in self.names])
        best, shares = lifts(self.connection, self.names, self._equals, self.sides)
        roles = [field.definition.role for field in self.fields]
        for pair, sentence in contradictions(self.connection, shares, self.fields, self.names):
            self.contradicted |= {self.places[number]: sentence for number in pair}
            self.notes.append(sentence)
        nothing = tells_nothing(best, roles, self._equals, self.sides.n_rows, self._is_own)
        for number in nothing:
            self.screened[self.places[number]] = "rows that agree elsewhere agree in it by chance alone"
        if nothing:
            telling = [number for number in range(len(self.places)) if number not in nothing]
            self._equals = self._equals[telling]
            self._use([self.places[number] for number in telling])
            self._hash()

    def _is_own(self, number: int) -> bool:
        """Whether hardly any rows of one table share a value of a column, which those of two tables do."""
        name = self.names[number]
        of_sides = f"count(DISTINCT ({self.sides.side('row')}, {name}))"
        rows, side_values, every = self.connection.execute(
            f"SELECT count({name}), {of_sides}, count(DISTINCT {name}) FROM hashes WHERE {name} IS NOT NULL"
        ).fetchall()[0]
        return bool(rows - side_values <= _MOST_SHARED * (side_values - every))

    def _count(self) -> None:
        """How frequent values are, and ``cells`` with the bin of each."""
        model = self._model
        self._counted = [
            count_values(self.connection, name, self._frequencies.get(field.name))
            for name, field in zip(self.names, self.fields, strict=True)
            if model is None
        ]
        frequent = (
            [dict(each.frequent) for each in model.columns] if model else [each[0] for each in self._counted]
        )
        self.connection.execute(f"CREATE TABLE binned AS {bins_sql(self.connection, frequent, self.names)}")
        self.connection.execute("DROP TABLE cells")
        self.connection.execute("ALTER TABLE binned RENAME TO cells")

    def coded(self, pairs: str, more: str = "") -> str:
        return coded_pairs(self.fields, self.names, pairs, more)

    def patterns(self, source: str) -> tuple[dict[str, NDArray[Any]], Float64]:
        """Words of the patterns of some pairs, and how many have each."""
        words = ", ".join(words_of(self.fields))
        patterns = self.connection.execute(
            f"SELECT {words}, count(*) AS n FROM ({source}) GROUP BY {words} ORDER BY {words}"
        ).fetchnumpy()
        return patterns, np.asarray(patterns["n"], dtype=np.float64)

    def columns(self) -> list[Column]:
        """What the columns are before matches are looked for."""
        a, b = self.sides.random_pairs(int(min(_RANDOM_PAIRS, max(10 * self.sides.n_pairs, 1))))
        give(self.connection, "random_pairs", a=a, b=b)
        words, counts = self.patterns(self.coded("FROM random_pairs"))
        symbols = symbols_of(words, len(self.fields))
        levels = LEVEL_OF[symbols]
        columns = []
        roles = [field.definition.role for field in self.fields]
        if "given" in roles:
            # Beside a given name, a name is the rest of it.
            roles = ["surname" if role == "name" else role for role in roles]
        for at, (role, counted, equal) in enumerate(zip(roles, self._counted, self._equals, strict=True)):
            unequal = np.bincount(levels[:, at], weights=counts, minlength=5)[1:4] + _PSEUDO
            equal = float(np.clip(equal, 1e-9, 0.999))
            u: Float64 = np.append(unequal / unequal.sum() * (1 - equal), equal)
            columns.append(column_of(role, u, *counted))
        return columns


def give(connection: duckdb.DuckDBPyConnection, table: str, **columns: NDArray[Any]) -> None:
    """A temporary table of arrays."""
    connection.register("arrays", columns)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM arrays")
    connection.unregister("arrays")
