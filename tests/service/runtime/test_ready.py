"""When a process says that it is ready."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from pairmark.service.db import Database
from pairmark.service.errors import NotReady
from pairmark.service.runtime.runtime import Runtime


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
