"""Nothing loaded is trusted: what was changed, mixed up, newer or executable is refused."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pairmark.models import RSBL, SimilarityTree, load, save
from pairmark.models.core.artefact import MANIFEST, ArtefactError, file_sha256, read_artefact, write_artefact
from pairmark.models.registry import learner_specs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artefact of two arrays."""
    arrays = {"mean": np.arange(3.0), "codes": np.arange(4, dtype=np.int32)}
    write_artefact(tmp_path / "model", kind="metric", params={}, meta={}, arrays=arrays)
    return tmp_path / "model"


def rewrite(folder: Path, change: Callable[[dict], None]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def test_a_changed_array_is_refused(folder: Path) -> None:
    body = bytearray((folder / "mean.npy").read_bytes())
    body[-1] ^= 1
    (folder / "mean.npy").write_bytes(body)
    with pytest.raises(ArtefactError, match=r"mean\.npy was changed after it was saved \(sha256 differs\)"):
        read_artefact(folder)


@pytest.mark.parametrize(
    "entry",
    [{"dtype": "<f4"}, {"shape": [4]}, {"shape": [2**40]}, {"file": 7}, {"sha256": None}, {"shape": "x"}],
)
@pytest.mark.parametrize("mmap", [True, False])
def test_arrays_must_be_those_the_manifest_lists(folder: Path, entry: dict, mmap: bool) -> None:
    rewrite(folder, lambda manifest: manifest["arrays"]["mean"].update(entry))
    with pytest.raises(ArtefactError, match=r"does not match its manifest entry|is not a Pairmark manifest"):
        read_artefact(folder, mmap=mmap)


def test_a_newer_format_is_refused(folder: Path) -> None:
    rewrite(folder, lambda manifest: manifest.update(format_version=99))
    with pytest.raises(ArtefactError, match="format version 99"):
        load(folder)


def test_a_missing_array_or_manifest_is_refused(folder: Path) -> None:
    (folder / "codes.npy").unlink()
    with pytest.raises(ArtefactError, match="cannot be read as an array"):
        read_artefact(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(ArtefactError, match=r"holds no manifest\.json"):
        read_artefact(folder)


def test_names_in_the_manifest_do_not_lead_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "outside.npy", np.arange(3.0))

    def change(manifest: dict) -> None:
        entry = manifest["arrays"]["mean"]
        entry["file"], entry["sha256"] = "../outside.npy", file_sha256(tmp_path / "outside.npy")

    rewrite(folder, change)
    with pytest.raises(ArtefactError, match="cannot be read"):
        read_artefact(folder)


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_small_arrays_hold_no_files_open(folder: Path) -> None:
    before = open_files()
    artefact = read_artefact(folder)
    assert open_files() == before
    assert not any(array.flags.writeable for array in artefact.arrays.values())


def test_a_lack_of_files_is_no_damage(folder: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.open(folder, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            read_artefact(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        os.close(taken)
    assert read_artefact(folder).kind == "metric"


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, at: Path) -> None:
        self.at = at

    def __reduce__(self) -> tuple:
        return (Path.write_text, (self.at, "ran"))


def test_manifests_of_no_form_are_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"format": "pairmark"}', "[" * 100_000, '{"format": 7}', "null"):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(ArtefactError, match="manifest"):
            read_artefact(tmp_path)


@pytest.mark.parametrize("mmap", [True, False])
def test_a_pickle_in_place_of_an_array_does_not_run(folder: Path, tmp_path: Path, mmap: bool) -> None:
    ran = tmp_path / "ran"
    holder = np.array([Payload(ran)], dtype=object)
    np.save(folder / "mean.npy", holder, allow_pickle=True)

    def change(manifest: dict) -> None:
        manifest["arrays"]["mean"]["sha256"] = file_sha256(folder / "mean.npy")

    rewrite(folder, change)
    with pytest.raises(ArtefactError):
        read_artefact(folder, mmap=mmap)
    (folder / "mean.npy").write_bytes(pickle.dumps(Payload(ran)))
    rewrite(folder, change)
    with pytest.raises(ArtefactError):
        read_artefact(folder, mmap=mmap)
    # A manifest that owns up to it does not help.
    np.save(folder / "mean.npy", holder, allow_pickle=True)

    def own_up(manifest: dict) -> None:
        change(manifest)
        manifest["arrays"]["mean"].update(dtype=holder.dtype.str, shape=list(holder.shape))

    rewrite(folder, own_up)
    with pytest.raises(ArtefactError):
        read_artefact(folder, mmap=mmap)
    assert not ran.exists()


def test_parameters_that_are_gone_are_read_over_or_refused(tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    tree = SimilarityTree(max_depth=3, n_pairs=500, random_state=0).fit(X, y)
    features = RSBL(random_state=0).fit(X, y)
    for model, change, refused in (
        (tree, {"prune": True, "pair_features": "auto"}, None),
        (features, {"similarity": "cosine"}, None),
        (
            features,
            {"similarity": "gaussian"},
            r"similarity is 'gaussian', which this version no longer.*train it again: pairmark train --learner rsbl",
        ),
    ):
        save(model, tmp_path / "older")
        rewrite(tmp_path / "older", lambda manifest, change=change: manifest["params"].update(change))
        if refused is None:
            scores = load(tmp_path / "older").pair_score(X[:9], X[9:18])
            assert scores.tobytes() == model.pair_score(X[:9], X[9:18]).tobytes()
        else:
            with pytest.raises(ArtefactError, match=refused):
                load(tmp_path / "older")


@pytest.mark.parametrize("spec", learner_specs(), ids=lambda spec: spec.kind)
def test_help_of_every_learner_describes_each_parameter(spec: Any) -> None:
    text = " ".join((inspect.getdoc(spec.estimator) or "").split())
    properties: dict[str, Any] = spec.params.model_json_schema()["properties"]
    for name, field in properties.items():
        assert f"{name} : {field['description'].replace('null', 'None')}" in text, name
