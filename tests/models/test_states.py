"""Nothing loaded is trusted: every array of every learner is changed, mixed up, newer or executable, and refused."""

import inspect
import json
import os
import pickle
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import pairmark
from pairmark.models import RSBL, SimilarityTree, load, save
from pairmark.models.core.artefact import (
    MANIFEST,
    Artefact,
    ArtefactError,
    file_sha256,
    read_artefact,
    write_artefact,
)
from pairmark.models.registry import learner_specs, restore_learner
from tests.models.test_learners import OF_KIND, SMALL, X, build, target, y

SMALL_FOREST = {"n_estimators": 3, "max_depth": 4, "n_pairs": 500}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{spec.kind: (spec.kind, {}) for spec in learner_specs()},
    "plda, lengths": ("plda", {"marginals": "normal", "length_norm": True, "n_components": 3}),
    "plda, residual": ("plda", {"residual_rounds": 10, "n_components": 3}),
    "metric, whitened": ("metric", {"whiten": True}),
    "rsbl, 1nn": ("rsbl", {"final": "1nn"}),
    "ghost, graph": (
        "ghost",
        {"graph": "knn", "meta_features": ["features", "path", "euclidean"], "max_iter": 4, "tau": 0.0},
    ),
    "ghost, sets": ("ghost", {"graph": "knn", "order": 3, "cluster_metric": True, "max_iter": 4, "tau": 0.0}),
    "rankboost, grid": ("rankboost-kernel", {"n_estimators": 20, "weak": "grid", "chain": "A"}),
    "aligned, both": ("aligned-kernel", {"psd": False, "n_iter": 2, "hidden": (5,)}),
    "pairwise, forest": ("label-ranking-pairwise", {"estimator": "forest"}),
    **{f"auto of {name}": ("label-ranking-auto", {"candidates": [name]}) for name in ("forest", "logistic")},
}
KINDS = {spec.kind: spec for spec in learner_specs()}
HUGE, FAR = 2**31 - 1, 2**30


@cache
def saved(variant: str) -> Artefact:
    """One fitted learner as the artefact that it is saved as."""
    kind, params = VARIANTS[variant]
    spec = KINDS[kind]
    small = {**SMALL, **OF_KIND.get(kind, {})}
    known = {name: value for name, value in small.items() if name in spec.params.model_fields}
    return artefact_of(spec.estimator(**{**known, **params}).fit(X[::2], target(spec)[::2]))


def artefact_of(model: Any) -> Artefact:
    with TemporaryDirectory() as folder:
        pairmark.save(model, Path(folder) / "model")
        return read_artefact(Path(folder) / "model", mmap=False)


def answers(artefact: Artefact) -> list[np.ndarray]:
    """What a loaded learner says, by every way there is to ask it. In a test with bounds checks, reads beyond fail."""
    model, spec = restore_learner(artefact), KINDS[artefact.kind]
    if spec.needs == "rankings":
        return [model.predict_scores(X[:6]), model.predict(X)]
    unavailable, said = getattr(model, "unavailable_", ()), []
    try:
        said += [model.pair_score(X[:20], X[20:40]), model.pair_score(X[:1], X[:90])]
        said.append(model.top_k(X[:2], model.index(X[:60]), 3)[1])
    except ValueError as error:
        # Where only sets and classes have a weight.
        if "would score alike" not in str(error):
            raise
    if "embed" in spec.capabilities and "embed" not in unavailable:
        said.append(model.transform(X[:5]))
    if hasattr(model, "predict_proba") and "classify" not in unavailable:
        said.append(model.predict_proba(X[:5]))
    return said


def refused_or_harmless(artefact: Artefact) -> bool:
    """Whether it is refused, in words; else its answers are numbers, soon."""
    begun, said, refusal = time.process_time(), [], ""
    try:
        with np.errstate(all="ignore"):
            said = answers(artefact)
    except ArtefactError as error:
        refusal = str(error)
    if refusal:
        assert any(name in refusal for name in artefact.arrays), refusal
        return True
    assert time.process_time() - begun < 20.0
    assert all(one.dtype.kind == "f" for one in said)
    return False


def changed(artefact: Artefact, name: str, array: np.ndarray) -> Artefact:
    return replace(artefact, arrays={**artefact.arrays, name: array})


def put(array: np.ndarray, value: Any, place: int = 0) -> np.ndarray:
    other = np.array(array, order="C")
    other.reshape(-1)[place] = value
    return other


def forms(array: np.ndarray) -> Iterator[np.ndarray]:
    """The same array as another type or shape, which nobody would have saved."""
    yield array.astype("U9") if array.dtype.kind != "U" else np.zeros(array.shape)
    if array.dtype.kind in "iu":
        yield array.astype(np.float64)
        yield array.astype(np.int16)
        yield array.astype(array.dtype.newbyteorder())
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        yield half
        yield array.astype(np.complex64)
    yield array[None]
    if array.ndim:
        yield array[:0]
        yield np.concatenate([array, array[-1:]])
        yield array[..., None]
    if array.ndim > 1:
        yield array[:, :-1]


def held_by(array: np.ndarray, values: tuple[int, ...]) -> list[int]:
    """Those of some numbers that an array's dtype holds, and its greatest."""
    limits = np.iinfo(array.dtype)
    return sorted({int(limits.max), *(value for value in values if limits.min <= value <= limits.max)})


@pytest.mark.parametrize("variant", VARIANTS)
class TestStates:
    def test_what_was_saved_is_loaded_and_answers_alike(self, variant: str, tmp_path: Path) -> None:
        pairmark.save(restore_learner(saved(variant)), tmp_path / "model")
        again = read_artefact(tmp_path / "model")
        for mine, theirs in zip(answers(saved(variant)), answers(again), strict=True):
            assert mine.tobytes() == theirs.tobytes()

    def test_arrays_of_another_type_or_shape_are_refused(self, variant: str) -> None:
        artefact = saved(variant)
        for name, array in artefact.arrays.items():
            for other in forms(array):
                refused = refused_or_harmless(changed(artefact, name, other))
                # A matrix may have more columns than it had, and labels may be of any kind.
                assert refused or other.dtype == array.dtype or name == "classes", (name, other.dtype)

    def test_missing_and_stray_arrays_are_refused(self, variant: str) -> None:
        artefact = saved(variant)
        for name in artefact.arrays:
            rest = {one: array for one, array in artefact.arrays.items() if one != name}
            try:
                answers(replace(artefact, arrays=rest))
            except ArtefactError:
                continue
            # Records' patterns of one side are not in models of before.
            assert name in ("projection", "classes", "cluster_rows", "one_sided"), name
        with pytest.raises(ArtefactError, match="'stray' is none"):
            restore_learner(changed(artefact, "stray", np.zeros(3)))

    def test_no_number_does_harm(self, variant: str) -> None:
        artefact = saved(variant)
        for name, array in artefact.arrays.items():
            if array.dtype.kind not in "iuf" or not array.size:
                continue
            places = sorted({0, array.size - 1})
            if array.dtype.kind == "f":
                for place in places:
                    for value in (np.nan, -np.inf):
                        bad = put(array, value, place)
                        # Bounds of rankers are open, rows of knots end with infinities, absent labels have no place.
                        allowed = name in ("low", "high", "knots") and not np.isnan(value)
                        allowed |= name.endswith("positions") and np.isnan(value)
                        assert refused_or_harmless(changed(artefact, name, bad)) or allowed, (name, place)
                for value in (-1.0, 1e30, 0.0):
                    refused_or_harmless(changed(artefact, name, put(array, value, places[0])))
                continue
            for place in places:
                values = (HUGE, -HUGE - 1, -1, 0, place, array.size)
                for value in held_by(array, values):
                    refused_or_harmless(changed(artefact, name, put(array, value, place)))
            for value in held_by(array, (HUGE, -2)):
                refused_or_harmless(changed(artefact, name, np.full_like(array, value)))

    def test_facts_out_of_bounds_are_refused(self, variant: str) -> None:
        artefact = saved(variant)
        for value in (-1, 0, 10**12, 4.5, "4", None, [4]):
            with pytest.raises(ArtefactError, match="n_features_in"):
                restore_learner(replace(artefact, meta={**artefact.meta, "n_features_in": value}))
        with pytest.raises(ArtefactError, match="feature_names_in"):
            restore_learner(replace(artefact, meta={**artefact.meta, "feature_names_in": ["a"]}))
        for name, value in artefact.meta.items():
            if name == "feature_names_in":
                continue
            for other in (-7, 10**9, float("nan"), "x", None, [], {"x": 1}):
                try:
                    answers(replace(artefact, meta={**artefact.meta, name: other}))
                except ArtefactError:
                    continue
                assert isinstance(value, (float, int, dict, list)) or other is None, (name, other)


class TestKnownAttacks:
    """Each of these read the server's memory, killed it or kept a core busy for ever."""

    @pytest.mark.parametrize(
        ("variant", "name", "value", "message"),
        [
            ("label-ranking-tree", "members", FAR, r"'members', row 0: is 1073741824; expected less than 75"),
            ("label-ranking-forest", "members", -1, r"'members', row 0: is -1; expected at least 0"),
            ("similarity-forest", "node_feature", FAR, r"'node_feature', row 0.*expected less than 8"),
            ("similarity-forest", "node_low", HUGE, r"'node_low', row 0: is 2147483647"),
            ("similarity-forest", "node_low", 0, r"'node_low', row 0: is 0; expected a later node"),
            ("similarity-forest", "node_high", 0, r"'node_high', row 0: is 0; expected a later node"),
            ("label-ranking-tree", "left", 0, r"'left', row 0: is 0; expected a node after its parent"),
            ("rsbl", "columns_0", FAR, r"'columns_0', row 0: is 1073741824"),
            ("similarity-tree", "node_threshold", np.nan, r"'node_threshold', row 0: is nan"),
            ("ghost", "codes", FAR, r"'codes', row 0"),
            ("ghost", "exemplars", FAR, r"'exemplars', row 0"),
            ("rankboost-kernel", "features", FAR, r"'features', row 0"),
            ("aligned-kernel", "columns", -5, r"'columns', row 0"),
        ],
    )
    def test_is_refused_by_array_and_row(
        self, variant: str, name: str, value: float, message: str, tmp_path: Path
    ) -> None:
        artefact = saved(variant)
        bad = changed(artefact, name, put(artefact.arrays[name], value))
        write_artefact(tmp_path / "bad", kind=bad.kind, params=bad.params, meta=bad.meta, arrays=bad.arrays)
        with pytest.raises(ArtefactError, match=message):
            pairmark.load(tmp_path / "bad")

    def test_a_cycle_through_cells_is_refused(self) -> None:
        artefact = saved("similarity-forest")
        cells = np.array(artefact.arrays["cells"])
        cells[np.flatnonzero(cells[:, 2] >= 0)[1], 2] = 0
        with pytest.raises(ArtefactError, match=r"'cells'|'node_"):
            restore_learner(changed(artefact, "cells", cells))


@pytest.mark.parametrize(
    "spec", [spec for spec in learner_specs() if "search" in spec.capabilities], ids=lambda s: s.kind
)
def test_a_subclass_indexes_and_searches(spec: Any) -> None:
    model = type("Mine", (spec.estimator,), {})(**build(spec).get_params()).fit(X, y)
    index = model.index(X[:40])
    assert index.digest is not None
    assert model.top_k(X[:2], index, 3)[0].shape == (2, 3)
    theirs = build(spec).fit(X, y)
    with pytest.raises(ValueError, match="another model"):
        theirs.top_k(X[:1], index, 1)


def test_a_child_at_the_end_of_the_number_range_is_refused() -> None:
    artefact = saved("record-trees")
    at = int(np.flatnonzero(artefact.arrays["features"] >= 0)[0])
    far = put(artefact.arrays["children"], np.iinfo(np.int64).max, at)
    with pytest.raises(ArtefactError, match="children"):
        restore_learner(changed(artefact, "children", far))


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
