"""A folder of links that were found, and the records that were put in since.

Each file but the last is a table; `open_results` has them as views, with the ``place`` of each row.

- ``records(side, id, compared, added, forms, keys, c0, ...)``: of tables ``side``, numbered from 0. ``compared``: no
  earlier row equals it; ``added``: a person put it in, and no table has it; ``forms``, ``keys``: normal forms of what
  is compared and the numbers of its keys, where a model was fitted; ``c0``: cells.
- ``links(left_side, right_side, left, right, score, decision, entity)``
- ``entities(entity, side, record)``: of two records or more.
- ``changes(entity, change, records, entities)``: since the job before; ``records`` are of ``side`` and ``record``.
- ``statements(number, part, side, record)``: what people said, each time a number: records of one entity (part 0), or
  of two different ones (parts 1 and 2).
- ``fitted.json``: the columns, the model and the rules.

Where a model was fitted, files that are mapped into memory, of which `pairmark.service.links.resolving` reads a few
places:

- ``keys.npy``, ``keyed.npy``: numbers of keys, ascending, and the record of each. Beside the keys of its cells, a
  record has that of its id, ``id:ID``, and of its entity, ``entity:ENTITY``;
- ``records.jsonl``: ``{"side", "id", "entity", "forms"}`` of each record; ``ends.npy``: where each line ends.

Nothing changes a folder: `rewrite_results` makes another.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.linking.candidates import key_values
from pairmark.models.linking.mixture import LEVEL_OF, Mixture
from pairmark.models.records.compare import KINDS, LinkField
from pairmark.service.errors import Conflict, InvalidInput, UnknownLinks
from pairmark.service.links.duck import copy_to, duckdb_session, quoted_text

FITTED, RECORD_LINES = "fitted.json", "records.jsonl"
_LINE_END = 10
_BYTES_AT_ONCE, _KEYS_AT_ONCE = 2**24, 2**24
FORM = 7
"""Of a folder; earlier ones are read no more."""
_TABLES = ("records", "entities", "links", "changes", "statements")
_TABLE_NUMBERS = ", left_side + 1 AS left_table, right_side + 1 AS right_table"
_DECIDED = (
    "f.\"left\", f.\"right\", round(score, 6) AS score, CASE WHEN x.entity = y.entity THEN 'match' ELSE 'different' "
    "END AS decision, CASE WHEN x.entity = y.entity THEN x.entity END AS entity"
)
_RECORD_LINKS = (
    "record_links f LEFT JOIN entity_members x ON x.side = f.left_side AND x.record = f.left "
    "LEFT JOIN entity_members y ON y.side = f.right_side AND y.record = f.right"
)
_ENTITIES = "SELECT entity, side, record FROM {} ORDER BY min(place) OVER (PARTITION BY entity), place"
_WRITTEN = {
    "records": "SELECT * EXCLUDE place FROM records ORDER BY place",
    "links": f"SELECT left_side, right_side, {_DECIDED} FROM {_RECORD_LINKS} ORDER BY f.place",
    "entities": _ENTITIES.format("entity_members"),
    "changes": "SELECT * EXCLUDE place FROM entity_changes ORDER BY place",
    "statements": "SELECT number, part, side, record FROM person_statements ORDER BY number, part, place",
}
"""What the files have, of the tables that are written: ``record_links``, ``entity_members``, ``entity_changes`` and
``person_statements``."""
_IN_FILE = (
    "SELECT * EXCLUDE file_row_number, file_row_number AS place FROM read_parquet({}, file_row_number=true)"
)
_ADDED = f"UNION ALL SELECT *, {2**40} + rowid FROM {{new}}"
"""With places after all those of the file."""
_WITH_ADDED = {
    "records": f"{{file}} {_ADDED}",
    "entities": f"{{file}} ANTI JOIN {{new}} USING (side, record) {_ADDED} WHERE entity IS NOT NULL",
    # An edit names all records of the entities that it changes: of any other link, what was decided stands.
    "links": "SELECT l.* REPLACE (CASE WHEN x.record IS NULL OR y.record IS NULL THEN decision WHEN x.entity = "
    "y.entity THEN 'match' ELSE 'different' END AS decision, CASE WHEN x.record IS NULL OR y.record IS NULL THEN "
    f"l.entity WHEN x.entity = y.entity THEN x.entity END AS entity) FROM ({{file}} {_ADDED}) l LEFT JOIN {{members}} "
    'x ON x.side = left_side AND x.record = "left" LEFT JOIN {members} y ON y.side = right_side AND y.record = "right"',
    "changes": f"{{file}} {_ADDED}",
    "statements": f"{{file}} WHERE number NOT IN ({{forgotten}}) {_ADDED}",
}
"""Each table with what was added since."""
_DELETE_EARLIER = "DELETE FROM {0} WHERE rowid NOT IN (SELECT max(rowid) FROM {0} GROUP BY side, record)"
_LEVELS = ("missing", "different", "weak", "close", "equal")
_MISSING, _EQUAL = 0, 4

Key = tuple[int, str]
"""Of a record: the number of its table, from 0, and its id."""
Addition = Mapping[str, Any]
"""A record that was put in, or an edit by hand: rows of the five tables, of ``entities`` with None where a record is in
none any more; ``forgotten``, numbers of ``statements`` that are taken back; and ``counts``, what a summary counts more
of."""


class Stored(NamedTuple):
    """A folder, and the records that were put in since it was written."""

    folder: Path
    added: Sequence[Addition] = ()


def read_fitted(folder: Path) -> dict[str, Any]:
    """What was fitted; `Conflict` where it is of an earlier version."""
    fitted: dict[str, Any] = json.loads((folder / FITTED).read_text())
    if fitted.get("form") != FORM:
        raise Conflict("these links are of an earlier version: delete them and link again (POST /links)")
    return fitted


def create_views(connection: Any, stored: Stored, prefix: str = "") -> None:
    """Views of the tables of a folder, with what was added since."""
    rows_of: dict[str, list[Any]] = {name: [] for name in _TABLES}
    forgotten: set[int] = set()
    for added in stored.added:
        gone = added.get("forgotten", ())
        forgotten |= {*gone}
        # A number that was taken back is used again.
        rows_of["statements"] = [row for row in rows_of["statements"] if row[0] not in gone]
        for name, rows in rows_of.items():
            rows += added.get(name, ())
    for name, rows in rows_of.items():
        file, new = quoted_text(stored.folder / f"{name}.parquet"), f"{prefix}new_{name}"
        sql = _IN_FILE.format(file)
        if stored.added:
            connection.execute(f"CREATE TABLE {new} AS FROM read_parquet({file}) LIMIT 0")
            columns = [list(cells) for cells in zip(*rows, strict=True)]
            if columns:
                cells = ", ".join("unnest(?)" for _ in columns)
                connection.execute(f"INSERT INTO {new} SELECT {cells}", columns)
            if name == "entities":
                # The last one says where a record is, and in which place.
                connection.execute(_DELETE_EARLIER.format(new))
            numbers, members = ", ".join(map(str, [-1, *forgotten])), f"{prefix}new_entities"
            sql = _WITH_ADDED[name].format(file=sql, new=new, members=members, forgotten=numbers)
        connection.execute(f"CREATE VIEW {prefix}{name} AS {sql}")


@contextmanager
def open_results(stored: Stored) -> "Iterator[Results]":
    """The results of a folder."""
    fitted = read_fitted(stored.folder)
    with duckdb_session(threads="1") as connection:
        create_views(connection, stored)
        yield Results(connection, fitted)


@contextmanager
def rewrite_results(stored: Stored, out: Path) -> "Iterator[Results]":
    """The tables that `write_results` takes: written to another folder when the block ends."""
    with open_results(stored) as results:
        for table, view in (
            ("record_links", "links"),
            ("entity_members", "entities"),
            ("entity_changes", "changes"),
            ("person_statements", "statements"),
        ):
            results.connection.execute(f"CREATE TABLE {table} AS FROM {view}")
        yield results
        results.connection.execute(
            "DELETE FROM entity_members WHERE entity IN (SELECT entity FROM entity_members GROUP BY entity "
            "HAVING count(*) < 2)"
        )
        shutil.copyfile(stored.folder / FITTED, out / FITTED)
        write_results(results.connection, out, with_index=results.fitted["model"] is not None)


def write_results(connection: Any, folder: Path, *, with_index: bool) -> None:
    """Write the five files of a folder, and its index."""
    for name, sql in _WRITTEN.items():
        copy_to(connection, sql, folder / f"{name}.parquet")
    if with_index:
        _write_index(connection, folder)


def _write_index(connection: Any, folder: Path) -> None:
    """The files that are mapped into memory, of those of records and entities."""
    records, entities = (quoted_text(folder / f"{name}.parquet") for name in ("records", "entities"))
    connection.execute(
        "CREATE OR REPLACE VIEW indexed AS SELECT r.file_row_number AS row, r.side, r.id, entity, forms, keys FROM "
        f"read_parquet({records}, file_row_number=true) r LEFT JOIN read_parquet({entities}) e ON e.side = r.side AND "
        "e.record = r.id"
    )
    lines = folder / RECORD_LINES
    connection.execute(
        f"COPY (SELECT side, id, entity, forms FROM indexed ORDER BY row) TO {quoted_text(lines)} (FORMAT json)"
    )
    ends, n_read = [np.empty(0, np.int64)], 0
    with lines.open("rb") as text:
        while block := text.read(_BYTES_AT_ONCE):
            n_before, n_read = n_read, n_read + len(block)
            ends.append(n_before + 1 + np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_END))
    np.save(folder / "ends.npy", np.concatenate(ends))
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE row_keys AS SELECT key, CAST(row AS INTEGER) AS row FROM (SELECT unnest(keys) AS "
        "key, row FROM indexed UNION ALL SELECT md5_number_lower('id:' || id), row FROM indexed UNION ALL SELECT "
        "md5_number_lower('entity:' || entity), row FROM indexed) WHERE key IS NOT NULL"
    )
    n_keys = connection.execute("SELECT count(*) FROM row_keys").fetchone()[0]
    # Keys are spread evenly over their range: one part of it after the other is sorted.
    n_bits = (n_keys // _KEYS_AT_ONCE).bit_length()
    with (folder / "keys.npy").open("wb") as keys, (folder / "keyed.npy").open("wb") as rows:
        for file, kind in ((keys, "<u8"), (rows, "<i4")):
            header = {"descr": kind, "fortran_order": False, "shape": (n_keys,)}
            np.lib.format.write_array_header_1_0(file, header)
        for part in range(2**n_bits):
            sorted_keys = connection.execute(
                f"SELECT key, row FROM row_keys WHERE key >> {64 - n_bits} = {part} ORDER BY key, row"
            ).fetchnumpy()
            for file, column in ((keys, "key"), (rows, "row")):
                np.ma.getdata(sorted_keys[column]).tofile(file)


def record_links_sql(n_tables: int, cells: str, joins: str) -> str:
    """SQL of ``record_links`` as people have it: of several tables with their numbers, with cells of joined tables."""
    tables = _TABLE_NUMBERS if n_tables > 2 else ""
    return f"SELECT {_DECIDED}{tables}{cells} FROM {_RECORD_LINKS} {joins} ORDER BY f.place"


class Results:
    """What was found. ``connection`` : has the views of a folder; ``n_tables`` : that were linked."""

    def __init__(self, connection: Any, fitted: Mapping[str, Any]) -> None:
        self.connection, self.fitted = connection, fitted
        self.n_tables = int(fitted["tables"])

    def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(sql, list(params)).fetchall())

    def write_list(self, name: str, out: Path) -> None:
        """Write ``links``, of several tables with their numbers, or ``entities``, as CSV or Parquet by the name of a
        file."""
        tables = _TABLE_NUMBERS if self.n_tables > 2 else ""
        links = f'SELECT "left", "right", score, decision, entity{tables} FROM links ORDER BY place'
        sql = links if name == "links" else _ENTITIES.format("entities")
        copy_to(self.connection, sql, out, without_formulas=True)

    def counts(self) -> dict[str, int]:
        """How many records, links and entities there are."""
        counts = self.rows(
            "SELECT (SELECT count(*) FROM records), count(*) FILTER (decision = 'match'), count(*) FILTER (decision <> "
            "'match'), (SELECT count(DISTINCT entity) FROM entities) FROM links"
        )
        return dict(zip(("records", "links", "conflicts", "entities"), counts[0], strict=True))

    def links(self, search: str | None, by_doubt: bool, limit: int, start: int) -> list[tuple[Any, ...]]:
        """Links in their order or the most doubtful first, with the tables of both sides; of ``search``, those with the
        text in an id or a cell."""
        among, params = "true", list[Any]()
        if search is not None:
            cells = ", ".join(f"c{at}" for at in range(len(self.fitted["columns"])))
            hits = f"SELECT side, id FROM records WHERE contains(lower(concat_ws(chr(10), id, {cells})), lower(?))"
            among = f'(left_side, "left") IN ({hits}) OR (right_side, "right") IN ({hits})'
            params = [search, search]
        order = "decision <> 'different', score, place" if by_doubt else "place"
        return self.rows(
            f'SELECT "left", "right", score, decision, entity, left_side, right_side FROM links WHERE {among} '
            f"ORDER BY {order} LIMIT ? OFFSET ?",
            *params,
            limit,
            start,
        )

    def texts_of(self, keys: Sequence[Key]) -> list[dict[str, Any]]:
        """Cells of records by column, in the order of their keys; `UnknownLinks` where there is none."""
        names = self.fitted["columns"]
        rows = self.rows(
            f"SELECT side, id, {', '.join(f'c{at}' for at in range(len(names)))} FROM records "
            "WHERE (side, id) IN (SELECT unnest(?), unnest(?))",
            [key[0] for key in keys],
            [key[1] for key in keys],
        )
        by_key = {(row[0], row[1]): dict(zip(names, row[2:], strict=True)) for row in rows}
        if missing := [key for key in keys if key not in by_key]:
            side, record = missing[0]
            raise UnknownLinks(f"there is no record {record[:100]!r} in table {side + 1} of these links")
        return [by_key[key] for key in keys]

    def keys_of(self, ids: Sequence[str]) -> list[Key]:
        """Records that have some ids."""
        return [
            (side, record)
            for side, record in self.rows(
                "SELECT side, id FROM records WHERE id IN (SELECT unnest(?))", [*ids]
            )
        ]

    def members(self, entity: str) -> list[Key]:
        """Records of an entity, in their order; none where there is no such."""
        return [
            (side, record)
            for side, record in self.rows(
                "SELECT side, record FROM entities WHERE entity = ? ORDER BY place", entity
            )
        ]

    def free_name(self, members: Sequence[Key]) -> str:
        """What a new entity of some records is called."""
        ids = [record for _, record in members]
        taken = self.rows(
            "SELECT DISTINCT entity FROM entities WHERE entity IN (SELECT unnest(?)) OR starts_with(entity, ?)",
            ids,
            f"{ids[0]}~",
        )
        return free_name(ids, {row[0] for row in taken})

    def record(self, name: str) -> Key:
        """The record that a person means; errors as `pick_pair`."""
        return _there(pick_key(self.keys_of(ids_of(name)), name), name)

    def pair(self, left: str, right: str) -> list[Key]:
        """The records of a pair. Addresses join both by a slash, and ids may hold slashes themselves: where there are
        no such two, every slash is tried."""
        text = f"{left}/{right}"
        pairs = [(text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == "/"]
        keys = self.keys_of(ids_of(left, right, *chain(*pairs)))
        for one, other in [(left, right), *pairs]:
            with suppress(UnknownLinks):
                return pick_pair(keys, self.n_tables, one, other)
        return pick_pair(keys, self.n_tables, left, right)

    def link(self, one: Key, other: Key) -> tuple[Any, ...] | None:
        """(score, decision, entity) of the link of two records, in either order."""
        either = '(left_side = ? AND "left" = ? AND right_side = ? AND "right" = ?)'
        links = self.rows(
            f"SELECT score, decision, entity FROM links WHERE {either} OR {either}",
            *(*one, *other, *other, *one),
        )
        return links[0] if links else None

    def explain(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Field by field, what both cells are, how far they agree, and what that adds to the log odds of a match."""
        fields = [LinkField(**field) for field in self.fitted["fields"]]
        forms = [[form_of(field.kind, side[field.name]) for field in fields] for side in (left, right)]
        levels = [
            comparer().levels(field.kind, a, [b])[0] for field, a, b in zip(fields, *forms, strict=True)
        ]
        weights = [0.0] * len(fields)
        if self.fitted["model"] is not None:
            model = Mixture.from_json(self.fitted["model"])
            symbols = model.symbols(np.array(levels), *forms)
            # Of names in each other's columns, the model has another level than their cells.
            weights, levels = model.contributions(symbols), LEVEL_OF[symbols].tolist()
        return [
            {
                "field": field.title,
                "left": left[field.name],
                "right": right[field.name],
                "level": _LEVELS[level],
                "weight": round(weight, 4),
            }
            for field, level, weight in zip(fields, levels, weights, strict=True)
        ]


# ---------------------------------------------------------------- single cells


def form_of(kind: str, cell: str | None) -> str | None:
    """A cell's normal form; None where it is missing."""
    return None if cell is None else KINDS[kind].form(cell) or None


class CellComparer:
    """Keys and levels of single cells by prepared statements: to bind one takes longer than to run it.

    One connection without tables, for all threads: what it prepares depends on kinds of columns alone."""

    def __init__(self) -> None:
        import duckdb

        self._lock, self._prepared = Lock(), set[str]()
        self._con = duckdb.connect(config={"threads": "1", "memory_limit": "256MB"})

    def keys(self, fields: Sequence[LinkField], forms: Sequence[str | None]) -> list[list[str]]:
        """Of each column, texts that its cell shares with those that it is like."""
        lists = ", ".join(key_values(field, f"a{at}") for at, field in enumerate(fields))
        cells = ", ".join(f"${at + 1}::VARCHAR AS a{at}" for at in range(len(fields)))
        literals = ["NULL" if form is None else quoted_text(form) for form in forms]
        name = "_".join(["keys", *(field.kind for field in fields)])
        value_lists = self._run(name, f"SELECT {lists} FROM (SELECT {cells})", *literals)[0]
        return [[value for value in values or () if value is not None] for values in value_lists]

    def levels(self, kind: str, form: str | None, others: Sequence[str | None]) -> list[int]:
        """How far a normal form agrees with each of some others."""
        level: dict[str | None, int] = {form: _EQUAL}
        unlike = sorted({other for other in others if other is not None and other != form})
        if form is not None and unlike:
            sql = f"SELECT b, {KINDS[kind].level('a', 'b')} FROM (SELECT $1::VARCHAR AS a, unnest($2::VARCHAR[]) AS b)"
            listed = f"[{', '.join(map(quoted_text, unlike))}]"
            level |= dict(self._run(f"level_{kind}", sql, quoted_text(form), listed))
        return [_MISSING if None in (form, other) else level[other] for other in others]

    def _run(self, name: str, sql: str, *literals: str) -> list[tuple[Any, ...]]:
        with self._lock:
            if name not in self._prepared:
                self._con.execute(f"PREPARE {name} AS {sql}")
                self._prepared.add(name)
            return list(self._con.execute(f"EXECUTE {name}({', '.join(literals)})").fetchall())


comparer = cache(CellComparer)
"""The one of this process."""


# ---------------------------------------------------------------- names of records and entities


def free_name(records: Sequence[str], taken: set[str]) -> str:
    """The id of the first record that names no other entity."""
    numbered = (f"{records[0]}~{number}" for number in count(2))
    return next(name for name in chain(records, numbered) if name not in taken)


def pick_key(keys: Sequence[Key], name: str) -> Key | None:
    """The record that a person means, by its id or by `TABLE:ID` (tables are numbered from 1); None where it is none.

    Raises
    ------
    InvalidInput
        Where several tables have the id: what to write instead.
    """
    exact = [key for key in keys if key[1] == name]
    written = next((key for key in keys if written_key(key) == name), None)
    if written is not None and sum(key[1] == written[1] for key in keys) > 1:
        # Nothing else names it.
        return written
    if len(exact) > 1:
        instead = " or ".join(repr(written_key(key)[:100]) for key in sorted(exact))
        raise InvalidInput(
            f"several tables have a record {name[:100]!r}; expected {instead}: the table's number, and the id",
            field="record",
        )
    return next(iter(exact), written)


def written_key(key: Key) -> str:
    """What names a record where several tables have its id."""
    return f"{key[0] + 1}:{key[1]}"


def pick_pair(keys: Sequence[Key], n_tables: int, left: str, right: str) -> list[Key]:
    """The records of a pair, among those that have any of `ids_of` both: of two tables in the left and the right one,
    where there is one. `UnknownLinks` where there is none, and see `pick_key`."""
    in_place = [[key for key in keys if n_tables == 2 and key == place] for place in ((0, left), (1, right))]
    return [
        _there(pick_key(there or keys, name), name)
        for there, name in zip(in_place, (left, right), strict=True)
    ]


def ids_of(*names: str) -> list[str]:
    """What may be the id of a record that is named so."""
    return [each for name in names for each in (name, name.partition(":")[2])]


def _there(key: Key | None, name: str) -> Key:
    if key is None:
        raise UnknownLinks(f"there is no record {name[:100]!r} in the tables of these links")
    return key
