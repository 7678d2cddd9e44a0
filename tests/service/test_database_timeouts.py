"""Statements end in time, whatever PostgreSQL does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import select, text

from pairmark.service import postgres
from pairmark.service.db import Database
from pairmark.service.errors import NotReady
from pairmark.service.tables import DatasetName, Revision


@pytest.fixture
def hasty(new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A PostgreSQL database whose statements may take 0.3 s."""
    monkeypatch.setattr(postgres, "GRACE_S", 0.3)
    with Database(new_database("postgresql"), timeout_s=0.3) as opened:
        yield opened


def alive(database: Database) -> bool:
    with database.read() as session:
        return session.scalar(select(1)) == 1


def test_a_write_that_waits_for_a_lock_is_refused_in_time(hasty):
    with hasty.write() as session:
        session.add(DatasetName(name="held", next_version=1))
    with Database(hasty.url.render_as_string(hide_password=False)) as holder, holder.write() as holding:
        holding.get_one(DatasetName, "held").next_version = 2
        holding.flush()
        asked = time.monotonic()
        with pytest.raises(NotReady), hasty.write() as session:
            session.get_one(DatasetName, "held").next_version = 3
        assert time.monotonic() - asked < 5
    with hasty.read() as session:
        assert session.get_one(DatasetName, "held").next_version == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals a server's process on this machine")
def test_a_server_that_stands_still_is_given_up_and_asked_anew(hasty):
    asked = time.monotonic()
    frozen = []

    def ask_what_freezes():
        with hasty.read() as session:
            frozen.append(int(session.scalar(text("SELECT pg_backend_pid()")) or 0))
            os.kill(frozen[0], signal.SIGSTOP)
            session.scalar(select(Revision.value))

    try:
        with pytest.raises(NotReady):
            ask_what_freezes()
        # The server itself goes on, so another connection is answered.
        assert alive(hasty)
        assert time.monotonic() - asked < 5
    finally:
        for backend in frozen:
            os.kill(backend, signal.SIGCONT)
