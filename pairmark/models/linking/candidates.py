"""Which pairs of rows may be links: by their tables, by what people said of columns, and by what rows share.

Candidates share a value, the values of two columns, or a key of a column's kind.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import accumulate, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.linking.mixture import NAMES, exchanged_places
from pairmark.models.records.compare import LinkField


@dataclass(frozen=True)
class Sides:
    """One table or several, their rows one after the other.

    Attributes
    ----------
    sizes : rows of each. within : numbers of the tables whose own rows are compared with each other, too.
    """

    sizes: Sequence[int]
    within: Collection[int]

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)

    @property
    def apart(self) -> list[int]:
        """Tables whose own rows are not compared."""
        return [at for at in range(len(self.sizes)) if at not in self.within]

    @property
    def _starts(self) -> list[int]:
        return list(accumulate(self.sizes))[:-1]

    @property
    def n_pairs(self) -> float:
        """Pairs that may be links."""
        pairs = [n * (n - 1) / 2 for n in (self.n_rows, *(self.sizes[at] for at in self.apart))]
        return pairs[0] - sum(pairs[1:])

    def side(self, row: str) -> str:
        """SQL of the number of a row's table."""
        return " + ".join(f"CAST({row} >= {start} AS INTEGER)" for start in self._starts) or "0"

    def side_of(self, rows: Int64) -> Int64:
        """The numbers of the tables of rows."""
        return np.searchsorted(self._starts, rows, side="right")

    def may_link(self, a: str, b: str) -> str:
        """SQL of whether two rows, the first one before, are compared."""
        if not self.apart:
            return f"{a} < {b}"
        if len(self.sizes) == 2 and not self.within:
            return f"{a} < {self.sizes[0]} AND {b} >= {self.sizes[0]}"
        inside = ", ".join(map(str, sorted(self.within))) or "-1"
        return f"{a} < {b} AND ({self.side(a)} <> {self.side(b)} OR {self.side(a)} IN ({inside}))"

    def pairs(self, row: str = "row") -> str:
        """SQL of how many pairs of a group of rows may be links."""
        pairs_inside = (
            f"(count(*) FILTER ({self.side(row)} = {at})) * (count(*) FILTER ({self.side(row)} = {at}) - 1) // 2"
            for at in self.apart
        )
        return " - ".join(["count(*) * (count(*) - 1) // 2", *pairs_inside])

    def random_pairs(self, size: int) -> tuple[Int64, Int64]:
        """About ``size`` random pairs of rows that may be links."""
        n = self.n_rows
        most = size * n * (n - 1) / 2 / max(self.n_pairs, 1)
        drawn = np.random.default_rng(0).integers(0, n, (2, int(min(most, 20 * size))))
        a, b = pairs = np.sort(drawn, axis=0)
        side = self.side_of(pairs)
        is_pair = (a < b) & ((side[0] != side[1]) | np.isin(side[0], list(self.within)))
        return a[is_pair], b[is_pair]


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

    def apply(self, connection: Any, sides: Sides) -> None:
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

    def contradicts(self, connection: Any, a: Int64, b: Int64) -> Bool:
        """Whether pairs of rows are never one."""
        give(connection, "pairs_to_check", a=a, b=b, place=np.arange(a.size))
        found = connection.execute(
            f"SELECT coalesce({self._differ}, false) AS differ FROM pairs_to_check {_JOIN} ORDER BY place"
        ).fetchnumpy()
        return np.asarray(found["differ"], dtype=np.bool_)


# Columns, the most telling ones, of which each two make blocks.
_MOST_CONJOINED = 12
_CAP, _CONJOINED_CAP, _GIVEN_CAP = 6, 12, 100
"""Rows that may share a value, values of two columns, or those of a rule that was given, before they make no candidates
any more."""

# Words of a text, the first ones, by which stored links find it.
_STORED_WORDS = 20


class Blocks:
    """Makes the table ``blocks(columns, key, row)`` of rows that share a key, with the columns of its rule.

    Attributes
    ----------
    rules, left_out : names of columns that candidates have in common; those that would have made too many.
    n_pairs : of rows in one block, at most.
    """

    def __init__(
        self,
        connection: Any,
        fields: Sequence[LinkField],
        names: Sequence[str],
        telling: Sequence[int],
        sides: Sides,
        room: int,
    ) -> None:
        self._con, self._fields, self._names, self._sides = connection, fields, names, sides
        self._telling = list(telling)[:_MOST_CONJOINED]
        self._room = room
        self.rules, self.left_out = list[tuple[str, ...]](), list[tuple[str, ...]]()
        self.n_pairs = self._n_rules = 0
        connection.execute("CREATE TABLE blocks (columns UBIGINT, key UBIGINT, row INTEGER)")

    def propose(self, words: int | None = None) -> None:
        """Blocks of single columns, pairs of the most telling ones, and keys; ``words`` : of words of texts, too, as
        many rows of one as there is room for, at most that."""
        for number in range(len(self._fields)):
            self._add([number], [self._names[number]], _CAP)
        roles = [field.definition.role for field in self._fields]
        for i, j, needs_both in exchanged_places(roles):
            if not needs_both:
                either = f"SELECT row, unnest([{self._names[i]}, {self._names[j]}]) AS key FROM hashes"
                self._join(f"SELECT DISTINCT * FROM ({either}) WHERE key IS NOT NULL", [i, j], _CAP)
        for pair in combinations(sorted(self._telling), 2):
            self._add(pair, [self._names[number] for number in pair], _CONJOINED_CAP)
        for number, field in enumerate(self._fields):
            if keys := field.definition.keys(self._names[number]):
                self._key("keyed", number, f"unnest([{', '.join(keys)}])")
                self._join("FROM keyed", [number], _CAP)
                for other in self._telling if field.definition.role in NAMES else ():
                    if other != number:
                        self._add([number, other], ["keyed.key", self._names[other]], _CONJOINED_CAP)
            if field.kind == "text":
                self._key("words", number, f"unnest(string_split({self._names[number]}, ' '))")
                self._join("FROM words", [number], words or _CAP, widest=True)

    def take(self, rules: Sequence[Sequence[str]]) -> None:
        """Blocks of the rules that were given, and of no others."""
        for rule in rules:
            places = [at for at, field in enumerate(self._fields) if field.name in rule]
            if places:
                self._add(places, [self._names[at] for at in places], _GIVEN_CAP)
            else:
                # A column that has one value in all rows makes no difference.
                self.left_out.append(tuple(rule))

    def _add(self, columns: Sequence[int], parts: Sequence[str], cap: int) -> None:
        key = parts[0] if len(parts) == 1 else f"hash({', '.join(parts)})"
        source = "hashes JOIN keyed USING (row)" if "keyed.key" in parts else "hashes"
        there = " AND ".join(f"{part} IS NOT NULL" for part in parts)
        self._join(f"SELECT row, {key} AS key FROM {source} WHERE {there}", columns, cap)

    def _key(self, table: str, number: int, keys: str) -> None:
        """A table of keys of the cells of a column."""
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT DISTINCT row, hash(key) AS key FROM (SELECT row, {keys} "
            f"AS key FROM cells SEMI JOIN hashes USING (row) WHERE {self._names[number]} IS NOT NULL) WHERE key IS NOT "
            "NULL"
        )

    def _join(self, keys: str, columns: Sequence[int], cap: int, *, widest: bool = False) -> None:
        """Add the rows that share a key, where there is room for their pairs."""
        con = self._con
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE key_counts AS SELECT key, count(*) AS n, {self._sides.pairs()} AS pairs "
            f"FROM ({keys}) GROUP BY key HAVING n BETWEEN 2 AND {cap} AND pairs > 0"
        )
        if widest:
            con.execute(
                "DELETE FROM key_counts WHERE n > (SELECT coalesce(max(n), 0) FROM (SELECT n, sum(sum(pairs)) OVER "
                f"(ORDER BY n) AS total FROM key_counts GROUP BY n) WHERE total <= {self._room})"
            )
        n_made = int(read_row(con, "SELECT coalesce(sum(pairs), 0) FROM key_counts"))
        names = tuple(self._fields[number].name for number in columns)
        if not n_made:
            return
        if n_made > self._room:
            self.left_out.append(names)
            return
        if names not in self.rules:
            self.rules.append(names)
        self._n_rules += 1
        con.execute(
            f"INSERT INTO blocks SELECT {sum(1 << number for number in columns)}, hash({self._n_rules}, key), row "
            f"FROM ({keys}) SEMI JOIN key_counts USING (key)"
        )
        self._room -= n_made
        self.n_pairs += n_made


def key_values(field: LinkField, cell: str) -> str:
    """SQL of a list of texts that alike cells of a column share: the normal form, its keys and, of texts, their first
    words."""
    values = f"[{', '.join([cell, *field.definition.keys(cell)])}]"
    return (
        f"list_concat({values}, string_split({cell}, ' ')[:{_STORED_WORDS}])"
        if field.kind == "text"
        else values
    )


def stored_keys(number: int, field: LinkField, cell: str) -> str:
    """SQL of a list of `key_number` of the values of a column's cell."""
    return f"list_transform({key_values(field, cell)}, lambda value: md5_number_lower('{number}:' || value))"


def key_number(text: str) -> int:
    """What DuckDB's ``md5_number_lower`` gives, the same in every version."""
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[8:], "little")


def give(connection: Any, table: str, **columns: NDArray[Any]) -> None:
    """A temporary table of arrays."""
    connection.register("arrays", columns)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM arrays")
    connection.unregister("arrays")


def read_row(connection: Any, sql: str, params: Sequence[Any] = ()) -> Any:
    """The first row of what a query gives; of one column, its cell."""
    row = connection.execute(sql, list(params)).fetchall()[0]
    return row[0] if len(row) == 1 else row
