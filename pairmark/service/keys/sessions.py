"""Sessions of the console: a random cookie that stands for a key for some hours.

The key itself never goes into the browser's store. Only the word's hash is kept, so that who reads the database
cannot become somebody.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy.orm import Session

from pairmark.service.db import Database, bump_revision
from pairmark.service.keys import repository
from pairmark.service.tables import SessionRow

SESSION_S = 12 * 3600
MAX_SESSIONS = 50
"""Sessions of one key; a further one ends the oldest."""


@dataclass(frozen=True, kw_only=True)
class ActiveSession:
    """A session as a worker keeps it in memory. ``csrf`` must come back with whatever changes something."""

    key_id: str
    csrf: str
    expires_at: float


class Sessions:
    """Begins and ends sessions."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def begin(self, key_id: str) -> str:
        """Begin a session that stands for a key; its word goes into the cookie, and is kept nowhere."""
        word = secrets.token_urlsafe(32)
        with self._db.write() as session:
            now = self._db.now(session)
            repository.drop_sessions(session, key_id, now, keep=MAX_SESSIONS - 1)
            row = SessionRow(
                sha256=session_hash(word),
                key_id=key_id,
                csrf=secrets.token_urlsafe(32),
                created_at=now,
                expires_at=now + SESSION_S,
            )
            session.add(row)
            bump_revision(session)
        return word

    def end(self, word: str) -> None:
        """Make a session useless; one that is unknown changes nothing."""
        with self._db.write() as session:
            if repository.drop_session(session, session_hash(word)):
                bump_revision(session)


def active_sessions(session: Session) -> dict[str, ActiveSession]:
    """Every session by the hash of its word, for workers to keep until the revision moves."""
    return {
        row.sha256: ActiveSession(key_id=row.key_id, csrf=row.csrf, expires_at=row.expires_at)
        for row in repository.session_columns(session)
    }


def session_hash(word: str) -> str:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()
