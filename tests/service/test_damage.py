"""Damaged rows are answered with 503, while everything else is served."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from pairmark.service.app import create_app
from pairmark.service.inprocess import InProcessTransport
from pairmark.service.keys import Keys
from tests.service.conftest import Deployment, people


def spoil(deployment: Deployment, *statements: str) -> None:
    """Change rows as no service does."""
    with deployment.db.schema_change() as connection:
        for statement in statements:
            connection.execute(text(statement))


@pytest.fixture
def client(deployment: Deployment):
    """The service in this process, with a model and a gallery of two items."""
    deployment.train()
    with httpx.Client(
        transport=InProcessTransport(create_app(deployment.settings, warm=False)), base_url="http://here"
    ) as client:
        vectors = people(2, 1)[0].tolist()
        assert client.put("/galleries/staff", json={"model": "faces"}).is_success
        items = [{"id": name, "vector": one} for name, one in zip("ab", vectors, strict=True)]
        assert client.put("/galleries/staff/items", json={"items": items}).is_success
        yield client


def test_the_service_starts_with_bad_rows_and_names_them(deployment):
    deployment.train()
    deployment.train(model="other")
    keys = Keys(deployment.db)
    bad, good = keys.create("bad", ["score"]), keys.create("good", ["admin"])
    spoil(
        deployment,
        "UPDATE model_versions SET capabilities = 'x' WHERE model_id = (SELECT id FROM models WHERE name = 'faces')",
        f"UPDATE api_keys SET scopes = 'x' WHERE id = '{bad.id}'",
    )
    pair = people(2, 1)[0].tolist()
    with httpx.Client(
        transport=InProcessTransport(create_app(deployment.settings, warm=False)), base_url="http://here"
    ) as client:
        for path, method, body, row in [
            ("/similarity", "POST", {"model": "faces", "left": pair[0], "right": pair[1]}, "faces:1"),
            ("/models/faces/versions/1", "GET", None, "model_versions"),
            ("/keys", "GET", None, bad.id),
        ]:
            answer = client.request(method, path, json=body)
            assert (answer.status_code, answer.json()["type"]) == (503, "/problems/damaged-row"), answer.text
            assert row in answer.json()["detail"]
        body = {"model": "other", "left": pair[0], "right": pair[1]}
        assert client.post("/similarity", json=body).is_success
        app: Any = client._transport
        view = app._app.state.services.runtime.catalogue.view
        assert view.key(good.key) is not None
        assert view.key(bad.key) is None
        assert view.damage == ("version faces:1", f"key {bad.id}")


def test_production_without_its_calibration_is_not_ready(deployment, client):
    client._transport._app.state.services.runtime.warm = True
    assert client.get("/readyz").status_code == 200
    spoil(deployment, "DELETE FROM calibrations")
    answer = client.get("/readyz")
    assert answer.status_code == 503
    # Whoever may ask need not have a key: versions are counted, not named.
    assert "1 production versions" in answer.json()["detail"]
    assert "faces" not in answer.json()["detail"]
    pair = people(2, 1)[0].tolist()
    answer = client.post("/match?fpr=0.5", json={"model": "faces", "left": pair[0], "right": pair[1]})
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
