"""Backups: taken while the service goes on, restored into either database, the same answers to the bit."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import func, select, text

from pairmark.service.blobs import Blobs, collect, delete_unused, open_blobs
from pairmark.service.blobs.holds import hold_all
from pairmark.service.blobs.repository import all_named_blobs
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import RECORD
from pairmark.service.keys import Keys
from pairmark.service.operations import dump
from pairmark.service.operations.backup import back_up
from pairmark.service.operations.dump import dumped_tables
from pairmark.service.operations.manifest import MANIFEST, SIGNATURE
from pairmark.service.operations.restore import restore
from pairmark.service.runtime.catalogue import Catalogue
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import (
    AuditRow,
    GalleryCalibrationRow,
    GalleryItem,
    GalleryProbe,
    GalleryRow,
    ModelRow,
    SessionRow,
)
from tests.service.conftest import people

KINDS = ("sqlite", "postgresql")


@dataclass
class Place:
    """Settings with their open database and storage."""

    settings: Settings
    db: Database
    blobs: Blobs

    @property
    def store(self) -> ModelStore:
        return ModelStore(self.db, self.blobs, self.settings)

    def back_up(self, target: Path):
        return back_up(self.db, self.blobs, self.settings, target)

    def restore(self, source: Path, keys="keep", **options):
        return restore(self.db, self.blobs, self.settings, source, keys=keys, **options)

    def rows(self):
        """Every row of every table that is kept, the log of changes aside."""
        with self.db.read() as session:
            return {
                table.name: session.execute(select(table).order_by(*table.primary_key.columns)).all()
                for table in dumped_tables()
                if table is not AuditRow.__table__
            }


@pytest.fixture
def place(deployment):
    """A place with a model, a gallery's rows and a key."""
    deployment.train()
    Keys(deployment.db).create("laptop", ["score"])
    vector = np.random.default_rng(1).normal(size=6).astype("<f4").tobytes()
    with deployment.db.write() as session:
        gallery = GalleryRow(
            key="k", name="staff", model_id="m", version=1, dimension=6, items=1, seq=7, floor=0,
            fields=["site"], created_at=1.5, updated_at=2.5,
        )  # fmt: skip
        session.add(gallery)
        session.flush()
        session.add(GalleryItem(gallery_id=gallery.id, id="ä", vector=vector, facts='{"a":1}', seq=7))
    return Place(deployment.settings, deployment.db, deployment.blobs)


@pytest.fixture
def elsewhere(tmp_path, new_database):
    """``elsewhere(kind)`` -> an empty place, without tables."""
    opened = []

    def make(kind, *, migrated=False, **settings):
        home = tmp_path / f"elsewhere-{len(opened)}"
        chosen = Settings(home=home, database_url=new_database(kind, migrated=migrated), **settings)
        opened.append(Database(chosen.resolved_database_url))
        return Place(chosen, opened[-1], open_blobs(chosen))

    yield make
    for database in opened:
        database.dispose()


def scores(place: Place) -> bytes:
    learner = place.store.load("faces", 1)
    X = people(5, 4, seed=9)[0]
    return learner.pair_score(X[:10], X[10:]).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_place_is_the_same_to_the_bit_whatever_its_database(place, elsewhere, tmp_path, kind):
    made = place.back_up(tmp_path / "a.tar")
    assert made["versions"] == ["faces:1"]
    assert made["damaged"] == {}
    there = elsewhere(kind)
    reported = there.restore(tmp_path / "a.tar")
    assert (reported["same"], reported["close"], reported["missing"]) == (["faces:1"], [], {})
    assert there.rows() == place.rows()
    assert scores(there) == scores(place)
    # Numbers are not given out twice.
    with there.db.write() as session:
        session.add(
            GalleryRow(
                key="l", name="new", model_id="m", version=1, dimension=6, items=0, seq=0, floor=0, fields=[],
                created_at=0.0, updated_at=0.0,
            )
        )  # fmt: skip
        session.flush()
        assert session.scalar(select(func.max(GalleryRow.id))) == 2
    # And it goes on as before.
    there.store.promote("faces", "canary", 1, by="test")


def test_items_that_an_upload_would_be_refused_are_not_restored(deployment, elsewhere, tmp_path):
    deployment.train()
    vector = np.zeros(6, dtype="<f4").tobytes()
    with deployment.db.write() as session:
        gallery = GalleryRow(
            key="k", name="staff", model_id=session.scalar(select(ModelRow.id)), version=1, dimension=6, items=4, seq=4,
            floor=0, fields=[], created_at=1.5, updated_at=2.5,
        )  # fmt: skip
        session.add(gallery)
        session.flush()
        of = gallery.id
        for seq, (id, subject) in enumerate([("..", None), ("a", "b"), ("c", "x/../y"), ("d\u202e", "e")], 1):
            session.add(GalleryItem(gallery_id=of, id=id, subject=subject, vector=vector, seq=seq))
        calibration = GalleryCalibrationRow(
            id="cal", gallery_id=of, model_id=gallery.model_id, version=1, seq=4, best=b"", mated=b"", created_at=1.0,
            summary={"gallery_size": 4, "state": {}}, kept=np.zeros(2, dtype=RECORD).tobytes(),
        )  # fmt: skip
        session.add(calibration)
        session.flush()
        probe_repository.add_probes(session, calibration, ["..", "b"], [b"\0" * 24] * 2)
    place = Place(deployment.settings, deployment.db, deployment.blobs)
    place.back_up(tmp_path / "a.tar")
    there = elsewhere("sqlite")
    reported = there.restore(tmp_path / "a.tar")
    assert [(one.get("id"), one.get("subject")) for one in reported["refused"]] == [
        ("..", None), ("c", None), ("d\u202e", None), (None, ".."),
    ]  # fmt: skip
    assert (reported["n_refused"], reported["refused"][0]["gallery"]) == (4, "staff")
    with there.db.read() as session:
        assert session.scalars(select(GalleryItem.id)).all() == ["a"]
        assert session.scalar(select(GalleryRow.items)) == 1
        assert session.scalars(select(GalleryProbe.subject)).all() == ["b"]


def test_a_backup_under_load_is_one_moment_and_whole(deployment, elsewhere, tmp_path):
    deployment.train()
    stop, errors = threading.Event(), []

    def churn():
        at = 0
        while not stop.is_set():
            at += 1
            try:
                X, y = people(6, 4, seed=at)
                deployment.upload(f"d{at}", X, y)
                if at > 2:
                    deployment.datasets.delete(f"d{at - 2}")
            except Exception as error:
                errors.append(error)
                return

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        place = Place(deployment.settings, deployment.db, deployment.blobs)
        for number in range(4):
            place.back_up(tmp_path / f"{number}.tar")
    finally:
        stop.set()
        thread.join()
    assert errors == []
    for number in range(4):
        there = elsewhere("sqlite")
        assert there.restore(tmp_path / f"{number}.tar")["same"] == ["faces:1"]
        with there.db.read() as session:
            for key in all_named_blobs(session):
                there.blobs.folder(key)
        names = {dataset.name for dataset in there_datasets(there)}
        # At most the newest ones are there, without a gap: what one moment can hold.
        numbers = sorted(int(name[1:]) for name in names if name[0] == "d")
        assert len(numbers) <= 3
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


def there_datasets(place):
    from pairmark.service.datasets.ingest import Datasets

    return Datasets(place.db, place.blobs, place.settings).page().items


def test_nothing_that_is_held_is_deleted_and_it_goes_later(deployment):
    with deployment.db.read() as session:
        (key,) = all_named_blobs(session)
    with hold_all(deployment.db):
        deployment.datasets.delete("people")
        assert deployment.blobs.exists(key)
        assert delete_unused(deployment.db, deployment.blobs, [key]) == []
    assert collect(deployment.db, deployment.blobs, grace_s=0).blobs == [key]


def test_a_hold_of_a_killed_backup_ends_by_itself(deployment):
    with deployment.db.write() as session:
        session.execute(text("INSERT INTO backups (id, started_at, holds_until) VALUES ('x', 0, 1)"))
    with deployment.db.read() as session:
        (key,) = all_named_blobs(session)
    deployment.datasets.delete("people")
    assert not deployment.blobs.exists(key)


def test_a_damaged_blob_is_named_and_the_rest_is_kept(place, elsewhere, tmp_path):
    with place.db.read() as session:
        key = session.execute(text("SELECT blob FROM datasets")).scalar_one()
    file = next(path for path in place.blobs.folder(key).iterdir() if path.suffix == ".npy")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    made = place.back_up(tmp_path / "a.tar")
    assert list(made["damaged"]) == [key]
    there = elsewhere("sqlite")
    assert list(there.restore(tmp_path / "a.tar")["missing"]) == [key]
    assert scores(there) == scores(place)


TABLE = {"rows": 0, "columns": ["no such column"], "sha256": ""}


def edited(manifest: bytes, **changes) -> bytes:
    """The manifest with other members; ``...`` leaves one out."""
    members = {**json.loads(manifest), **changes}
    return json.dumps({name: value for name, value in members.items() if value is not ...}).encode()


def changed(source: Path, target: Path, name: str, change) -> Path:
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for entry in old.getmembers():
            content = old.extractfile(entry).read()
            if entry.name.startswith(name):
                content = change(content)
                entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    return target


@pytest.mark.parametrize(
    ("name", "change", "error", "said"),
    [
        ("tables/jobs", lambda body: body.replace(b"people", b"PEOPLE"), CorruptArtefact, "jobs was changed"),
        ("blobs/", lambda body: body[:-1] + b"!", CorruptArtefact, "was changed after it was written"),
        (MANIFEST, lambda body: body[:-9], InvalidInput, "not a whole backup"),
        (MANIFEST, lambda body: b"\xff", InvalidInput, "not a whole backup"),
        (MANIFEST, lambda body: b"[" * 100_000, InvalidInput, "not a whole backup"),
        (MANIFEST, lambda body: edited(body, blobs=[]), InvalidInput, "blobs: Input should be an object"),
        (MANIFEST, lambda body: edited(body, made_at="soon"), InvalidInput, "made_at: "),
        (MANIFEST, lambda body: edited(body, probes={"faces": {}}), InvalidInput, "probes.faces"),
        (MANIFEST, lambda body: edited(body, sequences={"jobs": -1}), InvalidInput, "sequences.jobs: "),
        (MANIFEST, lambda body: edited(body, tables=...), InvalidInput, "tables: Field required"),
        (MANIFEST, lambda body: edited(body, made_at=...), InvalidInput, "made_at: Field required"),
        (MANIFEST, lambda body: edited(body, blobs={"a" * 64: ["../x"]}), InvalidInput, "inside its folder"),
        (MANIFEST, lambda body: edited(body, blobs={"a" * 64: ["/x"]}), InvalidInput, "inside its folder"),
        (MANIFEST, lambda body: edited(body, blobs={"..": ["x"]}), InvalidInput, "inside its folder"),
        (MANIFEST, lambda body: edited(body, tables={"../x": TABLE}), InvalidInput, "inside its folder"),
        (MANIFEST, lambda body: edited(body, tables={"x": TABLE}), CorruptArtefact, "holds a table 'x'"),
        (MANIFEST, lambda body: edited(body, tables={"jobs": TABLE}), CorruptArtefact, "do not fit it"),
        (MANIFEST, lambda body: edited(body, format_version=2), InvalidInput, "newer"),
        (MANIFEST, lambda body: edited(body, format_version=0), InvalidInput, "format_version: "),
        (MANIFEST, lambda body: edited(body, format="zip"), InvalidInput, "is not a backup"),
        (MANIFEST, lambda body: body.replace(b'"revision": "', b'"revision": "9'), InvalidInput, "newer"),
    ],
)
def test_a_changed_backup_is_refused_and_leaves_no_row(
    deployment, elsewhere, tmp_path, name, change, error, said
):
    deployment.queue.submit(deployment.request())
    Place(deployment.settings, deployment.db, deployment.blobs).back_up(tmp_path / "a.tar")
    there = elsewhere("sqlite")
    with pytest.raises(error, match=said):
        there.restore(changed(tmp_path / "a.tar", tmp_path / "b.tar", name, change))
    if there.db.revision() is not None:
        assert not any(rows for table, rows in there.rows().items() if table != "revision")


def test_only_an_empty_database_is_restored_into(deployment, tmp_path):
    place = Place(deployment.settings, deployment.db, deployment.blobs)
    place.back_up(tmp_path / "a.tar")
    with pytest.raises(Conflict, match="holds data already"):
        place.restore(tmp_path / "a.tar")
    (tmp_path / "no.tar").write_text("this is no archive")
    with pytest.raises(InvalidInput, match="not a backup"):
        place.restore(tmp_path / "no.tar")


def test_keys_of_a_backup_do_not_work_again_unless_they_are_kept(place, elsewhere, tmp_path):
    keys = Keys(place.db)
    laptop = keys.list()[0].id
    gone = keys.create("gone", ["admin"])
    keys.revoke(gone.id)
    stolen = keys.create("stolen", ["admin"])
    open_session(place.db, stolen.id)
    made = place.back_up(tmp_path / "a.tar")
    keys.revoke(stolen.id)
    there = elsewhere("sqlite")
    reported = there.restore(tmp_path / "a.tar", keys=None)
    assert (reported["keys"], [key["id"] for key in reported["revoked_keys"]]) == (
        "drop",
        [laptop, stolen.id],
    )
    view = Catalogue(there.db, 1.0).read()
    assert (view.key(stolen.key), view.sessions) == (None, {})
    # Without its old keys it is not open to everybody on its host.
    assert view.locked
    assert made["rows"] == reported["rows"]


def test_keys_are_kept_on_request_and_sessions_never(place, elsewhere, tmp_path):
    key = Keys(place.db).create("console", ["admin"])
    open_session(place.db, key.id)
    before = time.time() - 60
    place.back_up(tmp_path / "a.tar")
    for options, kept in [
        ({"keys": "keep"}, True),
        ({"keys": None, "last_revocation": before}, True),
        ({"keys": None, "last_revocation": time.time() + 60}, False),
        ({"keys": "drop", "last_revocation": before}, False),
    ]:
        there = elsewhere("sqlite")
        there.restore(tmp_path / "a.tar", **options)
        view = Catalogue(there.db, 1.0).read()
        assert (view.key(key.key) is not None, view.sessions) == (kept, {})


def test_sessions_in_a_backup_of_an_earlier_version_are_not_restored(place, elsewhere, tmp_path, monkeypatch):
    open_session(place.db, Keys(place.db).create("console", ["admin"]).id)
    monkeypatch.setattr(dump, "NOT_KEPT", dump.NOT_KEPT - {"sessions"})
    place.back_up(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as archive:
        assert archive.extractfile("tables/sessions.jsonl").read()
    there = elsewhere("sqlite")
    there.restore(tmp_path / "a.tar")
    assert Catalogue(there.db, 1.0).read().sessions == {}


def open_session(db: Database, key_id: str) -> None:
    with db.write() as session:
        session.add(
            SessionRow(
                sha256="0" * 64, key_id=key_id, csrf="c", created_at=0.0, expires_at=time.time() + 3600
            )
        )


def test_where_an_import_key_is_set_backups_are_signed_and_others_refused(deployment, elsewhere, tmp_path):
    file = tmp_path / "key"
    file.write_text("a key of sixteen bytes")
    other = tmp_path / "other"
    other.write_text("another key of some bytes")
    settings = deployment.settings.model_copy(update={"import_key_file": file})
    Place(settings, deployment.db, deployment.blobs).back_up(tmp_path / "signed.tar")
    Place(deployment.settings, deployment.db, deployment.blobs).back_up(tmp_path / "unsigned.tar")
    forged = changed(
        tmp_path / "signed.tar", tmp_path / "forged.tar", MANIFEST, lambda body: edited(body, made_at=9e9)
    )
    for source, key, said in [
        (tmp_path / "unsigned.tar", file, "is not signed"),
        (forged, file, "the signature is not valid"),
        (tmp_path / "signed.tar", other, "the signature is not valid"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            elsewhere("sqlite", import_key_file=key).restore(source)
    assert elsewhere("sqlite", import_key_file=file).restore(tmp_path / "signed.tar")["rows"]
    # Without a key the signature says nothing, and the backup is restored as before.
    assert elsewhere("sqlite").restore(tmp_path / "signed.tar")["rows"]
    with tarfile.open(tmp_path / "signed.tar") as archive:
        assert SIGNATURE in archive.getnames()


def test_a_backup_that_was_cut_short_is_refused(deployment, elsewhere, tmp_path):
    Place(deployment.settings, deployment.db, deployment.blobs).back_up(tmp_path / "a.tar")
    body = (tmp_path / "a.tar").read_bytes()
    for part in (600, len(body) // 2, len(body) - 20_000):
        (tmp_path / "b.tar").write_bytes(body[:part])
        with pytest.raises((InvalidInput, CorruptArtefact), match=r"not a (whole )?backup|not whole"):
            elsewhere("sqlite").restore(tmp_path / "b.tar")


def test_a_backup_from_s3_is_restored_into_s3(elsewhere, bucket, tmp_path, deployment):
    deployment.train()
    remote = deployment.settings.model_copy(update={"artefacts": "s3://bucket/first"})
    # The same rows, with their blobs moved to S3.
    there = open_blobs(remote)
    with deployment.db.read() as session:
        for key in all_named_blobs(session):
            assert there.put_folder(deployment.blobs.folder(key)) == key
    shutil.rmtree(deployment.blobs.root)
    Place(remote, deployment.db, there).back_up(tmp_path / "a.tar")
    second = elsewhere("postgresql", artefacts="s3://bucket/second")
    assert second.restore(tmp_path / "a.tar")["same"] == ["faces:1"]
    assert any(entry.key.startswith("second/") for entry in bucket.objects.all())


def test_a_failed_backup_leaves_no_file(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="file"):
        place.back_up(tmp_path / "file" / "a.tar")
    target = tmp_path / "a.tar"
    target.mkdir()
    with pytest.raises(Exception, match=r"a\.tar"):
        place.back_up(target)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_the_manifest_says_what_is_inside(place, tmp_path):
    place.back_up(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as archive:
        manifest = json.loads(archive.extractfile(MANIFEST).read())
        names = set(archive.getnames())
    assert manifest["tables"]["api_keys"]["rows"] == 1
    assert names == {
        MANIFEST,
        *(f"tables/{name}.jsonl" for name in manifest["tables"]),
        *(f"blobs/{key}/{name}" for key, files in manifest["blobs"].items() for name in files),
    }
