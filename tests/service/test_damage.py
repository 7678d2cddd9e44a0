"""What is damaged or not there is answered with 503, while everything else is served."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from pairmark.service.app import create_app, embedded_transport
from tests.service.conftest import Deployment, people
from tests.serving import PATIENCE_S


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
    query = {"queries": people(2, 1)[0][1:].tolist(), "k": 5}
    answer = client.post("/galleries/staff/search", json=query)
    assert answer.is_success, answer.text
    assert "'id': 'b'" in str(answer.json())
    assert "'id': 'a'" not in str(answer.json())
    answer = client.get("/galleries/staff/items/a")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/damaged-row")
    assert client.post("/galleries/staff/erase", json={"id": "a"}).is_success
    assert client.get("/galleries/staff/items/b").is_success
    assert np.isfinite(client.get("/galleries/staff").json()["items"])
