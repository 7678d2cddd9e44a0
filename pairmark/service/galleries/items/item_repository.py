"""All SQL of a gallery's items. Nothing here commits.

Bulk rows go past the ORM: SQLite takes them by ``executemany``, PostgreSQL by COPY into a staging table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from pydantic_core import from_json
from sqlalchemy import and_, delete, func, insert, select
from sqlalchemy.orm import Session

from pairmark.service.galleries import repository
from pairmark.service.galleries.items.rows import ItemForm, Rows, StoredRows, spellings, subject_spellings
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.tables import GalleryItem, GalleryRemoval

log = logging.getLogger(__name__)

READ_ROWS = 16_384
"""Rows read from the database at a time."""
ROWS_A_STATEMENT = 128
"""Rows that one statement writes on SQLite."""
KEPT_REMOVALS = 1_000_000
"""Removals that a worker may be behind; one that is further behind reads the gallery anew."""

_COLUMNS = "gallery_id, id, subject, vector, metadata, seq"
_UPSERTING = (
    "ON CONFLICT (gallery_id, id) DO UPDATE SET subject = excluded.subject, vector = excluded.vector, "
    "metadata = excluded.metadata, seq = excluded.seq"
)


@dataclass(frozen=True, slots=True)
class Removal:
    """At ``seq`` the row written as ``removed`` was replaced, or erased."""

    seq: int
    removed: int
    is_erasure: bool


# ---------------------------------------------------------------- writing items


def upsert(session: Session, state: GalleryState, rows: Rows, now: float, new_fields: Sequence[str]) -> None:
    """Write rows under the next sequence numbers; the gallery must be locked."""
    first = state.seq + 1
    replaced = seqs_of(session, state.id, rows.ids)
    if replaced:
        session.execute(
            insert(GalleryRemoval),
            [
                # The replacing row's own number: an erasure of that one finds what it replaced.
                {"gallery_id": state.id, "seq": first + at, "removed": replaced[name], "erased": False}
                for at, name in enumerate(rows.ids)
                if name in replaced
            ],
        )
    bodies = rows.form.bodies(rows.vectors)
    values = [
        (state.id, name, subject, body, metadata, first + at)
        for at, (name, subject, body, metadata) in enumerate(
            zip(rows.ids, rows.subjects, bodies, rows.metadata, strict=True)
        )
    ]
    if session.get_bind().dialect.name == "postgresql":
        _copy(session, values)
    else:
        _insert(session, values)
    columns: dict[str, Any] = {
        "seq": state.seq + len(rows),
        "items": state.items + len(rows) - len(replaced),
        "updated_at": now,
    }
    if new_fields:
        columns["fields"] = [*state.fields, *new_fields]
    repository.change(session, state.id, **columns)


def _insert(session: Session, values: list[tuple[Any, ...]]) -> None:
    # Many rows in one statement: a third of the CPU less than one by one, and the driver holds up other threads once a
    # statement instead of once a row.
    connection = session.connection()
    for start in range(0, len(values), ROWS_A_STATEMENT):
        batch = values[start : start + ROWS_A_STATEMENT]
        marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(batch))
        connection.exec_driver_sql(
            f"INSERT INTO gallery_items ({_COLUMNS}) VALUES {marks} {_UPSERTING}",
            tuple(chain.from_iterable(batch)),
        )


def _copy(session: Session, values: list[tuple[Any, ...]]) -> None:
    connection = session.connection()
    if len(values) < 50:
        connection.exec_driver_sql(
            f"INSERT INTO gallery_items ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s) {_UPSERTING}", values
        )
        return
    connection.exec_driver_sql(
        "CREATE TEMPORARY TABLE IF NOT EXISTS gallery_staging (gallery_id bigint, id text, subject text, vector bytea, "
        "metadata text, seq bigint) ON COMMIT DELETE ROWS"
    )
    connection.exec_driver_sql("TRUNCATE gallery_staging")
    driver: Any = connection.connection.driver_connection
    with (
        driver.cursor() as cursor,
        cursor.copy(f"COPY gallery_staging ({_COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types(["int8", "text", "text", "bytea", "text", "int8"])
        for row in values:
            copy.write_row(row)
    connection.exec_driver_sql(
        f"INSERT INTO gallery_items ({_COLUMNS}) SELECT {_COLUMNS} FROM gallery_staging {_UPSERTING}"
    )


def seqs_of(session: Session, gallery_id: int, ids: Sequence[str]) -> dict[str, int]:
    connection = session.connection()
    if session.get_bind().dialect.name == "postgresql":
        rows = connection.exec_driver_sql(
            "SELECT id, seq FROM gallery_items WHERE gallery_id = %s AND id = ANY(%s)",
            (gallery_id, list(ids)),
        )
    else:
        rows = connection.exec_driver_sql(
            "SELECT id, seq FROM gallery_items WHERE gallery_id = ? AND id IN (SELECT value FROM json_each(?))",
            (gallery_id, json.dumps(list(ids))),
        )
    return {row[0]: row[1] for row in rows}


def erase(session: Session, state: GalleryState, ids: Sequence[str], now: float) -> None:
    """Delete items that are there, and count it; the gallery must be locked."""
    seqs = seqs_of(session, state.id, ids)
    if not seqs:
        return
    names = list(seqs)
    seq = state.seq + len(names)
    for start in range(0, len(names), 500):
        batch = names[start : start + 500]
        session.execute(
            delete(GalleryItem).where(GalleryItem.gallery_id == state.id, GalleryItem.id.in_(batch))
        )
    session.execute(
        insert(GalleryRemoval),
        [{"gallery_id": state.id, "seq": seq, "removed": seqs[name], "erased": True} for name in names],
    )
    repository.change(session, state.id, seq=seq, items=state.items - len(names), updated_at=now)


def prune_removals(session: Session, state: GalleryState) -> None:
    """Forget removals that only a worker far behind would ask for; the gallery must be locked."""
    oldest = state.seq - KEPT_REMOVALS
    if oldest <= state.floor + KEPT_REMOVALS // 10:
        return
    table = GalleryRemoval
    old = and_(table.gallery_id == state.id, table.seq <= oldest)
    # What is forgotten is nothing where nothing was removed: segments made before that are as good as ever.
    last = session.scalar(select(func.max(table.seq)).where(old))
    if last is not None:
        session.execute(delete(table).where(old))
        repository.change(session, state.id, floor=last)


# ---------------------------------------------------------------- reading items


def removals(session: Session, gallery_id: int, after: int) -> list[Removal]:
    table = GalleryRemoval
    rows = session.execute(
        select(table.seq, table.removed, table.erased)
        .where(table.gallery_id == gallery_id, table.seq > after)
        .order_by(table.seq)
    )
    return [Removal(*row) for row in rows]


def count_range(session: Session, gallery_id: int, low: int, high: int) -> int:
    item = GalleryItem
    return (
        session.scalar(
            select(func.count()).where(item.gallery_id == gallery_id, item.seq > low, item.seq <= high)
        )
        or 0
    )


def read_range(
    session: Session, state: GalleryState, form: ItemForm, low: int, high: int
) -> Iterator[StoredRows]:
    """Items with low < seq <= high in order of seq, some thousand at a time."""
    # The driver's own cursor, within the session's transaction: a row object for each of a million rows would cost more
    # than reading them, and so would PostgreSQL's vectors as text.
    driver: Any = session.connection().connection.driver_connection
    postgres = session.get_bind().dialect.name == "postgresql"
    cursor = driver.cursor(binary=True) if postgres else driver.cursor()
    mark = "%s" if postgres else "?"
    sql = (
        "SELECT id, subject, vector, metadata, seq FROM gallery_items "
        f"WHERE gallery_id = {mark} AND seq > {mark} AND seq <= {mark} ORDER BY seq LIMIT {READ_ROWS}"
    )
    with closing(cursor):
        while rows := cursor.execute(sql, (state.id, low, high)).fetchall():
            low = rows[-1][4]
            batch = _stored_rows(rows, state, form)
            if batch is not None:
                yield batch


def _stored_rows(rows: Sequence[Any], state: GalleryState, form: ItemForm) -> StoredRows | None:
    """The rows that are whole; None: none is. Items are searched without the others, and answered with their damage."""
    vectors, sound = form.rows([row[2] for row in rows])
    whole = list(rows) if sound.all() else [row for row, good in zip(rows, sound, strict=True) if good]
    texts = [row[3] for row in whole if row[3] is not None]
    if not are_objects(texts):
        readable = np.array([row[3] is None or are_objects([row[3]]) for row in whole], dtype=np.bool_)
        whole = [row for row, good in zip(whole, readable, strict=True) if good]
        vectors = vectors[readable]
    if len(whole) < len(rows):
        log.error(
            "gallery %s: %d damaged items are left out; enroll them again, or restore a backup",
            state.name,
            len(rows) - len(whole),
        )
    if not whole:
        return None
    ids, subjects, _, metadata, seqs = zip(*whole, strict=True)
    return StoredRows(
        seqs=np.array(seqs, dtype=np.int64),
        ids=list(ids),
        subjects=list(subjects),
        vectors=vectors,
        metadata=list(metadata),
    )


def are_objects(texts: Sequence[Any]) -> bool:
    try:
        parsed = from_json(f"[{','.join(texts)}]")
    except (TypeError, ValueError):
        return False
    return len(parsed) == len(texts) and all(type(value) is dict for value in parsed)


def find_item(session: Session, gallery_id: int, id: str) -> GalleryItem | None:
    """One item, also one whose stored id is another spelling."""
    rows = (session.get(GalleryItem, (gallery_id, spelling)) for spelling in spellings(id))
    return next((row for row in rows if row is not None), None)


def page_items(
    session: Session, gallery_id: int, *, limit: int, after: str | None, subject: str | None
) -> list[GalleryItem]:
    statement = select(GalleryItem).where(GalleryItem.gallery_id == gallery_id)
    if subject is not None:
        statement = statement.where(GalleryItem.subject.in_(subject_spellings(subject)))
    if after is not None:
        statement = statement.where(GalleryItem.id > after)
    return list(session.scalars(statement.order_by(GalleryItem.id).limit(limit)))


def subject_ids(session: Session, gallery_id: int, subject: str) -> list[str]:
    item = GalleryItem
    statement = select(item.id).where(
        item.gallery_id == gallery_id, item.subject.in_(subject_spellings(subject))
    )
    return list(session.scalars(statement.order_by(item.id)))


def subject_rows(
    session: Session, state: GalleryState, form: ItemForm, subject: str, limit: int
) -> StoredRows | None:
    """A subject's items by id, at most ``limit``; None when there are none."""
    item = GalleryItem
    statement = (
        select(item.id, item.subject, item.vector, item.facts, item.seq)
        .where(item.gallery_id == state.id, item.subject.in_(subject_spellings(subject)))
        .order_by(item.id)
        .limit(limit)
    )
    rows = session.execute(statement).all()
    return _stored_rows(rows, state, form) if rows else None


def stamps(session: Session, gallery_id: int, subjects: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Of those subjects that are enrolled: how many items, and the newest one's sequence number."""
    stamps_of: dict[str, tuple[int, int]] = {}
    item = GalleryItem
    for start in range(0, len(subjects), 500):
        batch = subjects[start : start + 500]
        statement = (
            select(item.subject, func.count(), func.max(item.seq))
            .where(item.gallery_id == gallery_id, item.subject.in_(batch))
            .group_by(item.subject)
        )
        stamps_of.update((subject or "", (n, newest)) for subject, n, newest in session.execute(statement))
    return stamps_of


def count_subjects(session: Session, gallery_id: int) -> int:
    item = GalleryItem
    return (
        session.scalar(select(func.count(item.subject.distinct())).where(item.gallery_id == gallery_id)) or 0
    )
