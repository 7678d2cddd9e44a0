"""What ends a process that loads it is tried apart, put into quarantine, shown as that, and never loaded again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pairmark.service.audit.log import AuditLog
from pairmark.service.errors import Conflict, InvalidInput, UnknownModel
from pairmark.service.settings import MIB
from pairmark.service.store import repository
from pairmark.service.store.store import ModelStore
from pairmark.service.store.transfer import MANIFEST, SIGNATURE
from tests.service.conftest import people
from tests.service.test_transfer import rewritten, with_manifest

NOT_ENOUGH = 64 * MIB
KEY = b"0123456789abcdef0123456789abcdef"
DIES_LOADING = """
import os, signal, sys
from pathlib import Path
from pairmark.service.blobs import LocalBlobs
from pairmark.service.db import open_database
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore

settings = Settings()
store = ModelStore(open_database(settings), LocalBlobs(Path(sys.argv[1])), settings)
store.load("faces", 1, lambda model: os.kill(os.getpid(), signal.SIGSEGV))
"""


@pytest.fixture
def trained(deployment):
    deployment.train()
    return deployment


@pytest.fixture
def exported(trained):
    return trained.store.export("faces", 1, trained.folder / "out").read_bytes()


def die_loading(deployment) -> None:
    """A process that ends while it loads the version, as one does whose arrays make native code read beyond them."""
    environment = {
        **os.environ,
        "PAIRMARK_HOME": str(deployment.settings.home),
        "PAIRMARK_DATABASE_URL": str(deployment.db.engine.url.render_as_string(hide_password=False)),
    }
    done = subprocess.run(
        [sys.executable, "-c", DIES_LOADING, str(deployment.blobs.root)],
        env=environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )
    assert done.returncode == -11, done.stderr.decode()


def limited(deployment) -> ModelStore:
    """A store whose trials have too little memory to survive."""
    return ModelStore(
        deployment.db,
        deployment.blobs,
        deployment.settings.model_copy(update={"job_memory_bytes": NOT_ENOUGH}),
    )


def quarantined(deployment):
    with deployment.db.read() as session:
        return [(name, row.version) for name, row in repository.quarantined(session)]


def test_a_version_that_ends_its_process_and_its_trial_is_never_loaded_again(trained):
    die_loading(trained)
    store = limited(trained)
    with pytest.raises(Conflict, match="faces:1 is in quarantine"):
        store.load("faces", 1)
    shown = store.version("faces", 1)
    assert "a process ended while it loaded this version" in shown.quarantine
    assert store.versions("faces").items[0].quarantine == shown.quarantine
    assert quarantined(trained) == [("faces", 1)]
    (entry,) = AuditLog(trained.db).page(action="recovery").items
    assert (entry.action, entry.resource) == ("recovery.version", "model:faces:1")
    # Not by a process with memory enough either, and no alias may move there.
    with pytest.raises(Conflict, match="quarantine"):
        trained.store.load("faces", 1)
    with pytest.raises(Conflict, match="quarantine"):
        trained.store.promote("faces", "staging", 1, by="test")


def test_a_version_whose_process_died_of_something_else_is_tried_and_served(trained):
    die_loading(trained)
    X, _ = people(4, 2, seed=3)
    assert trained.store.load("faces", 1).pair_score(X[:4], X[4:]).shape == (4,)
    assert trained.store.version("faces", 1).quarantine is None
    # The mark is gone: a store whose trials fail has nothing to try.
    limited(trained).load("faces", 1)


def test_a_load_under_way_is_nobody_elses_business(trained):
    seen = []

    def first(model):
        limited(trained).load("faces", 1)
        seen.append(model)

    trained.store.load("faces", 1, first)
    assert seen
    assert quarantined(trained) == []


def test_a_load_that_fails_in_words_leaves_no_mark(trained):
    def first(model):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        trained.store.load("faces", 1, first)
    limited(trained).load("faces", 1)


def forged(body: bytes, change) -> bytes:
    """An export with an array changed and every hash made to fit: only its schema tells."""

    def edit(manifest, entries):
        listed = json.loads(entries["artefact/manifest.json"])
        name, array = change(
            {one: np.load(io.BytesIO(entries[f"artefact/{one}.npy"])) for one in listed["arrays"]}
        )
        out = io.BytesIO()
        np.save(out, array)
        entries[f"artefact/{name}.npy"] = out.getvalue()
        listed["arrays"][name]["sha256"] = hashlib.sha256(out.getvalue()).hexdigest()
        entries["artefact/manifest.json"] = json.dumps(listed).encode()
        for one in (f"artefact/{name}.npy", "artefact/manifest.json"):
            manifest["files"][one] = hashlib.sha256(entries[one]).hexdigest()
        manifest["version"]["artefact_sha256"] = manifest["files"]["artefact/manifest.json"]

    return with_manifest(body, edit)


@pytest.mark.parametrize(("name", "value"), [("node_feature", 2**30), ("node_high", 0)])
def test_an_import_that_would_crash_the_server_is_refused_by_array_and_row(trained, exported, name, value):
    def change(arrays):
        array = arrays[name]
        array.reshape(-1)[0] = value
        return name, array

    with pytest.raises(InvalidInput, match=rf"array '{name}', row 0"):
        trained.store.import_file(io.BytesIO(forged(exported, change)), name="copy", by="test")
    with pytest.raises(UnknownModel):
        trained.store.model("copy")


def test_an_import_whose_trial_does_not_survive_is_refused(trained, exported):
    with pytest.raises(InvalidInput, match="file: cannot be"):
        limited(trained).import_file(io.BytesIO(exported), name="copy", by="test")
    with pytest.raises(UnknownModel):
        trained.store.model("copy")


@pytest.fixture
def signing(trained):
    """A store with a key, which imports nothing that is not signed with it."""
    key = trained.folder / "import.key"
    key.write_bytes(KEY + b"\n")
    settings = trained.settings.model_copy(update={"import_key_file": key, "require_signed_imports": True})
    return ModelStore(trained.db, trained.blobs, settings)


def test_a_signed_export_is_imported_and_nothing_else_is(trained, exported, signing):
    signed = signing.export("faces", 1, trained.folder / "signed").read_bytes()
    assert signing.import_file(io.BytesIO(signed), name="copy", by="test") == ("copy", 1)
    with pytest.raises(InvalidInput, match="is not signed"):
        signing.import_file(io.BytesIO(exported), name="copy", by="test")
    changed = with_manifest(signed, lambda manifest, _: manifest["version"]["metrics"].update(auc=1.0))
    with pytest.raises(InvalidInput, match="signature is not valid"):
        signing.import_file(io.BytesIO(changed), name="copy", by="test")
    stolen = rewritten(exported, lambda entries: entries.update({SIGNATURE: b"hmac-sha256:" + b"0" * 64}))
    with pytest.raises(InvalidInput, match="signature is not valid"):
        signing.import_file(io.BytesIO(stolen), name="copy", by="test")
    # One that knows no key takes it by its hashes alone.
    assert trained.store.import_file(io.BytesIO(signed), name="copy", by="test")[0] == "copy"


def test_another_key_signs_nothing_here(trained, signing):
    signed = signing.export("faces", 1, trained.folder / "signed").read_bytes()
    (trained.folder / "import.key").write_bytes(b"another key, of another service")
    with pytest.raises(InvalidInput, match="signature is not valid"):
        signing.import_file(io.BytesIO(signed), name="copy", by="test")
    with zipfile.ZipFile(io.BytesIO(signed)) as bundle:
        assert {MANIFEST, SIGNATURE} <= set(bundle.namelist())
