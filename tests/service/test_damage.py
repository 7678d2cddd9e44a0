"""What is damaged is answered with 503; what one of two services has made, the other knows at once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from pairmark.service.app import create_app, embedded_transport
from pairmark.service.db import Database
from pairmark.service.runtime.catalogue import Catalogue
from tests.service.conftest import Deployment, people
from tests.service.runtime.test_catalogue import add_model, move
from tests.serving import PATIENCE_S, RunningServer, answered, problem, serving


def spoil(deployment: Deployment, *statements: str) -> None:
    """Change rows as no service does."""
    with deployment.db.schema_change() as connection:
        for statement in statements:
            connection.execute(text(statement))


@pytest.fixture
def client(deployment: Deployment):
    """The service in this process, with a model and a gallery of two items."""
    deployment.train()
    with (
        embedded_transport(create_app(deployment.settings, warm=False)) as transport,
        httpx.Client(transport=transport, base_url="http://here", timeout=PATIENCE_S) as client,
    ):
        vectors = people(2, 1)[0].tolist()
        assert client.put("/galleries/staff", json={"model": "faces"}).is_success
        items = [{"id": name, "vector": one} for name, one in zip("ab", vectors, strict=True)]
        assert client.put("/galleries/staff/items", json={"items": items}).is_success
        yield client


def test_production_without_its_calibration_says_so(deployment, client):
    spoil(deployment, "DELETE FROM calibrations")
    pair = people(2, 1)[0].tolist()
    # A process that has not loaded it yet.
    with (
        embedded_transport(create_app(deployment.settings, warm=False)) as transport,
        httpx.Client(transport=transport, base_url="http://here", timeout=PATIENCE_S) as other,
    ):
        answer = other.post("/match?fpr=0.5", json={"model": "faces", "left": pair[0], "right": pair[1]})
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/damaged-row")
    assert "faces:1" in answer.json()["detail"]


def test_one_damaged_item_leaves_the_others_searchable(deployment, client):
    spoil(deployment, "UPDATE gallery_items SET vector = x'00', metadata = '' WHERE id = 'a'")
    answer = client.post("/galleries/staff/search", json={"queries": people(2, 1)[0][1:].tolist(), "k": 5})
    assert answer.is_success, answer.text
    assert "'id': 'b'" in str(answer.json())
    assert "'id': 'a'" not in str(answer.json())
    problem(client.get("/galleries/staff/items/a"), 503, "damaged-row")
    assert client.post("/galleries/staff/erase", json={"id": "a"}).is_success
    assert client.get("/galleries/staff/items/b").is_success
    assert np.isfinite(client.get("/galleries/staff").json()["items"])


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
