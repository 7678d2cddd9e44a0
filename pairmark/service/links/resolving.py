"""Which entities a new record belongs to, of links that were found; and records put in.

Candidates share a stored key with it: those that share most, and the rarest, are compared by the fitted model, together
with all records of their entities. A record that is put in is a row of the database, which every reader knows at once.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.linking.candidates import key_number
from pairmark.models.linking.mixture import Mixture, chances
from pairmark.models.records.compare import LinkField
from pairmark.models.records.compare.normal import fold_cell, iso_date
from pairmark.models.records.schema import TURN
from pairmark.schemas.links import ResolvedEntity
from pairmark.service.errors import Conflict, InvalidInput, ModelNotCapable, StorageFailed
from pairmark.service.links.results import (
    RECORD_LINES,
    Addition,
    Key,
    comparer,
    form_of,
    free_name,
    read_fitted,
    written_key,
)

_MOST_CANDIDATES = 64
_FREQUENT, _MOST_FREQUENT = 2_000, 50_000
"""Rows of a key from which on it makes no candidates alone, and none with others."""
_SHOWN, _LEAST = 10, 0.01
"""Entities that are told, and the least chance of one."""
_CLIP = 20.0
"""Log odds beyond which a pair says no more."""
_ADDED = "added"
_LONGEST = 2_048
"""Characters of a cell that are kept."""

Cells = Mapping[str, Any]


class IndexedRecord(NamedTuple):
    """A record, the name of its entity (None: it is alone), and its normal forms."""

    side: int
    id: str
    entity: str | None
    forms: list[str | None]

    @property
    def key(self) -> tuple[int, str]:
        return self.side, self.id


class RecordIndex:
    """Reads the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._keys, self._rows, self._ends = (
            _load(folder, name, kind)
            for name, kind in (("keys", np.uint64), ("keyed", np.int32), ("ends", np.int64))
        )
        path = folder / RECORD_LINES
        self._text = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        is_whole = self._start(len(self)) == self._text.size and self._keys.size == self._rows.size
        if not is_whole or self._rows.max(initial=-1) >= len(self):
            raise StorageFailed(f"{folder.name}: links are damaged; link again")

    def __len__(self) -> int:
        return int(self._ends.size)

    def rows(self, key: int) -> Int64:
        """Records that have a key, ascending."""
        first, last = (int(np.searchsorted(self._keys, np.uint64(key), side)) for side in ("left", "right"))
        return self._rows[first:last].astype(np.int64)

    def record(self, row: int) -> IndexedRecord:
        """A record, by its number."""
        return IndexedRecord(**json.loads(self._text[self._start(row) : self._start(row + 1)].tobytes()))

    def _start(self, row: int) -> int:
        return int(self._ends[row - 1]) if row else 0


def _load(folder: Path, name: str, kind: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    if array.dtype != kind or array.ndim != 1:
        raise StorageFailed(f"{name}.npy: links are damaged; link again")
    return array


class _Compared(NamedTuple):
    """A record of the tables, and the log odds that it is the same as the new one; ``is_equal``: in every cell."""

    row: int
    record: IndexedRecord
    log_odds: float
    is_equal: bool


class Resolver:
    """Compares new records with those of a folder, and with `Addition` s since.

    Attributes
    ----------
    columns : those that were linked. added : what it knows of since. lock : held by who uses it.

    Raises
    ------
    ModelNotCapable
        Where no model of columns was fitted: links of texts, or of a trained model.
    """

    def __init__(self, folder: Path) -> None:
        fitted = read_fitted(folder)
        if fitted["model"] is None:
            raise ModelNotCapable(
                "these links were made by a trained model or by the words of texts, and resolve takes a model that was "
                "fitted on columns: put the record into the table, and link it again with previous"
            )
        self.folder, self.lock, self.columns = folder, Lock(), list[str](fitted["columns"])
        self._index, self._model = RecordIndex(folder), Mixture.from_json(fitted["model"])
        self._fields = [LinkField(**field) for field in (*fitted["fields"], *fitted["beside"])]
        self._n_scored = len(fitted["fields"])
        self._cut, self._most, self._last = fitted["cut"], int(fitted["most"]), int(fitted["tables"]) - 1
        self._is_unique = self._last in fitted["unique"]
        names = [field.name for field in self._fields]
        self._never = [names.index(name) for name in fitted["never"]]
        self._must = [[names.index(name) for name in rule] for rule in fitted["must"]]
        self._rules = [[names.index(name) for name in rule] for rule in fitted["rules"]] + self._must
        self.added, self._records = list[Addition](), list[IndexedRecord]()
        self._rows_of, self._joined = defaultdict[int, list[int]](list), dict[int, str | None]()

    def take(self, added: Addition) -> None:
        """Know a record that was put in, or an edit."""
        self.added.append(added)
        for side, name, _, _, forms, keys, *_ in added.get("records", ()):
            self._note([*keys, key_number(f"id:{name}")], self._n_rows)
            self._records.append(IndexedRecord(side, name, None, forms))
        for entity, *key in added["entities"]:
            member = self._row_of(*key)
            if entity is not None:
                self._note([key_number(f"entity:{entity}")], member)
            self._joined[member] = entity

    def _note(self, keys: Sequence[int], row: int) -> None:
        for key in {*keys}:
            self._rows_of[key].append(row)

    @property
    def _n_rows(self) -> int:
        return len(self._index) + len(self._records)

    def resolve(self, record: Cells) -> list[ResolvedEntity]:
        """Entities that a record may belong to, those that it does first; see `compare` for errors."""
        return self._judge(self.compare(self._forms(self.texts(record))))

    def texts(self, record: Cells) -> list[str | None]:
        """A record's cells as the tables have them, in the order of `columns`.

        Raises
        ------
        InvalidInput
            Naming a column that is not there, or a date that may be two days.
        """
        if strange := [name for name in record if name not in self.columns]:
            raise InvalidInput(
                f"record: no column {strange[0][:100]!r} was linked; expected some of {', '.join(self.columns)}",
                field="record",
            )
        for field in self._fields:
            cell = record.get(field.name)
            plain = fold_cell(str(cell)) if field.kind == "date" and cell is not None else None
            days = plain and [iso_date(plain, is_month, TURN) or plain for is_month in (False, True)]
            if days and days[0] != days[1]:
                raise InvalidInput(
                    f"record: {field.name!r} is {str(cell)[:40]!r}, which may be {' or '.join(days)}; write dates as "
                    "YYYY-MM-DD",
                    field="record",
                )
        return [_text(record.get(name)) for name in self.columns]

    def put_in(self, record: Cells, name: str | None) -> tuple[list[ResolvedEntity], str, Addition | None]:
        """What is said of a record, the id that it has from then on, and what is to be stored; None where a record of
        its id and cells is there. Of several tables, it is of the last; `take` lets later records know it.

        Raises
        ------
        Conflict
            Where another record has its id.
        """
        texts = self.texts(record)
        forms = self._forms(texts)
        compared = self.compare(forms)
        entities = self._judge(compared, is_added=True)
        if name is not None and (there := [self._record(row) for row in self._named(name).tolist()]):
            if any(namesake.key == (self._last, name) and namesake.forms == forms for namesake in there):
                return self._judge(compared), name, None
            raise Conflict(f"there is another record {name!r}; give another id", field="id")
        bare = (name or "").partition(":")[2]
        if any(written_key(self._record(row).key) == name for row in self._named(bare).tolist()):
            raise Conflict(f"{name!r} names record {bare!r} of a table; give another id", field="id")
        if name is not None and self._entity_rows(name):
            raise Conflict(f"there is an entity {name!r}; give another id", field="id")
        numbered = (f"{_ADDED}~{number}" for number in count(self._n_rows + 1))
        name = name or next(
            each for each in numbered if not self._named(each).size and not self._entity_rows(each)
        )
        entity, members, inside = None, list[Key](), set[Key]()
        if entities and entities[0].decision == "match":
            joined = [
                candidate.record
                for candidate in compared
                if self._name_of(candidate.record) == entities[0].entity
            ]
            entity, members = joined[0].entity, [(self._last, name)]
            inside = {member.key for member in joined}
            if entity is None:
                first = joined[0].key
                entity = free_name([first[1]], {first[1]} if self._entity_rows(first[1]) else set())
                members = [first, *members]
        links = [
            (
                candidate.record.side,
                self._last,
                candidate.record.id,
                name,
                round(chance, 6),
                *(("match", entity) if candidate.record.key in inside else ("different", None)),
            )
            for candidate in compared
            if (chance := float(chances(np.array(candidate.log_odds)))) > self._cut
            # Two tables are linked across, and a unique one has no links within.
            and (candidate.record.side != self._last or not (self._last == 1 or self._is_unique))
        ]
        is_twin = any(candidate.is_equal and candidate.record.side == self._last for candidate in compared)
        keys = sorted({key for _, key in self._keys(forms)})
        change = [{"side": side, "record": record_id} for side, record_id in members]
        n = sum(link[5] == "match" for link in links)
        return (
            entities,
            name,
            {
                "records": [(self._last, name, not is_twin, True, forms, keys, *texts)],
                "links": links,
                "entities": [(entity, *key) for key in members],
                "changes": [(entity, "joined", change, [])] if members else [],
                "counts": {
                    "records": 1,
                    "links": n,
                    "conflicts": len(links) - n,
                    "entities": len(members) // 2,
                    "by_hand": n,
                },
            },
        )

    def compare(self, forms: Sequence[str | None]) -> list[_Compared]:
        """The candidates of a record's normal forms and all records of their entities, compared.

        Raises
        ------
        InvalidInput
            Where the record has no cell in the columns that are compared.
        """
        if not any(forms):
            raise InvalidInput(
                f"record: no cell in the columns that are compared; expected some of "
                f"{', '.join(field.name for field in self._fields)}",
                field="record",
            )
        rows = set[int]()
        for row in self._candidates(forms):
            entity = self._record(row).entity
            rows |= {row} if entity is None else {*self._entity_rows(entity)}
        if not rows:
            return []
        records, n = {row: self._record(row) for row in sorted(rows)}, self._n_scored
        levels = [
            comparer().levels(field.kind, form, [record.forms[at] for record in records.values()])
            for at, (field, form) in enumerate(zip(self._fields[:n], forms[:n], strict=True))
        ]
        symbols = np.stack(
            [
                self._model.symbols(np.array(level), forms[:n], record.forms[:n])
                for level, record in zip(zip(*levels, strict=True), records.values(), strict=True)
            ]
        )
        return [
            _Compared(row, record, self._said(forms, record.forms, float(odds)), record.forms == forms)
            for (row, record), odds in zip(records.items(), self._model.log_odds(symbols), strict=True)
        ]

    def _said(self, forms: Sequence[str | None], other: Sequence[str | None], odds: float) -> float:
        """Log odds, or what `never` and `must` say in their place."""
        pairs = list(zip(forms, other, strict=True))
        if any(None not in pairs[at] and pairs[at][0] != pairs[at][1] for at in self._never):
            return -np.inf
        is_one = any(all(pairs[at][0] == pairs[at][1] is not None for at in rule) for rule in self._must)
        return np.inf if is_one else odds

    def _forms(self, texts: Sequence[str | None]) -> list[str | None]:
        of_name = dict(zip(self.columns, texts, strict=True))
        return [form_of(field.kind, of_name[field.name]) for field in self._fields]

    def _keys(self, forms: Sequence[str | None]) -> list[tuple[int, int]]:
        """The number of a column and a key of its cell."""
        values = comparer().keys(self._fields, forms)
        return [(at, key_number(f"{at}:{value}")) for at, each in enumerate(values) for value in each]

    def _candidates(self, forms: Sequence[str | None]) -> list[int]:
        """Records that agree in all columns of a rule: those that share most, and the rarest, first."""
        shared = [(place, self._rows(key)) for place, key in {*self._keys(forms)}]
        seeds = [rows for _, rows in shared if rows.size <= _FREQUENT]
        n_rows = np.zeros(len(self._fields), dtype=np.int64)
        for place, rows in shared:
            n_rows[place] = max(n_rows[place], rows.size)
        for rule in self._rules:
            # Values that many have make candidates together only.
            if len(rule) > 1 and n_rows[rule].min() > _FREQUENT and n_rows[rule].min() <= _MOST_FREQUENT:
                rows_of = (
                    np.unique(np.concatenate([rows for key_place, rows in shared if key_place == place]))
                    for place in rule
                )
                both = reduce(lambda some, other: some[_is_in(some, other)], sorted(rows_of, key=len))
                seeds += [both] if both.size <= _FREQUENT else []
        if not seeds:
            return []
        seeded = np.unique(np.concatenate(seeds))
        has = np.zeros((len(self._fields), seeded.size), dtype=np.bool_)
        worth = np.zeros(has.shape)
        for place, rows in sorted(shared, key=lambda each: (each[0], each[1].size)):
            is_there = _is_in(seeded, rows)
            has[place] |= is_there
            log_rarity = np.log(self._n_rows / max(rows.size, 1))
            worth[place] = np.maximum(worth[place], is_there * log_rarity)
        fits = np.zeros(seeded.size, dtype=np.bool_)
        for rule in self._rules:
            fits |= has[rule].all(axis=0)
        order = np.lexsort((seeded, -worth.sum(axis=0)))
        surest: list[int] = seeded[order[fits[order]][:_MOST_CANDIDATES]].tolist()
        return surest

    def _judge(self, compared: Sequence[_Compared], *, is_added: bool = False) -> list[ResolvedEntity]:
        """Entities by what all their records say together; of one that ``is_added``, none with another of its table
        where that has no duplicates."""
        members_of: dict[str | int, list[_Compared]] = {}
        for candidate in compared:
            members_of.setdefault(candidate.record.entity or candidate.row, []).append(candidate)
        judged = []
        for members in members_of.values():
            odds = np.array([member.log_odds for member in members])
            score = float(chances(odds.max()))
            if score < _LEAST:
                continue
            total = float(np.clip(odds, -_CLIP, _CLIP).sum())
            if np.isinf(odds).any():
                # Never is said before must.
                total = odds.min() if np.isneginf(odds).any() else np.inf
            is_second = (
                is_added and self._is_unique and any(member.record.side == self._last for member in members)
            )
            is_match = score > self._cut and total > 0 and len(members) < self._most and not is_second
            judged.append((not is_match, -score, -total, members[0].row, members))
        return [
            ResolvedEntity(
                entity=self._name_of(members[0].record),
                score=round(-score, 6),
                decision="different" if is_none else "match",
                records=[member.record.id for member in members],
            )
            for is_none, score, _, _, members in sorted(judged)[:_SHOWN]
        ]

    def _name_of(self, record: IndexedRecord) -> str:
        """What names an entity, or a record that is alone: of several tables' equal ids, with the table's number."""
        if record.entity is not None:
            return record.entity
        is_one = self._named(record.id).size == 1 and not self._entity_rows(record.id)
        return record.id if is_one else written_key(record.key)

    def _named(self, name: str) -> Int64:
        """Records that have an id."""
        return self._rows(key_number(f"id:{name}"))

    def _rows(self, key: int) -> Int64:
        return np.append(self._index.rows(key), np.array(self._rows_of.get(key, []), dtype=np.int64))

    def _record(self, row: int) -> IndexedRecord:
        n = len(self._index)
        record = self._index.record(row) if row < n else self._records[row - n]
        return record._replace(entity=self._joined.get(row, record.entity))

    def _row_of(self, side: int, name: str) -> int:
        return int(next(row for row in self._named(name).tolist() if self._record(row).key == (side, name)))

    def _entity_rows(self, name: str) -> list[int]:
        """The records of an entity; none where there is no such."""
        rows: list[int] = np.unique(self._rows(key_number(f"entity:{name}"))).tolist()
        return [row for row in rows if self._record(row).entity == name]


def _is_in(some: Int64, ascending: Int64) -> Bool:
    """Whether each is among others, which are ascending: `np.isin` reads all of these: of a city, very many."""
    if not ascending.size:
        return np.zeros(some.size, dtype=np.bool_)
    place = np.minimum(np.searchsorted(ascending, some), ascending.size - 1)
    return np.asarray(ascending[place] == some)


def _text(value: Any) -> str | None:
    """A cell as text; blank ones and null are missing."""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return None if value is None else str(value)[:_LONGEST]
