"""Versions in memory: loaded once, new before old, the old one kept when the new is broken; when a process is ready."""

import asyncio
import errno
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pairmark import MetricSimilarity
from pairmark.service.db import Database
from pairmark.service.errors import CorruptArtefact, NotReady
from pairmark.service.runtime import versions as module
from pairmark.service.runtime.catalogue import CatalogueView, ModelEntry, VersionEntry
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.versions import LoadedVersion, LoadedVersions


def entry(version: int, name: str = "faces") -> VersionEntry:
    return VersionEntry(
        model_id=f"id-{name}",
        name=name,
        version=version,
        kind="similarity-forest",
        capabilities=frozenset({"similarity"}),
        calibration_id=None,
        artefact_sha256="",
    )


class Store:
    """Where versions come from: counts how often, and can be slow or broken."""

    def __init__(self) -> None:
        self.loads: list[int] = []
        self.broken: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, wanted: VersionEntry) -> LoadedVersion:
        self.loads.append(wanted.version)
        self.gate.wait(5)
        if wanted.version in self.broken:
            raise CorruptArtefact("bytes were changed")
        return LoadedVersion(entry=wanted, estimator=MetricSimilarity(), n_features=2, accepts_sparse=False)


def test_a_version_is_loaded_once_for_all_who_wait() -> None:
    async def scenario() -> None:
        store = Store()
        versions = LoadedVersions(store, limit=4)
        store.gate.clear()
        waiting = [asyncio.create_task(versions.get(entry(1), "production")) for _ in range(20)]
        while not store.loads:
            await asyncio.sleep(0.001)
        waiting[0].cancel()
        store.gate.set()
        got = await asyncio.gather(*waiting[1:])
        assert store.loads == [1]
        assert all(one is got[0] for one in got)

    asyncio.run(scenario())


def test_a_broken_version_leaves_the_old_one_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = Store()
        store.broken.add(2)
        versions = LoadedVersions(store, limit=4)
        old = await versions.get(entry(1), "production")
        assert await versions.get(entry(2), "production") is old
        assert await versions.get(entry(2), "production") is old
        # Named by number there is nothing to fall back on, and it is not tried again at every request.
        for _ in range(3):
            with pytest.raises(CorruptArtefact):
                await versions.get(entry(2), None)
        assert store.loads == [1, 2]
        store.broken.clear()
        later = time.monotonic() + module.RETRY_FAILED_S
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: later))
        assert (await versions.get(entry(2), "production")).entry.version == 2

    asyncio.run(scenario())


def test_a_version_that_finds_no_file_left_is_not_called_damaged() -> None:
    def load(wanted: VersionEntry) -> LoadedVersion:
        raise OSError(errno.EMFILE, "Too many open files")

    async def scenario() -> None:
        with pytest.raises(NotReady, match="as many files and connections open as it may"):
            await LoadedVersions(load, limit=4).get(entry(1), None)

    asyncio.run(scenario())


def test_memory_is_bounded_and_deleted_versions_leave_it() -> None:
    async def scenario() -> None:
        versions = LoadedVersions(Store(), limit=2)
        for version in (1, 2, 3):
            await versions.get(entry(version), None)
        assert len(versions) == 2
        assert versions.cached(entry(1)) is None
        kept = ModelEntry(id="id-faces", name="faces", versions={3: entry(3)}, aliases={})
        versions.evict_deleted(CatalogueView(revision=2, models={"faces": kept}, keys={}, locked=False))
        assert versions.cached(entry(2)) is None
        assert versions.cached(entry(3)) is not None

    asyncio.run(scenario())


def test_a_loaded_version_answers_with_the_calibration_it_has_now() -> None:
    async def scenario() -> None:
        store = Store()
        versions = LoadedVersions(store, limit=2)
        before = await versions.get(entry(1), "production")
        now = replace(entry(1), calibration_id="newer")
        after = await versions.get(now, "production")
        assert after.entry is now
        assert after.estimator is before.estimator
        assert versions.cached(now) is after
        assert store.loads == [1]

    asyncio.run(scenario())


def test_ready_means_that_what_is_promoted_is_loaded(deployment, database: Database) -> None:
    assert deployment.train(learner="metric", params={}) == 1
    deployment.train(learner="metric", params={}, model="others", promote=False)

    async def start() -> list[bool]:
        runtime = Runtime(deployment.store, database, deployment.settings)
        await runtime.catalogue.refreshed()
        with pytest.raises(NotReady):
            runtime.ready()
        await runtime.load_promoted()
        runtime.warm = True
        runtime.ready()
        view = runtime.catalogue.view
        loaded = [
            runtime.versions.cached(view.models[name].versions[1]) is not None for name in ("faces", "others")
        ]
        runtime.close()
        return loaded

    assert asyncio.run(start()) == [True, False]


def test_one_damaged_version_keeps_no_other_from_serving(deployment, database: Database) -> None:
    deployment.train(learner="metric", params={}, model="a-spoiled")
    spoiled = [found.parent for found in Path(deployment.settings.resolved_artefacts).rglob("manifest.json")]
    assert spoiled
    deployment.train(learner="metric", params={"metric": "euclidean"}, model="whole")
    for folder in spoiled:
        shutil.rmtree(folder)

    async def start() -> list[bool]:
        runtime = Runtime(deployment.store, database, deployment.settings)
        await runtime.catalogue.refreshed()
        await runtime.load_promoted()
        view = runtime.catalogue.view
        loaded = [
            runtime.versions.cached(view.models[name].versions[1]) is not None
            for name in ("a-spoiled", "whole")
        ]
        runtime.close()
        return loaded

    assert asyncio.run(start()) == [False, True]
