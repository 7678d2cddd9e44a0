"""Damaged rows: named with their repair by the doctor, and answered with 503 while everything else is served."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from pairmark.service.app import create_app
from pairmark.service.inprocess import InProcessTransport
from pairmark.service.keys import Keys
from pairmark.service.operations.doctor import Doctor, as_json
from tests.service.conftest import Deployment, people


def spoil(deployment: Deployment, *statements: str) -> None:
    """Change rows as no service does."""
    with deployment.db.schema_change() as connection:
        for statement in statements:
            connection.execute(text(statement))


def examined(deployment: Deployment):
    return Doctor(deployment.db, deployment.blobs, deployment.settings, quick=True).examine()


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


DAMAGES = {
    "capabilities that are not JSON": (
        "UPDATE model_versions SET capabilities = 'x'", "capabilities is not JSON", "promote another version",
    ),
    "capabilities of another type": (
        "UPDATE model_versions SET capabilities = '{}'", "capabilities is not a JSON list", "promote another",
    ),
    "facts that are empty": ("UPDATE model_versions SET facts = '{}'", "cannot be shown: KeyError", "promote"),
    "a hash that is none": ("UPDATE model_versions SET artefact_sha256 = 'x'", "no SHA-256", "promote"),
    "an alias to nothing": (
        "UPDATE aliases SET version = 9", "alias faces@production points to version 9", "move it",
    ),
    "an alias of no model": (
        "UPDATE aliases SET model_id = 'x'", "refers to a row of models that is not there", "DELETE FROM aliases",
    ),
    "no calibration": ("DELETE FROM calibrations", "faces:1 is decided by calibration", "calibrate it again"),
    "scopes that are unreadable": (
        "UPDATE api_keys SET scopes = '[\"fly\"]'", "api_keys (id", "DELETE FROM api_keys WHERE id = '",
    ),
    "a vector of one byte": (
        "UPDATE gallery_items SET vector = x'00' WHERE id = 'a'", "'a' has 1 bytes, expected 24", "enrol it again",
    ),
    "metadata that is empty": (
        "UPDATE gallery_items SET metadata = '' WHERE id = 'a'", "metadata of 'a' is no JSON", "enrol it again",
    ),
    "a gallery of no version": (
        "UPDATE galleries SET version = 9", "gallery staff is served by version 9", "import that version",
    ),
    "a summary of a dataset": ("UPDATE datasets SET summary = '[]'", "summary is not a JSON object", "DELETE FROM"),
    "a job's parameters": ("UPDATE jobs SET params = 'x'", "params is not JSON", "DELETE FROM jobs WHERE id = '"),
    "an event's data": ("UPDATE job_events SET data = '7'", "data is not a JSON object", "DELETE FROM job_events"),
    "an event of no job": ("UPDATE job_events SET job_id = 'x'", "refers to a row of jobs", "DELETE FROM"),
}  # fmt: skip


def test_the_doctor_names_each_damaged_row_and_its_repair(deployment, client, tmp_path):
    Keys(deployment.db).create("laptop", ["score"])
    assert [one.detail for one in examined(deployment) if one.check == "rows"] == [
        "every row fits the schema"
    ]
    sound = tmp_path / "sound.db"
    deployment.db.copy_to(sound)
    file = deployment.db.url.database
    unseen = {}
    for name, (statement, detail, advice) in DAMAGES.items():
        spoil(deployment, statement)
        findings = [one for one in examined(deployment) if one.check == "rows"]
        if not any(detail in one.detail and advice in one.advice for one in findings):
            unseen[name] = findings
        assert as_json(findings)["status"] == "failure" or name in unseen
        _put_back(deployment, sound, file)
    assert unseen == {}


def _put_back(deployment: Deployment, sound, file: str) -> None:
    import sqlite3

    source, target = sqlite3.connect(sound), sqlite3.connect(file)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()


def test_damaged_pages_are_a_finding_and_no_traceback(deployment):
    deployment.db.truncate_log()
    deployment.db.dispose()
    with open(deployment.db.url.database, "r+b") as file:
        size = file.seek(0, 2)
        for page in range(3, size // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    findings = examined(deployment)
    assert as_json(findings)["status"] == "failure"
    assert any(
        "database file is damaged" in one.detail and "restore a backup" in one.advice for one in findings
    )
    assert "disk" in {one.check for one in findings}
    deployment.db.dispose()
    with open(deployment.db.url.database, "r+b") as file:
        file.write(b"\xa5" * 4096)
    assert as_json(examined(deployment))["status"] == "failure"


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
