"""Which version a name means, and how a worker's view follows the database."""

import asyncio
import threading
import time
from typing import Any

import pytest
from sqlalchemy import insert, update

from pairmark.service.db import Database, bump_revision
from pairmark.service.errors import AmbiguousModel, NotReady, UnknownModel
from pairmark.service.keys import Keys
from pairmark.service.runtime.catalogue import Catalogue, CatalogueView
from pairmark.service.tables import AliasRow, ModelRow, ModelVersion


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
    assert key is not None
    assert key.allows("score")
    assert not key.allows("train")
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
        assert may_end.wait(10)
        return view

    async def scenario() -> None:
        catalogue = Catalogue(database, 60.0)
        await catalogue.refreshed()
        catalogue.expire()
        monkeypatch.setattr(Catalogue, "read", slow_read)
        before = asyncio.create_task(catalogue.refreshed())
        await asyncio.to_thread(has_read.wait, 10)
        move(database, "faces", 2)
        catalogue.expire()
        after = asyncio.create_task(catalogue.refreshed())
        await asyncio.sleep(0.01)
        may_end.set()
        await before
        assert (await after).resolve("faces", "match").version == 2

    asyncio.run(scenario())
