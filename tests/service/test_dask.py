"""Training on a Dask cluster: the same model, and plain words when there is no cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.base import clone

from pairmark.models import SimilarityAuto, SimilarityForest
from pairmark.models.core.progress import listening
from pairmark.service.errors import NotReady
from pairmark.service.training import fitting
from pairmark.service.training.trainer import Trainer
from tests.service.conftest import SMALL_FOREST
from tests.serving import ROOT, free_port


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler and two workers, each a process of its own, as on other machines."""
    folder, port = tmp_path_factory.mktemp("dask"), free_port()
    address = f"tcp://127.0.0.1:{port}"
    commands = [["scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]]
    commands += [["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]] * 2
    running = []
    try:
        for number, words in enumerate(commands):
            with (folder / f"{number}.log").open("w") as log:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]],
                        cwd=ROOT,
                        stdout=log,
                        stderr=log,
                    )
                )
        yield address
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_a_cluster_grows_the_same_forest(deployment, scheduler: str) -> None:
    here = deployment.train()
    away = deployment.settings.model_copy(update={"dask_scheduler": scheduler})
    job = deployment.queue.submit(deployment.request())
    claim = deployment.queue.claim("test", job_id=job.id)
    assert claim is not None
    there = Trainer(deployment.db, deployment.blobs, away).run(claim)
    rng = np.random.default_rng(1)
    left, right = rng.normal(size=(2, 200, 6)).astype(np.float32)
    first, second = (deployment.store.load("faces", version) for version in (here, there))
    assert (first.pair_score(left, right) == second.pair_score(left, right)).all()
    assert [len(tree.cells) for tree in first.trees_] == [len(tree.cells) for tree in second.trees_]


def test_trees_really_grow_on_the_cluster_and_a_cancelled_fit_leaves_it_idle(scheduler: str) -> None:
    from distributed import Client
    from joblib import parallel_config

    class Stopped(Exception):
        pass

    def stop_soon(fraction: float, stage: str) -> None:
        if "2 of" in stage:
            raise Stopped

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 8)).astype(np.float32), np.repeat(np.arange(120), 5)
    forest = SimilarityForest(**{**SMALL_FOREST, "n_estimators": 400, "n_pairs": 2_000})
    with Client(scheduler, timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        with (
            parallel_config(backend="dask", client=client, n_jobs=-1),
            listening(stop_soon),
            pytest.raises(Stopped),
        ):
            forest.fit(X, y)
        ran = client.run(lambda dask_worker: dask_worker.state.executed_count)
        assert len(ran) == 2
        assert 0 < sum(ran.values()) < 200
        deadline = time.monotonic() + 30
        while any(client.processing().values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not any(client.processing().values())


def test_the_race_runs_its_folds_on_the_cluster_and_comes_out_the_same(scheduler: str) -> None:
    from distributed import Client
    from joblib import parallel_config

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(24), 5)
    X = (rng.normal(size=(24, 6))[y] + 0.5 * rng.normal(size=(y.size, 6))).astype(np.float32)
    race = SimilarityAuto(candidates=["cosine", "whitened cosine", "logistic"], budget_seconds=0.01)
    here = clone(race).fit(X, y)
    with Client(scheduler, timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        before = client.run(lambda dask_worker: dask_worker.state.executed_count)
        with parallel_config(backend="dask", client=client, n_jobs=-1):
            there = clone(race).fit(X, y)
        after = client.run(lambda dask_worker: dask_worker.state.executed_count)
    assert sum(after.values()) - sum(before.values()) >= 8
    for mine, theirs in zip(here.leaderboard_, there.leaderboard_, strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
    assert here.pair_score(X[:40], X[40:80]).tobytes() == there.pair_score(X[:40], X[40:80]).tobytes()


def test_a_cluster_that_is_not_there_is_named(deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"tcp://127.0.0.1:{free_port()}"
    deployment.queue.submit(deployment.request())
    claim = deployment.queue.claim("test")
    assert claim is not None
    away = deployment.settings.model_copy(update={"dask_scheduler": nowhere})
    monkeypatch.setattr(fitting, "CONNECT_S", 1)
    with pytest.raises(NotReady, match=f"{nowhere}.*PAIRMARK_DASK_SCHEDULER"):
        Trainer(deployment.db, deployment.blobs, away).run(claim)
