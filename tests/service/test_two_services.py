"""Two services on one database: what one has made, ended or moved, the other knows at its next request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmark.service.db import Database
from pairmark.service.runtime.catalogue import Catalogue
from tests.service.runtime.test_catalogue import add_model, move
from tests.serving import RunningServer, answered, serving

TTL_S = "0.2"


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[RunningServer, RunningServer]]:
    """Two services with views that may be as old as by default."""
    url = f"sqlite:///{tmp_path / 'one.db'}"
    with (
        serving(tmp_path / "a", url, PAIRMARK_CATALOGUE_TTL_S=TTL_S) as first,
        serving(tmp_path / "b", url, PAIRMARK_CATALOGUE_TTL_S=TTL_S) as second,
    ):
        yield first, second


def test_keys_and_sessions_work_and_end_at_the_other_service_at_once(
    services: tuple[RunningServer, RunningServer],
) -> None:
    first, second = services
    admin = {"X-API-Key": first.http.post("/keys", json={"name": "a", "scopes": ["admin"]}).json()["key"]}
    for _ in range(5):
        made = first.http.post("/keys", json={"name": "b", "scopes": ["score"]}, headers=admin).json()
        shown = {"X-API-Key": made["key"]}
        assert second.http.get("/models", headers=shown).status_code == 200
        cookie = {"cookie": signed_in(second, made["key"])}
        assert first.http.get("/models", headers=cookie).status_code == 200
        assert second.http.post("/logout", headers=cookie).status_code == 303
        assert first.http.get("/models", headers=cookie).status_code == 401
        assert first.http.delete(f"/keys/{made['id']}", headers=admin).status_code == 204
        assert second.http.get("/models", headers=shown).status_code == 401


def signed_in(server: RunningServer, key: str) -> str:
    cookie = (
        answered(server.http.post("/login", data={"key": key}), 303).headers["set-cookie"].partition(";")[0]
    )
    server.http.cookies.clear()
    return cookie


def test_a_promotion_that_is_acknowledged_is_served_by_every_process(database: Database) -> None:
    add_model(database, "faces", versions=2)

    async def run() -> None:
        own, other = Catalogue(database, 0.2), Catalogue(database, 0.2)
        for version in (2, 1, 2):
            await own.refreshed()
            await other.refreshed()
            move(database, "faces", version)
            await own.after_change()
            view = await other.refreshed()
            assert view.resolve("faces", "match").version == version

    asyncio.run(run())
