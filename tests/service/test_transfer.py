"""A version moved between deployments: identical answers, and nothing in the file is trusted."""

import hashlib
import io
import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import select

from pairmark.models.calibration.operating_point import guarantee_of
from pairmark.models.core.artefact import read_artefact, write_artefact
from pairmark.service.blobs import Blobs
from pairmark.service.errors import InvalidInput, TooLarge, UnknownModel
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import AuditRow
from tests.service.conftest import people

MANIFEST, SIGNATURE = "pairmark-export.json", "pairmark-export.sig"


@pytest.fixture
def exported(deployment):
    deployment.train()
    return deployment.store.export("faces", 1, deployment.folder / "out").read_bytes()


@pytest.fixture
def elsewhere(deployment, tmp_path):
    """The same database with storage of its own: what was not in the file is missing there."""
    return ModelStore(deployment.db, Blobs(tmp_path / "elsewhere"), deployment.settings)


def rewritten(body, change):
    """The zip with its entries changed by ``change(entries)``, a dict of name -> bytes."""
    with zipfile.ZipFile(io.BytesIO(body)) as bundle:
        entries = {name: bundle.read(name) for name in bundle.namelist()}
    change(entries)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        for name, content in entries.items():
            bundle.writestr(name, content)
    return out.getvalue()


def with_manifest(body, change):
    def edit(entries):
        manifest = json.loads(entries[MANIFEST])
        change(manifest, entries)
        entries[MANIFEST] = json.dumps(manifest).encode()

    return rewritten(body, edit)


def test_an_imported_version_answers_the_same(deployment, elsewhere, exported):
    assert elsewhere.import_file(io.BytesIO(exported), name="copy", promote="production", actor="test") == (
        "copy",
        1,
    )
    X, _ = people(20, 2, seed=3)
    np.testing.assert_array_equal(
        elsewhere.load("copy", 1).pair_score(X[:20], X[20:]),
        deployment.store.load("faces", 1).pair_score(X[:20], X[20:]),
    )
    ours, theirs = deployment.store.version("faces", 1), elsewhere.version("copy", 1)
    assert theirs.lineage.artefact_sha256 == ours.lineage.artefact_sha256
    assert (theirs.lineage.model_extra["imported_from"], theirs.metrics) == ("faces:1", ours.metrics)
    points = [
        store.calibrations.load(version.calibration_id)[0].operating_point(0.5)
        for store, version in ((deployment.store, ours), (elsewhere, theirs))
    ]
    # Nobody vouches for the scores in the file, so they answer without a guarantee.
    assert points[1] == replace(points[0], origin="imported", assumes=points[1].assumes)
    assert [point.guarantee for point in points] == ["finite-sample", "none"]
    drawn = [entry for entry in points[1].assumes if entry["assumption"] == "pairs-drawn"]
    assert drawn == [{"assumption": "pairs-drawn", "status": "unchecked"}]
    assert elsewhere.reports.roc("copy", 1) == deployment.store.reports.roc("faces", 1)
    assert elsewhere.resolve("copy") == ("copy", 1)


def test_what_was_trained_on_is_remembered_after_an_import(deployment, elsewhere, exported):
    from pairmark.service.errors import CalibrationOverlap

    deployment.store.import_file(io.BytesIO(exported), name="copy", actor="test")
    with pytest.raises(CalibrationOverlap):
        deployment.store.calibrations.calibrate("copy", 1, "people")


def _flip(entries):
    name = max((one for one in entries if one.startswith("artefact/")), key=lambda one: len(entries[one]))
    entries[name] = entries[name][:-1] + bytes([entries[name][-1] ^ 1])


def _lose(entries):
    del entries[next(one for one in entries if one.startswith("artefact/") and one.endswith(".npy"))]


def _consistent_lie(manifest, entries):
    """A changed artefact whose listed hashes were mended: the artefact's own sha256 gives it away."""
    body = json.loads(entries["artefact/manifest.json"])
    body["params"]["max_depth"] = 5
    entries["artefact/manifest.json"] = json.dumps(body).encode()
    manifest["files"]["artefact/manifest.json"] = hashlib.sha256(
        entries["artefact/manifest.json"]
    ).hexdigest()


def _escape(manifest, entries):
    entries["../evil.npy"] = b"x"
    manifest["files"]["../evil.npy"] = "0" * 64


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda body: body[: len(body) // 2], "not a whole zip"),
        (lambda body: b"hello", "not a whole zip"),
        (lambda body: b"", "not a whole zip"),
        (lambda body: rewritten(body, _flip), "was changed after the export"),
        (lambda body: rewritten(body, _lose), "not those its manifest lists"),
        (lambda body: rewritten(body, lambda entries: entries.update({"artefact/x.npy": b"x"})), "not those"),
        (
            lambda body: rewritten(body, lambda entries: entries.pop(MANIFEST)),
            "contains no pairmark-export.json",
        ),
        (
            lambda body: rewritten(body, lambda entries: entries.update({MANIFEST: b"{}"})),
            "not in the expected form",
        ),
        (lambda body: with_manifest(body, _escape), "not those its manifest lists"),
        (lambda body: with_manifest(body, _consistent_lie), "cannot be loaded"),
        (lambda body: with_manifest(body, lambda m, _: m.update(format_version=99)), "upgrade pairmark"),
        (
            lambda body: with_manifest(body, lambda m, _: m["version"].update(kind="similarity-tree")),
            "cannot be loaded",
        ),
    ],
)
def test_a_file_that_is_not_a_whole_unchanged_export_is_refused(deployment, elsewhere, exported, spoil, said):
    with pytest.raises(InvalidInput, match=said):
        elsewhere.import_file(io.BytesIO(spoil(exported)), name="copy", actor="test")
    with pytest.raises(UnknownModel):
        deployment.store.model("copy")
    assert not (deployment.folder / "evil.npy").exists()
    assert [path for path in (deployment.folder / "elsewhere").rglob("*") if path.is_file()] == []


def with_calibration(body, change, tell=lambda summary, arrays: None):
    """The file with its calibration's arrays changed, and every hash recomputed."""

    def edit(manifest, entries):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "old"
            folder.mkdir()
            for name in [name for name in entries if name.startswith("calibration/")]:
                (folder / name.partition("/")[2]).write_bytes(entries.pop(name))
                del manifest["files"][name]
            stored = read_artefact(folder)
            arrays = {name: np.array(array) for name, array in stored.arrays.items()}
            change(arrays)
            write_artefact(
                Path(scratch) / "new", kind=stored.kind, params={}, meta=stored.meta, arrays=arrays
            )
            for path in (Path(scratch) / "new").iterdir():
                entry = f"calibration/{path.name}"
                entries[entry] = path.read_bytes()
                manifest["files"][entry] = hashlib.sha256(entries[entry]).hexdigest()
        tell(manifest["calibration"]["summary"], arrays)

    return with_manifest(body, edit)


def _widened(arrays):
    """A lie that nothing in the file contradicts: fewer different pairs score high."""
    arrays["above"] *= 0.9


def test_an_imported_calibration_guarantees_nothing(deployment, elsewhere, exported):
    body = with_calibration(exported, _widened)
    assert elsewhere.import_file(io.BytesIO(body), name="copy", actor="test") == ("copy", 1)
    version = elsewhere.version("copy", 1)
    calibration, facts = elsewhere.calibrations.load(version.calibration_id)
    assert (guarantee_of("finite-sample", calibration.facts.origin), facts.imported) == ("none", "unsigned")
    assert facts.summary["origin"] == "imported"
    assert version.promise is None
    reported = elsewhere.reports.report(version)
    assert reported.promises == []
    assert "the claim of an unsigned file" in " ".join(reported.limits)
    with deployment.db.read() as session:
        entry = session.scalars(select(AuditRow).order_by(AuditRow.id.desc())).first()
        assert (entry.action, entry.after["calibration_imported"]) == ("version.create", "unsigned")
    # Exported once more, it is still what nobody vouched for: whoever signs it signs that mark too.
    again = elsewhere.export("copy", 1, deployment.folder / "again").read_bytes()
    assert elsewhere.import_file(io.BytesIO(again), name="copy", actor="test") == ("copy", 2)
    # Calibrated here, on other people, it guarantees again.
    there = replace(deployment, blobs=Blobs(deployment.folder / "elsewhere"))
    there.upload("others", *people(60, 4, seed=5, first=1000))
    made = elsewhere.calibrations.calibrate("copy", 1, "others", default=True)
    calibration, facts = elsewhere.calibrations.load(made.id)
    assert (guarantee_of("finite-sample", calibration.facts.origin), facts.imported) == (
        "finite-sample",
        None,
    )


def test_a_signed_calibration_keeps_its_guarantee_and_a_stripped_signature_is_refused(
    deployment, exported, tmp_path
):
    key = tmp_path / "import.key"
    key.write_bytes(b"a key of sixteen bytes")
    store = ModelStore(
        deployment.db, deployment.blobs, deployment.settings.model_copy(update={"import_key_file": key})
    )
    signed = store.export("faces", 1, deployment.folder / "signed").read_bytes()
    for body in (rewritten(signed, lambda entries: entries.pop(SIGNATURE)), exported):
        with pytest.raises(InvalidInput, match="is not signed"):
            store.import_file(io.BytesIO(body), name="copy", actor="test")
    # An import that came unsigned is not made good by the key of who exports it.
    assert deployment.store.import_file(io.BytesIO(exported), name="copy", actor="test") == ("copy", 1)
    passed_on = store.export("copy", 1, deployment.folder / "copy").read_bytes()
    for body, expected in ((signed, ("finite-sample", "signed")), (passed_on, ("none", "unsigned"))):
        name, version = store.import_file(io.BytesIO(body), name="other", actor="test")
        calibration, facts = store.calibrations.load(store.version(name, version).calibration_id)
        assert (guarantee_of("finite-sample", calibration.facts.origin), facts.imported) == expected


def test_a_packed_again_or_oversized_file_is_refused(deployment, elsewhere, exported):
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(exported)) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(InvalidInput, match="was repacked"):
        elsewhere.import_file(io.BytesIO(out.getvalue()), actor="test")
    tight = ModelStore(
        deployment.db, deployment.blobs, deployment.settings.model_copy(update={"max_upload_bytes": 1000})
    )
    with pytest.raises(TooLarge):
        tight.import_file(io.BytesIO(exported), actor="test")
