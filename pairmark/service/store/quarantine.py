"""Quarantine of versions that crashed a process: each load leaves a mark, which is removed when it succeeds.

Who finds the mark of a process that is gone tries the version in a process of its own first. If that survives, the
death had another cause. If not, the version is quarantined: it is shown as that, and nothing loads it again.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from pairmark.service.audit.recovery import recovered
from pairmark.service.blobs import Blobs
from pairmark.service.db import Database, bump_revision
from pairmark.service.errors import Conflict, InvalidInput, PairmarkError
from pairmark.service.processes import is_alive
from pairmark.service.settings import Settings
from pairmark.service.store import repository
from pairmark.service.store.trial import try_artefact
from pairmark.service.tables import ModelVersion, VersionLoad

logger = logging.getLogger(__name__)
_PROCESS = secrets.token_hex(16)
"""Tells this process from an earlier one of the same number."""
ELSEWHERE_S = 60.0
"""After so long, a load on another machine is no reason to wait any more."""


class Quarantine:
    """Marks loads, and keeps away from versions that ended the process that loaded them."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db = db
        self._blobs = blobs
        self._settings = settings
        self._host = socket.gethostname()[:200]

    @contextmanager
    def loading(self, row: ModelVersion, name: str) -> Iterator[None]:
        """Load a version in the block, and score with it for the first time; `Conflict` when it is in quarantine, or is
        found to belong there."""
        refuse_quarantined(row, name)
        mark = self._marked(row, name)
        try:
            yield
        finally:
            if mark is not None:
                self._unmark(mark)

    def _marked(self, row: ModelVersion, name: str) -> str | None:
        # A database that takes no writes just now keeps nobody from scoring.
        try:
            with self._db.read() as session:
                now = self._db.now(session)
                stale_marks = [
                    mark for mark in repository.loads_of(session, row) if not self._alive(mark, now)
                ]
            if stale_marks:
                self._judge(row, name, stale_marks)
            with self._db.write() as session:
                mark = VersionLoad(
                    id=secrets.token_hex(16),
                    model_id=row.model_id,
                    version=row.version,
                    host=self._host,
                    pid=os.getpid(),
                    process=_PROCESS,
                    started_at=self._db.now(session),
                )
                session.add(mark)
                return mark.id
        except Conflict:
            raise
        except (SQLAlchemyError, PairmarkError) as error:
            logger.warning(
                "load not marked", extra={"model": name, "version": row.version, "reason": str(error)[:500]}
            )
            return None

    def _unmark(self, mark: str) -> None:
        try:
            with self._db.write() as session:
                repository.remove_loads(session, [mark])
        except (SQLAlchemyError, PairmarkError) as error:
            logger.warning("mark of a load not removed", extra={"reason": str(error)[:500]})

    def _alive(self, mark: VersionLoad, now: float) -> bool:
        if mark.host != self._host:
            return now - mark.started_at < ELSEWHERE_S
        if mark.process == _PROCESS:
            return True
        return mark.pid != os.getpid() and is_alive(mark.pid)

    def _judge(self, row: ModelVersion, name: str, stale_marks: list[VersionLoad]) -> None:
        """Try what a process died of, or seems to have."""
        facts = {"model": name, "version": row.version}
        logger.warning("a process ended while it loaded a version; trying it apart", extra=facts)
        try:
            try_artefact(self._blobs.folder(row.artefact), self._settings)
        except InvalidInput as error:
            how = "a process ended while it loaded this version, and a trial of it failed"
            reason = f"{how}: {error.detail}"[:1000]
            with self._db.write() as session:
                now = self._db.now(session)
                repository.set_quarantine(session, row, reason, now)
                recovered(session, now, "version", f"model:{name}:{row.version}", reason=reason)
                repository.remove_loads(session, [mark.id for mark in stale_marks])
                bump_revision(session)
            row.quarantine = reason
            refuse_quarantined(row, name)
        with self._db.write() as session:
            repository.remove_loads(session, [mark.id for mark in stale_marks])


def refuse_quarantined(row: ModelVersion, name: str) -> None:
    if row.quarantine is not None:
        raise Conflict(
            f"{name}:{row.version} is in quarantine and is not loaded: {row.quarantine}. Delete it, and promote "
            "another version or train again",
            model=name,
            version=row.version,
        )
