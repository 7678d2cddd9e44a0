"""The service's secret: 32 random bytes, made once and kept in the database, so that backups hold it and every process
reads the same. Nobody who calls the service can read it, set it or have it made again."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pairmark.service.db import Database
from pairmark.service.errors import DamagedRow
from pairmark.service.tables import CalibratedPerson, ServiceSecret

_ROW = 1


def service_secret(db: Database) -> bytes:
    """The secret; the first who asks makes it.

    Raises
    ------
    DamagedRow
        When it is lost: another one would draw thresholds again for people who were calibrated on before.
    """
    with db.read() as session:
        row = session.get(ServiceSecret, _ROW)
        check_secret(session)
    if row is not None:
        return row.value
    try:
        with db.write() as session:
            session.add(ServiceSecret(id=_ROW, value=secrets.token_bytes(32)))
    except IntegrityError:
        # Another process made it meanwhile.
        pass
    with db.read() as session:
        return session.get_one(ServiceSecret, _ROW).value


def check_secret(session: Session) -> None:
    """`DamagedRow` where people were counted by a secret that is not there."""
    if session.get(ServiceSecret, _ROW) is None and session.scalar(select(CalibratedPerson.person).limit(1)):
        raise DamagedRow(
            "the service's secret is missing, though calibrations were made with it. Another one would move the "
            "thresholds of people who were calibrated on before, so no calibration is made: restore the table "
            "service_secret from a backup"
        )
