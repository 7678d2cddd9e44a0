"""The database as the service relies on it: one schema on both kinds, whole commits, words for trouble."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text

from pairmark import migrations
from pairmark.service import postgres
from pairmark.service.db import Database, read_rows
from pairmark.service.errors import InvalidInput, NotReady, SchemaMismatch, StorageFailed
from pairmark.service.galleries.segments import GalleryDisk
from pairmark.service.tables import Base, CalibrationRow, DatasetName, Revision
from tests.serving import command

pytestmark = pytest.mark.each_database

KINDS = ("sqlite", "postgresql")


def python(code: str, *args: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        **options,
    )


def read_something(database: Database) -> None:
    """Fails where the database does not answer or lacks its tables; a new one has no revision yet."""
    with database.read() as session:
        session.scalar(select(Revision.value))


def test_migrations_lead_to_the_tables_that_the_code_uses(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.parametrize("newest_first", [True, False])
def test_rows_of_one_instant_come_once_each_on_their_pages(database: Database, newest_first: bool) -> None:
    facts = {"name": "c", "protocol": "open-set", "blob": "b", "summary": {}}
    with database.write() as session:
        for id_, at in zip("dbace", (1.1, 1.1, 1.1, 1.1, 2.3), strict=True):
            session.add(CalibrationRow(id=id_, created_at=at, **facts))
    seen, cursor = "", None
    order = CalibrationRow.created_at, CalibrationRow.id
    with database.read() as session:
        for _ in range(3):
            rows, cursor = read_rows(
                session, select(CalibrationRow), order, 2, cursor, newest_first=newest_first
            )
            seen += "".join(row.id for row in rows)
    assert (seen, cursor) == ("edcba" if newest_first else "abcde", None)


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_of_older_houses_learn_the_names_of_their_unlabelled_rows(new_database, kind: str) -> None:
    with Database(new_database(kind, migrated=False)) as database:
        database.upgrade("0002")
        blank = {"params": "{}", "evaluation": "{}", "promote": None, "stage": "", "message": ""}
        with database.schema_change() as connection:
            connection.execute(
                text(
                    "INSERT INTO datasets (id, name, version, sha256, blob, rows, features, size_bytes, summary,"
                    " created_at) VALUES ('d1', 'more', 3, 's', 'b', 1, 1, 1, '{}', 0)"
                )
            )
            for job, more in (("j1", "d1"), ("j2", "gone"), ("j3", None)):
                connection.execute(
                    text(
                        "INSERT INTO jobs (id, learner, dataset_id, dataset, unlabelled_id, model, params, evaluation,"
                        " promote, state, progress, stage, message, attempt, cancel_requested, created_at) VALUES (:id,"
                        " 'l', 'd0', 'd:1', :more, 'm', :params, :evaluation, :promote, 'failed', 0, :stage,"
                        " :message, 0, FALSE, 0)"
                    ),
                    {"id": job, "more": more, **blank},
                )
        database.upgrade()
        with database.schema_change() as connection:
            named = connection.execute(text("SELECT id, unlabelled FROM jobs ORDER BY id")).all()
        assert [tuple(row) for row in named] == [("j1", "more:3"), ("j2", None), ("j3", None)]


@pytest.mark.parametrize("kind", KINDS)
def test_several_processes_may_upgrade_at_once(new_database, kind: str) -> None:
    url = new_database(kind, migrated=False)
    code = "import sys; from pairmark.service.db import Database; input(); Database(sys.argv[1]).upgrade()"
    for process in [python(code, url, stdin=subprocess.PIPE) for _ in range(3)]:
        _, said = process.communicate("go\n", timeout=60)
        assert process.returncode == 0, said
    with Database(url) as database:
        read_something(database)


def test_a_commit_survives_kill_9_and_what_was_not_committed_does_not(
    database: Database, database_url: str
) -> None:
    code = """
    import sys, time
    from pairmark.service.db import Database
    from pairmark.service.tables import DatasetName
    db = Database(sys.argv[1])
    with db.write() as session:
        session.add(DatasetName(name="kept", next_version=1))
    with db.write() as session:
        session.add(DatasetName(name="lost", next_version=1))
        session.flush()
        print("now", flush=True)
        time.sleep(60)
    """
    process = python(code, database_url)
    assert process.stdout.readline() == "now\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with database.write() as session:
        assert list(session.scalars(select(DatasetName.name))) == ["kept"]


def test_a_block_that_fails_leaves_nothing(database: Database) -> None:
    def half_done() -> None:
        with database.write() as session:
            session.add(DatasetName(name="half", next_version=1))
            session.flush()
            raise KeyError

    with pytest.raises(KeyError):
        half_done()
    with database.read() as session:
        assert session.get(DatasetName, "half") is None


def test_an_absent_server_is_said_to_be_absent() -> None:
    with Database("postgresql://nobody:secret@127.0.0.1:9/none") as database:
        with pytest.raises(NotReady, match="does not answer"), database.read() as session:
            session.scalar(select(Revision.value))
        with pytest.raises(NotReady) as caught:
            database.wait(0)
        assert "secret" not in str(caught.value)


def test_what_postgresql_cannot_hold_is_the_senders_error(new_database) -> None:
    with (
        Database(new_database("postgresql")) as database,
        pytest.raises(InvalidInput, match="zero byte"),
        database.write() as session,
    ):
        session.add(DatasetName(name="a\x00b", next_version=1))


@pytest.mark.parametrize(
    ("kind", "statement"),
    [("sqlite", "PRAGMA query_only=ON"), ("postgresql", "SET default_transaction_read_only = on")],
)
def test_a_disk_that_takes_no_writes_is_named(new_database, kind: str, statement: str) -> None:
    with Database(new_database(kind)) as database:
        with database.engine.connect() as connection:
            connection.exec_driver_sql(statement)
            connection.commit()
        with pytest.raises(StorageFailed, match="read-only"), database.write() as session:
            session.add(DatasetName(name="a", next_version=1))


def test_a_disk_that_takes_no_gallery_is_named(tmp_path: Path) -> None:
    (tmp_path / "gallery").write_text("no folder can be made here")
    with pytest.raises(StorageFailed, match="locking a gallery"), GalleryDisk(tmp_path / "gallery").lock():
        pass


def test_a_full_disk_is_said_in_words(new_database) -> None:
    with Database(new_database("sqlite")) as database:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StorageFailed, match="full"), database.write() as session:
            session.add_all(DatasetName(name=f"{number:0200}", next_version=1) for number in range(2_000))
        with database.read() as session:
            assert session.get(DatasetName, f"{0:0200}") is None


def test_deleted_rows_are_overwritten(new_database) -> None:
    url = new_database("sqlite")
    with Database(url) as database:
        secret = "shibboleth" * 10
        with database.write() as session:
            session.add(DatasetName(name=secret, next_version=1))
        with database.write() as session:
            session.delete(session.get_one(DatasetName, secret))
    assert secret.encode() not in Path(url.removeprefix("sqlite:///")).read_bytes()


def at_revision(url: str, revision: str) -> None:
    """Leave the tables as they are, and say that they are of another revision."""
    with Database(url) as database, database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def upgraded(url: str, revision: str) -> None:
    with Database(url) as database:
        database.upgrade(revision)


def pairmark(url: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command; one that serves is a process."""
    place = {"PAIRMARK_DATABASE_URL": url, "PAIRMARK_HOME": str(home)}
    if words[0] != "serve":
        return command(*words, **place)
    process = python(
        "import sys; from pairmark.service.cli import main; main(sys.argv[1:])",
        *words,
        env=os.environ | place,
    )
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_newer_than_the_program_is_refused_in_words(new_database, tmp_path, kind: str) -> None:
    url = new_database(kind)
    at_revision(url, "9999")
    with Database(url) as database:
        for call in (database.check_schema, database.upgrade):
            with pytest.raises(SchemaMismatch, match="a newer version upgraded it"):
                call()
    for words in (("serve", "--port", "0"), ("db", "upgrade"), ("doctor",)):
        done = pairmark(url, tmp_path, *words)
        assert done.returncode == 1
        assert "9999" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_an_older_postgresql_database_is_migrated_on_request_only(new_database, tmp_path) -> None:
    url = new_database("postgresql", migrated=False)
    upgraded(url, "0004")
    done = pairmark(url, tmp_path, "serve", "--port", "0")
    assert done.returncode == 1
    assert "run `pairmark db upgrade`" in done.stderr
    with Database(url) as database:
        assert database.revision() == "0004"
        assert pairmark(url, tmp_path, "db", "upgrade").returncode == 0
        assert database.revision() == migrations.HEAD
        # Two branches may take the same number, and Git merges them.
        assert migrations.revisions() == [f"{number:04}" for number in range(1, int(migrations.HEAD) + 1)]


def test_an_older_embedded_database_is_copied_then_migrated_and_that_is_said(new_database, tmp_path) -> None:
    url = new_database("sqlite", migrated=False)
    upgraded(url, "0004")
    with Database(url) as database, database.write() as session:
        session.add(DatasetName(name="kept", next_version=3))
    done = pairmark(url, tmp_path, "keys", "list")
    assert done.returncode == 0, done.stderr
    assert f"migrated from revision 0004 to {migrations.HEAD}" in done.stderr
    with Database(f"{url}.revision-0004") as copy:
        assert copy.revision() == "0004"
        with copy.read() as session:
            assert session.get(DatasetName, "kept") is not None
    assert pairmark(url, tmp_path, "keys", "list").stderr == ""


@pytest.fixture
def hasty(new_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A PostgreSQL database whose statements may take a second."""
    monkeypatch.setattr(postgres, "GRACE_S", 1.0)
    with Database(new_database("postgresql"), timeout_s=1.0) as opened:
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
        with pytest.raises(NotReady), hasty.write() as session:
            session.get_one(DatasetName, "held").next_version = 3
    with hasty.read() as session:
        assert session.get_one(DatasetName, "held").next_version == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals a server's process on this machine")
def test_a_server_that_stands_still_is_given_up_and_asked_anew(hasty):
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
    finally:
        for backend in frozen:
            os.kill(backend, signal.SIGCONT)
