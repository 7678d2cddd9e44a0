"""Trees of served versions, read from what is in memory."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, ModelNotCapable, UnknownModel
from pairmark.service.runtime.pictures import tree_data, tree_svg
from pairmark.service.runtime.runtime import Runtime


def test_trees_come_from_the_version_in_memory(deployment, database: Database) -> None:
    deployment.train(learner="similarity-tree", model="tree", params={"max_depth": 3, "n_pairs": 2000})
    deployment.train()
    deployment.train(learner="metric", params={}, model="metric")
    assert deployment.store.version("tree", 1).has_tree
    assert not deployment.store.version("metric", 1).has_tree

    async def asked() -> None:
        runtime = Runtime(deployment.store, database, deployment.settings)
        alone, forest, metric = [await runtime.version(name, 1) for name in ("tree", "faces", "metric")]
        assert tree_data(alone)["cells"]
        assert tree_data(forest, 2)["tree"] == 2
        assert "faces, version 1, tree 2 of 0 to 2" in tree_svg(forest, 2, depth=2)
        with pytest.raises(InvalidInput, match="trees 0 to 2"):
            tree_data(forest, 3)
        with pytest.raises(ModelNotCapable, match="no tree to show"):
            tree_data(metric)
        for name, number in (("nobody", 1), ("tree", 2), ("tree@production", 1)):
            with pytest.raises(UnknownModel):
                await runtime.version(name, number)
        # Were it read again, it would not be found.
        for manifest in list(Path(deployment.settings.resolved_artefacts).rglob("manifest.json")):
            shutil.rmtree(manifest.parent)
        assert (await runtime.version("faces", 1)).estimator is forest.estimator
        assert (await runtime.version_for("faces:1", "similarity")).estimator is forest.estimator
        runtime.close()

    asyncio.run(asked())
