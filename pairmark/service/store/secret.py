"""The service's secret, from which those of webhooks follow: 32 random bytes, made once and kept in the database, so
that every process reads the same."""

from __future__ import annotations

import secrets

from sqlalchemy.exc import IntegrityError

from pairmark.service.db import Database
from pairmark.service.tables import ServiceSecret

_ROW = 1


def service_secret(db: Database) -> bytes:
    """The secret; the first who asks makes it."""
    with db.read() as session:
        row = session.get(ServiceSecret, _ROW)
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
