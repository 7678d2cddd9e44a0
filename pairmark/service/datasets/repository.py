"""All SQL of datasets. Nothing here commits."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import String, and_, cast, delete, or_, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from pairmark.service.db import among
from pairmark.service.errors import UnknownDataset
from pairmark.service.names import VisibleNames, checked_name
from pairmark.service.tables import DatasetName, DatasetRow, JobRow


def split_reference(reference: str) -> tuple[str, int | None]:
    """``name`` or ``name:version`` -> (name, version or None)."""
    name, colon, version = reference.partition(":")
    checked_name(name, "dataset")
    if not colon:
        return name, None
    if not version.isdecimal() or not version.isascii() or len(version) > 9:
        raise UnknownDataset(f"dataset {reference[:120]!r}: expected NAME or NAME:VERSION, e.g. {name}:1")
    return name, int(version)


def dataset_of(session: Session, reference: str, *, hold: bool = False) -> DatasetRow:
    """The version that a reference names, or `UnknownDataset`; plain ``name`` means the newest.

    ``hold`` : keep the row from being deleted until the transaction ends, for a caller that is about to refer to it.
    """
    name, version = split_reference(reference)
    query = select(DatasetRow).where(DatasetRow.name == name)
    if version is not None:
        query = query.where(DatasetRow.version == version)
    query = query.order_by(DatasetRow.version.desc()).limit(1)
    row = session.scalar(query.with_for_update(read=True) if hold else query)
    if row is None:
        raise UnknownDataset(
            f"there is no dataset {reference[:120]!r}; GET /datasets or `pairmark datasets list` lists them",
            dataset=reference[:120],
        )
    return row


def dataset_by_id(session: Session, dataset_id: str) -> DatasetRow:
    """The row of that id, or `UnknownDataset`."""
    row = session.get(DatasetRow, dataset_id)
    if row is None:
        raise UnknownDataset("the dataset was deleted meanwhile", dataset_id=dataset_id)
    return row


def newest(session: Session, name: str) -> DatasetRow | None:
    """The newest version under a name."""
    return session.scalar(
        select(DatasetRow).where(DatasetRow.name == name).order_by(DatasetRow.version.desc()).limit(1)
    )


def insert_version(session: Session, name: str, facts: Mapping[str, Any]) -> DatasetRow:
    """Add the next version of ``name``. Numbers are never given twice, not even after a deletion."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    statement = insert(DatasetName).values(name=name, next_version=2)
    statement = statement.on_conflict_do_update(
        index_elements=[DatasetName.name], set_={"next_version": DatasetName.next_version + 1}
    )
    following = session.scalar(statement.returning(DatasetName.next_version))
    assert following is not None
    row = DatasetRow(id=secrets.token_hex(16), name=name, version=following - 1, **facts)
    session.add(row)
    session.flush()
    return row


def lock_name(session: Session, name: str) -> None:
    """Until the transaction ends, nobody else adds versions under ``name`` (which must exist to be locked)."""
    session.execute(select(DatasetName.name).where(DatasetName.name == name).with_for_update())


def page_of_datasets(
    session: Session, limit: int, after: tuple[float, str] | None, names: VisibleNames
) -> list[DatasetRow]:
    """Up to ``limit`` versions, newest first, after a (created_at, id) mark."""
    query = select(DatasetRow).order_by(DatasetRow.created_at.desc(), DatasetRow.id.desc()).limit(limit)
    if after is not None:
        query = query.where(tuple_(DatasetRow.created_at, DatasetRow.id) < tuple_(*after))
    query = query.where(among(names, DatasetRow.name))
    return list(session.scalars(query))


def jobs_using(session: Session, dataset_id: str) -> list[str]:
    """Ids of jobs, waiting or under way, that read the dataset."""
    return list(
        session.scalars(
            select(JobRow.id)
            .where(JobRow.state.in_(("queued", "running")))
            .where(
                or_(
                    JobRow.dataset_id == dataset_id,
                    JobRow.unlabelled_id == dataset_id,
                    # The third table of links, and what follows it.
                    and_(JobRow.task == "link", cast(JobRow.params, String).contains(dataset_id)),
                )
            )
            .order_by(JobRow.created_at)
            .limit(5)
        )
    )


def lock_for_deletion(session: Session, row: DatasetRow) -> None:
    """Wait for those who hold the row, then keep new ones out."""
    session.execute(select(DatasetRow.id).where(DatasetRow.id == row.id).with_for_update())


def remove(session: Session, row: DatasetRow) -> None:
    session.execute(delete(DatasetRow).where(DatasetRow.id == row.id))
