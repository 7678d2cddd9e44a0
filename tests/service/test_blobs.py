"""Content-addressed folders: whole or absent, checked when read, deleted only when nobody names them."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pairmark.service.blobs import Blobs, collect, delete_unused, hold, open_blobs
from pairmark.service.db import Database
from pairmark.service.errors import CorruptArtefact
from pairmark.service.settings import Settings
from pairmark.service.tables import DatasetRow

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "folder":
        return open_blobs(Settings(home=tmp_path))
    request.getfixturevalue("bucket")
    return open_blobs(Settings(home=tmp_path, artefacts="s3://bucket/some/prefix"))


def folder_of(path: Path, **files: str) -> Path:
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / name).write_text(content)
    return path


def put(store: Blobs, source: Path) -> str:
    with store.workspace() as work:
        return store.put_folder(Path(shutil.copytree(source, work / "copy")))


def test_what_was_put_is_read(store: Blobs, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "source", a="one", b="two")
    folder_of(source / "inner", c="three")
    key = put(store, source)
    stored = store.folder(key)
    assert (stored / "a").read_text() == "one"
    assert (stored / "inner" / "c").read_text() == "three"
    assert store.exists(key)
    assert [name for name, _ in store.ages()] == [key]


def test_the_key_says_what_is_inside(store: Blobs, tmp_path: Path) -> None:
    first = put(store, folder_of(tmp_path / "1", a="one", b="two"))
    assert put(store, folder_of(tmp_path / "2", b="two", a="one")) == first
    assert put(store, folder_of(tmp_path / "3", a="two", b="one")) != first
    assert len(list(store.ages())) == 2


def test_a_workspace_is_taken_or_goes(store: Blobs) -> None:
    with store.workspace() as work:
        out = folder_of(work / "out", a="one")
        key = store.put_folder(out)
        assert not out.exists()
    assert not work.exists()
    assert (store.folder(key) / "a").read_text() == "one"


def test_deleted_is_gone_and_may_be_deleted_again(store: Blobs, tmp_path: Path) -> None:
    key = put(store, folder_of(tmp_path / "source", a="one"))
    store.delete(key)
    store.delete(key)
    assert not store.exists(key)
    assert list(store.ages()) == []
    with pytest.raises(CorruptArtefact, match="missing"):
        store.folder(key)
    assert put(store, tmp_path / "source") == key
    assert (store.folder(key) / "a").read_text() == "one"


@pytest.mark.parametrize("key", ["", "../../etc", "g" * 64, "a" * 63, "A" * 64])
def test_only_keys_become_paths(store: Blobs, key: str) -> None:
    with pytest.raises(CorruptArtefact):
        store.folder(key)
    with pytest.raises(CorruptArtefact):
        store.exists(key)


@pytest.mark.parametrize("change", ["same size", "longer", "removed", "added"])
def test_changed_bytes_are_found(tmp_path: Path, change: str) -> None:
    store = Blobs(tmp_path / "store")
    key = put(store, folder_of(tmp_path / "source", a="one", b="two"))
    file = store.folder(key) / "a"
    if change == "removed":
        file.unlink()
    elif change == "added":
        (file.parent / "c").write_text("more")
    else:
        file.chmod(0o644)
        file.write_text("eno" if change == "same size" else "one more")
    for reader in (store, Blobs(tmp_path / "store")):
        with pytest.raises(CorruptArtefact, match="changed"):
            reader.folder(key)
    # Putting the true content again mends it.
    assert put(store, tmp_path / "source") == key
    assert (store.folder(key) / "a").read_text() == "one"


def test_changed_bytes_on_s3_are_found(bucket, tmp_path: Path) -> None:
    store = open_blobs(Settings(home=tmp_path, artefacts="s3://bucket/x"))
    key = put(store, folder_of(tmp_path / "source", a="one"))
    bucket.put_object(Key=f"x/{key}/a", Body=b"eno")
    with pytest.raises(CorruptArtefact, match="changed on S3"):
        open_blobs(Settings(home=tmp_path / "other machine", artefacts="s3://bucket/x")).folder(key)
    bucket.put_object(Key=f"x/{key}.json", Body=b'{"a": "%064d"}' % 0)
    assert not store.exists(key)


def test_an_upload_to_s3_that_was_cut_short_is_absent_and_collected(
    bucket, database: Database, tmp_path: Path
) -> None:
    store = open_blobs(Settings(home=tmp_path, artefacts="s3://bucket/x"))
    key = put(store, folder_of(tmp_path / "source", a="one"))
    bucket.Object(f"x/{key}.json").delete()
    assert not store.exists(key)
    assert collect(database, store, grace_s=-5) == [key]
    assert list(bucket.objects.all()) == []


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    folder_of(tmp_path / "source", a="one", b="x" * 200_000)
    code = """
    import resource, shutil, sys
    from pathlib import Path
    from pairmark.service.blobs import Blobs
    from pairmark.service.errors import StorageFailed
    store = Blobs(Path(sys.argv[1]) / "store")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        with store.workspace() as work:
            for file in (Path(sys.argv[1]) / "source").iterdir():
                shutil.copyfile(file, work / file.name)
            store.put_folder(work)
    except StorageFailed as error:
        print(error)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "no space left" in said
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def test_what_a_killed_process_left_is_swept_and_what_a_live_one_writes_is_not(tmp_path: Path) -> None:
    code = """
    import sys, time
    from pathlib import Path
    from pairmark.service.blobs import Blobs
    with Blobs(Path(sys.argv[1])).workspace() as folder:
        (folder / "half").write_text("half")
        print(folder, flush=True)
        time.sleep(60)
    """
    store = Blobs(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    half = Path(process.stdout.readline().strip())
    with store.workspace() as mine:
        (mine / "a").write_text("one")
        assert store.sweep() == 0
        assert (half / "half").exists()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert store.sweep() == 1
        assert not half.exists()
        assert (mine / "a").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def row(key: str) -> DatasetRow:
    return DatasetRow(
        id=key[:32],
        name="d",
        version=1,
        sha256="0",
        blob=key,
        rows=1,
        features=1,
        size_bytes=1,
        summary={},
        created_at=0.0,
    )


def test_only_blobs_that_no_row_names_are_deleted(database: Database, blobs: Blobs, tmp_path: Path) -> None:
    named = put(blobs, folder_of(tmp_path / "named", a="one"))
    orphan = put(blobs, folder_of(tmp_path / "orphan", a="two"))
    with database.write() as session:
        hold(session, blobs, named)
        session.add(row(named))
    assert collect(database, blobs) == []  # too young: its row may still be on the way
    assert delete_unused(database, blobs, [named]) == []
    assert collect(database, blobs, grace_s=-1) == [orphan]
    assert blobs.exists(named)
