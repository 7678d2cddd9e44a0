"""A power cut at any moment: nothing acknowledged is lost, and nothing half-written is taken for whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from pairmark.models import MetricSimilarity, load, save
from pairmark.models.core.artefact import ArtefactError
from pairmark.service.blobs.local import LocalBlobs
from pairmark.service.db import Database
from pairmark.service.errors import CorruptArtefact
from pairmark.service.galleries.index.blocks import BlockFolder, IndexBlock, make_block
from pairmark.service.galleries.items.rows import StoredRows
from tests.crashes import PowerCuts

Follow = Callable[[Path, Callable[[Path], None]], PowerCuts]


@pytest.fixture
def follow(tmp_path: Path) -> Follow:
    return lambda root, check: PowerCuts(root, tmp_path / "states", check)


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_blobs_survive_a_power_cut_once_their_key_was_returned(tmp_path: Path, follow: Follow) -> None:
    home = tmp_path / "home"
    home.mkdir()
    acknowledged: dict[str, dict[str, bytes]] = {}
    deleted: set[str] = set()

    def check(state: Path) -> None:
        blobs = LocalBlobs(state / "artefacts")
        blobs.sweep()
        for key, content in acknowledged.items():
            assert blobs.exists(key), f"{key[:8]} was acknowledged and is lost"
            assert content_of(blobs.folder(key)) == content
        for key in deleted:
            # Nobody knows of a deletion that was cut whether it was done; one that returned is.
            assert not blobs.exists(key), f"{key[:8]} was deleted and is there again"

    cuts = follow(home, check)
    with cuts.following():
        blobs = LocalBlobs(home / "artefacts")
        for files in (
            {"a.npy": b"one" * 50},
            {"a.npy": b"two" * 50, "in/b.json": b"{}"},
            {"a.npy": b"one" * 50},
        ):
            with blobs.workspace() as folder:
                for name, data in files.items():
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).write_bytes(data)
                key = blobs.put_folder(folder)
            acknowledged[key] = files
            cuts.cut_now()
        gone = next(iter(acknowledged))
        del acknowledged[gone]
        blobs.delete(gone)
        deleted.add(gone)
        cuts.cut_now()
    assert cuts.made > 50


def test_a_blob_damaged_by_a_power_cut_is_never_read_and_can_be_put_again(
    tmp_path: Path, follow: Follow
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    files = {"a.npy": b"one" * 50, "b.npy": b"two" * 50}
    source = tmp_path / "source"
    source.mkdir()
    for name, data in files.items():
        (source / name).write_bytes(data)
    keys: set[str] = set()

    def check(state: Path) -> None:
        blobs = LocalBlobs(state / "artefacts")
        blobs.sweep()
        for key, _ in list(blobs.ages()):
            try:
                assert content_of(blobs.folder(key)) == files
            except CorruptArtefact:
                continue
        again = blobs.put_folder(source)
        assert content_of(blobs.folder(again)) == files
        assert list((state / "artefacts" / "tmp").iterdir()) == []

    cuts = follow(home, check)
    with cuts.following():
        keys.add(LocalBlobs(home / "artefacts").put_folder(source))
    assert len(keys) == 1


def test_an_artefact_survives_a_power_cut_and_its_replacement_is_the_old_or_the_new(
    tmp_path: Path, follow: Follow
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.repeat(np.arange(5), 4)
    models = [MetricSimilarity(metric=metric, whiten=True).fit(X, y) for metric in ("euclidean", "cosine")]
    expected = [model.pair_score(X[:4], X[4:8]) for model in models]
    home = tmp_path / "home"
    home.mkdir()
    saved = 0

    def check(state: Path) -> None:
        target = state / "models" / "mine"
        try:
            scores = load(target).pair_score(X[:4], X[4:8])
        except ArtefactError:
            # Replacing takes two renames; the first version's own save must never be lost by itself.
            assert saved == 0 or list((state / "models").glob(".mine.*.old")), "the saved model is lost"
            return
        assert any(np.array_equal(scores, some) for some in expected)
        if saved == 2:
            assert np.array_equal(scores, expected[1])

    cuts = follow(home, check)
    with cuts.following():
        for model in models:
            save(model, home / "models" / "mine")
            saved += 1
            cuts.cut_now()
    assert cuts.made > 10


def block_content(block: IndexBlock) -> dict[str, object]:
    """What a block answers with."""
    return {
        "range": (block.low, block.high, block.as_of),
        "ids": [block.ids[row] for row in range(len(block))],
        "subjects": [block.subject(row) for row in range(len(block))],
        "seqs": block.seqs.tolist(),
        "order": block.order.tolist(),
        "vectors": np.asarray(block.index.vectors).tolist(),
        "sites": block.columns["site"].codes.tolist(),
    }


def test_a_kept_gallery_block_is_there_whole_after_a_power_cut(tmp_path: Path, follow: Follow) -> None:
    rng = np.random.default_rng(0)
    estimator = MetricSimilarity().fit(rng.normal(size=(20, 3)), np.repeat(np.arange(5), 4))
    rows = StoredRows(
        ids=["b", "a", "c"],
        subjects=["s", None, "t"],
        vectors=rng.normal(size=(3, 3)).astype(np.float32),
        metadata=['{"site": "n"}', None, '{"site": "m"}'],
        seqs=np.array([1, 2, 3]),
    )
    made = make_block(estimator, [rows], 3, low=0, high=3, as_of=3)
    expected = block_content(made)
    home = tmp_path / "home"
    home.mkdir()
    kept = False

    def check(state: Path) -> None:
        found = BlockFolder(state / "galleries" / "g" / "m-1").disjoint_blocks(estimator)
        # A block that is missing is made anew from the database; a wrong one would answer wrongly.
        assert [block_content(block) for block in found] in ([], [expected])
        if kept:
            assert found, "the block was kept and has to be made anew"

    cuts = follow(home, check)
    with cuts.following():
        BlockFolder(home / "galleries" / "g" / "m-1").keep(made, estimator)
        kept = True
        cuts.cut_now()
    assert cuts.made > 50


def test_an_erased_person_is_in_no_block_after_a_power_cut(tmp_path: Path, follow: Follow) -> None:
    rng = np.random.default_rng(0)
    estimator = MetricSimilarity().fit(rng.normal(size=(20, 3)), np.repeat(np.arange(5), 4))
    rows = StoredRows(
        ids=["gone"],
        subjects=[None],
        vectors=rng.normal(size=(1, 3)).astype(np.float32),
        metadata=[None],
        seqs=np.array([1]),
    )
    home = tmp_path / "home"
    folder = BlockFolder(home / "g")
    folder.keep(make_block(estimator, [rows], 3, low=0, high=1, as_of=1), estimator)
    erased = False

    def check(state: Path) -> None:
        if erased:
            assert [path for path in state.rglob("*") if path.is_file()] == []

    cuts = follow(home, check)
    with cuts.following():
        assert folder.drop_holders(["gone"]) == 1
        erased = True
        cuts.cut_now()


def test_sqlite_flushes_every_commit(new_database: Callable[..., str]) -> None:
    database = Database(new_database("sqlite"))
    with database.read() as session:
        # 2: FULL, which SQLite documents to keep what was committed through a power cut, in WAL mode too.
        assert session.execute(text("PRAGMA synchronous")).scalar_one() == 2
    database.dispose()
