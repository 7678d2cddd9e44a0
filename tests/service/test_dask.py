"""Training and linking on a Dask cluster: the same results, and plain words when there is no cluster."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import dask
import numpy as np
import pytest
import yaml
from distributed import Client

from pairmark.models import SimilarityForest
from pairmark.models.core.progress import listening
from pairmark.service.errors import NotReady
from pairmark.service.settings import Settings
from pairmark.service.training import fitting
from pairmark.service.training.trainer import Trainer
from tests.service.conftest import SMALL_FOREST
from tests.service.test_links import linked, table, write
from tests.serving import PAIRMARK, ROOT, dask_process, free_port, until

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A scheduler and two workers, each a process of its own, as on other machines, with one folder for blobs."""
    folder, port = tmp_path_factory.mktemp("dask"), free_port()
    environment = {**os.environ, "PAIRMARK_HOME": str(folder)}
    words = [*PAIRMARK, "setup", "--cluster", str(folder)]
    subprocess.run(words, cwd=ROOT, env=environment, check=True, capture_output=True)
    # As docker-compose.yml has it.
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    tls = {name: str(value).replace("/run/cluster", str(folder)) for name, value in compose["x-tls"].items()}
    environment |= tls
    address = f"tls://127.0.0.1:{port}"
    commands = [["scheduler", "--host", address], *[["worker", address, "--nthreads", "1", "--no-nanny"]] * 2]
    # What Distributed has set as it was imported stays.
    merged = dask.config.merge(dask.config.config, dask.config.collect(env=tls))
    with ExitStack() as running, dask.config.set(merged):
        for words in commands:
            running.enter_context(dask_process(folder, environment, *words))
        yield address, folder


def test_trees_really_grow_on_the_cluster_and_a_cancelled_fit_leaves_it_idle(
    cluster: tuple[str, Path],
) -> None:
    from joblib import parallel_config

    class Stopped(Exception):
        pass

    def stop_soon(fraction: float, stage: str) -> None:
        if "2 of" in stage:
            raise Stopped

    X, y = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32), np.repeat(np.arange(120), 5)
    forest = SimilarityForest(**{**SMALL_FOREST, "n_estimators": 400, "n_pairs": 2_000})
    with Client(cluster[0], timeout=30) as client:
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
        until(lambda: not any(client.processing().values()), "the cluster is idle")


@pytest.mark.parametrize("n_tables", [1, 2])
def test_links_are_the_same_to_the_bit_wherever_candidates_are_compared(
    cluster: tuple[str, Path], tmp_path: Path, n_tables: int
) -> None:
    address, home = cluster
    columns = table(2_000, "dependent")[1]
    files = [
        write(tmp_path / f"{at}.csv", {name: cells[at::n_tables] for name, cells in columns.items()})
        for at in range(n_tables)
    ]
    here = linked(tmp_path, *files)
    there = Settings(home=home, dask_scheduler=address, job_threads=1)
    stages: list[str] = []
    with listening(lambda _, stage: stages.append(stage)):
        assert linked(tmp_path, *files, settings=there) == here
    assert stages.count("comparing on the cluster") >= 8
    assert here[0].links > 400
    assert list((home / "artefacts" / "blobs").glob("*/*")) == []


def test_a_cluster_that_is_not_there_is_named(deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = f"tcp://127.0.0.1:{free_port()}"
    deployment.queue.submit(deployment.request())
    claim = deployment.queue.leases.claim("test")
    assert claim is not None
    away = deployment.settings.model_copy(update={"dask_scheduler": nowhere})
    monkeypatch.setattr(fitting, "CONNECT_S", 1)
    with pytest.raises(NotReady, match=f"{nowhere}.*PAIRMARK_DASK_SCHEDULER"):
        Trainer(deployment.db, deployment.blobs, away).run(claim)
