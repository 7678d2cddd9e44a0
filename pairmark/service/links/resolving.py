"""Which entities a new record belongs to, of links that were found; and the record put in.

Candidates share a stored key with it: those that share most, and the rarest, are compared by the fitted model, together
with all records of their entities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.linking.candidates import stored_keys
from pairmark.models.linking.mixture import Mixture, chances
from pairmark.models.records.compare import LinkField, register
from pairmark.schemas.links import ResolvedEntity
from pairmark.service.errors import Conflict, InvalidInput, ModelNotCapable
from pairmark.service.links.by_hand import insert_members, making_anew, members_of
from pairmark.service.links.result_files import (
    CHANGES,
    ENTITIES,
    KEYS,
    RECORDS,
    Key,
    copy_to,
    free_name,
    quoted,
    read_fitted,
    right_side,
)

_MOST_CANDIDATES = 64
_SHOWN, _LEAST = 10, 0.01
"""Entities that are told, and the least chance of one."""
_CLIP = 20.0
"""Log odds beyond which a pair says no more."""
_ADDED = "added"
_LONGEST = 2_048
"""Characters of a cell that are kept."""

Cells = Mapping[str, Any]


class _Compared(NamedTuple):
    """A record of the tables, and the log odds that it is of the same entity; ``is_equal``: in every cell."""

    key: Key
    entity: str
    log_odds: float
    is_equal: bool


class Resolver:
    """Compares new records with those of a folder of `pairmark.service.links.result_files`.

    Raises
    ------
    ModelNotCapable
        Where no model of columns was fitted: links of texts, or of a trained model.
    """

    def __init__(self, connection: Any, folder: Path) -> None:
        self._con, self._folder, fitted = connection, folder, read_fitted(folder)
        if fitted["model"] is None:
            raise ModelNotCapable(
                "these links were made by a trained model or by the words of texts, and resolve takes a model that was "
                "fitted on columns: put the record into the table, and link it again with previous"
            )
        register(connection)
        # Of columns that are all missing, as those of a few records may be, it makes expressions that fail.
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        self.columns: list[str] = fitted["columns"]
        self._fields = [LinkField(**field) for field in fitted["fields"]]
        self._model = Mixture.from_json(fitted["model"])
        self.cut, self._most = float(fitted["cut"]), int(fitted["most"])
        names = [field.name for field in self._fields]
        self._never = [names.index(name) for name in fitted["never"] if name in names]
        masks = [sum(1 << names.index(name) for name in rule) for rule in fitted["rules"]]
        self._by_rule = (
            " OR ".join(f"bit_or(1::UBIGINT << field) & {mask} = {mask}" for mask in masks) or "false"
        )

    def resolve(self, record: Cells) -> list[ResolvedEntity]:
        """Entities that a record may belong to, those that it does first; see `compare` for errors."""
        return self.judge(self.compare(self.texts(record)))

    def texts(self, record: Cells) -> list[str | None]:
        """A record's cells as the tables have them, in the order of `columns`.

        Raises
        ------
        InvalidInput
            Naming a column that is not there, or a date that may be two days.
        """
        strange = [name for name in record if name not in self.columns]
        if strange:
            raise InvalidInput(
                f"record: no column {strange[0][:100]!r} was linked; expected some of {', '.join(self.columns)}",
                field="record",
            )
        texts = [_text(record.get(name)) for name in self.columns]
        for field in self._fields:
            cell = record.get(field.name)
            if field.kind == "date" and cell is not None:
                days = self._con.execute(
                    "SELECT iso_date($1, 'day', 69), iso_date($1, 'month', 69)", [str(cell)]
                ).fetchone()
                if days[0] != days[1]:
                    raise InvalidInput(
                        f"record: {field.name!r} is {str(cell)[:40]!r}, which may be {' or '.join(days)}; write "
                        "dates as YYYY-MM-DD",
                        field="record",
                    )
        return texts

    def compare(self, texts: Sequence[str | None]) -> list[_Compared]:
        """The candidates of a record and all records of their entities, compared.

        Raises
        ------
        InvalidInput
            Where the record has no cell in the columns that are compared.
        """
        con, fields, files = self._con, self._fields, self._folder
        of_name = dict(zip(self.columns, texts, strict=True))
        forms = ", ".join(f"{field.normal(f'${at + 1}')} AS c{at}" for at, field in enumerate(fields))
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE asked AS SELECT {forms}", [of_name[field.name] for field in fields]
        )
        own = con.execute("FROM asked").fetchone()
        if not any(own):
            raise InvalidInput(
                f"record: no cell in the columns that are compared; expected some of "
                f"{', '.join(field.name for field in fields)}",
                field="record",
            )
        n = con.execute(f"SELECT count(*) FROM read_parquet({quoted(files / RECORDS)})").fetchone()[0]
        asked = self.key_numbers()
        keys, numbers = (", ".join(map(str, of)) for of in (asked, [key for _, key in asked]))
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE near AS WITH k(field, key) AS (VALUES {keys}), shared AS (SELECT key, row, "
            f"count(*) OVER (PARTITION BY key) AS n FROM read_parquet({quoted(files / KEYS)}) "
            f"WHERE key IN ({numbers})) "
            f"SELECT row FROM (SELECT row, field, max(ln({n} / n)) AS worth FROM shared JOIN k USING (key) "
            f"GROUP BY row, field) GROUP BY row HAVING {self._by_rule} ORDER BY sum(worth) DESC, row "
            f"LIMIT {_MOST_CANDIDATES}"
        )
        cells = ", ".join(
            f"{field.normal(f'r.c{self.columns.index(field.name)}')} AS c{at}"
            for at, field in enumerate(fields)
        )
        records = f"read_parquet({quoted(files / RECORDS)}, file_row_number=true)"
        entities = f"read_parquet({quoted(files / ENTITIES)})"
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE near_ids AS SELECT side, id FROM {records} "
            "WHERE file_row_number IN (FROM near)"
        )
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE compared AS WITH e AS (FROM {entities} WHERE entity IN (SELECT entity FROM "
            f"{entities} x JOIN near_ids ON x.side = near_ids.side AND x.record = near_ids.id)), "
            "held AS (SELECT side, record AS id, entity FROM e UNION ALL SELECT side, id, NULL FROM near_ids "
            "ANTI JOIN e ON e.side = near_ids.side AND e.record = near_ids.id) "
            f"SELECT file_row_number AS place, side, id, coalesce(entity, id) AS entity, {cells} FROM {records} r "
            "JOIN held USING (side, id)"
        )
        levels = ", ".join(
            "0" if own[at] is None else field.level(f"a.c{at}", f"b.c{at}") for at, field in enumerate(fields)
        )
        others = ", ".join(f"b.c{at}" for at in range(len(fields)))
        rows = con.execute(
            f"SELECT b.side, b.id, b.entity, [{levels}], [{others}] FROM asked a, compared b ORDER BY place"
        ).fetchall()
        if not rows:
            return []
        symbols = np.stack([self._model.symbols(np.array(row[3]), own, row[4]) for row in rows])
        return [
            _Compared(
                (row[0], row[1]),
                row[2],
                -np.inf
                if any(None not in (own[at], row[4][at]) and own[at] != row[4][at] for at in self._never)
                else float(log_odds),
                list(own) == row[4],
            )
            for row, log_odds in zip(rows, self._model.log_odds(symbols), strict=True)
        ]

    def key_numbers(self) -> list[tuple[int, int]]:
        """Of the record that was compared last: the number of a column and a key of its cell."""
        lists = ", ".join(stored_keys(at, field, f"c{at}") for at, field in enumerate(self._fields))
        found = self._con.execute(f"SELECT {lists} FROM asked").fetchone()
        return sorted({(at, key) for at, keys in enumerate(found) for key in keys if key is not None})

    def judge(self, compared: Sequence[_Compared]) -> list[ResolvedEntity]:
        """Entities by what all their records say together."""
        of: dict[str, list[_Compared]] = {}
        for each in compared:
            of.setdefault(each.entity, []).append(each)
        judged = []
        for name, members in of.items():
            best = max(each.log_odds for each in members)
            odds = np.array([each.log_odds for each in members])
            total = float(np.clip(odds, -_CLIP, _CLIP).sum()) if np.isfinite(odds).all() else -np.inf
            score = float(chances(np.array(best)))
            is_match = score > self.cut and total > 0 and len(members) < self._most
            records = [each.key[1] for each in members]
            judged.append((not is_match, -score, -total, name, records))
        return [
            ResolvedEntity(
                entity=name,
                score=round(-score, 6),
                decision="different" if is_none else "match",
                records=records,
            )
            for is_none, score, _, name, records in sorted(judged)[:_SHOWN]
            if -score >= _LEAST
        ]


def add(folder: Path, out: Path, record: Cells, name: str | None) -> tuple[list[ResolvedEntity], str]:
    """Put a record into a new folder: into the entity that it surely belongs to, or alone; returns what `Resolver` says
    of it, and its id. Of several tables, it is of the last.

    Raises
    ------
    Conflict
        Where another record has its id.
    """
    with making_anew(folder, out) as (connection, hand):
        resolver = Resolver(connection, folder)
        texts = resolver.texts(record)
        compared = resolver.compare(texts)
        found = resolver.judge(compared)
        connection.execute("CREATE TABLE kept AS FROM read_parquet(?)", [str(folder / RECORDS)])
        n, last = connection.execute("SELECT count(*) FROM kept").fetchone()[0], right_side(folder)
        ids = "SELECT id FROM kept WHERE id = ? OR starts_with(id, ?) UNION SELECT entity FROM named"
        taken = {row[0] for row in connection.execute(ids, [name, _ADDED]).fetchall()}
        if name in taken:
            raise Conflict(f"there is a record or an entity {name!r}; give another id", field="id")
        name = name or free_name([_ADDED], taken)
        own = (last, name)
        is_twin = any(each.is_equal and each.key[0] == last for each in compared)
        listed = ", ".join("?" * (3 + len(texts)))
        connection.execute(f"INSERT INTO kept VALUES ({listed})", [*own, not is_twin, *texts])
        copy_to(connection, "FROM kept", out / RECORDS)
        keys = ", ".join(f"({key}::UBIGINT, {n})" for _, key in resolver.key_numbers())
        copy_to(
            connection,
            f"SELECT key, row FROM read_parquet({quoted(folder / KEYS)}) UNION ALL VALUES {keys} ORDER BY key, row",
            out / KEYS,
        )
        for each in compared:
            score = float(chances(np.array(each.log_odds)))
            # Links of two tables are across them.
            if score > resolver.cut and (last != 1 or each.key[0] == 0):
                connection.execute(
                    "INSERT INTO found SELECT ?, ?, ?, ?, ?, coalesce(max(place), 0) + 1 FROM found",
                    [each.key[1], name, each.key[0], last, score],
                )
        if found and found[0].decision == "match":
            _join(connection, out, compared, found[0].entity, own)
        hand["added"].append(own)
    return found, name


def _join(connection: Any, out: Path, compared: Sequence[_Compared], entity: str, own: Key) -> None:
    """Put a record into an entity, and say so among the changes."""
    new = [own]
    if not members_of(connection, entity):
        new = [next(each.key for each in compared if each.entity == entity), own]
    insert_members(connection, entity, new)
    connection.execute("CREATE TABLE changed AS FROM read_parquet(?)", [str(out / CHANGES)])
    connection.execute("INSERT INTO changed VALUES (?, 'joined', ?, [])", [entity, [key[1] for key in new]])
    copy_to(connection, "FROM changed", out / CHANGES)


def _text(value: Any) -> str | None:
    """A cell as text; blank ones and null are missing."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return None if value is None else str(value)[:_LONGEST]
