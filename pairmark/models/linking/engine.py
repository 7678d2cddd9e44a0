"""Links within a table, or between two, without labels: candidates by DuckDB, scores by a model fitted on the tables.

Everything is kept in tables of one DuckDB database: memory is bounded by its settings. No result depends on the number
of threads: sums are of whole numbers, and what is kept is in an order of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.linking import mixture
from pairmark.models.linking.cells import LinkField
from pairmark.models.linking.entities import MAX_RECORDS, Pairs, entities
from pairmark.models.linking.mixture import Comparison, Mixture, NeedsJudgements, chances

if TYPE_CHECKING:
    import duckdb

MAX_FIELDS = 31
"""Columns that are compared: their levels make one integer of 64 bits."""
_MOST_CONJOINED = 12
_CAP, _CONJOINED_CAP, _GIVEN_CAP = 6, 12, 100
"""Rows that may share a value, values of two columns, or those of a rule that was given, before they make no candidates
any more."""
_RANDOM_PAIRS = 100_000
_LEAST_CHANCE = 0.5
CONTRADICTION = -float(np.log(1e5))
"""Log odds of a match below which two records cannot be of one entity, whatever joins them."""
_LOOKED_AT, _LOOKED_THROUGH = 3_000, 50_000
_MOST_JOINED = 4
_DEPENDENT = 10.0
_FEWEST_DEPENDENT = 0.05
"""Pairs for each row that are equal in two columns and in hardly any other, from which on the two depend."""
_MOSTLY_STRANGERS = 0.5
"""Of the pairs that are equal in both, the share that is: fewer may be matches that moved."""
_TELLING = 4
"""Columns from which on strangers who share two can be told from matches: by the others."""


_AT_ONCE = 5_000_000
"""Pairs that are compared at a time: more are compared in parts."""

Scorer = Callable[[Int64, Int64], Float64]
Spread = Callable[[Sequence[str], Callable[[int, int], str], str, int], Iterable[Mapping[str, NDArray[Any]]]]
"""Runs statements on other machines: takes the tables that they read, the first statement of a part by its number and
how many parts there are, the query after it, and the fewest parts; gives what the queries do, in any order."""


class Linking:
    """The stages of a job; ``candidates(a, b, score, columns)`` has what was compared.

    Parameters
    ----------
    connection : holds the table ``source(row, c0, c1, ...)`` of texts; rows from 0, those of a left table first.
    fields : one for each column of ``source``.
    n_rows : of both tables. n_left : of the left one; None where there is one table.
    rules : names of columns that candidates have in common; None: they are proposed from the data.
    one_to_one : a record is linked to one other at most.
    budget : candidates for each row, at most; rules that would make more are left out.
    previous : the columns that an earlier job compared, and its model (None: it had a scorer). The connection then
        holds ``known(row)``, rows that it compared with each other, and ``carried(a, b, score)``, their links.
        It may hold ``together(a, b)`` and ``apart(a, b)``, what a person said of rows.
    scorer, cut : scores pairs of rows in the place of a model that is fitted here; pairs that score more are linked.
    spread : compares candidates on other machines; None: here.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        fields: Sequence[LinkField],
        n_rows: int,
        n_left: int | None = None,
        *,
        rules: Sequence[Sequence[str]] | None = None,
        one_to_one: bool = False,
        budget: int,
        previous: tuple[Sequence[LinkField], Mixture | None] | None = None,
        scorer: Scorer | None = None,
        cut: float = _LEAST_CHANCE,
        spread: Spread | None = None,
    ) -> None:
        self._con, self._given, self._one_to_one = connection, rules, one_to_one
        self._spread = spread
        self.budget = budget
        self._previous, self._scorer, self.cut = previous, scorer, cut
        self.n_rows, self.n_left = n_rows, n_left
        self.source_fields = list(fields)
        self.model: Mixture | None = None
        self.recall: float | None = None

    def run(self, false_links: float | None = None, fpr: float | None = None) -> None:
        """Make the tables ``links(a, b, score, kept)`` of rows, ``a`` before ``b``, and ``members(row, first)`` of
        entities of two records or more, each called by its first row.

        Parameters
        ----------
        false_links : the share of the links that may be false, as the model estimates it; None: a link is a pair that
            is likelier a match than not.
        fpr : the share of all pairs of strangers that may be linked, as the model estimates it.
        """
        report(0.0, "reading cells")
        self._prepare()
        report(0.1, "finding candidates")
        self._block()
        report(0.4, "comparing")
        self._compare()
        report(0.7, "scoring")
        if self._scorer is None:
            self._score_by_patterns()
        else:
            self._score_each(self._scorer)
        report(0.9, "joining entities")
        self._link(false_links, fpr)

    def _one(self, sql: str, params: Sequence[Any] = ()) -> Any:
        row = self._con.execute(sql, list(params)).fetchall()[0]
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
        earlier = {field.name: field for field in (self._previous or ((), None))[0]}
        self.source_fields = [earlier.get(field.name, field) for field in self.source_fields]
        cells = ", ".join(f"{f.cell(f'c{at}')} AS c{at}" for at, f in enumerate(self.source_fields))
        con.execute(f"CREATE TABLE cells AS SELECT row, {cells} FROM source")
        names = [f"c{at}" for at in range(len(self.source_fields))]
        counts = np.array(
            self._con.execute(
                "SELECT " + ", ".join(f"approx_count_distinct({name})" for name in names) + " FROM cells"
            ).fetchone()
        )
        # Of many columns those with the most values say most.
        kept = np.sort(np.argsort(-counts, kind="stable")[:MAX_FIELDS])
        self.places = [int(at) for at in kept if counts[at] > 1 or self.n_rows < 2]
        if earlier:
            self.places = [at for at, field in enumerate(self.source_fields) if field.name in earlier]
        self.fields = [self.source_fields[at] for at in self.places]
        self._names = [f"c{at}" for at in self.places]
        self._distinct = counts
        hashed = ", ".join(
            f"CASE WHEN {name} IS NOT NULL THEN hash({name}) END AS {name}" for name in self._names
        )
        every = ", ".join(self._names)
        con.execute(
            f"CREATE TABLE twins AS SELECT row, first FROM (SELECT row, min(row) OVER (PARTITION BY "
            f"{self._side('row')}, hash({every})) AS first FROM cells WHERE coalesce({every}) IS NOT NULL) "
            "WHERE row <> first"
        )
        con.execute(
            f"CREATE TABLE hashes AS SELECT row, {hashed} FROM cells WHERE coalesce({every}) IS NOT NULL "
            "AND row NOT IN (SELECT row FROM twins)"
        )
        con.execute("CREATE TABLE IF NOT EXISTS known (row INTEGER)")
        self.n_empty = (
            self.n_rows - self._one("SELECT count(*) FROM hashes") - self._one("SELECT count(*) FROM twins")
        )

    def _keys(self, places: Sequence[int]) -> str:
        """SQL of the rows that have a cell in some columns, and one key of all these cells."""
        names = [self._names[at] for at in places]
        key = names[0] if len(names) == 1 else f"hash({', '.join(names)})"
        return f"SELECT row, {key} AS key FROM hashes WHERE {' AND '.join(f'{name} IS NOT NULL' for name in names)}"

    def _count(self, keys: str) -> float:
        """Table ``key_counts`` of keys that rows share; of all pairs that have a key, the share that has the same."""
        n_left = self.n_rows if self.n_left is None else self.n_left
        left, right = (f"count(*) FILTER (row {sign} {n_left})" for sign in ("<", ">="))
        pairs = "n * (n - 1) // 2" if self.n_left is None else "left_n * (n - left_n)"
        self._con.execute(
            f"CREATE OR REPLACE TEMP TABLE key_counts AS SELECT key, n, {pairs} AS pairs FROM (SELECT key, "
            f"count(*) AS n, {left} AS left_n FROM ({keys}) GROUP BY key) WHERE pairs > 0"
        )
        n, m = self._one(f"SELECT {left}, {right} FROM ({keys})")
        all_pairs = n * (n - 1) / 2 if self.n_left is None else n * m
        return float(self._one("SELECT coalesce(sum(pairs), 0) FROM key_counts") / max(all_pairs, 1))

    def _block(self) -> None:
        """Table ``blocks`` of rows that share a key, with the columns of its rule; how often columns are equal in all
        pairs."""
        con = self._con
        con.execute("CREATE TABLE blocks (columns UINTEGER, key UBIGINT, row INTEGER)")
        self._n_pairs = 0
        self.rules: list[tuple[str, ...]] = []
        self.left_out: list[tuple[str, ...]] = []
        self.equal: dict[tuple[int, ...], float] = {}
        most = np.sort(np.argsort(-self._distinct[self.places], kind="stable")[:_MOST_CONJOINED])
        rules = [*((at,) for at in range(len(self.fields))), *combinations(most.tolist(), 2)]
        given = None if self._given is None else [self._places_of(rule) for rule in self._given]
        if self._given is not None and given is not None:
            self.left_out += [tuple(rule) for rule, at in zip(self._given, given, strict=True) if not at]
        room = self.budget * self.n_rows
        for rule in dict.fromkeys([*rules, *filter(None, given or ())]):
            keys = self._keys(rule)
            self.equal[rule] = self._count(keys)
            if given is None or rule in given:
                cap = (_CAP if len(rule) == 1 else _CONJOINED_CAP) if given is None else _GIVEN_CAP
                room -= self._join(keys, cap, room, rule)
        for at, field_ in enumerate(self.fields):
            if field_.wordy and (given is None or (at,) in given):
                name = self._names[at]
                con.execute(
                    "CREATE OR REPLACE TEMP TABLE words AS SELECT DISTINCT row, "
                    f"hash(unnest(string_split({name}, ' '))) AS key FROM cells WHERE {name} IS NOT NULL "
                    "AND row IN (SELECT row FROM hashes)"
                )
                self._count("FROM words")
                # A trained model tells strangers who share a word apart, a fitted one does so by its few patterns.
                cap = _CAP if self._scorer is None else self._widest(room)
                room -= self._join("FROM words", cap, room, (at,))

    def _widest(self, room: int) -> int:
        """The most rows that may share a word, as far as there is room for the pairs."""
        return int(
            self._one(
                "SELECT coalesce(max(n), 0) FROM (SELECT n, sum(sum(pairs)) OVER (ORDER BY n) AS total FROM key_counts "
                f"WHERE n <= {_GIVEN_CAP} GROUP BY n) WHERE total <= {room}"
            )
        )

    def _places_of(self, rule: Sequence[str]) -> tuple[int, ...]:
        # A column that has one value in all rows makes no difference.
        return tuple(at for at, field in enumerate(self.fields) if field.name in rule)

    def _join(self, keys: str, cap: int, room: int, rule: Sequence[int]) -> int:
        """Add the rows that share a key to the blocks, where there is room for their pairs; how many those are."""
        among = f"key_counts WHERE n <= {cap}"
        made = int(self._one(f"SELECT coalesce(sum(pairs), 0) FROM {among}"))
        names = tuple(self.fields[at].name for at in rule)
        if not made:
            return 0
        if made > room:
            self.left_out.append(names)
            return 0
        self.rules.append(names)
        self._con.execute(
            f"INSERT INTO blocks SELECT {sum(1 << at for at in rule)}, hash({len(self.rules)}, key), row "
            f"FROM ({keys}) SEMI JOIN (SELECT key FROM {among}) USING (key)"
        )
        self._n_pairs += made
        return made

    def _code(self) -> str:
        return " + ".join(
            f"{4**at} * ({field_.level(f'a.{name}', f'b.{name}')})"
            for at, (field_, name) in enumerate(zip(self.fields, self._names, strict=True))
        )

    def _coded(self, pairs: str, more: str = "") -> str:
        return (
            f"SELECT {more}p.a, p.b, CAST({self._code()} AS BIGINT) AS code FROM ({pairs}) p "
            "JOIN cells a ON a.row = p.a JOIN cells b ON b.row = p.b"
        )

    def _compare(self) -> None:
        """Table ``compared`` of candidates with the columns of their rules and the code of their levels."""
        con = self._con
        across = (
            "a.row < b.row" if self.n_left is None else f"a.row < {self.n_left} AND b.row >= {self.n_left}"
        )
        new = "AND (a.row NOT IN (FROM known) OR b.row NOT IN (FROM known))" if self._previous else ""

        def pairs(at: int, of: int) -> str:
            return (
                "CREATE OR REPLACE TEMP TABLE pairs AS SELECT a.row AS a, b.row AS b, bit_or(a.columns) AS columns "
                f"FROM blocks a JOIN blocks b ON a.key = b.key AND a.row % {of} = {at} AND {across} {new} "
                "GROUP BY a.row, b.row"
            )

        compared = self._coded("FROM pairs", "p.columns, ")
        con.execute("CREATE TABLE compared (columns UINTEGER, a INTEGER, b INTEGER, code BIGINT)")
        n_parts = 1 + self._n_pairs // _AT_ONCE
        if self._spread is None:
            for at in range(n_parts):
                con.execute(pairs(at, n_parts))
                con.execute(f"INSERT INTO compared {compared}")
                report(0.4 + 0.3 * (at + 1) / n_parts, "comparing")
            con.execute("DROP TABLE pairs")
        else:
            for columns in self._spread(("blocks", "cells", "known"), pairs, compared, n_parts):
                self._give("elsewhere", **columns)
                con.execute("INSERT INTO compared BY NAME FROM elsewhere")
        con.execute("DROP TABLE blocks")
        self.n_candidates = int(self._one("SELECT count(*) FROM compared"))
        if self.n_left is None:
            twins = "SELECT first AS a, row AS b, NULL AS columns FROM twins"
            con.execute(f"INSERT INTO compared {self._coded(twins, 'p.columns, ')}")

    def measured_recall(self, identities: Int64) -> tuple[int, int]:
        """Of entities of two records or more, as (n,) ``identities`` has them (-1: nobody knows), how many candidates
        connect, and how many there are. Of two tables those count that have records in both."""
        row = np.flatnonzero(identities >= 0)
        who = identities[row]
        candidates = self._con.execute(
            "SELECT a, b, false AS equal FROM compared UNION ALL SELECT first, row, true FROM twins"
        ).fetchnumpy()
        a, b = (np.asarray(candidates[side], dtype=np.int64) for side in ("a", "b"))
        joins = candidates["equal"] | ((identities[a] == identities[b]) & (identities[a] >= 0))
        graph = coo_array((np.ones(joins.sum()), (a[joins], b[joins])), shape=(self.n_rows, self.n_rows))
        part = connected_components(graph, directed=False)[1][row]
        n_who = int(who.max(initial=-1)) + 1
        together = np.unique(np.stack([who, part]), axis=1)[0]
        parts = np.bincount(together, minlength=n_who)
        is_right = np.zeros(row.size, dtype=np.bool_) if self.n_left is None else row >= self.n_left
        left, right = (np.bincount(who[side], minlength=n_who) for side in (~is_right, is_right))
        counts = left > 1 if self.n_left is None else (left > 0) & (right > 0)
        return int((counts & (parts == 1)).sum()), int(counts.sum())

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
        return self._patterns(self._coded("FROM random_pairs"))

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
                fewest = max(
                    _FEWEST_DEPENDENT * self.n_rows,
                    _DEPENDENT * chance * self.n_pairs,
                    _MOSTLY_STRANGERS * equal * self.n_pairs,
                )
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
        among = f"key % {1 + self.n_rows // _LOOKED_THROUGH} = 0"
        self._con.execute(
            "CREATE OR REPLACE TEMP TABLE keyed AS SELECT row, key, row_number() OVER (PARTITION BY key ORDER BY "
            f"hash(row), row) AS place, count(*) OVER (PARTITION BY key) AS n FROM ({self._keys(pair)}) WHERE {among} "
            "QUALIFY n > 1"
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
            f"({neighbours}) p JOIN hashes a ON a.row = p.a JOIN hashes b ON b.row = p.b)"
        )
        return float(alike or 0) / max(float(of or 0), 1e-9) * equal * self.n_pairs

    def _score_by_patterns(self) -> None:
        """View ``candidates`` of all pairs, with the chance of a match by what their columns agree in."""
        codes, counts = self._patterns("SELECT code FROM compared")
        levels = self._levels(codes)
        try:
            self.model = self._previous[1] if self._previous is not None else self._fitted(levels, counts)
        except NeedsJudgements as error:
            self._score_codes(codes, error.model.log_odds(levels))
            self._con.execute(
                "CREATE TABLE doubtful AS SELECT a, b, score FROM candidates "
                f"ORDER BY score DESC, a, b LIMIT {self.n_rows}"
            )
            raise
        assert self.model is not None
        self._score_codes(codes, self.model.log_odds(levels))

    def _score_codes(self, codes: NDArray[np.int64], log_odds: Float64) -> None:
        self._give("code_scores", code=codes, score=chances(log_odds))
        self._con.execute(
            "CREATE TEMP VIEW candidates AS SELECT a, b, score, columns FROM compared JOIN code_scores USING (code)"
        )

    def _score_each(self, scorer: Scorer) -> None:
        found = self._con.execute("SELECT a, b, columns FROM compared ORDER BY a, b").fetchnumpy()
        a, b = (np.asarray(found[side], dtype=np.int64) for side in ("a", "b"))
        self._give("candidates", a=a, b=b, score=scorer(a, b), columns=np.ma.filled(found["columns"], 0))

    def _fitted(self, levels: NDArray[np.int64], counts: Float64) -> Mixture:
        random_codes, random_counts = self._random_patterns()
        random_levels = self._levels(random_codes)
        comparisons = []
        for columns in self._dependent():
            if columns not in self.equal:
                self.equal[columns] = self._count(self._keys(columns))
            comparisons.append(
                Comparison(
                    columns,
                    mixture.shares_of(columns, random_levels, random_counts, self.equal[columns]),
                    kind=self._kind(columns),
                )
            )
        return mixture.fit(comparisons, levels, counts, self.n_pairs, self.n_rows)

    def _link(self, false_links: float | None, fpr: float | None) -> None:
        con = self._con
        for table, more in (("carried", ", score DOUBLE"), ("together", ""), ("apart", "")):
            con.execute(f"CREATE TABLE IF NOT EXISTS {table} (a INTEGER, b INTEGER{more})")
        con.execute(
            "CREATE TABLE scored AS SELECT a, b, score, nullif(columns, 0) AS columns FROM candidates WHERE score > ?",
            [self.cut],
        )
        con.execute("INSERT INTO scored SELECT a, b, score, NULL FROM carried")
        limit = false_links if fpr is None else fpr
        if limit is not None and self._scorer is None:
            found = con.execute(
                "SELECT score, count(*) AS n FROM scored GROUP BY score ORDER BY score DESC"
            ).fetchnumpy()
            n = np.cumsum(np.asarray(found["n"], dtype=np.float64))
            expected = np.cumsum(np.asarray(found["n"]) * (1 - np.asarray(found["score"])))
            shares = expected / (n if fpr is None else self.n_pairs)
            kept = int(np.searchsorted(shares, limit, side="right"))
            if kept < n.size:
                self.cut = float(found["score"][kept])
                con.execute("DELETE FROM scored WHERE score <= ?", [self.cut])
        a, b, score = self._arrays("SELECT a, b, score FROM scored ORDER BY a, b")
        together, apart = (self._pairs_of(table) for table in ("together", "apart"))
        rows, first = entities(
            a.astype(np.int64),
            b.astype(np.int64),
            score,
            self._contradict,
            most=2 if self._one_to_one else MAX_RECORDS,
            together=together,
            apart=apart,
        )
        self._give("joined", row=rows, first=first)
        con.execute(
            "CREATE TABLE members AS SELECT row, first FROM joined "
            "WHERE first IN (SELECT first FROM joined GROUP BY first HAVING count(*) > 1)"
        )
        if self.n_left is not None and not self._one_to_one:
            self._add_twins()
        con.execute(
            "CREATE TABLE links AS SELECT a, b, score, columns, coalesce(x.first = y.first, false) AS kept "
            "FROM scored LEFT JOIN members x ON x.row = a LEFT JOIN members y ON y.row = b ORDER BY a, b"
        )
        self.n_cut, self.n_entities = self._one(
            "SELECT (SELECT count(*) FROM links WHERE NOT kept), count(DISTINCT first) FROM members"
        )
        self.n_links, uncertain, once, twice = self._one(
            "SELECT count(*), coalesce(sum(CAST(round(1e6 * (1 - score)) AS BIGINT)), 0), "
            "count(*) FILTER (bit_count(columns) = 1), count(*) FILTER (bit_count(columns) = 2) FROM links WHERE kept"
        )
        self.false_links = None if self._scorer is not None else float(uncertain) / 1e6 / max(self.n_links, 1)
        # What was found once and what was found twice say what was not found (Chao 1987).
        if self.n_links and self._previous is None:
            self.recall = self.n_links / (self.n_links + once * (once - 1) / (2 * (twice + 1)))

    def _arrays(self, sql: str) -> list[Float64]:
        return [
            np.asarray(column, dtype=np.float64) for column in self._con.execute(sql).fetchnumpy().values()
        ]

    def _pairs_of(self, table: str) -> Pairs:
        a, b = self._arrays(f"SELECT a, b FROM {table} ORDER BY a, b")
        return a.astype(np.int64), b.astype(np.int64)

    def _contradict(self, a: Int64, b: Int64) -> Bool:
        self._give("asked", a=a, b=b, place=np.arange(a.size))
        codes = self._con.execute(
            f"SELECT code FROM ({self._coded('FROM asked', 'p.place, ')}) ORDER BY place"
        ).fetchnumpy()["code"]
        levels = self._levels(np.asarray(codes, dtype=np.int64))
        if self.model is not None:
            return np.asarray(self.model.log_odds(levels) < CONTRADICTION)
        dates, names = (
            [at for at, field in enumerate(self.fields) if field.type == kind] for kind in ("date", "name")
        )
        return np.asarray((levels[:, dates] == 1).any(axis=1) & (levels[:, names] == 1).any(axis=1))

    def _add_twins(self) -> None:
        """Rows that equal an earlier one of their own table link to what that one links to best."""
        for own, other in (("a", "b"), ("b", "a")):
            self._con.execute(
                f"INSERT INTO scored (a, b, score) SELECT "
                f"{'t.row, f.b' if own == 'a' else 'f.a, t.row'}, score FROM twins t JOIN (SELECT scored.* FROM scored "
                f"LEFT JOIN members x ON x.row = a LEFT JOIN members y ON y.row = b "
                f"WHERE {own} IN (SELECT first FROM twins) AND {other} NOT IN (SELECT row FROM twins) "
                f"QUALIFY row_number() OVER (PARTITION BY {own} ORDER BY coalesce(x.first = y.first, false) DESC, "
                f"score DESC, {other}) = 1) f ON t.first = f.{own}"
            )
        self._con.execute(
            "INSERT INTO members SELECT t.row, m.first FROM twins t JOIN members m ON m.row = t.first"
        )
