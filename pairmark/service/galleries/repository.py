"""All SQL of galleries, their items and calibrations. Nothing here commits.

Bulk rows go past the ORM: SQLite takes many in a statement, PostgreSQL columns as arrays.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Text,
    and_,
    any_,
    column,
    delete,
    false,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.orm import InstrumentedAttribute, Session, load_only

from pairmark.models.core.arrays import Float32
from pairmark.service.db import execute_change, name_filter, read_rows
from pairmark.service.errors import DamagedRow
from pairmark.service.galleries.rows import ItemForm, Rows, StoredRows, spellings, subject_spellings
from pairmark.service.names import VisibleNames
from pairmark.service.tables import (
    GalleryCalibrationRow,
    GalleryItem,
    GalleryProbe,
    GalleryRemoval,
    GalleryRow,
)

log = logging.getLogger(__name__)
Row = TypeVar("Row", bound=GalleryRow | None)


# ---------------------------------------------------------------- galleries


def gallery_named(session: Session, name: str, *, lock: bool = False) -> GalleryRow | None:
    """The gallery of that name; ``lock``: held until the transaction ends, so that its writers go one at a time."""
    if lock:
        # By itself: the version that serves it is to be read after the wait.
        session.execute(select(GalleryRow.id).where(GalleryRow.name == name).with_for_update())
    return _checked_row(session.scalar(select(GalleryRow).where(GalleryRow.name == name)))


def gallery(session: Session, gallery_id: int) -> GalleryRow | None:
    return _checked_row(session.get(GalleryRow, gallery_id))


def _checked_row(row: Row) -> Row:
    if row is not None and row.kind is None:
        raise DamagedRow(
            f"gallery {row.name!r} is served by version {row.version} of a model, which is not there; restore a backup",
            table="galleries",
            row=row.name,
        )
    return row


def page(
    session: Session, limit: int, cursor: str | None, names: VisibleNames
) -> tuple[list[GalleryRow], str | None]:
    """Galleries of these names, by name."""
    query = select(GalleryRow).where(name_filter(names, GalleryRow.name))
    rows, following = read_rows(session, query, (GalleryRow.name,), limit, cursor)
    return [_checked_row(row) for row in rows], following


def every_gallery(session: Session) -> list[GalleryRow]:
    return [_checked_row(row) for row in session.scalars(select(GalleryRow))]


def locked_row(session: Session, name: str) -> GalleryRow | None:
    """The gallery's row, damaged or not, held until the transaction ends; the rest of it is read when asked for."""
    columns = (GalleryRow.id, GalleryRow.key, GalleryRow.items)
    statement = select(GalleryRow).options(load_only(*columns)).where(GalleryRow.name == name)
    return session.scalar(statement.with_for_update())


def remove_gallery(session: Session, gallery_id: int) -> None:
    """Delete the gallery's row, calibrations and probes; its items go by `remove_orphans`."""
    for table in (GalleryProbe, GalleryCalibrationRow):
        session.execute(delete(table).where(table.gallery_id == gallery_id))
    session.execute(delete(GalleryRow).where(GalleryRow.id == gallery_id))


def orphans(session: Session) -> list[int]:
    """Numbers of galleries that are gone while some of their rows are not."""
    there = select(GalleryRow.id)
    return sorted(
        {
            number
            for table in (GalleryItem, GalleryRemoval)
            for number in session.scalars(
                select(table.gallery_id).distinct().where(table.gallery_id.not_in(there))
            )
        }
    )


def remove_orphans(session: Session, gallery_id: int, limit: int) -> int:
    """Delete at most ``limit`` rows of a gallery that is gone; returns how many went."""
    ids = select(GalleryItem.id).where(GalleryItem.gallery_id == gallery_id).limit(limit)
    n_removed = execute_change(
        session, delete(GalleryItem).where(GalleryItem.gallery_id == gallery_id, GalleryItem.id.in_(ids))
    )
    if not n_removed:
        session.execute(delete(GalleryRemoval).where(GalleryRemoval.gallery_id == gallery_id))
    return n_removed


def sizes(session: Session, limit: int) -> tuple[dict[str, int], int]:
    """Items of the largest galleries by name, and of all together."""
    statement = select(GalleryRow.name, GalleryRow.items).order_by(GalleryRow.items.desc(), GalleryRow.name)
    largest = {row[0]: row[1] for row in session.execute(statement.limit(limit))}
    return largest, session.scalar(select(func.sum(GalleryRow.items))) or 0


READ_ROWS = 16_384
"""Rows read from the database at a time."""
ROWS_A_STATEMENT = 128
"""Rows that one statement writes on SQLite."""
LISTED_REMOVALS = 1_000_000
"""Removals that a worker may be behind; one that is further behind reads the gallery anew."""

_COLUMNS = "gallery_id, id, subject, vector, metadata, seq"
_UPSERTING = (
    "ON CONFLICT (gallery_id, id) DO UPDATE SET subject = excluded.subject, vector = excluded.vector, "
    "metadata = excluded.metadata, seq = excluded.seq"
)


# ---------------------------------------------------------------- writing items


def upsert(session: Session, state: GalleryRow, rows: Rows, now: float, new_fields: Sequence[str]) -> None:
    """Write rows under the next sequence numbers; the gallery must be locked."""
    item, removal, names = GalleryItem, GalleryRemoval, _texts(session, rows.ids)
    seq_of = select(item.seq).where(item.gallery_id == state.id, item.id == names.c.value).scalar_subquery()
    # The replacing row's own number: an erasure of that one finds what it replaced.
    replaced = select(literal(state.id), state.seq + names.c.place, seq_of, false()).where(
        seq_of.is_not(None)
    )
    columns = (removal.gallery_id, removal.seq, removal.removed, removal.erased)
    n_replaced = execute_change(session, insert(removal).from_select(columns, replaced))
    bodies = rows.form.bodies(rows.vectors)
    values = [
        (state.id, name, subject, body, metadata, seq)
        for seq, (name, subject, body, metadata) in enumerate(
            zip(rows.ids, rows.subjects, bodies, rows.metadata, strict=True), state.seq + 1
        )
    ]
    _insert(session, values)
    state.seq += len(rows)
    state.items += len(rows) - n_replaced
    state.updated_at = now
    if new_fields:
        state.fields = [*state.fields, *new_fields]


def _insert(session: Session, values: list[tuple[Any, ...]]) -> None:
    connection = session.connection()
    if session.get_bind().dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"INSERT INTO gallery_items ({_COLUMNS}) SELECT * FROM unnest(%b::bigint[], %b::text[], %b::text[], "
            f"%b::bytea[], %b::text[], %b::bigint[]) {_UPSERTING}",
            tuple(map(list, zip(*values, strict=True))),
        )
        return
    # Many rows in one statement: a third of the CPU less than one by one, and the driver holds up other threads once a
    # statement instead of once a row.
    for start in range(0, len(values), ROWS_A_STATEMENT):
        batch = values[start : start + ROWS_A_STATEMENT]
        marks = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(batch))
        connection.exec_driver_sql(
            f"INSERT INTO gallery_items ({_COLUMNS}) VALUES {marks} {_UPSERTING}",
            tuple(chain.from_iterable(batch)),
        )


def _texts(session: Session, values: Sequence[str]) -> Any:
    """Some texts as a table of ``place``, from 1, and ``value``, however many these are: they are one parameter."""
    if session.get_bind().dialect.name == "postgresql":
        array = func.unnest(literal(list(values), ARRAY(Text)))
        return array.table_valued(column("value", Text), with_ordinality="place").render_derived()
    texts = func.json_each(json.dumps(list(values))).table_valued("key", "value")
    return select((texts.c.key + 1).label("place"), texts.c.value).subquery()


def _any_of(
    session: Session, column: InstrumentedAttribute[Any], values: Sequence[str]
) -> ColumnElement[bool]:
    """Whether a column holds one of some texts."""
    if session.get_bind().dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(Text)))
    return column.in_(select(_texts(session, values).c.value))


def seqs_of(session: Session, gallery_id: int, ids: Sequence[str]) -> dict[str, int]:
    item = GalleryItem
    named = item.gallery_id == gallery_id, _any_of(session, item.id, ids)
    return {row[0]: row[1] for row in session.execute(select(item.id, item.seq).where(*named))}


def erase(session: Session, state: GalleryRow, ids: Sequence[str], now: float) -> None:
    """Delete items that are there, and count it; the gallery must be locked."""
    seqs = seqs_of(session, state.id, ids)
    if not seqs:
        return
    item, seq = GalleryItem, state.seq + len(seqs)
    session.execute(delete(item).where(item.gallery_id == state.id, _any_of(session, item.id, list(seqs))))
    session.execute(
        insert(GalleryRemoval),
        [
            {"gallery_id": state.id, "seq": seq, "removed": removed, "erased": True}
            for removed in seqs.values()
        ],
    )
    state.seq = seq
    state.items -= len(seqs)
    state.updated_at = now


def prune_removals(session: Session, state: GalleryRow) -> None:
    """Forget removals that only a worker far behind would ask for; the gallery must be locked."""
    oldest = state.seq - LISTED_REMOVALS
    if oldest <= state.floor + LISTED_REMOVALS // 10:
        return
    table = GalleryRemoval
    old = and_(table.gallery_id == state.id, table.seq <= oldest)
    # What is forgotten is nothing where nothing was removed: segments made before that are as good as ever.
    last = session.scalar(select(func.max(table.seq)).where(old))
    if last is not None:
        session.execute(delete(table).where(old))
        state.floor = last


# ---------------------------------------------------------------- reading items


def removals(session: Session, gallery_id: int, after: int) -> NDArray[np.int64]:
    """What was removed after a sequence number, in order: (n, 3), ``seq``, ``removed`` and whether it was erased."""
    # Of the table, since objects of a mapped class cost several times as much.
    table = GalleryRemoval.__table__.c
    removed = select(table.seq, table.removed, table.erased).where(
        table.gallery_id == gallery_id, table.seq > after
    )
    rows = session.execute(removed.order_by(table.seq))
    return np.fromiter(chain.from_iterable(rows), dtype=np.int64).reshape(-1, 3)


def count_range(session: Session, gallery_id: int, low: int, high: int) -> int:
    item = GalleryItem
    return (
        session.scalar(
            select(func.count()).where(item.gallery_id == gallery_id, item.seq > low, item.seq <= high)
        )
        or 0
    )


def read_range(
    session: Session, state: GalleryRow, form: ItemForm, low: int, high: int
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
            # The next statement begins after the last row of this one.
            low = rows[-1][4]
            batch = _stored_rows(rows, state, form)
            if batch is not None:
                yield batch


def _stored_rows(rows: Sequence[Any], state: GalleryRow, form: ItemForm) -> StoredRows | None:
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
    session: Session, state: GalleryRow, form: ItemForm, subject: str, limit: int
) -> StoredRows | None:
    """A subject's items by id, at most ``limit``; None when there are none."""
    theirs = GalleryItem.subject.in_(subject_spellings(subject))
    return _rows_where(session, state, form, theirs, limit)


def vectors_of(session: Session, state: GalleryRow, form: ItemForm, ids: Sequence[str]) -> dict[str, Any]:
    """The vectors, or cells, of those of the items that are there, by id."""
    stored = _rows_where(session, state, form, _any_of(session, GalleryItem.id, ids), None)
    return {} if stored is None else dict(zip(stored.ids, stored.vectors, strict=True))


def _rows_where(
    session: Session, state: GalleryRow, form: ItemForm, wanted: ColumnElement[bool], limit: int | None
) -> StoredRows | None:
    item = GalleryItem
    columns = item.id, item.subject, item.vector, item.facts, item.seq
    statement = select(*columns).where(item.gallery_id == state.id, wanted).order_by(item.id).limit(limit)
    rows = session.execute(statement).all()
    return _stored_rows(rows, state, form) if rows else None


def stamps(session: Session, gallery_id: int, subjects: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Of those subjects that are enrolled: how many items, and the newest one's sequence number."""
    item = GalleryItem
    statement = select(item.subject, func.count(), func.max(item.seq)).group_by(item.subject)
    theirs = item.gallery_id == gallery_id, _any_of(session, item.subject, subjects)
    return {row[0] or "": (row[1], row[2]) for row in session.execute(statement.where(*theirs))}


def count_subjects(session: Session, gallery_id: int) -> int:
    item = GalleryItem
    return (
        session.scalar(select(func.count(item.subject.distinct())).where(item.gallery_id == gallery_id)) or 0
    )


# ---------------------------------------------------------------- calibrations and their probes

RECORD = np.dtype(
    [("best", "<f4"), ("at", "<i8"), ("own", "<f4"), ("own_items", "<i8"), ("own_newest", "<i8")]
)
"""Of one probe: its best score and that item's sequence number (-1: search anew); where the subject is enrolled, the
best score with its own items, how many those are and the newest one's sequence number."""


_HEAD = (
    select(GalleryCalibrationRow)
    .options(load_only(GalleryCalibrationRow.id, GalleryCalibrationRow.seq, GalleryCalibrationRow.revision))
    .where(GalleryCalibrationRow.kept.is_not(None))
)
"""Calibrations that keep their probes, each without its arrays: what every search at a rate reads."""


def head_of(session: Session, id: str) -> GalleryCalibrationRow | None:
    return session.scalar(_HEAD.where(GalleryCalibrationRow.id == id))


def newest_head(session: Session, state: GalleryRow) -> GalleryCalibrationRow | None:
    """The newest calibration of the gallery with the version that serves it."""
    table = GalleryCalibrationRow
    newest = (
        _HEAD.where(table.gallery_id == state.id, table.model_id == state.model_id)
        .where(table.version == state.version)
        .order_by(table.created_at.desc(), table.id)
    )
    return session.scalar(newest.limit(1))


def find_calibration(session: Session, gallery_id: int, id: str) -> GalleryCalibrationRow | None:
    askable = id.isascii() and id.isalnum() and len(id) <= 32
    row = session.get(GalleryCalibrationRow, id) if askable else None
    return row if row is not None and row.gallery_id == gallery_id else None


def add_calibration(
    session: Session, row: GalleryCalibrationRow, subjects: Sequence[str], bodies: Sequence[bytes]
) -> None:
    """Keep a calibration and its probes; those of earlier ones of the same version go."""
    session.add(row)
    session.flush()
    table = GalleryCalibrationRow
    earlier = select(table.id).where(
        table.gallery_id == row.gallery_id,
        table.model_id == row.model_id,
        table.version == row.version,
        table.id != row.id,
    )
    session.execute(delete(GalleryProbe).where(GalleryProbe.calibration_id.in_(earlier)))
    session.execute(update(table).where(table.id.in_(earlier)).values(kept=None))
    probe = {"calibration_id": row.id, "gallery_id": row.gallery_id}
    session.execute(
        insert(GalleryProbe),
        [
            {**probe, "place": at, "subject": subject, "vector": body}
            for at, (subject, body) in enumerate(zip(subjects, bodies, strict=True))
        ],
    )


def probes_of(session: Session, calibration_id: str) -> list[tuple[str, bytes]]:
    """Subjects and stored vectors or records of the probes that a calibration keeps, by place."""
    probe = GalleryProbe
    statement = select(probe.subject, probe.vector).where(probe.calibration_id == calibration_id)
    return [(row[0], row[1]) for row in session.execute(statement.order_by(probe.place))]


def scores_of(records: NDArray[np.void]) -> tuple[Float32, Float32]:
    """Best scores of strangers, and scores of the enrolled with their own subject."""
    enrolled = records["own_items"] > 0
    return records["best"][~enrolled].astype(np.float32), records["own"][enrolled].astype(np.float32)


def store_scores(row: GalleryCalibrationRow, records: NDArray[np.void], seq: int, size: int) -> None:
    """Have a calibration's row say what its probes score."""
    best, mated = scores_of(records)
    row.seq, row.kept = seq, records.tobytes()
    row.best, row.mated = best.astype("<f4").tobytes(), mated.astype("<f4").tobytes()
    row.summary = {
        **row.summary,
        "gallery_size": size,
        "n_probes": int(best.size),
        "n_mated": int(mated.size),
        "state": {**row.summary["state"], "gallery_size": max(size, 1)},
    }


def erase_probes(session: Session, gallery_id: int, subjects: Sequence[str]) -> int:
    """Remove some subjects' probes from every calibration of a gallery, with their scores; the gallery must be
    locked."""
    probe, table = GalleryProbe, GalleryCalibrationRow
    theirs = and_(probe.gallery_id == gallery_id, probe.subject.in_(subjects))
    holding = table.id.in_(select(probe.calibration_id).where(theirs))
    for row in session.scalars(select(table).where(holding).with_for_update()).all():
        remains = [whose not in subjects for whose, _ in probes_of(session, row.id)]
        records = np.frombuffer(row.kept or b"", dtype=RECORD)[np.array(remains)]
        store_scores(row, records, row.seq, int(row.summary["gallery_size"]))
        row.revision += 1
    return execute_change(session, delete(probe).where(theirs))
