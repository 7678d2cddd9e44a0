"""What rows say, column by column: normal forms, how frequent values are, which columns tell nothing, and how pairs of
rows agree."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64
from pairmark.models.linking.candidates import Sides, give, read_row
from pairmark.models.linking.mixture import (
    BINS,
    BITS,
    CLOSE,
    IDENTIFYING,
    LEVEL_OF,
    Column,
    Mixture,
    bin_of,
    column_of,
    exchanged_places,
)
from pairmark.models.records.compare import LinkField

MAX_FIELDS = 60
"""Columns that are compared."""
BEYOND = f"{MAX_FIELDS} columns are compared, those with the most values"
_A_WORD = 60 // BITS
"""Columns whose symbols make one integer of 64 bits."""
_RANDOM_PAIRS = 200_000
_PSEUDO = 0.5
_MOST_SHARED = 0.1
"""Values are of one thing alone where so many rows share one within their table, for each that both tables have."""
_MOST_VALUES = 2_000
"""Of a column whose frequency a model keeps; the others are as rare as they come."""
_FEWEST_ROWS = 3
_LEAST_LIFT, _SURE_FROM = 6.0, 1_200
_LOOKED_AT = 50_000
_WHO, _FEWEST_PAIRS, _MOST_AGREEING = frozenset({"id", "email", "phone"}), 20, 0.05
"""Roles that strangers have in common by chance in no table; how many pairs with a column in common, and which share of
them agreeing in another at most, say that these two contradict each other."""
_TELLS = 0.005
"""Columns that fewer random pairs have equal tell one thing from another."""


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
        connection: Any,
        fields: Sequence[LinkField],
        sides: Sides,
        previous: tuple[Sequence[LinkField], Mixture | None] | None,
        frequencies: Mapping[str, str],
    ) -> None:
        self.connection, self.source_fields, self.sides = connection, list(fields), sides
        self._frequencies = frequencies
        self._earlier, self._model = previous or ([], None)
        self.notes, self.screened, self.contradicted = list[str](), dict[int, str](), dict[int, str]()

    def read(self, *, beside: Sequence[str], counts: bool, screens: bool) -> None:
        """Tables ``cells`` of all rows that have one, and ``hashes`` of those that no earlier row equals.

        Parameters
        ----------
        beside : columns of ``cells`` in which rows that are equal otherwise may differ. counts : whether values are
            counted. screens : whether columns that agree by chance alone are left out.
        """
        self._beside = beside
        kinds = {field.name: field for field in self._earlier if field.kind != "legal_form"}
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
        self.connection.execute(f"CREATE OR REPLACE TABLE cells AS SELECT row, {cells} FROM source")
        distinct = ", ".join(f"approx_count_distinct(c{place})" for place in range(len(self.read_as)))
        self.distinct = np.atleast_1d(read_row(self.connection, f"SELECT {distinct} FROM cells"))
        if self._earlier:
            # In the order that the model has them in.
            where = {(field.name, field.kind): place for place, (_, field) in enumerate(self.read_as)}
            keys = [(field.name, field.kind) for field in self._earlier]
            self._use([where[key] for key in keys if key in where])
        else:
            self._screen_values()
            self._use([place for place in range(len(self.read_as)) if place not in self.screened])
        if screens:
            self._screen_chance()
        if counts:
            self._count()

    def _screen_values(self) -> None:
        """Leave out columns whose values tell nothing, and of many columns all but those with the most values."""
        if self.sides.n_rows <= 2:
            return
        beyond = dict.fromkeys(np.argsort(-self.distinct, kind="stable")[MAX_FIELDS:].tolist(), BEYOND)
        noted = {place: field.note for place, (_, field) in enumerate(self.read_as) if field.note}
        single = {
            place: "it has one value in all rows" if n else "it has no value"
            for place, n in enumerate(self.distinct)
            if n < 2
        }
        self.screened = beyond | noted | single
        if len(self.screened) == self.distinct.size:
            # Rows that are all equal are duplicates all the same.
            self.screened = {place: why for place, why in self.screened.items() if not self.distinct[place]}

    def _use(self, places: Sequence[int]) -> None:
        """Compare these columns: ``hashes`` has them, and ``twins`` the rows that are equal in all of them."""
        con, self.places = self.connection, list(places)
        self.fields, self.names = [self.read_as[at][1] for at in places], [f"c{at}" for at in places]
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
        filled = read_row(
            self.connection, "SELECT (SELECT count(*) FROM hashes) + (SELECT count(*) FROM twins)"
        )
        self.n_empty = self.sides.n_rows - filled

    def _equal(self, name: str) -> float:
        """Of all pairs that have a cell in a column, the share in which it is equal."""
        count, there = self.sides.pairs(), f"FROM hashes WHERE {name} IS NOT NULL"
        equal, pairs = read_row(
            self.connection,
            f"SELECT coalesce(sum(pairs), 0), (SELECT {count} {there}) FROM "
            f"(SELECT {count} AS pairs {there} GROUP BY {name})",
        )
        return float(equal) / max(float(pairs), 1)

    def _screen_chance(self) -> None:
        """Leave out the columns that agree by chance alone.

        Where that would leave none in which one thing differs from its relatives, what agrees are relatives alone: then
        no column is at fault.
        """
        self._equals = np.array([self._equal(name) for name in self.names])
        best, shares = self._lifts()
        self._note_contradictions(np.fmax(shares, shares.T) < _MOST_AGREEING)
        least = _LEAST_LIFT * min(1.0, max(self.sides.n_rows / _SURE_FROM, 0.2))
        telling = np.flatnonzero(best >= least).tolist()
        of_one = [field.definition.role in IDENTIFYING | {"email"} for field in self.fields]
        of_one = of_one if any(of_one) else (self._equals < _TELLS).tolist()
        if len(telling) < best.size and any(of_one[at] or self._is_own(self.names[at]) for at in telling):
            silent = [self.places[number] for number in np.flatnonzero(best < least)]
            self.screened |= dict.fromkeys(silent, "rows that agree elsewhere agree in it by chance alone")
            self._equals = self._equals[telling]
            self._use([self.places[number] for number in telling])

    def _lifts(self) -> tuple[Float64, Float64]:
        """(d,) how far pairs that have one column in common agree in another beyond chance, in standard errors: for
        each column that of its best other one, either way round. And (d, d) the share of the pairs with the one equal
        that have the other equal; NaN where there are few."""
        con, d = self.connection, len(self.names)
        best, shares = np.zeros(d), np.full((d, d), np.nan)
        # Rows that equal an earlier one speak for every column: matches that are all written alike are nothing else.
        con.execute(
            "CREATE OR REPLACE TEMP TABLE hashed AS FROM hashes UNION ALL "
            "SELECT t.row, h.* EXCLUDE row FROM twins t JOIN hashes h ON h.row = t.first"
        )
        n_rows = read_row(self.connection, "SELECT count(*) FROM hashed")
        step = 1 + n_rows // _LOOKED_AT
        con.execute("CREATE OR REPLACE TEMP TABLE sharing (number INTEGER, one INTEGER, another INTEGER)")
        for number, name in enumerate(self.names if d > 1 else ()):
            con.execute(
                f"INSERT INTO sharing SELECT {number}, least(row, next) AS one, greatest(row, next) AS another FROM "
                f"(SELECT row, lead(row) OVER (PARTITION BY {name} ORDER BY hash(row), row) AS next FROM hashed "
                f"WHERE {name} % {step} = 0) WHERE {self.sides.may_link('one', 'another')}"
            )
        sums = "".join(
            f", count(*) FILTER (a.{other} = b.{other}), count(a.{other} = b.{other})" for other in self.names
        )
        # One query for all: to plan so many sums takes longer than to count them.
        for number, *found in con.execute(
            f"SELECT number{sums} FROM sharing JOIN hashed a ON a.row = one JOIN hashed b ON b.row = another "
            "GROUP BY number"
        ).fetchall():
            for other in {*range(d)} - {number}:
                agreements, both = found[2 * other : 2 * other + 2]
                if both >= _FEWEST_PAIRS:
                    shares[number, other] = agreements / both
                expected = both * self._equals[other]
                excess = agreements - expected
                if agreements > 1.3 * expected + 3 or excess > 0.1 * max(both - expected, 1):
                    lift = excess / np.sqrt(expected + 1)
                    best[[number, other]] = np.maximum(best[[number, other]], lift)
        return best, shares

    def _note_contradictions(self, differ: NDArray[np.bool_]) -> None:
        """Tell of two columns that each say who a row is, where nearly all rows that agree in either differ in the
        other, with the first rows that do."""
        who = [at for at, field in enumerate(self.fields) if field.definition.role in _WHO]
        for i, j in (pair for pair in combinations(who, 2) if differ[pair]):
            one, two = self.names[i], self.names[j]
            examples = self.connection.execute(
                f"SELECT x.{one}, x.{two}, y.{two} FROM (SELECT row, lead(row) OVER (PARTITION BY {one} ORDER BY row) "
                f"AS next FROM cells WHERE {one} IS NOT NULL) p JOIN cells u ON u.row = p.row JOIN cells v ON v.row = "
                f"next JOIN source x ON x.row = p.row JOIN source y ON y.row = next WHERE u.{two} <> v.{two} "
                "ORDER BY p.row LIMIT 1"
            )
            for same, left, right in examples.fetchall():
                one, two = self.fields[i].name, self.fields[j].name
                self.notes.append(
                    f"columns {one!r} and {two!r} contradict each other: two rows with {one} {same!r} have {two} "
                    f"{left!r} and {right!r}, and so it is with nearly all. Leave out the one that does not say who a "
                    f"row is by --column {one}:ignore or --column {two}:ignore"
                )
                self.contradicted |= dict.fromkeys((self.places[i], self.places[j]), self.notes[-1])

    def _is_own(self, name: str) -> bool:
        """Whether hardly any rows of one table share a value of a column, which those of two tables do."""
        rows, side_values, every = read_row(
            self.connection,
            f"SELECT count({name}), count(DISTINCT ({self.sides.side('row')}, {name})), count(DISTINCT {name}) "
            f"FROM hashes WHERE {name} IS NOT NULL",
        )
        return bool(rows - side_values <= _MOST_SHARED * (side_values - every))

    def _count(self) -> None:
        """How frequent values are, and ``cells`` with the bin of each as ``f0, f1, ...``."""
        model, con = self._model, self.connection
        self._counted = [
            self._count_values(name, self._frequencies.get(field.name))
            for name, field in zip(self.names, self.fields, strict=True)
            if model is None
        ]
        frequent = [each.frequent for each in model.columns] if model else [each[0] for each in self._counted]
        bins, joins = "", ""
        for number, values in enumerate(frequent):
            bin_number = "0"
            if values:
                bin_numbers = np.array([bin_of(n) for n in values.values()], dtype=np.uint8)
                give(con, f"frequent{number}", value=np.array(list(values), dtype=object), bin=bin_numbers)
                bin_number = f"coalesce(frequent{number}.bin, 0)"
                joins += f" LEFT JOIN frequent{number} ON frequent{number}.value = c.{self.names[number]}"
            bins += f", {bin_number}::UTINYINT AS f{number}"
        con.execute(f"CREATE TABLE binned AS SELECT c.*{bins} FROM cells c{joins}")
        con.execute("DROP TABLE cells")
        con.execute("ALTER TABLE binned RENAME TO cells")

    def _count_values(
        self, name: str, shares: str | None = None
    ) -> tuple[dict[str, int], Float64, float, float]:
        """The frequent values of a column with how many rows have them; (BINS,) average frequency of the values of a
        bin, 0 where there is none; that of all values; and how many rows have a cell.

        Parameters
        ----------
        shares : a table ``(value, share)`` of how frequent values are, in the place of what the rows say; those that
            it lacks are as frequent as in the rows.
        """
        con, average = self.connection, np.zeros(BINS)
        shares_join, n = "", "seen"
        if shares is not None:
            shares_join = f"LEFT JOIN {shares} USING (value)"
            given_n = "greatest(1, CAST(round(share * sum(seen) OVER ()) AS BIGINT))"
            n = f"CASE WHEN share IS NULL THEN seen ELSE {given_n} END"
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE counted AS SELECT value, seen, {n} AS n FROM (SELECT {name} AS value, "
            "count(*) AS seen FROM cells SEMI JOIN hashes USING (row) "
            f"WHERE {name} IS NOT NULL GROUP BY {name}) {shares_join}"
        )
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE frequent AS SELECT value, n FROM counted WHERE n >= {_FEWEST_ROWS} "
            f"ORDER BY n DESC, value LIMIT {_MOST_VALUES}"
        )
        for bin_number, mean in con.execute(
            "SELECT CASE WHEN value IN (SELECT value FROM frequent) THEN "
            f"least(CAST(floor(log2(n - 1)) AS INTEGER), {BINS - 1}) ELSE 0 END AS bin, "
            "CAST(sum(n * (n - 1) * n) AS DOUBLE) / sum(n * (n - 1)) FROM counted WHERE n > 1 GROUP BY bin"
        ).fetchall():
            average[bin_number] = mean
        squares, rows = read_row(
            self.connection, "SELECT coalesce(sum(n * n), 0), coalesce(sum(seen), 0) FROM counted"
        )
        frequent = dict(con.execute("SELECT value, n FROM frequent ORDER BY n DESC, value").fetchall())
        return frequent, average, max(float(squares) / max(float(rows), 1.0), 1.0), float(rows)

    @property
    def words(self) -> list[str]:
        """Names of the integers that symbols of these columns take."""
        return [f"w{at}" for at in range(1 + (len(self.fields) - 1) // _A_WORD)]

    @property
    def roles(self) -> list[str]:
        """Of the columns; beside a given name, a name is the rest of it."""
        roles = [field.definition.role for field in self.fields]
        return ["surname" if role == "name" and "given" in roles else role for role in roles]

    def coded(self, pairs: str, more: str = "") -> str:
        """SQL of pairs with their symbols, `_A_WORD` of them in a word, and ``more`` columns."""
        agreements = [
            field.definition.level(f"a.{name}", f"b.{name}")
            for field, name in zip(self.fields, self.names, strict=True)
        ]
        for i, j, needs_both in exchanged_places(self.roles):
            one, other = self.names[i], self.names[j]
            both = f"a.{one} = b.{other} AND a.{other} = b.{one}"
            crosses = both if needs_both else f"(a.{one} = b.{other} OR a.{other} = b.{one})"
            crosses += f" AND (a.{one} = b.{one} OR a.{other} = b.{other}) IS NOT TRUE"
            # Of two that cross, each says as much as in its own column; of one, the rest says nothing.
            for at, level in ((i, f"{CLOSE}"), (j, f"CASE WHEN {both} THEN {CLOSE} ELSE 0 END")):
                agreements[at] = f"CASE WHEN {crosses} THEN {level} ELSE {agreements[at]} END"
        levels = ", ".join(
            f"{agreement} AS l{i}, greatest(a.f{i}, b.f{i}) AS f{i}" for i, agreement in enumerate(agreements)
        )
        symbols = [
            f"CAST(CASE WHEN l{i} < 3 THEN l{i} ELSE 3 + (l{i} - 3) * {BINS} + f{i} END AS BIGINT) * "
            f"{2 ** (BITS * (i % _A_WORD))}"
            for i in range(len(self.fields))
        ]
        words = ", ".join(
            f"{' + '.join(symbols[i * _A_WORD : (i + 1) * _A_WORD]) or '0'} AS {word}"
            for i, word in enumerate(self.words)
        )
        return (
            f"SELECT {more}a, b, {words} FROM (SELECT p.*{', ' if levels else ''}{levels} FROM ({pairs}) p "
            "JOIN cells a ON a.row = p.a JOIN cells b ON b.row = p.b)"
        )

    def symbols(self, words: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
        """(n, d) symbols of words."""
        out = np.empty((words["w0"].size, len(self.fields)), dtype=np.uint8)
        for at in range(len(self.fields)):
            word = np.asarray(words[f"w{at // _A_WORD}"], dtype=np.int64)
            out[:, at] = (word >> (BITS * (at % _A_WORD))) & (2**BITS - 1)
        return out

    def patterns(self, source: str) -> tuple[dict[str, NDArray[Any]], NDArray[np.uint8], Float64]:
        """Patterns of some pairs: their words, their symbols, and how many pairs have each."""
        listed = ", ".join(self.words)
        words = self.connection.execute(
            f"SELECT {listed}, count(*) AS n FROM ({source}) GROUP BY {listed} ORDER BY {listed}"
        ).fetchnumpy()
        counts = np.asarray(words.pop("n"), dtype=np.float64)
        return words, self.symbols(words), counts

    def columns(self) -> list[Column]:
        """What the columns are before matches are looked for."""
        a, b = self.sides.random_pairs(int(min(_RANDOM_PAIRS, max(10 * self.sides.n_pairs, 1))))
        give(self.connection, "random_pairs", a=a, b=b)
        _, symbols, counts = self.patterns(self.coded("FROM random_pairs"))
        levels, columns = LEVEL_OF[symbols], []
        for at, (role, counted, equal) in enumerate(
            zip(self.roles, self._counted, self._equals, strict=True)
        ):
            unequal = np.bincount(levels[:, at], weights=counts, minlength=5)[1:4] + _PSEUDO
            equal = float(np.clip(equal, 1e-9, 0.999))
            u: Float64 = np.append(unequal / unequal.sum() * (1 - equal), equal)
            columns.append(column_of(role, u, *counted))
        return columns
