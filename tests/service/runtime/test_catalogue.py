"""What a process of the service holds: its view of names and keys, versions in memory, what decides a served pair."""

import asyncio
import errno
import itertools
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, update

from pairmark import MetricSimilarity
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.pairs.sampling import held_out_pairs
from pairmark.service.db import Database, bump_revision
from pairmark.service.errors import AmbiguousModel, CorruptArtefact, NotReady, UnknownModel
from pairmark.service.keys import Keys
from pairmark.service.runtime import versions as module
from pairmark.service.runtime.catalogue import Catalogue, CatalogueView, ModelEntry, VersionEntry
from pairmark.service.runtime.missing_columns import MOST_CHOICES, SHARES, Patterns, UsedChoices
from pairmark.service.runtime.operating_points import (
    LoadedCalibration,
    OperatingPoints,
    PointRequest,
    ServedPoint,
)
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.versions import WINDOW, InputWatch, LoadedVersion, LoadedVersions
from pairmark.service.scoring.score import Scored, decide
from pairmark.service.tables import AliasRow, CalibrationRow, ModelRow, ModelVersion
from tests.models.pair_worlds import COLUMNS, CellScorer, record_people
from tests.service.conftest import Deployment
from tests.serving import until


def add_model(
    database: Database, name: str, *, versions: int = 1, production: int | None = 1, **facts: Any
) -> None:
    with database.write() as session:
        session.execute(
            insert(ModelRow).values(id=f"id-{name}", name=name, next_version=versions + 1, created_at=0.0)
        )
        for version in range(1, versions + 1):
            session.execute(
                insert(ModelVersion).values(
                    model_id=f"id-{name}",
                    version=version,
                    kind=facts.get("kind", "similarity-forest"),
                    capabilities=facts.get("capabilities", ["similarity", "match"]),
                    params={},
                    metrics={},
                    lineage={},
                    facts={},
                    artefact_sha256="0" * 64,
                    artefact="blob",
                    created_at=0.0,
                )
            )
        if production is not None:
            session.execute(
                insert(AliasRow).values(
                    model_id=f"id-{name}", alias="production", version=production, revision=1, updated_at=0.0
                )
            )
        bump_revision(session)


def move(database: Database, name: str, version: int) -> None:
    with database.write() as session:
        session.execute(update(AliasRow).where(AliasRow.model_id == f"id-{name}").values(version=version))
        bump_revision(session)


def test_without_a_name_the_only_model_that_can_is_used(database: Database) -> None:
    view = Catalogue(database, 0.2).read()
    with pytest.raises(UnknownModel, match="train one"):
        view.resolve(None, "similarity")
    add_model(database, "rankings", kind="label-ranking-tree", capabilities=["rank-labels"])
    add_model(database, "faces")
    add_model(database, "unpromoted", production=None)
    view = Catalogue(database, 0.2).read()
    assert view.resolve(None, "similarity").name == "faces"
    assert view.resolve(None, "rank-labels").name == "rankings"
    add_model(database, "voices")
    with pytest.raises(AmbiguousModel) as caught:
        Catalogue(database, 0.2).read().resolve(None, "similarity")
    assert caught.value.facts["models"] == ["faces", "voices"]


class Clock:
    """The time that catalogues go by."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("pairmark.service.runtime.catalogue.time", made)
    return made


def test_a_view_follows_changes_within_its_age(database: Database, clock: Clock) -> None:
    add_model(database, "faces", versions=2, production=1)

    async def scenario() -> None:
        catalogue = Catalogue(database, 1.0)
        first = await catalogue.refreshed()
        clock.now += 1.1
        # Nothing changed: the same view, so that what was made from it stays valid.
        assert await catalogue.refreshed() is first
        move(database, "faces", 2)
        clock.now += 1.1
        assert (await catalogue.refreshed()).resolve("faces", "match").version == 2
        # Before it is too old the next one is read, and nobody waits for that.
        move(database, "faces", 1)
        clock.now += 0.9
        assert (await catalogue.refreshed()).resolve("faces", "match").version == 2
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
        assert (await catalogue.refreshed()).resolve("faces", "match").version == 1
        move(database, "faces", 2)
        # A change of our own is seen at once, however young the view.
        slow = Catalogue(database, 0.1)
        await slow.refreshed()
        move(database, "faces", 1)
        assert (await slow.refreshed()).resolve("faces", "match").version == 2
        assert (await slow.after_change()).resolve("faces", "match").version == 1

    asyncio.run(scenario())


def test_the_last_view_serves_while_the_database_is_away(new_database: Any, clock: Clock) -> None:
    with Database(new_database("sqlite")) as database:
        add_model(database, "faces")

        async def scenario() -> None:
            catalogue = Catalogue(database, 0.01)
            await catalogue.refreshed()
            database.engine.dispose()
            with Database("postgresql://nobody@127.0.0.1:1/none") as broken:
                catalogue._database = broken
                clock.now += 0.02
                view = await catalogue.refreshed()
                assert view.resolve("faces", "match").version == 1
                with pytest.raises(NotReady):
                    await Catalogue(broken, 0.01).refreshed()
                catalogue._database = database
                add_model(database, "voices")
                clock.now += 1.1
                assert (await catalogue.refreshed()).resolve("voices", "match").version == 1

        asyncio.run(scenario())


def test_keys_lock_for_good(database: Database) -> None:
    assert not Catalogue(database, 0.2).read().locked
    made = Keys(database).create("phone", ["score"])
    view = Catalogue(database, 0.2).read()
    key = view.key(made.key)
    assert key.grants.allows("score")
    assert not key.grants.allows("train")
    assert view.key(made.key + " ") is None
    assert view.key("\ud800") is None
    Keys(database).revoke(made.id)
    view = Catalogue(database, 0.2).read()
    assert view.key(made.key) is None
    # Revoking the last key must not open the service.
    assert view.locked


def test_a_client_that_learned_of_a_change_sees_it(database: Database) -> None:
    add_model(database, "faces", versions=2, production=1)

    async def scenario() -> None:
        catalogue = Catalogue(database, 60.0)
        await catalogue.refreshed()
        # A look that began before the change must not pass for a fresh one.
        catalogue.expire()
        running = asyncio.create_task(catalogue.refreshed())
        await asyncio.sleep(0)
        catalogue.expire()
        move(database, "faces", 2)
        await running
        assert (await catalogue.refreshed()).resolve("faces", "match").version == 2

    asyncio.run(scenario())


def test_what_was_begun_before_a_change_answers_nobody_after_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model(database, "faces", versions=2, production=1)
    may_end, has_read = threading.Event(), threading.Event()
    read = Catalogue.read

    def slow_read(catalogue: Catalogue) -> CatalogueView:
        view = read(catalogue)
        has_read.set()
        assert may_end.wait(60)
        return view

    async def scenario() -> None:
        catalogue = Catalogue(database, 60.0)
        await catalogue.refreshed()
        catalogue.expire()
        monkeypatch.setattr(Catalogue, "read", slow_read)
        before = asyncio.create_task(catalogue.refreshed())
        await asyncio.to_thread(has_read.wait, 60)
        move(database, "faces", 2)
        catalogue.expire()
        after = asyncio.create_task(catalogue.refreshed())
        await asyncio.sleep(0.01)
        may_end.set()
        await before
        assert (await after).resolve("faces", "match").version == 2

    asyncio.run(scenario())


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
        self.gate.wait(60)
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


def loaded(deployment: Deployment, database: Database, *names: str) -> list[bool]:
    """Whether the first version of each is in memory once a process is ready, which it is not before."""

    async def start() -> list[bool]:
        runtime = Runtime(deployment.store, database, deployment.settings)
        await runtime.catalogue.refreshed()
        with pytest.raises(NotReady):
            runtime.ready()
        await runtime.load_promoted()
        runtime.warm = True
        runtime.ready()
        models = runtime.catalogue.view.models
        kept = [runtime.versions.cached(models[name].versions[1]) is not None for name in names]
        runtime.close()
        return kept

    return asyncio.run(start())


def test_ready_means_that_what_is_promoted_is_loaded(deployment, database: Database) -> None:
    assert deployment.train(learner="metric", params={}) == 1
    deployment.train(learner="metric", params={}, model="others", promote=False)

    assert loaded(deployment, database, "faces", "others") == [True, False]


def test_one_damaged_version_keeps_no_other_from_serving(deployment, database: Database) -> None:
    deployment.train(learner="metric", params={}, model="a-spoiled")
    spoiled = [found.parent for found in Path(deployment.settings.resolved_artefacts).rglob("manifest.json")]
    assert spoiled
    deployment.train(learner="metric", params={"metric": "euclidean"}, model="whole")
    for folder in spoiled:
        shutil.rmtree(folder)

    assert loaded(deployment, database, "a-spoiled", "whole") == [False, True]


def counted(clients: Iterable[str]) -> list[str]:
    """Whose rows count, of new rows by these clients in turn."""
    watch, random = InputWatch("people", 1), np.random.default_rng(0)
    kept: list[str] = []
    for client in clients:
        before = len(watch.pending)
        watch.take(random.normal(size=4).astype(np.float32), client)
        kept += [client] * (len(watch.pending) - before)
    return kept


@pytest.mark.parametrize("n", [1, 2, 3, 7, 9, 10, 40])
def test_rows_of_few_clients_go_on_counting(n: int) -> None:
    clients = [f"client {number}" for number in range(n)]
    kept = counted(itertools.islice(itertools.cycle(clients), 4_000))
    assert set(kept[-5 * n :]) == set(clients)
    assert len(kept) >= 2_000


def test_who_asked_once_keeps_no_client_from_counting() -> None:
    assert counted(["once"] + 2_000 * ["often"]).count("often") >= 1_900


def test_a_client_that_floods_moves_nothing_by_itself_where_many_ask() -> None:
    others = (f"client {number}" for number in itertools.cycle(range(20)))
    kept = counted("flood" if turn % 4 else next(others) for turn in range(8_000))
    # Who comes first is alone for a while.
    for start in range(2 * WINDOW, len(kept) - WINDOW, WINDOW):
        assert Counter(kept[start : start + WINDOW])["flood"] <= WINDOW * 0.12
    assert len(kept) >= 2_000


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(threshold=FLOATS, scores=st.lists(FLOATS, max_size=20))
def test_matches_are_strictly_above(threshold: float, scores: list[float]) -> None:
    point = ServedPoint(threshold=np.float32(threshold), public={}, json=b"")
    with np.errstate(over="ignore"):
        beside = [np.nextafter(np.float32(threshold), np.float32(side)) for side in (-np.inf, np.inf)]
    values = [*scores, threshold, *(float(one) for one in beside if np.isfinite(one))]
    expected = [np.float32(value) > np.float32(threshold) for value in values]
    decided = decide(Scored(np.array(values, dtype=np.float32), b""), point, shows_scores=True)
    assert decided.codes.astype(bool).tolist() == expected


SCORER, REQUEST = CellScorer(), PointRequest("c", 0.1, 0.95, "auto")
SIDES = [np.array(side) for side in itertools.product((False, True), repeat=COLUMNS)]
CHOICES = [np.stack([a, b])[None] for a, b in itertools.combinations_with_replacement(SIDES, 2)][1:]


def calibrated() -> Calibration:
    cells, who = record_people(150, np.random.default_rng(0))
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=600, random_state=0)
    return Calibration.of_pairs(SCORER.score_pairs(cells, pairs.left, pairs.right), cells, pairs)


def test_an_owner_of_many_choices_lets_go_of_none_but_its_own() -> None:
    made = calibrated()
    points = OperatingPoints(lambda calibration_id: LoadedCalibration(made, None))
    point, patterns = points.compute(REQUEST), Patterns(points)
    quiet, *many = CHOICES[: MOST_CHOICES // SHARES + 3]
    patterns.find(SCORER, "tenant quiet", point, quiet)
    for choice in many:
        patterns.find(SCORER, "tenant busy", point, choice)
    kept = [patterns.find(SCORER, "", point, choice, may_work=False) is not None for choice in (quiet, *many)]
    assert kept[0], "another's"
    assert kept[1:] == [False, False, *([True] * (MOST_CHOICES // SHARES))]
    patterns.close()


def test_a_restart_forgets_no_choice_and_whose_it_is(database: Database) -> None:
    made, used = calibrated(), UsedChoices(database)
    points = OperatingPoints(lambda calibration_id: LoadedCalibration(made, None))
    point, before = points.compute(REQUEST), Patterns(points, used)
    quiet, *many = CHOICES[: MOST_CHOICES // SHARES + 3]
    # What cannot be stored, of a calibration that was deleted meanwhile, costs the answer nothing.
    before.find(SCORER, "tenant quiet", point, CHOICES[-1])
    assert used.of("c") == []
    with database.write() as session:
        session.add(
            CalibrationRow(id="c", name="c", protocol="open-set", blob="b", summary={}, created_at=0.0)
        )
    for owner, choice in (("tenant quiet", quiet), *(("tenant busy", choice) for choice in many)):
        before.find(SCORER, owner, point, choice)
        # Killed here, or anywhere: each choice is stored as it is worked out.
    before.close()
    after = Patterns(OperatingPoints(lambda calibration_id: LoadedCalibration(made, None)), used)
    after.prepare(SCORER, REQUEST)
    for choice in (quiet, *many[2:]):
        until(
            lambda choice=choice: after.find(SCORER, "", point, choice, may_work=False) is not None,
            "it is found again",
        )
    assert after.find(SCORER, "", point, many[0], may_work=False) is None, "it was let go of"
    # The share of the one who asks for many is taken as it was.
    after.find(SCORER, "tenant busy", point, many[0])
    assert after.find(SCORER, "", point, many[2], may_work=False) is None
    assert after.find(SCORER, "", point, quiet, may_work=False) is not None
    after.close()
    with database.write() as session:
        session.delete(session.get(CalibrationRow, "c"))
    assert used.of("c") == [], "they go with their calibration"
