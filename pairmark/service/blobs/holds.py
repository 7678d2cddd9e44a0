"""Keeping every blob in place while a backup copies them."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pairmark.service.blobs.repository import (
    begin_backup,
    extend_backup,
    finish_backup,
    last_backup,
    lock_blobs,
)
from pairmark.service.db import Database
from pairmark.service.errors import PairmarkError

HOLD_S = 60.0
logger = logging.getLogger("pairmark.backup")


@contextmanager
def hold_all(db: Database) -> Iterator[None]:
    """Until the block ends, no blob is deleted, by whatever process; those that lose their rows go at a later tidying.

    The hold is renewed while the block runs, and ends within a minute when this process is killed.
    """
    hold = secrets.token_hex(16)
    with db.write() as session:
        # Whoever deletes just now is waited for.
        lock_blobs(session, exclusive=False)
        now = db.now(session)
        begin_backup(session, hold, now, now + HOLD_S)
    ending = threading.Event()
    renewing = threading.Thread(target=_renew, args=(db, hold, ending), name="backup-hold", daemon=True)
    renewing.start()
    finished = False
    try:
        yield
        finished = True
    finally:
        ending.set()
        renewing.join()
        with db.write() as session:
            now = db.now(session)
            finish_backup(session, hold, now, finished=finished)


def last_finished(db: Database) -> float | None:
    """When the last backup was made, in seconds since the epoch."""
    with db.read() as session:
        return last_backup(session)


def _renew(db: Database, hold: str, ending: threading.Event) -> None:
    while not ending.wait(HOLD_S / 4):
        try:
            with db.write() as session:
                extend_backup(session, hold, db.now(session) + HOLD_S)
        except PairmarkError as error:
            logger.warning("the hold on stored data could not be renewed", extra={"reason": error.detail})
