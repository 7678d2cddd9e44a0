"""The service's secret: 32 random bytes, made once and kept in the database, so that backups hold it and every process
reads the same. Nobody who calls the service can read it, set it or have it made again."""

from __future__ import annotations

import secrets

from sqlalchemy.exc import IntegrityError

from pairmark.service.db import Database
from pairmark.service.tables import ServiceSecret

_ROW = 1


def service_secret(db: Database) -> bytes:
    """The secret; the first who asks makes it."""
    with db.read() as session:
        stored = session.get(ServiceSecret, _ROW)
    if stored is not None:
        return stored.value
    try:
        with db.write() as session:
            session.add(ServiceSecret(id=_ROW, value=secrets.token_bytes(32)))
    except IntegrityError:
        # Another process made it meanwhile.
        pass
    with db.read() as session:
        return session.get_one(ServiceSecret, _ROW).value
