"""Candidates: pairs of rows that share a value, the values of two columns, or a key of a column's kind."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pairmark.models.core.arrays import Int64
from pairmark.models.linking.mixture import NAMES
from pairmark.models.linking.sides import Sides
from pairmark.models.records.compare import LinkField

if TYPE_CHECKING:
    import duckdb

_MOST_CONJOINED = 12
_CAP, _CONJOINED_CAP, _GIVEN_CAP = 6, 12, 100
"""Rows that may share a value, values of two columns, or those of a rule that was given, before they make no candidates
any more."""

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
        connection: duckdb.DuckDBPyConnection,
        fields: Sequence[LinkField],
        names: Sequence[str],
        telling: Sequence[int],
        sides: Sides,
        room: int,
    ) -> None:
        self._con, self._fields, self._names, self._sides = connection, fields, names, sides
        self._telling = list(telling)[:_MOST_CONJOINED]
        self._room = room
        self.rules: list[tuple[str, ...]] = []
        self.left_out: list[tuple[str, ...]] = []
        self.n_pairs = self._n_rules = 0
        connection.execute("CREATE TABLE blocks (columns UBIGINT, key UBIGINT, row INTEGER)")

    def propose(self, words: int | None = None) -> None:
        """Blocks of single columns, pairs of the most telling ones, and keys; ``words`` : of words of texts, too, as
        many rows of one as there is room for, at most that."""
        for number in range(len(self._fields)):
            self._add([number], [self._names[number]], _CAP)
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
        name = self._names[number]
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT DISTINCT row, hash(key) AS key FROM (SELECT row, {keys} "
            f"AS key FROM cells SEMI JOIN hashes USING (row) WHERE {name} IS NOT NULL) WHERE key IS NOT NULL"
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
        made = int(con.execute("SELECT coalesce(sum(pairs), 0) FROM key_counts").fetchall()[0][0])
        names = tuple(self._fields[number].name for number in columns)
        if not made:
            return
        if made > self._room:
            self.left_out.append(names)
            return
        if names not in self.rules:
            self.rules.append(names)
        self._n_rules += 1
        con.execute(
            f"INSERT INTO blocks SELECT {sum(1 << number for number in columns)}, hash({self._n_rules}, key), row "
            f"FROM ({keys}) SEMI JOIN key_counts USING (key)"
        )
        self._room -= made
        self.n_pairs += made


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


def measured_recall(
    connection: duckdb.DuckDBPyConnection, sides: Sides, identities: Int64
) -> tuple[int, int]:
    """Of entities of two records or more, as (n,) ``identities`` has them (-1: nobody knows), how many candidates
    connect, and how many there are. Of two tables those count that have records in both."""
    row = np.flatnonzero(identities >= 0)
    who = identities[row]
    candidates = connection.execute(
        "SELECT a, b, false AS equal FROM compared UNION ALL SELECT first, row, true FROM twins"
    ).fetchnumpy()
    a, b = (np.asarray(candidates[side], dtype=np.int64) for side in ("a", "b"))
    joins = candidates["equal"] | ((identities[a] == identities[b]) & (identities[a] >= 0))
    graph = coo_array((np.ones(joins.sum()), (a[joins], b[joins])), shape=(sides.n_rows, sides.n_rows))
    part = connected_components(graph, directed=False)[1][row]
    n_who = int(who.max(initial=-1)) + 1
    together = np.unique(np.stack([who, part]), axis=1)[0]
    parts = np.bincount(together, minlength=n_who)
    side = sides.side_of(row)
    of = np.unique(np.stack([who, side]), axis=1)[0]
    counts = np.bincount(of, minlength=n_who) > 1
    inside = np.isin(side, list(sides.within))
    twice, n = np.unique(np.stack([who[inside], side[inside]]), axis=1, return_counts=True)
    counts[twice[0][n > 1]] = True
    return int((counts & (parts == 1)).sum()), int(counts.sum())
