"""All SQL of galleries. Nothing here commits.

Bulk rows go past the ORM: SQLite takes them by ``executemany``, PostgreSQL by COPY into a staging table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from sqlalchemy import and_, delete, func, insert, select, update
from sqlalchemy.orm import Session, aliased

from pairmark.service.galleries.rows import Rows, StoredRows
from pairmark.service.tables import (
    GalleryCalibrationRow,
    GalleryEvaluationRow,
    GalleryItem,
    GalleryProbe,
    GalleryRemoval,
    GalleryRow,
    Model,
    ModelVersion,
)

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
_NEXT = aliased(Model)
_NEXT_VERSION = aliased(ModelVersion)
_STATE = (
    select(
        GalleryRow.id,
        GalleryRow.key,
        GalleryRow.name,
        GalleryRow.model_id,
        Model.name.label("model"),
        GalleryRow.version,
        ModelVersion.kind,
        GalleryRow.next_model_id,
        _NEXT.name.label("next_model"),
        GalleryRow.next_version,
        _NEXT_VERSION.kind.label("next_kind"),
        GalleryRow.dimension,
        GalleryRow.items,
        GalleryRow.seq,
        GalleryRow.floor,
        GalleryRow.fields,
        GalleryRow.created_at,
        GalleryRow.updated_at,
    )
    .join(Model, Model.id == GalleryRow.model_id)
    .join(
        ModelVersion,
        and_(ModelVersion.model_id == GalleryRow.model_id, ModelVersion.version == GalleryRow.version),
    )
    .outerjoin(_NEXT, _NEXT.id == GalleryRow.next_model_id)
    .outerjoin(
        _NEXT_VERSION,
        and_(
            _NEXT_VERSION.model_id == GalleryRow.next_model_id,
            _NEXT_VERSION.version == GalleryRow.next_version,
        ),
    )
)


@dataclass(frozen=True, slots=True)
class State:
    """A gallery's row."""

    id: int
    key: str
    name: str
    model_id: str
    model: str
    version: int
    kind: str
    next_model_id: str | None
    next_model: str | None
    next_version: int | None
    next_kind: str | None
    dimension: int
    items: int
    seq: int
    floor: int
    fields: list[str]
    created_at: float
    updated_at: float

    @property
    def versions(self) -> set[tuple[str, int]]:
        """The version that serves the gallery, and the one it moves to."""
        found = {(self.model_id, self.version)}
        if self.next_model_id is not None and self.next_version is not None:
            found.add((self.next_model_id, self.next_version))
        return found


@dataclass(frozen=True, slots=True)
class Removal:
    """At ``seq`` the row written as ``removed`` was replaced, or erased."""

    seq: int
    removed: int
    erased: bool


# ---------------------------------------------------------------- galleries


def state_of(session: Session, name: str) -> State | None:
    """The gallery of that name."""
    row = session.execute(_STATE.where(GalleryRow.name == name)).first()
    return None if row is None else State(**row._mapping)


def state_by_id(session: Session, gallery_id: int) -> State | None:
    """The gallery of that number."""
    row = session.execute(_STATE.where(GalleryRow.id == gallery_id)).first()
    return None if row is None else State(**row._mapping)


def page(
    session: Session, *, limit: int, after: str | None, names: frozenset[str] | None = None
) -> list[State]:
    """Galleries by name."""
    statement = _STATE.order_by(GalleryRow.name).limit(limit)
    if after is not None:
        statement = statement.where(GalleryRow.name > after)
    if names is not None:
        statement = statement.where(GalleryRow.name.in_(names))
    return [State(**row._mapping) for row in session.execute(statement)]


def moving(session: Session) -> list[State]:
    """Galleries on their way to another version."""
    return [
        State(**row._mapping)
        for row in session.execute(_STATE.where(GalleryRow.next_version.is_not(None)).limit(1000))
    ]


def lock(session: Session, name: str) -> int | None:
    """Hold the gallery until the transaction ends: its writers go one at a time. Returns its number."""
    return session.scalar(select(GalleryRow.id).where(GalleryRow.name == name).with_for_update())


def add_gallery(
    session: Session, *, key: str, name: str, model_id: str, version: int, dimension: int, now: float
) -> None:
    """Insert an empty gallery."""
    session.execute(
        insert(GalleryRow).values(
            key=key,
            name=name,
            model_id=model_id,
            version=version,
            dimension=dimension,
            items=0,
            seq=0,
            floor=0,
            fields=[],
            created_at=now,
            updated_at=now,
        )
    )


def change(session: Session, gallery_id: int, **values: Any) -> None:
    """Set columns of the gallery's row."""
    session.execute(update(GalleryRow).where(GalleryRow.id == gallery_id).values(**values))


def remove_gallery(session: Session, gallery_id: int) -> None:
    """Delete the gallery's row, calibrations, probes and evaluations; its items go by `remove_orphans`."""
    for table in (GalleryProbe, GalleryCalibrationRow, GalleryEvaluationRow):
        session.execute(delete(table).where(table.gallery_id == gallery_id))
    session.execute(delete(GalleryRow).where(GalleryRow.id == gallery_id))


def orphans(session: Session) -> list[int]:
    """Numbers of galleries that are gone while some of their rows are not."""
    found: set[int] = set()
    for table in (GalleryItem, GalleryRemoval):
        # One step of the index for each gallery, however many rows it has.
        last = -1
        while True:
            after = session.scalar(select(func.min(table.gallery_id)).where(table.gallery_id > last))
            if after is None:
                break
            last = after
            if session.scalar(select(GalleryRow.id).where(GalleryRow.id == after)) is None:
                found.add(after)
    return sorted(found)


def remove_orphans(session: Session, gallery_id: int, limit: int) -> int:
    """Delete at most ``limit`` rows of a gallery that is gone; returns how many went."""
    ids = select(GalleryItem.id).where(GalleryItem.gallery_id == gallery_id).limit(limit)
    gone = session.execute(
        delete(GalleryItem).where(GalleryItem.gallery_id == gallery_id, GalleryItem.id.in_(ids))
    )
    if not gone.rowcount:  # type: ignore[attr-defined]
        session.execute(delete(GalleryRemoval).where(GalleryRemoval.gallery_id == gallery_id))
    return int(gone.rowcount)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- writing items


def upsert(session: Session, state: State, rows: Rows, now: float, new_fields: Sequence[str]) -> int:
    """Write rows under the next sequence numbers; the gallery must be locked.

    Returns
    -------
    How many of them are new; the others replaced an item of their id.
    """
    first = state.seq + 1
    replaced = seqs_of(session, state.id, rows.ids)
    if replaced:
        session.execute(
            insert(GalleryRemoval),
            [
                # The replacing row's own number: whoever erases that one finds what it replaced.
                {"gallery_id": state.id, "seq": first + at, "removed": replaced[name], "erased": False}
                for at, name in enumerate(rows.ids)
                if name in replaced
            ],
        )
    width = rows.vectors.shape[1] * 4
    body = rows.vectors.astype("<f4", copy=False).tobytes()
    values = [
        (state.id, name, subject, body[at * width : (at + 1) * width], metadata, first + at)
        for at, (name, subject, metadata) in enumerate(
            zip(rows.ids, rows.subjects, rows.metadata, strict=True)
        )
    ]
    if session.get_bind().dialect.name == "postgresql":
        _copy(session, values)
    else:
        _insert(session, values)
    n_new = len(rows) - len(replaced)
    changed: dict[str, Any] = {
        "seq": state.seq + len(rows),
        "items": state.items + n_new,
        "updated_at": now,
    }
    if new_fields:
        changed["fields"] = [*state.fields, *new_fields]
    change(session, state.id, **changed)
    return n_new


def _insert(session: Session, values: list[tuple[Any, ...]]) -> None:
    # Many rows in one statement: a third of the CPU less than one by one, and the driver holds up other threads once a
    # statement instead of once a row.
    connection = session.connection()
    for start in range(0, len(values), ROWS_A_STATEMENT):
        some = values[start : start + ROWS_A_STATEMENT]
        marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(some))
        connection.exec_driver_sql(
            f"INSERT INTO gallery_items ({_COLUMNS}) VALUES {marks} {_UPSERTING}",
            tuple(chain.from_iterable(some)),
        )


def _copy(session: Session, values: list[tuple[Any, ...]]) -> None:
    connection = session.connection()
    if len(values) < 50:
        connection.exec_driver_sql(
            f"INSERT INTO gallery_items ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s) {_UPSERTING}",
            values,
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
    """Sequence numbers of those ids that are there."""
    connection = session.connection()
    if session.get_bind().dialect.name == "postgresql":
        found = connection.exec_driver_sql(
            "SELECT id, seq FROM gallery_items WHERE gallery_id = %s AND id = ANY(%s)",
            (gallery_id, list(ids)),
        )
    else:
        found = connection.exec_driver_sql(
            "SELECT id, seq FROM gallery_items WHERE gallery_id = ? AND id IN (SELECT value FROM json_each(?))",
            (gallery_id, json.dumps(list(ids))),
        )
    return {row[0]: row[1] for row in found}


def erase(session: Session, state: State, ids: Sequence[str], now: float) -> None:
    """Delete items that are there, and count it; the gallery must be locked."""
    seqs = seqs_of(session, state.id, ids)
    if not seqs:
        return
    names = list(seqs)
    seq = state.seq + len(names)
    for start in range(0, len(names), 500):
        some = names[start : start + 500]
        session.execute(
            delete(GalleryItem).where(GalleryItem.gallery_id == state.id, GalleryItem.id.in_(some))
        )
    session.execute(
        insert(GalleryRemoval),
        [{"gallery_id": state.id, "seq": seq, "removed": seqs[name], "erased": True} for name in names],
    )
    change(session, state.id, seq=seq, items=state.items - len(names), updated_at=now)


def prune_removals(session: Session, state: State) -> None:
    """Forget removals that only a worker far behind would ask for; the gallery must be locked."""
    oldest = state.seq - KEPT_REMOVALS
    if oldest <= state.floor + KEPT_REMOVALS // 10:
        return
    table = GalleryRemoval
    old = and_(table.gallery_id == state.id, table.seq <= oldest)
    # What is forgotten is nothing where nothing was removed: blocks made before that are as good as ever.
    last = session.scalar(select(func.max(table.seq)).where(old))
    if last is not None:
        session.execute(delete(table).where(old))
        change(session, state.id, floor=last)


# ---------------------------------------------------------------- reading items


def one_snapshot(session: Session) -> None:
    """Let everything that the session reads be of one moment; to be called before it reads."""
    if session.get_bind().dialect.name == "postgresql":
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})


def removals(session: Session, gallery_id: int, after: int) -> list[Removal]:
    """What was removed after a sequence number, in order."""
    table = GalleryRemoval
    found = session.execute(
        select(table.seq, table.removed, table.erased)
        .where(table.gallery_id == gallery_id, table.seq > after)
        .order_by(table.seq)
    )
    return [Removal(*row) for row in found]


def count_range(session: Session, gallery_id: int, low: int, high: int) -> int:
    """Items with low < seq <= high."""
    item = GalleryItem
    return (
        session.scalar(
            select(func.count()).where(item.gallery_id == gallery_id, item.seq > low, item.seq <= high)
        )
        or 0
    )


def read_range(session: Session, state: State, low: int, high: int) -> Iterator[StoredRows]:
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
            yield _stored(rows, state.dimension)
            low = rows[-1][4]


def _stored(rows: Sequence[Any], dimension: int) -> StoredRows:
    ids, subjects, vectors, metadata, seqs = zip(*rows, strict=True)
    return StoredRows(
        seqs=np.array(seqs, dtype=np.int64),
        ids=list(ids),
        subjects=list(subjects),
        vectors=np.frombuffer(b"".join(vectors), dtype="<f4")
        .astype(np.float32, copy=False)
        .reshape(-1, dimension),
        metadata=list(metadata),
    )


def find_item(session: Session, gallery_id: int, id: str) -> GalleryItem | None:
    """One item."""
    return session.get(GalleryItem, (gallery_id, id))


def page_items(
    session: Session, gallery_id: int, *, limit: int, after: str | None, subject: str | None
) -> list[GalleryItem]:
    """Items by id."""
    statement = select(GalleryItem).where(GalleryItem.gallery_id == gallery_id)
    if subject is not None:
        statement = statement.where(GalleryItem.subject == subject)
    if after is not None:
        statement = statement.where(GalleryItem.id > after)
    return list(session.scalars(statement.order_by(GalleryItem.id).limit(limit)))


def subject_ids(session: Session, gallery_id: int, subject: str) -> list[str]:
    """Ids of a subject's items, sorted."""
    item = GalleryItem
    statement = select(item.id).where(item.gallery_id == gallery_id, item.subject == subject)
    return list(session.scalars(statement.order_by(item.id)))


def subject_rows(session: Session, state: State, subject: str, limit: int) -> StoredRows | None:
    """A subject's items by id, at most ``limit``; None when there are none."""
    item = GalleryItem
    statement = (
        select(item.id, item.subject, item.vector, item.facts, item.seq)
        .where(item.gallery_id == state.id, item.subject == subject)
        .order_by(item.id)
        .limit(limit)
    )
    rows = session.execute(statement).all()
    return _stored(rows, state.dimension) if rows else None


def stamps(session: Session, gallery_id: int, subjects: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Of those subjects that are enrolled: how many items, and the newest one's sequence number."""
    found: dict[str, tuple[int, int]] = {}
    item = GalleryItem
    for start in range(0, len(subjects), 500):
        some = subjects[start : start + 500]
        statement = (
            select(item.subject, func.count(), func.max(item.seq))
            .where(item.gallery_id == gallery_id, item.subject.in_(some))
            .group_by(item.subject)
        )
        found.update((subject or "", (n, newest)) for subject, n, newest in session.execute(statement))
    return found


def count_subjects(session: Session, gallery_id: int) -> int:
    """Different subjects."""
    item = GalleryItem
    return (
        session.scalar(select(func.count(item.subject.distinct())).where(item.gallery_id == gallery_id)) or 0
    )


# ---------------------------------------------------------------- what was measured


def add_calibration(session: Session, row: GalleryCalibrationRow) -> None:
    """Insert a calibration."""
    session.add(row)
    session.flush()


def newest_calibration(
    session: Session, state: State, aggregation: str | None = None
) -> GalleryCalibrationRow | None:
    """The newest calibration of the gallery with the version that serves it: of searches for single items, or for
    subjects by an aggregation."""
    table = GalleryCalibrationRow
    return session.scalar(
        select(table)
        .where(table.gallery_id == state.id, table.model_id == state.model_id, table.version == state.version)
        .where(table.aggregation.is_(None) if aggregation is None else table.aggregation == aggregation)
        .order_by(table.created_at.desc(), table.id)
        .limit(1)
    )


def find_calibration(session: Session, gallery_id: int, id: str) -> GalleryCalibrationRow | None:
    """A calibration of this gallery."""
    row = session.get(GalleryCalibrationRow, id)
    return row if row is not None and row.gallery_id == gallery_id else None


def add_evaluation(session: Session, row: GalleryEvaluationRow) -> None:
    """Insert an evaluation."""
    session.add(row)
    session.flush()


def newest_evaluation(session: Session, gallery_id: int) -> str | None:
    """The id of the newest evaluation of the gallery."""
    table = GalleryEvaluationRow
    return session.scalar(
        select(table.id)
        .where(table.gallery_id == gallery_id)
        .order_by(table.created_at.desc(), table.id)
        .limit(1)
    )


def find_evaluation(session: Session, gallery_id: int, id: str) -> GalleryEvaluationRow | None:
    """An evaluation of this gallery."""
    row = session.get(GalleryEvaluationRow, id)
    return row if row is not None and row.gallery_id == gallery_id else None


def calibration_ages(session: Session) -> list[tuple[str, int, int]]:
    """Of each gallery whose calibration keeps no probes: its name, its items then, and how many rows changed since."""
    table = GalleryCalibrationRow
    newest = (
        select(table.gallery_id, func.max(table.created_at).label("at")).group_by(table.gallery_id).subquery()
    )
    statement = (
        select(GalleryRow.name, GalleryRow.seq, table.seq, table.summary)
        .join(table, table.gallery_id == GalleryRow.id)
        .join(newest, (newest.c.gallery_id == table.gallery_id) & (newest.c.at == table.created_at))
        .where(table.kept.is_(None))
        .order_by(GalleryRow.name)
    )
    return [
        (name, int(summary["gallery_size"]), seq - calibrated)
        for name, seq, calibrated, summary in session.execute(statement)
    ]


def sizes(session: Session, limit: int) -> tuple[dict[str, int], int]:
    """Items of the largest galleries by name, and of all together."""
    statement = select(GalleryRow.name, GalleryRow.items).order_by(GalleryRow.items.desc(), GalleryRow.name)
    largest = {row[0]: row[1] for row in session.execute(statement.limit(limit))}
    return largest, session.scalar(select(func.sum(GalleryRow.items))) or 0
