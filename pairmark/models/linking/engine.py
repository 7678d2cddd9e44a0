"""Links within a table, or between several, without labels: candidates by DuckDB, scores by a model fitted on them.

Everything is kept in tables of one DuckDB database: memory is bounded by its settings. No result depends on the number
of threads: sums are of whole numbers, and what is kept is in an order of its own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.linking import mixture
from pairmark.models.linking.candidates import Blocks, Constraints, Sides, give, read_row
from pairmark.models.linking.cells import BEYOND, Cells
from pairmark.models.linking.entities import MAX_RECORDS, entities
from pairmark.models.linking.mixture import Mixture, chances
from pairmark.models.linking.share import calibrate_matches, register_links, share_of, unknown
from pairmark.models.linking.texts import BY_WORDS, CUT, LEAST_SCORE, link_texts, read_texts, texts_or_columns
from pairmark.models.records.compare import LinkField, register
from pairmark.schemas.link_shares import FalseLinks

_LEARNED_FROM = 400_000
"""Candidates that a model is fitted on, about."""
_LEAST_CHANCE = 0.5
_HARDLY_ANY = 0.01
"""Links for each row, by columns, below which words are tried."""
_WORDS_CUT = 0.4
"""Texts whose columns failed are linked above it, where each is the nearest of the other."""
_AT_ONCE = 5_000_000
"""Pairs that are compared at a time: more are compared in parts."""

Scorer = Callable[[Int64, Int64], Float64]
Spread = Callable[[Sequence[str], Callable[[int, int], str], str, int], Iterable[Mapping[str, NDArray[Any]]]]
"""Runs statements on other machines: takes the tables that they read, the first statement of a part by its number and
how many parts there are, the query after it, and the fewest parts; gives what the queries do, in any order."""


class NeedsJudgements(ValueError):
    """Matches cannot be told from strangers without labels: the table ``doubtful(a, b, score, turn)`` has pairs to
    judge, by whose turn it is."""


class Linking:
    """The stages of a job; ``candidates(a, b, score, columns)`` has what was compared.

    Parameters
    ----------
    connection : holds the table ``source(row, c0, c1, ...)`` of texts; rows from 0, those of the first table first.
    fields : one for each column of ``source``.
    sizes : rows of each table. within : numbers of the tables in which duplicates are looked for; None: of a single
        table, and between several. unique : numbers of the tables of which an entity has one record at most.
    rules : names of columns that candidates have in common; None: they are proposed from the data.
    one_to_one : a record is linked to one other at most.
    budget : candidates for each row, at most; rules that would make more are left out.
    previous : the columns that an earlier job compared, and its model (None: it had a scorer). The connection then
        holds ``known(row)``, rows that it compared with each other, and ``carried(a, b, score)``, their links.
        It may hold ``together(a, b)`` and ``apart(a, b)``, what a person said of rows.
    scorer : scores pairs of rows in the place of a model that is fitted here. cut : pairs that score more are linked;
        None: those that are likelier a match than not, and texts that are near.
    expected : the mean share of false links to the one table of ``unique``, whose own pairs say what chance brings.
    must, never : names of columns, as `Constraints` has them.
    frequencies : of columns, by name, the table ``(value, share)`` of how frequent normal forms are, in the place of
        ``source``; values that it lacks are as frequent as there.
    spread : compares candidates on other machines; None: here.

    Attributes
    ----------
    columns : (name, kind, weight, note) of each, once `run` has ended. notes : what people should know.
    """

    def __init__(
        self,
        connection: Any,
        fields: Sequence[LinkField],
        sizes: Sequence[int],
        *,
        within: Collection[int] | None = None,
        unique: Collection[int] = (),
        rules: Sequence[Sequence[str]] | None = None,
        one_to_one: bool = False,
        budget: int,
        previous: tuple[Sequence[LinkField], Mixture | None] | None = None,
        scorer: Scorer | None = None,
        cut: float | None = None,
        expected: float | None = None,
        must: Sequence[Sequence[str]] = (),
        never: Sequence[str] = (),
        frequencies: Mapping[str, str] | None = None,
        spread: Spread | None = None,
    ) -> None:
        self.connection, self._fixed_rules, self._one_to_one = connection, rules, one_to_one
        self.most, self.unique = 2 if one_to_one else MAX_RECORDS, unique
        self._spread, self._budget, self._expected = spread, budget, expected
        self._previous, self._scorer = previous, scorer
        self._given_cut, self.cut = cut, _LEAST_CHANCE if cut is None else cut
        compared = {*(range(len(sizes) == 1) if within is None else within)} - {*unique}
        places = {field.name: at for at, field in enumerate(fields)}
        self.constraints = Constraints(
            [[f"c{places[name]}" for name in rule] for rule in must], [f"c{places[name]}" for name in never]
        )
        self.sides = Sides(sizes, compared if expected is None else compared | {*unique})
        self.cells = Cells(connection, fields, self.sides, previous, frequencies or {})
        self.model: Mixture | None = None
        self._as_texts: str | None = None
        self._by_words_alone = False
        self.recall: float | None = None
        self.notes = self.cells.notes
        self.rules, self.left_out = list[tuple[str, ...]](), list[tuple[str, ...]]()
        register(connection)

    @property
    def columns(self) -> list[tuple[str, str, float, str | None]]:
        """Name, kind, weight and note of each column."""
        cells, weights = self.cells, np.zeros(len(self.cells.source_fields))
        if self.model is not None:
            for number, place in enumerate(self.places):
                weights[cells.read_as[place][0]] += self.model.weight(number)
        return [
            (
                field.name,
                field.kind,
                float(weights[number]),
                cells.screened.get(number) or cells.contradicted.get(number),
            )
            for number, field in enumerate(self.cells.source_fields)
        ]

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
        self._read()
        report(0.1, "finding candidates")
        if self._as_texts is not None:
            self._score_texts()
        else:
            self._block()
            report(0.4, "comparing")
            self._compare()
            report(0.7, "scoring")
            if self._scorer is not None:
                self._score_each(self._scorer)
            else:
                self._score_by_patterns()
                if false_links is None and fpr is None:
                    self._find_by_words()
        report(0.9, "joining entities")
        self._link(false_links, fpr)

    def _read(self) -> None:
        is_fitted = self._previous is not None and self._previous[1] is not None
        is_fixed = self._scorer is not None or self._fixed_rules is not None or is_fitted
        if not is_fixed:
            self._as_texts = texts_or_columns(self.connection, self.cells.source_fields)
        if not is_fixed and self._previous is not None and self._as_texts is None:
            # What an earlier job linked without a model of columns were texts.
            self._as_texts, self._by_words_alone = f"{BY_WORDS}, as before", True
        self._read_cells()

    def _read_cells(self) -> None:
        by_columns, is_first = self._as_texts is None, self._previous is None and self._scorer is None
        self.cells.read(beside=self.constraints.never, counts=by_columns, screens=by_columns and is_first)
        self.fields, self.places, self.n_empty = self.cells.fields, self.cells.places, self.cells.n_empty

    def _find_by_words(self) -> None:
        """Link records of several tables as texts, each to its nearest, where hardly any two agree in enough columns,
        and none of these is of one thing alone: of products, words say more than columns whose cells are written in
        several ways. Within a table, the nearest are mostly variants: other doses and packs."""
        con, fields = self.connection, self.cells.source_fields
        n_likely = read_row(con, "SELECT count(*) FROM candidates WHERE score > ?", [self.cut])
        is_fixed = self._previous is not None or self._fixed_rules is not None or len(self.fields) < 2
        is_limited = self._given_cut is not None or self._expected is not None
        if is_fixed or is_limited or self.sides.within or n_likely > _HARDLY_ANY * self.sides.n_rows:
            return
        self._as_texts = texts_or_columns(con, fields, found_none=True)
        if self._as_texts is None:
            return
        con.execute("DROP VIEW candidates; DROP TABLE compared")
        self.model, self._by_words_alone = None, True
        self._read_cells()
        self._score_texts()

    def _block(self) -> None:
        # Rows that share a legal form are no candidates.
        n = sum(place < len(self.cells.source_fields) for place in self.places)
        telling = np.argsort(-self.cells.distinct[self.places[:n]], kind="stable").tolist()
        room = self._budget * self.sides.n_rows
        blocks = Blocks(self.connection, self.fields[:n], self.cells.names[:n], telling, self.sides, room)
        if self._fixed_rules is None:
            # A trained model tells strangers who share a word apart, a fitted one does so by its few patterns.
            blocks.propose(None if self._scorer is None else 100)
        else:
            blocks.take(self._fixed_rules)
        self.rules, self.left_out, self._n_pairs = blocks.rules, blocks.left_out, blocks.n_pairs

    def _compare(self) -> None:
        """Table ``compared`` of candidates with the columns of their rules and the words of their symbols."""
        con = self.connection
        across = self.sides.may_link("a.row", "b.row")
        new = "AND (a.row NOT IN (FROM known) OR b.row NOT IN (FROM known))" if self._previous else ""

        def pairs(part: int, parts: int) -> str:
            return (
                "CREATE OR REPLACE TEMP TABLE pairs AS SELECT a.row AS a, b.row AS b, bit_or(a.columns) AS columns "
                f"FROM blocks a JOIN blocks b ON a.key = b.key AND a.row % {parts} = {part} AND {across} {new} "
                "GROUP BY a.row, b.row"
            )

        compared, words = self.cells.coded("FROM pairs", "columns, "), " BIGINT, ".join(self.cells.words)
        con.execute(f"CREATE TABLE compared (columns UBIGINT, a INTEGER, b INTEGER, {words} BIGINT)")
        n_parts = 1 + self._n_pairs // _AT_ONCE
        if self._spread is None:
            for part in range(n_parts):
                con.execute(pairs(part, n_parts))
                con.execute(f"INSERT INTO compared {compared}")
                report(0.4 + 0.3 * (part + 1) / n_parts, "comparing")
            con.execute("DROP TABLE pairs")
        else:
            for columns in self._spread(("blocks", "cells", "known"), pairs, compared, n_parts):
                give(self.connection, "elsewhere", **columns)
                con.execute("INSERT INTO compared BY NAME FROM elsewhere")
        con.execute("DROP TABLE blocks")
        self.n_candidates = int(read_row(self.connection, "SELECT count(*) FROM compared"))
        within = ", ".join(map(str, self.sides.within)) or "-1"
        twins = (
            "SELECT first AS a, row AS b, NULL AS columns FROM twins "
            f"WHERE ({self.sides.side('row')}) IN ({within})"
        )
        con.execute(f"INSERT INTO compared {self.cells.coded(twins, 'columns, ')}")

    def _score_by_patterns(self) -> None:
        """View ``candidates`` of all pairs, with the chance of a match by what their columns agree in."""
        words, symbols, counts = self.cells.patterns("FROM compared")
        is_full = False
        if self._previous is not None:
            self.model = self._previous[1]
        else:
            step = 1 + self.n_candidates // _LEARNED_FROM
            _, learned, n = self.cells.patterns(f"FROM compared WHERE hash(a, b) % {step} = 0")
            patterns = learned, n * step
            fitted = mixture.fit(self.cells.columns(), *patterns, self.sides.n_pairs, self.sides.n_rows)
            is_full = fitted.is_full(self.sides.n_pairs, self.sides.n_rows)
            self.model = calibrate_matches(fitted, *patterns)
        assert self.model is not None
        self._compared = symbols, counts
        give(self.connection, "code_scores", **words, score=chances(self.model.log_odds(symbols)))
        self.connection.execute(
            "CREATE TEMP VIEW candidates AS SELECT a, b, score, columns FROM compared "
            f"JOIN code_scores USING ({', '.join(self.cells.words)})"
        )
        if is_full:
            # A model of pairs that all look alike links strangers by what tells those apart: the best, a random one of
            # them and a random one of all take turns.
            best, drawn = (
                f"(FROM candidates ORDER BY {order} LIMIT {self.sides.n_rows})"
                for order in ("score DESC, a, b", "hash(a, b)")
            )
            self.connection.execute(
                "CREATE TABLE doubtful AS SELECT a, b, score, min(turn) AS turn FROM ("
                f"SELECT *, 3 * row_number() OVER (ORDER BY score DESC, a, b) AS turn FROM {best} UNION ALL "
                f"SELECT *, 3 * row_number() OVER (ORDER BY hash(a, b)) + 1 FROM {best} UNION ALL "
                f"SELECT *, 3 * row_number() OVER (ORDER BY hash(a, b)) + 2 FROM {drawn}"
                f") GROUP BY a, b, score ORDER BY turn, a, b LIMIT {self.sides.n_rows}"
            )
            raise NeedsJudgements("more pairs look the same than there are rows")

    def _score_texts(self) -> None:
        """Table ``candidates`` of all pairs whose texts are near, as if no job had been before."""
        con = self.connection
        self.notes.append(str(self._as_texts))
        con.execute("DROP TABLE IF EXISTS carried")
        row, _, _ = self._pairs("(SELECT row AS a, row AS b, 0 AS score FROM hashes)")
        twin, first, _ = self._pairs("(SELECT row AS a, first AS b, 0 AS score FROM twins)")
        place = np.zeros(self.sides.n_rows, dtype=np.int64)
        place[row] = np.arange(row.size)
        place[twin] = place[first]
        is_alone = ~np.isin(np.arange(len(self.sides.sizes)), list(self.sides.within))
        words, numbers = read_texts(con, self.cells.source_fields)
        texts = link_texts(
            words,
            numbers,
            self.sides.side_of(row),
            is_alone,
            cut=_WORDS_CUT if self._by_words_alone else CUT,
            one_to_one=self._one_to_one or self._by_words_alone,
            beats_chance=self._by_words_alone and not self.sides.within,
        )
        self._scorer = lambda a, b: texts.terms.scores(place[a], place[b])
        self.cut = max(LEAST_SCORE, self._given_cut or 0)
        self.rules, self.left_out, self.n_candidates = [], [], texts.a.size
        own = ~is_alone[self.sides.side_of(first)]
        a, b = np.append(row[texts.a], first[own]), np.append(row[texts.b], twin[own])
        score, is_link = (np.append(of, np.ones(own.sum(), of.dtype)) for of in (texts.score, texts.is_link))
        give(self.connection, "compared", a=a, b=b, score=score, is_link=is_link)
        con.execute("CREATE TEMP VIEW candidates AS SELECT *, NULL::UBIGINT AS columns FROM compared")

    def _score_each(self, scorer: Scorer) -> None:
        a, b, _ = self._pairs("(SELECT a, b, 0 AS score FROM compared)")
        give(self.connection, "scores", a=a, b=b, score=scorer(a, b))
        self.connection.execute(
            "CREATE TEMP VIEW candidates AS SELECT a, b, score, coalesce(columns, 0) AS columns "
            "FROM compared JOIN scores USING (a, b)"
        )

    def _link(self, false_links: float | None, fpr: float | None) -> None:
        con = self.connection
        for table, more in (("carried", ", score DOUBLE"), ("together", ""), ("apart", "")):
            con.execute(f"CREATE TABLE IF NOT EXISTS {table} (a INTEGER, b INTEGER{more})")
        con.execute(
            "CREATE TABLE scored AS SELECT a, b, score, nullif(columns, 0) AS columns FROM candidates "
            f"WHERE score > ?{' AND is_link' if self._as_texts else ''}",
            [self.cut],
        )
        if self._expected is not None:
            self._keep_expected(self._expected)
        con.execute(
            "INSERT INTO scored SELECT a, b, score, NULL FROM carried WHERE score > ?", [self.cut - 2e-9]
        )
        limit = false_links if fpr is None else fpr
        if limit is not None and self._scorer is None:
            of = "sum(n) OVER surest" if fpr is None else f"{self.sides.n_pairs}"
            beyond = read_row(
                self.connection,
                f"SELECT max(score) FROM (SELECT score, sum(n * (1 - score)) OVER surest / ({of}) AS share FROM "
                "(SELECT score, count(*) AS n FROM scored GROUP BY score) WINDOW surest AS (ORDER BY score DESC)) "
                "WHERE share > ?",
                [limit],
            )
            if beyond is not None:
                self.cut = float(beyond)
                con.execute("DELETE FROM scored WHERE score <= ?", [self.cut])
        self.constraints.apply(con, self.sides)
        a, b, score = self._pairs("scored")
        together, apart = (
            self._pairs(f"(SELECT a, b, 0 AS score FROM {table})")[:2] for table in ("together", "apart")
        )
        rows, first = entities(
            a,
            b,
            score,
            self._log_odds,
            most=self.most,
            together=together,
            apart=apart,
            exclusive=self._exclusive if self.unique else None,
            contradicts=partial(self.constraints.contradicts, con) if self.constraints.never else None,
        )
        give(self.connection, "joined", row=rows, first=first)
        con.execute(
            "CREATE TABLE members AS SELECT row, first FROM joined "
            "WHERE first IN (SELECT first FROM joined GROUP BY first HAVING count(*) > 1)"
        )
        if self.sides.apart and not self._one_to_one and not self.unique:
            self._add_twins()
        con.execute(
            "CREATE TABLE links AS SELECT a, b, score, columns, coalesce(x.first = y.first, false) AS kept "
            "FROM scored LEFT JOIN members x ON x.row = a LEFT JOIN members y ON y.row = b ORDER BY a, b"
        )
        self.n_links, self.n_cut, self.n_entities, uncertain, once, twice = read_row(
            self.connection,
            "SELECT count(*) FILTER (kept), count(*) FILTER (NOT kept), "
            "(SELECT count(DISTINCT first) FROM members), coalesce(sum(CAST(round(1e6 * (1 - score)) AS BIGINT)) "
            "FILTER (kept), 0), count(*) FILTER (kept AND bit_count(columns) = 1), "
            "count(*) FILTER (kept AND bit_count(columns) = 2) FROM links",
        )
        self.share: FalseLinks | None = None
        if self.n_links:
            self.share = (
                unknown(self.n_links)
                if self.model is None
                else share_of(
                    self.model, *self._compared, self.cut, self.n_links, float(uncertain) / 1e6 / self.n_links
                )
            )
        self._note()
        # What was found once and what was found twice say what was not found (Chao 1987).
        if self.n_links and self._previous is None and self._as_texts is None:
            self.recall = self.n_links / (self.n_links + once * (once - 1) / (2 * (twice + 1)))

    def _note(self) -> None:
        """Say which columns tell nothing, and of which there is too little agreement for a link."""
        reasons = [(f, self.cells.screened.get(at, f.note)) for at, f in enumerate(self.cells.source_fields)]
        if beyond := [field.name for field, why in reasons if why == BEYOND]:
            self.notes.append(f"not compared, since {BEYOND}: {', '.join(beyond)}")
        # Whoever found what a field's note says has told it.
        self.notes += [
            f"column {field.name!r} tells nothing: {why}. Leave it out by --column {field.name}:ignore"
            for field, why in reasons
            if why not in (field.note, BEYOND)
        ]
        if not self.n_links:
            names = ", ".join(repr(field.title) for field in self.fields)
            alone = (
                f": one column alone cannot tell one thing from two of one value. Link what is equal in it by --same "
                f"{self.fields[0].title} (`must`)"
                if len(self.fields) == 1
                else ""
            )
            self.notes.append(
                "no links: the tables have nothing in common: records share no more words than chance brings"
                if self._by_words_alone and not self.sides.within
                else f"no links: no two records agree in enough of {names or 'any column'}{alone}"
            )

    def _keep_expected(self, expected: float) -> None:
        """Of ``scored``, links to the register at a mean share of false ones."""
        a, b, score = self._pairs("candidates")
        is_register = np.isin(self.sides.side_of(np.arange(self.sides.n_rows)), list(self.unique))
        links = register_links(a, b, score, is_register, expected, self.cut)
        give(self.connection, "expected", a=a[links.is_link], b=b[links.is_link])
        self.connection.execute("DELETE FROM scored WHERE (a, b) NOT IN (SELECT (a, b) FROM expected)")
        self.notes.append(links.meaning(expected))

    def _exclusive(self, rows: Int64) -> Int64:
        side = self.sides.side_of(rows)
        return np.where(np.isin(side, list(self.unique)), side, -1)

    def _pairs(self, table: str) -> tuple[Int64, Int64, Float64]:
        """Rows and scores of pairs, in their order."""
        pairs = self.connection.execute(f"SELECT a, b, score FROM {table} ORDER BY a, b").fetchnumpy()
        a, b = (np.asarray(pairs[side], dtype=np.int64) for side in ("a", "b"))
        return a, b, np.ma.filled(pairs["score"], 0.0).astype(np.float64)

    def _log_odds(self, a: Int64, b: Int64) -> Float64:
        """Of any pairs of rows, less where a scorer has them below its cut."""
        if self._scorer is not None:
            score = np.asarray(self._scorer(a, b), dtype=np.float64)
            return np.where(score > self.cut, 20.0, -1.0)
        assert self.model is not None
        give(self.connection, "pairs_to_score", a=a, b=b, place=np.arange(a.size))
        words = self.connection.execute(
            f"SELECT {', '.join(self.cells.words)} FROM ({self.cells.coded('FROM pairs_to_score', 'place, ')}) "
            "ORDER BY place"
        ).fetchnumpy()
        return self.model.log_odds(self.cells.symbols(words))

    def _add_twins(self) -> None:
        """Rows that equal an earlier one of their own table link to what that one links to best."""
        for side, other in (("a", "b"), ("b", "a")):
            self.connection.execute(
                f"INSERT INTO scored (a, b, score) SELECT "
                f"{'t.row, f.b' if side == 'a' else 'f.a, t.row'}, score FROM twins t JOIN (SELECT scored.* FROM "
                f"scored LEFT JOIN members x ON x.row = a LEFT JOIN members y ON y.row = b "
                f"WHERE {side} IN (SELECT first FROM twins) AND {other} NOT IN (SELECT row FROM twins) "
                f"QUALIFY row_number() OVER (PARTITION BY {side} ORDER BY coalesce(x.first = y.first, false) DESC, "
                f"score DESC, {other}) = 1) f ON t.first = f.{side} "
                "WHERE t.row NOT IN (SELECT row FROM members)"
            )
        self.connection.execute(
            "INSERT INTO members SELECT t.row, m.first FROM twins t JOIN members m ON m.row = t.first "
            "WHERE t.row NOT IN (SELECT row FROM members)"
        )
