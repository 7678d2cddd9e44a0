"""Galleries searched on a Dask cluster: the same answers to the bit, whoever is lost on the way."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.service.blobs import open_blobs
from pairmark.service.db import Database
from pairmark.service.galleries import cluster as cluster_search
from pairmark.service.galleries import live_gallery as live_module
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.metadata import parse_filter
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.processes import child_environment
from pairmark.service.runtime.catalogue import VersionEntry
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings
from tests.service.conftest import Deployment, people
from tests.service.galleries.conftest import rows
from tests.serving import dask_process, free_port, until

pytestmark = pytest.mark.nightly

WIDTH = 6


class Cluster:
    """A scheduler and its workers, each a process of its own, as on other machines."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._start = partial(dask_process, folder, environment)
        self._running = ExitStack()
        self.stop = self._running.close
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        self._running.enter_context(self._start("scheduler", "--host", "127.0.0.1", "--port", str(port)))
        self.workers = [self.add_worker() for _ in range(2)]

    def add_worker(self) -> Any:
        worker = self._start("worker", self.address, "--nthreads", "1", "--no-nanny")
        return self._running.enter_context(worker)


@pytest.fixture(scope="module")
def world(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, Cluster]]:
    """A deployment on SQLite with a trained forest, and a cluster whose workers have its settings."""
    folder = tmp_path_factory.mktemp("spread")
    settings = Settings(home=folder / "home", database_url=new_database("sqlite"))
    database = Database(settings.resolved_database_url)
    deployment = Deployment(settings, database, open_blobs(settings), folder)
    deployment.upload("people", *people(40, 5))
    deployment.train()
    cluster = Cluster(folder, {**os.environ, **child_environment(settings)})
    try:
        yield deployment, cluster
    finally:
        cluster.stop()
        database.dispose()


@pytest.fixture
def galleries(world: tuple[Deployment, Cluster], monkeypatch: pytest.MonkeyPatch) -> Iterator[Galleries]:
    monkeypatch.setattr(live_module, "SEGMENT_ROWS", 100)
    monkeypatch.setattr(live_module, "MEMTABLE_ROWS", 30)
    monkeypatch.setattr(cluster_search, "LEAST_ROWS", 1)
    deployment, cluster = world
    made = Galleries(
        deployment.db, deployment.settings.model_copy(update={"dask_scheduler": cluster.address})
    )
    yield made
    made.close()


def served(deployment: Deployment) -> LoadedVersion:
    """The trained version."""
    row = deployment.store.version("faces", 1)
    with deployment.db.read() as session:
        from pairmark.service.store.versions import find_model

        model = find_model(session, "faces")
        number = model.id
    entry = VersionEntry(
        model_id=number,
        name="faces",
        version=row.version,
        kind=row.kind,
        capabilities=frozenset({"search"}),
        calibration_id=None,
        artefact_sha256="",
    )
    estimator = deployment.store.load("faces", 1)
    return LoadedVersion(entry=entry, estimator=estimator, n_features=WIDTH, accepts_sparse=False)


def enrolled(galleries: Galleries, name: str, version: LoadedVersion, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    galleries.put(name, version)
    items = {
        f"i{at:04}": (
            rng.integers(-2, 3, WIDTH).astype(np.float32),
            f"s{at % 70}",
            f'{{"site":"{"ns"[at % 2]}"}}',
        )
        for at in range(n)
    }
    names = list(items)
    for start in range(0, n, 60):
        galleries.write(
            name, [rows({one: items[one] for one in names[start : start + 60]})], RowErrors(), None
        )
    return {name: item[0] for name, item in items.items()}


def both(
    galleries: Galleries, name: str, version: LoadedVersion, queries: np.ndarray, **how: Any
) -> list[Any]:
    """A search there, which has to be what a search here is."""
    state = galleries.state(name)
    view = galleries.views.live(state, version.estimator).view(state.seq)
    wanted = parse_filter(how.pop("filter", None), state.fields)
    elsewhere = galleries.views.cluster.searching(state, wanted, view.seq)
    assert elsewhere is not None
    counted: list[int] = []

    def watched(*asked: Any) -> Any:
        found, left = elsewhere(*asked)
        counted.append(len(asked[0]) - len(left))
        return found, left

    there = view.search(queries, 12, conditions=wanted, other_search=watched, **how)
    assert there == view.search(queries, 12, conditions=wanted, **how)
    assert all(counted), "the cluster was not asked"
    return there


def test_a_cluster_finds_what_this_machine_finds(
    world: tuple[Deployment, Cluster], galleries: Galleries
) -> None:
    deployment, cluster = world
    version = served(deployment)
    items = enrolled(galleries, "spread", version, 640)
    queries = np.random.default_rng(4).integers(-2, 3, (3, WIDTH)).astype(np.float32)
    hits = both(galleries, "spread", version, queries)
    scores = version.estimator.pair_score(queries[:1], np.array(list(items.values())))
    order = sorted(range(len(items)), key=lambda at: (-scores[at], list(items)[at]))[:12]
    assert [(hit.id, hit.score) for hit in hits[0]] == [(list(items)[at], scores[at]) for at in order]
    both(galleries, "spread", version, queries, by_subject=True)
    both(galleries, "spread", version, queries, filter={"site": "s"})
    both(galleries, "spread", version, queries, above=np.float32(hits[0][5].score))

    # Replaced and erased rows are gone from the workers' answers too, before and after blocks are made anew.
    best = hits[0][0]
    galleries.erase("spread", subject=best.subject)
    galleries.write("spread", [rows({"i0001": (np.zeros(WIDTH, np.float32), None, None)})], RowErrors(), None)
    assert best.id not in {hit.id for some in both(galleries, "spread", version, queries) for hit in some}

    # A worker is lost with the blocks it holds: Dask has them made again.
    lost = cluster.workers.pop()
    lost.kill()
    lost.wait()
    both(galleries, "spread", version, queries)
    cluster.workers.append(cluster.add_worker())


def test_what_was_erased_leaves_the_workers_memory(
    world: tuple[Deployment, Cluster], galleries: Galleries
) -> None:
    deployment, cluster = world
    version = served(deployment)
    enrolled(galleries, "forgotten", version, 230)
    queries = np.ones((1, WIDTH), np.float32)
    hit = both(galleries, "forgotten", version, queries)[0][0]
    key = galleries.state("forgotten").key

    from distributed import Client

    with Client(cluster.address, timeout=30) as client:

        def held() -> set[str]:
            return {str(one) for some in client.has_what().values() for one in some if key in str(one)}

        before = held()
        assert before
        galleries.erase("forgotten", id=hit.id)
        galleries.views.keep_up()
        until(lambda: not held() >= before, "what was erased is let go")
        both(galleries, "forgotten", version, queries)
        galleries.delete("forgotten")
        until(lambda: not held(), "nothing of the gallery is held")


def test_what_a_worker_makes_has_no_name_and_what_a_killed_one_left_goes(
    world: tuple[Deployment, Cluster], galleries: Galleries, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deployment, _ = world
    vectors = enrolled(galleries, "made", served(deployment), 90)
    # A machine that has no segments of the gallery.
    settings = deployment.settings.model_copy(
        update={"home": tmp_path, "artefacts": deployment.settings.resolved_artefacts}
    )
    for name, value in child_environment(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cluster_search, "open_database", lambda settings: deployment.db)
    left = tmp_path / "segments" / ".part-killed"
    left.mkdir(parents=True)
    (left / "ids.npy").touch()
    state = galleries.state("made")
    segment = cluster_search.worker_segment(state, 0, state.seq, state.seq).segment
    assert [segment.ids[row] for row in range(len(segment))] == sorted(vectors)
    assert [file.name for file in (tmp_path / "segments").iterdir()] == ["lock"]
