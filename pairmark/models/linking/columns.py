"""What columns are worth before matches are looked for: how frequent values are, and which columns tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.linking.mixture import BINS, IDENTIFYING, bin_of
from pairmark.models.linking.sides import Sides
from pairmark.models.records.compare import LinkField

if TYPE_CHECKING:
    import duckdb

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
_BIN = "least(CAST(floor(log2({n} - 1)) AS INTEGER), " + f"{BINS - 1})"


def count_values(
    connection: duckdb.DuckDBPyConnection, name: str, shares: str | None = None
) -> tuple[dict[str, int], Float64, float, float]:
    """The frequent values of a column with how many rows have them; (BINS,) average frequency of the values of a bin,
    0 where there is none; that of all values; and how many rows have a cell.

    Parameters
    ----------
    shares : a table ``(value, share)`` of how frequent values are, in the place of what the rows say.
    """
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE counted AS SELECT {name} AS value, count(*) AS n FROM cells "
        f"SEMI JOIN hashes USING (row) WHERE {name} IS NOT NULL GROUP BY {name}"
    )
    rows = connection.execute("SELECT coalesce(sum(n), 0) FROM counted").fetchall()[0][0]
    if shares is not None:
        connection.execute(
            "UPDATE counted SET n = greatest(1, CAST(round(share * ?) AS BIGINT)) "
            f"FROM {shares} given WHERE given.value = counted.value",
            [rows],
        )
    frequent: dict[str, int] = dict(
        connection.execute(
            f"SELECT value, n FROM counted WHERE n >= {_FEWEST_ROWS} ORDER BY n DESC, value LIMIT {_MOST_VALUES}"
        ).fetchall()
    )
    fewest = min(frequent.values(), default=_FEWEST_ROWS) if len(frequent) == _MOST_VALUES else _FEWEST_ROWS
    rest = f"n > {fewest} OR (n = {fewest} AND value <= $last)" if frequent else "false"
    last = max((value for value, n in frequent.items() if n == fewest), default="")
    found = connection.execute(
        f"SELECT CASE WHEN {rest} THEN {_BIN.format(n='n')} ELSE 0 END AS bin, "
        "CAST(sum(n * (n - 1) * n) AS DOUBLE) / sum(n * (n - 1)) FROM counted WHERE n > 1 GROUP BY bin",
        {"last": last} if frequent else {},
    ).fetchall()
    average = np.zeros(BINS)
    for at, n in found:
        average[at] = n
    squares = connection.execute("SELECT coalesce(sum(n * n), 0) FROM counted").fetchall()[0][0]
    return frequent, average, max(float(squares) / max(float(rows), 1.0), 1.0), float(rows)


def bins_sql(
    connection: duckdb.DuckDBPyConnection, frequent: Sequence[dict[str, int]], names: Sequence[str]
) -> str:
    """SQL of ``row`` with the bin of each column's value as ``f0, f1, ...``."""
    joins = []
    for number, values in enumerate(frequent):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE frequent{number} (value VARCHAR, bin UTINYINT)")
        if values:
            given = {
                "value": np.array(list(values), dtype=object),
                "bin": np.array([bin_of(n) for n in values.values()], dtype=np.uint8),
            }
            connection.register("given", given)
            connection.execute(f"INSERT INTO frequent{number} SELECT value, bin FROM given WHERE bin > 0")
            connection.unregister("given")
            joins.append(f"LEFT JOIN frequent{number} t{number} ON t{number}.value = c.{names[number]}")
    bins = ", ".join(
        f"coalesce(t{number}.bin, 0) AS f{number}" if values else f"CAST(0 AS UTINYINT) AS f{number}"
        for number, values in enumerate(frequent)
    )
    return f"SELECT c.*, {bins} FROM cells c {' '.join(joins)}"


def lifts(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], equal: Float64, sides: Sides
) -> tuple[Float64, Float64]:
    """(d,) how far pairs that have one column in common agree in another beyond chance, in standard errors: for each
    column that of its best other one, either way round. And (d, d) the share of the pairs with the one equal that have
    the other equal; NaN where there are few.

    Parameters
    ----------
    equal : (d,) how often random pairs have a column equal.
    """
    d = len(names)
    best, shares = np.zeros(d), np.full((d, d), np.nan)
    # Rows that equal an earlier one speak for every column: matches that are all written alike are nothing else.
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE hashed AS FROM hashes UNION ALL "
        "SELECT t.row, h.* EXCLUDE row FROM twins t JOIN hashes h ON h.row = t.first"
    )
    n_rows = connection.execute("SELECT count(*) FROM hashed").fetchall()[0][0]
    step = 1 + n_rows // _LOOKED_AT
    for number, name in enumerate(names if d > 1 else ()):
        others = [other for other in range(d) if other != number]
        sums = ", ".join(
            f"count(*) FILTER (a.{names[other]} = b.{names[other]}), "
            f"count(*) FILTER (a.{names[other]} IS NOT NULL AND b.{names[other]} IS NOT NULL)"
            for other in others
        )
        found = connection.execute(
            f"SELECT {sums} FROM (SELECT row, lead(row) OVER (PARTITION BY {name} ORDER BY hash(row), row) AS next "
            f"FROM hashed WHERE {name} % {step} = 0) p JOIN hashed a ON a.row = least(p.row, p.next) "
            f"JOIN hashed b ON b.row = greatest(p.row, p.next) WHERE {sides.may_link('a.row', 'b.row')}"
        ).fetchall()[0]
        for place, other in enumerate(others):
            agreements, both = found[2 * place], found[2 * place + 1]
            expected = both * equal[other]
            if both >= _FEWEST_PAIRS:
                shares[number, other] = agreements / both
            excess = agreements - expected
            if agreements > 1.3 * expected + 3 or excess > 0.1 * max(both - expected, 1):
                lift = excess / np.sqrt(expected + 1)
                best[[number, other]] = np.maximum(best[[number, other]], lift)
    return best, shares


def contradictions(
    connection: duckdb.DuckDBPyConnection, shares: Float64, fields: Sequence[LinkField], names: Sequence[str]
) -> Iterator[tuple[tuple[int, int], str]]:
    """Places of two columns that each say who a row is, where nearly all rows that agree in either differ in the other;
    and a sentence with the first rows that do."""
    differ = np.fmax(shares, shares.T) < _MOST_AGREEING
    who = [at for at, field in enumerate(fields) if field.definition.role in _WHO]
    for i, j in (pair for pair in combinations(who, 2) if differ[pair]):
        one, two = names[i], names[j]
        examples = connection.execute(
            f"SELECT x.{one}, x.{two}, y.{two} FROM (SELECT row, lead(row) OVER (PARTITION BY {one} ORDER BY row) "
            f"AS next FROM cells WHERE {one} IS NOT NULL) p JOIN cells u ON u.row = p.row JOIN cells v ON v.row = next "
            f"JOIN source x ON x.row = p.row JOIN source y ON y.row = next WHERE u.{two} <> v.{two} "
            "ORDER BY p.row LIMIT 1"
        )
        for same, left, right in examples.fetchall():
            one, two = fields[i].name, fields[j].name
            yield (
                (i, j),
                f"columns {one!r} and {two!r} contradict each other: two rows with {one} {same!r} have {two} {left!r} "
                f"and {right!r}, and so it is with nearly all. Leave out the one that does not say who a row is by "
                f"--column {one}:ignore or --column {two}:ignore",
            )


def tells_nothing(
    best: Float64, roles: Sequence[str], equal: Float64, n_rows: int, is_own: Callable[[int], bool]
) -> list[int]:
    """Places of the columns that agree by chance alone.

    Where that would leave none in which one thing differs from its relatives, what agrees are relatives alone: then
    no column is at fault.

    Parameters
    ----------
    best : of `lifts`. roles : of the columns' kinds. equal : how often random pairs have them equal. is_own : whether
        hardly any rows of one table share a value of a column, which those of two tables do.
    """
    least = _LEAST_LIFT * min(1.0, max(n_rows / _SURE_FROM, 0.2))
    is_out = best < least
    of_one = np.array([role in IDENTIFYING or role == "email" for role in roles])
    of_one = of_one if of_one.any() else equal < _TELLS
    telling = np.flatnonzero(~is_out).tolist()
    return np.flatnonzero(is_out).tolist() if any(of_one[at] or is_own(at) for at in telling) else []
