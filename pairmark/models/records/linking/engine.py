"""Links within a table, or between two, without labels: candidates by DuckDB, scores by a model fitted on the tables.

Everything is kept in tables of one DuckDB database: memory is bounded by its settings. No result depends on the number
of threads: sums are of whole numbers, and what is kept is in an order of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.records.linking import mixture
from pairmark.models.records.linking.cells import LinkField
from pairmark.models.records.linking.entities import entities
from pairmark.models.records.linking.mixture import Comparison, chances

if TYPE_CHECKING:
    import duckdb

MAX_FIELDS = 31
"""Columns that are compared: their levels make one integer of 64 bits."""
_MOST_CONJOINED = 12
_CAP, _CONJOINED_CAP = 6, 12
"""Rows that may share a value, or values of two columns, before they make no candidates any more."""
BUDGET = 50
"""Candidates for each row, at most; rules that would make more are left out."""
_RANDOM_PAIRS = 100_000
_LEAST_CHANCE = 0.5
_LOOKED_AT, _LOOKED_THROUGH = 3_000, 50_000
_MOST_JOINED = 4
_DEPENDENT = 10.0
_FEWEST_DEPENDENT = 0.05
"""Pairs for each row that are equal in two columns and in hardly any other, from which on the two depend."""
_TELLING = 4
"""Columns from which on strangers who share two can be told from matches: by the others."""


class Linking:
    """The stages of a job.

    Parameters
    ----------
    connection : holds the table ``source(row, c0, c1, ...)`` of texts; rows from 0, those of a left table first.
    fields : one for each column of ``source``.
    n_rows : of both tables. n_left : of the left one; None where there is one table.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        fields: Sequence[LinkField],
        n_rows: int,
        n_left: int | None = None,
        budget: float = BUDGET,
    ) -> None:
        self._con, self._budget = connection, budget
        self.n_rows, self.n_left = n_rows, n_left
        self._source_fields = list(fields)

    def run(self, false_links: float | None = None) -> None:
        """Make the table ``links(a, b, score, decision, entity)`` of rows, ``a`` before ``b``, in their order.

        Parameters
        ----------
        false_links : the share of the links that may be false, as the model estimates it; None: a link is a pair that
            is likelier a match than not.
        """
        report(0.0, "reading cells")
        self._prepare()
        report(0.1, "finding candidates")
        self._block()
        report(0.4, "comparing")
        self._compare()
        report(0.7, "fitting")
        self._fit()
        report(0.9, "joining entities")
        self._link(false_links)

    def _one(self, sql: str, params: Sequence[Any] = ()) -> Any:
        row = self._con.execute(sql, list(params)).fetchone()
        assert row is not None
        return row[0] if len(row) == 1 else row

    @property
    def n_pairs(self) -> float:
        n = self.n_rows
        return n * (n - 1) / 2 if self.n_left is None else float(self.n_left * (n - self.n_left))

    def _side(self, row: str) -> str:
        return "0" if self.n_left is None else f"CAST({row} >= {self.n_left} AS INTEGER)"

    def _prepare(self) -> None:
        """Tables ``cells`` of all rows that have one, and ``records`` of those that no earlier row equals."""
        con = self._con
        cells = ", ".join(f"{f.cell(f'c{at}')} AS c{at}" for at, f in enumerate(self._source_fields))
        con.execute(f"CREATE TABLE cells AS SELECT row, {cells} FROM source")
        names = [f"c{at}" for at in range(len(self._source_fields))]
        counts = np.array(
            self._con.execute(
                "SELECT " + ", ".join(f"approx_count_distinct({name})" for name in names) + " FROM cells"
            ).fetchone()
        )
        # Of many columns those with the most values say most.
        kept = np.sort(np.argsort(-counts, kind="stable")[:MAX_FIELDS])
        self.places = [int(at) for at in kept if counts[at] > 1 or self.n_rows < 2]
        self.fields = [self._source_fields[at] for at in self.places]
        self._names = [f"c{at}" for at in self.places]
        self._distinct = counts[self.places]
        every = ", ".join(self._names)
        con.execute(
            f"CREATE TABLE twins AS SELECT row, first FROM (SELECT row, min(row) OVER "
            f"(PARTITION BY {self._side('row')}, hash({every})) AS first FROM cells "
            f"WHERE coalesce({every}) IS NOT NULL)"
        )
        con.execute(
            f"CREATE TABLE records AS SELECT row, {every} FROM cells WHERE row IN "
            "(SELECT row FROM twins WHERE row = first)"
        )
        con.execute("DELETE FROM twins WHERE row = first")
        self.n_empty = (
            self.n_rows - self._one("SELECT count(*) FROM records") - self._one("SELECT count(*) FROM twins")
        )

    def _groups(self, columns: Sequence[str]) -> float:
        """Of pairs in which no cell of some columns is missing, the share that is equal in all of them."""
        present = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        side = self._side("row")
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE key_counts AS SELECT hash({', '.join(columns)}) AS key, "
            f"count(*) FILTER ({side} = 0) AS n0, count(*) FILTER ({side} = 1) AS n1 "
            f"FROM cells WHERE {present} GROUP BY key"
        )
        if self.n_left is None:
            equal, n = self._one("SELECT sum(n0 * (n0 - 1) / 2), sum(n0) FROM key_counts")
            pairs = (n or 0) * ((n or 0) - 1) / 2
        else:
            equal, n0, n1 = self._one("SELECT sum(n0 * n1), sum(n0), sum(n1) FROM key_counts")
            pairs = (n0 or 0) * (n1 or 0)
        return float(equal or 0) / max(float(pairs), 1.0)

    def _block(self) -> None:
        """Table ``pairs`` of candidates, and how often columns are equal in all pairs."""
        con = self._con
        con.execute("CREATE TABLE all_pairs (a INTEGER, b INTEGER)")
        self.rules: list[tuple[str, ...]] = []
        self.left_out: list[tuple[str, ...]] = []
        self.equal: dict[tuple[int, ...], float] = {}
        most = np.sort(np.argsort(-self._distinct, kind="stable")[:_MOST_CONJOINED])
        rules = [*((at,) for at in range(len(self.fields))), *combinations(most.tolist(), 2)]
        room = int(self._budget * max(self.n_rows, 1))
        for rule in rules:
            self.equal[rule] = self._groups([self._names[at] for at in rule])
            room -= self._candidates_of(rule, room)
        for at, field_ in enumerate(self.fields):
            if field_.wordy:
                room -= self._candidates_of_words(at, room)
        side = self._side("b") + " > " + self._side("a") if self.n_left is not None else "TRUE"
        con.execute(f"CREATE TABLE pairs AS SELECT DISTINCT a, b FROM all_pairs WHERE {side}")
        con.execute("DROP TABLE all_pairs")
        self.n_candidates = int(self._one("SELECT count(*) FROM pairs"))

    def _candidates_of(self, rule: tuple[int, ...], room: int) -> int:
        columns = [self._names[at] for at in rule]
        cap = _CAP if len(rule) == 1 else _CONJOINED_CAP
        present = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        keys = (
            f"SELECT row, key FROM (SELECT row, hash({', '.join(columns)}) AS key FROM records WHERE {present}) "
            f"SEMI JOIN (SELECT key FROM key_counts WHERE n0 + n1 > 1) USING (key)"
        )
        return self._joined(keys, cap, room, rule)

    def _candidates_of_words(self, at: int, room: int) -> int:
        name = self._names[at]
        keys = (
            f"SELECT DISTINCT row, hash(unnest(string_split({name}, ' '))) AS key FROM records "
            f"WHERE {name} IS NOT NULL"
        )
        return self._joined(keys, _CAP, room, (at, at))

    def _joined(self, keys: str, cap: int, room: int, rule: tuple[int, ...]) -> int:
        con = self._con
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE keys AS SELECT row, key, count(*) OVER (PARTITION BY key) AS n "
            f"FROM ({keys}) QUALIFY n BETWEEN 2 AND {cap}"
        )
        made = int(self._one("SELECT coalesce(sum(n - 1) / 2, 0) FROM keys"))
        names = tuple(self.fields[place].name for place in dict.fromkeys(rule))
        if not made:
            return 0
        if made > room:
            self.left_out.append(names)
            return 0
        self.rules.append(names)
        con.execute(
            "INSERT INTO all_pairs SELECT a.row, b.row FROM keys a JOIN keys b ON a.key = b.key AND a.row < b.row"
        )
        return made

    def _code(self) -> str:
        return " + ".join(
            f"{4**at} * ({field_.level(f'a.{name}', f'b.{name}')})"
            for at, (field_, name) in enumerate(zip(self.fields, self._names, strict=True))
        )

    def _coded(self, pairs: str, table: str = "records", more: str = "") -> str:
        return (
            f"SELECT {more}p.a, p.b, CAST({self._code()} AS BIGINT) AS code FROM ({pairs}) p "
            f"JOIN {table} a ON a.row = p.a JOIN {table} b ON b.row = p.b"
        )

    def _compare(self) -> None:
        """Table ``compared`` of candidates with the code of their levels."""
        self._con.execute(f"CREATE TABLE compared AS {self._coded('SELECT a, b FROM pairs')}")
        self._con.execute("DROP TABLE pairs")
        if self.n_left is None:
            self._con.execute(
                f"INSERT INTO compared {self._coded('SELECT first AS a, row AS b FROM twins', 'cells')}"
            )

    def _levels(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray((codes[:, None] // 4 ** np.arange(len(self.fields), dtype=np.int64)) % 4)

    def _patterns(self, source: str) -> tuple[NDArray[np.int64], Float64]:
        found = self._con.execute(
            f"SELECT code, count(*) AS n FROM ({source}) GROUP BY code ORDER BY code"
        ).fetchnumpy()
        return np.asarray(found["code"], dtype=np.int64), np.asarray(found["n"], dtype=np.float64)

    def _random_patterns(self) -> tuple[NDArray[np.int64], Float64]:
        random = np.random.default_rng(0)
        n, n_left = self.n_rows, self.n_left
        size = int(min(_RANDOM_PAIRS, max(10 * self.n_pairs, 1)))
        if n_left is None:
            a = random.integers(0, n, size)
            b = (a + random.integers(1, max(n, 2), size)) % n
        else:
            a, b = random.integers(0, n_left, size), random.integers(n_left, n, size)
        self._give("random_pairs", a=a, b=b)
        return self._patterns(self._coded("SELECT a, b FROM random_pairs", "cells"))

    def _give(self, table: str, **columns: NDArray[Any]) -> None:
        """A temporary table of arrays."""
        self._con.register("given", columns)
        self._con.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT * FROM given")
        self._con.unregister("given")

    def _dependent(self) -> list[tuple[int, ...]]:
        """Columns that strangers share together, in groups; the others alone."""
        if len(self.fields) < _TELLING:
            return [(at,) for at in range(len(self.fields))]
        strengths = []
        for pair, equal in self.equal.items():
            if len(pair) == 2:
                chance = self.equal[pair[:1]] * self.equal[pair[1:]]
                fewest = max(_FEWEST_DEPENDENT * self.n_rows, _DEPENDENT * chance * self.n_pairs)
                if equal > _DEPENDENT * chance and self._strangers(pair, equal) > fewest:
                    strengths.append((equal / max(chance, 1e-300), pair))
        groups: dict[int, tuple[int, ...]] = {at: (at,) for at in range(len(self.fields))}
        for _, (one, other) in sorted(strengths, key=lambda each: (-each[0], each[1])):
            joined = tuple(sorted({*groups[one], *groups[other]}))
            if len(joined) <= _MOST_JOINED:
                groups |= dict.fromkeys(joined, joined)
        return sorted(set(groups.values()))

    def _kind(self, columns: tuple[int, ...]) -> str:
        types = {self.fields[at].type for at in columns}
        return (
            "date"
            if "date" in types
            else "name"
            if len(columns) == 1 and types <= {"name", "category"}
            else ""
        )

    def _strangers(self, pair: tuple[int, int], equal: float) -> float:
        """How many pairs are equal in two columns and in fewer than two others."""
        a, b = (self._names[at] for at in pair)
        among = f"key % {1 + self.n_rows // _LOOKED_THROUGH} = 0"
        keys = f"SELECT row, hash({a}, {b}) AS key FROM cells WHERE {a} IS NOT NULL AND {b} IS NOT NULL"
        self._con.execute(
            "CREATE OR REPLACE TEMP TABLE keyed AS SELECT row, key, row_number() OVER (PARTITION BY key ORDER BY "
            f"hash(row), row) AS place, count(*) OVER (PARTITION BY key) AS n FROM ({keys}) WHERE {among} QUALIFY n > 1"
        )
        # Each group speaks for as many pairs as it has; a row is held against the next of its group.
        across = "" if self.n_left is None else f"AND {self._side('x.row')} <> {self._side('y.row')}"
        neighbours = (
            "SELECT x.row AS a, y.row AS b, (x.n - 1) / 2 AS worth FROM keyed x JOIN keyed y "
            f"ON x.key = y.key AND y.place = x.place % x.n + 1 {across} ORDER BY hash(x.row), x.row LIMIT {_LOOKED_AT}"
        )
        others = [at for at in range(len(self.fields)) if at not in pair]
        agreeing = "0" + "".join(
            f" + coalesce(CAST(a.{self._names[at]} = b.{self._names[at]} AS INTEGER), 0)" for at in others
        )
        alike, of = self._one(
            f"SELECT sum(worth) FILTER (agreeing < 2), sum(worth) FROM (SELECT p.worth, {agreeing} AS agreeing FROM "
            f"({neighbours}) p JOIN cells a ON a.row = p.a JOIN cells b ON b.row = p.b)"
        )
        return float(alike or 0) / max(float(of or 0), 1e-9) * equal * self.n_pairs

    def _fit(self) -> None:
        codes, counts = self._random_patterns()
        groups = self._dependent()
        levels = self._levels(codes)
        comparisons = []
        for columns in groups:
            if columns not in self.equal:
                self.equal[columns] = self._groups([self._names[at] for at in columns])
            comparisons.append(
                Comparison(
                    columns,
                    mixture.shares_of(columns, levels, counts, self.equal[columns]),
                    kind=self._kind(columns),
                )
            )
        codes, counts = self._patterns("SELECT code FROM compared")
        levels = self._levels(codes)
        self.model = mixture.fit(comparisons, levels, counts, self.n_pairs, self.n_rows)
        self._scores = codes, counts, chances(self.model.log_odds(levels))

    def _link(self, false_links: float | None) -> None:
        codes, counts, scores = self._scores
        order = np.lexsort((codes, -scores))
        order = order[scores[order] >= _LEAST_CHANCE]
        expected, made = np.cumsum((counts * (1 - scores))[order]), np.cumsum(counts[order])
        if false_links is not None:
            order = order[: np.searchsorted(expected / made, false_links, side="right")]
        self._give("linked_codes", code=codes[order], score=scores[order])
        con = self._con
        found = con.execute(
            "SELECT a, b, score FROM compared JOIN linked_codes USING (code) ORDER BY a, b"
        ).fetchnumpy()
        a, b = (np.asarray(found[side], dtype=np.int64) for side in ("a", "b"))
        score = np.asarray(found["score"], dtype=np.float64)
        kept, entity = entities(a, b, score, self._log_odds)
        self._give("joined", a=a, b=b, score=score, kept=kept, entity=entity)
        con.execute("CREATE TABLE found AS SELECT * FROM joined")
        if self.n_left is not None:
            self._add_twins()
        con.execute(
            "CREATE TABLE links AS SELECT a, b, round(score, 6) AS score, CASE WHEN kept THEN 'match' ELSE 'different' "
            "END AS decision, CASE WHEN kept THEN entity END AS entity FROM found ORDER BY a, b"
        )
        self.n_links, self.n_cut, self.n_entities, uncertain = self._one(
            "SELECT count(*) FILTER (kept), count(*) FILTER (NOT kept), count(DISTINCT entity) FILTER (kept), "
            "coalesce(sum(CAST(round(1e6 * (1 - score)) AS BIGINT)) FILTER (kept), 0) FROM found"
        )
        self.false_links = float(uncertain) / 1e6 / self.n_links if self.n_links else 0.0

    def _log_odds(self, a: Int64, b: Int64) -> Float64:
        self._give("asked", a=a, b=b, place=np.arange(a.size))
        codes = self._con.execute(
            f"SELECT code FROM ({self._coded('SELECT a, b, place FROM asked', 'cells', 'p.place, ')}) ORDER BY place"
        ).fetchnumpy()["code"]
        return self.model.log_odds(self._levels(np.asarray(codes, dtype=np.int64)))

    def _add_twins(self) -> None:
        """Rows that equal an earlier one of their own table link to what that one links to best."""
        for own, other in (("a", "b"), ("b", "a")):
            self._con.execute(
                f"INSERT INTO found (a, b, score, kept, entity) SELECT "
                f"{'t.row, f.b' if own == 'a' else 'f.a, t.row'}, score, kept, entity FROM twins t JOIN (SELECT * FROM "
                f"found WHERE {own} IN (SELECT first FROM twins) AND {other} NOT IN (SELECT row FROM twins) QUALIFY "
                f"row_number() OVER (PARTITION BY {own} ORDER BY kept DESC, score DESC, {other}) = 1) f "
                f"ON t.first = f.{own}"
            )
