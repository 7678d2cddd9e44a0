"""Two tenants on one service: neither sees a name of the other, nor takes or waits for what the other needs."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import numpy as np
import pytest

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.api.routers import guarded_routes
from pairmark.service.app import TRUSTED, create_app, embedded_transport
from pairmark.service.blobs import open_blobs
from pairmark.service.db import Database
from pairmark.service.keys import Grants, Keys
from pairmark.service.scheduling import BEGUN_AT_ONCE, LIGHT_BYTES, Turns
from pairmark.service.settings import Settings
from tests.service.conftest import Deployment, people
from tests.serving import PATIENCE_S, answered

HIDDEN = "veiledname"
OTHERS = f"beta/{HIDDEN}"


class FromOutside:
    """An application whose callers need a key."""

    def __init__(self, app: Any) -> None:
        self.app, self.router, self.state = app, app.router, app.state

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope[TRUSTED] = False
        await self.app(scope, receive, send)


class House:
    """A service with two tenants, and a client for each kind of key."""

    def __init__(self, deployment: Deployment, stack: ExitStack) -> None:
        self.deployment = deployment
        self.settings = deployment.settings
        keys = Keys(deployment.db)
        self.keys = {
            "operator": keys.create("operator", ["admin"]),
            "acme": keys.create("acme", ["admin"], tenant="acme"),
            "acme2": keys.create("acme2", ["admin"], tenant="acme2"),
            "beta": keys.create(HIDDEN, ["admin"], tenant="beta"),
        }
        for name in ("acme/people", OTHERS):
            X, y = people(40, 5)
            file = deployment.folder / "upload.npz"
            np.savez(file, X=X, y=y)
            deployment.datasets.add(file, DatasetRequest(name=name))
            deployment.train(
                learner="metric", dataset=name, model=name.replace("people", "faces"), params={}, promote=True
            )
        self.app = create_app(self.settings, warm=False)
        self.transport = stack.enter_context(embedded_transport(FromOutside(self.app)))

    def client(self, who: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.keys[who].key}"}
        # On a busy machine an answer takes longer than the 5 s that httpx waits.
        return httpx.Client(
            transport=self.transport, base_url="http://here", headers=headers, timeout=PATIENCE_S
        )

    @property
    def dimension(self) -> int:
        return int(people(40, 5)[0].shape[1])


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def house(
    request: pytest.FixtureRequest,
    new_database: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    settings = Settings(home=folder / "home", database_url=new_database(request.param), job_threads=1)
    with ExitStack() as stack, Database(settings.resolved_database_url) as database:
        yield House(Deployment(settings, database, open_blobs(settings), folder), stack)


def without_request(answer: httpx.Response, name: str) -> str:
    """An answer without what the caller sent itself."""
    found = dict(answer.json())
    for own in ("instance", "request_id"):
        found.pop(own, None)
    return json.dumps(found).replace(name, "NAME")


def test_no_route_shows_a_tenant_anothers_names(house: House) -> None:
    other = house.client("beta")
    vector = [0.1] * house.dimension
    assert other.put(f"/galleries/{OTHERS}", json={"model": OTHERS}).status_code == 201
    items = {"items": [{"id": HIDDEN, "subject": HIDDEN, "vector": vector}]}
    assert other.put(f"/galleries/{OTHERS}/items", json=items).json()["upserted"] == 1
    job = other.get("/jobs").json()["items"][0]["id"]
    calibration = other.get("/calibrations").json()["items"][0]["id"]
    key = house.keys["beta"].id

    own, walked = house.client("acme"), 0
    words = {
        "alias": "production",
        "version": "1",
        "picture": "roc",
        "id": HIDDEN,
        "subject": HIDDEN,
        "calibration": "0" * 32,
        "kind": "metric",
        "slug": "conflict",
        "file:path": "index.html",
    }
    ids = {"job_id": job, "calibration_id": calibration, "key_id": key, "tenant": "beta"}
    for route in guarded_routes():
        path = re.sub(r":\w+}", "}", route.path)
        named = [one for one in ("name", "ref", "gallery", *ids) if f"{{{one}}}" in path]
        for method in sorted(route.methods & {"GET", "POST", "PUT", "DELETE"}):
            answers = []
            for name in (OTHERS, "beta/made-up", "other/made-up"):
                filled = path
                for one in ("name", "ref", "gallery"):
                    filled = filled.replace(f"{{{one}}}", name.replace("/", "%2F"))
                for one, value in {**ids, **words}.items():
                    filled = filled.replace(f"{{{one}}}", value)
                answers.append(
                    (name, own.request(method, filled, json={} if path.endswith("rotate") else None))
                )
            for name, answer in answers:
                shown = answer.text.replace(str(answer.request.url.raw_path, "ascii"), "")
                if answer.headers.get("content-type", "").startswith("application/problem"):
                    shown = without_request(answer, name)
                assert HIDDEN not in shown.replace(OTHERS, ""), (method, path, shown)
                if named and route.needs.access != "operator":
                    assert answer.status_code == 404, (method, path, answer.status_code, answer.text)
            of_json = all("json" in answer.headers.get("content-type", "") for _, answer in answers)
            if {"name", "ref", "gallery"} & {*named} and of_json:
                walked += 1
                assert len({without_request(answer, name) for name, answer in answers}) == 1, path
    assert walked > 30
    # Nothing is gone, and nothing was added.
    assert other.get(f"/galleries/{OTHERS}/items").json()["items"][0]["id"] == HIDDEN
    assert other.get(f"/models/{OTHERS}/versions/1").status_code == 200
    assert other.get("/keys").json()["items"][0]["revoked_at"] is None


def test_an_address_as_the_document_writes_it_names_nothing(house: House) -> None:
    own = house.client("acme")
    for route in guarded_routes():
        if "{" in route.path and route.method == "POST":
            assert own.post(route.path.replace("{", "%7B").replace("}", "%7D"), json={}).status_code < 500


def test_no_body_reaches_anothers_names(house: House) -> None:
    own, other = house.client("acme"), house.client("beta")
    vector = [0.1] * house.dimension
    theirs = other.get("/calibrations").json()["items"][0]["id"]
    scores = {"left": vector, "right": vector}
    own.put("/galleries/acme/people", json={"model": "acme/faces"}).raise_for_status()
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/similarity", {"json": {"model": OTHERS, **scores}}),
        ("POST", "/similarity", {"json": {"model": f"{OTHERS}:1", **scores}}),
        ("POST", "/similarity", {"json": {"model": "acme/../beta/veiledname", **scores}}),
        ("POST", "/match?fpr=0.2", {"json": {"model": f"{OTHERS}@production", **scores}}),
        ("POST", f"/match?fpr=0.2&calibration={theirs}", {"json": {"model": "acme/faces", **scores}}),
        ("POST", f"/match?fpr=0.2&calibration={theirs}", {"json": {"scores": [0.5]}}),
        ("POST", "/explain", {"json": {"model": OTHERS, **scores}}),
        ("POST", "/embed", {"json": {"model": OTHERS, "features": vector}}),
        ("POST", "/jobs", {"json": {"dataset": OTHERS, "model": "acme/new", "learner": "metric"}}),
        ("POST", "/jobs", {"json": {"dataset": "acme/people", "model": OTHERS, "learner": "metric"}}),
        ("POST", "/jobs", {"json": {"dataset": "acme/people", "model": "plain", "learner": "metric"}}),
        ("POST", "/links", {"json": {"tables": ["acme/people", "acme/people", OTHERS]}}),
        ("POST", "/datasets", {"data": {"name": OTHERS}, "files": {"file": ("a.csv", b"x,y\n1,2\n")}}),
        ("POST", "/datasets", {"data": {"name": "plain"}, "files": {"file": ("a.csv", b"x,y\n1,2\n")}}),
        ("PUT", "/galleries/acme/more", {"json": {"model": OTHERS}}),
        ("POST", "/galleries/acme/people/calibrations", {"json": {"dataset": OTHERS}}),
        ("POST", "/models/acme/faces/versions/1/calibrations", {"json": {"dataset": OTHERS}}),
        ("POST", "/models/acme/faces/versions/1/evaluations", {"json": {"dataset": OTHERS}}),
        ("POST", "/calibrations", {"json": {"name": OTHERS, "scores": [1, 0], "same": [1, 0]}}),
        ("POST", "/keys", {"json": {"name": "x", "scopes": ["score"], "tenant": "beta"}}),
        ("POST", "/models", {"data": {"name": OTHERS}, "files": {"file": ("a.zip", b"x")}}),
    ]
    for method, path, options in asked:
        answer = own.request(method, path, **options)
        assert answer.status_code == 404, (path, options, answer.text)
        assert HIDDEN not in without_request(answer, "acme/../beta/veiledname"), answer.text
    # A refusal lists models of the tenant alone.
    answer = answered(own.post("/similarity", json={"model": "acme/none", **scores}), 404)
    assert "acme/faces" in answer.text
    assert "beta" not in answer.text
    assert own.post("/similarity", json=scores).json()["model"]["name"] == "acme/faces"


def test_lists_hold_the_tenants_own_names(house: House) -> None:
    for path in (
        "/models",
        "/datasets",
        "/jobs",
        "/galleries",
        "/calibrations",
        "/keys",
        "/audit",
    ):
        text = house.client("acme").get(path).text
        assert "beta" not in text, path
        assert HIDDEN not in text, path
        assert HIDDEN in house.client("operator").get(path).text or path == "/galleries"
        assert house.client("acme2").get(path).json()["items"] == [] or path in ("/keys", "/audit")
    seen = {one["resource"] for one in house.client("acme").get("/audit?action=key.create").json()["items"]}
    assert [who for who, key in house.keys.items() if f"key:{key.id}" in seen] == ["acme"]
    assert house.client("acme").get("/metrics").status_code == 403


def test_an_admin_of_a_tenant_makes_keys_of_it_alone(house: House) -> None:
    own = house.client("acme")
    made = own.post("/keys", json={"name": "phone", "scopes": ["score:acme/faces"]}).json()
    assert made["tenant"] == "acme"
    assert own.post("/keys", json={"name": "p", "scopes": ["score:beta/x"]}).status_code == 422
    assert own.post(f"/keys/{made['id']}/rotate", json={}).json()["tenant"] == "acme"
    foreign, none = (own.delete(f"/keys/{id}") for id in (house.keys["beta"].id, "0" * 12))
    assert foreign.status_code == none.status_code == 404
    refused = answered(own.get("/webhooks"), 403)
    assert refused.json()["detail"] == (
        "the key is of the tenant 'acme'; this is for all tenants and needs a key of none with the scope 'admin'"
    )


def test_exports_reads_of_rows_and_refused_logins_are_in_the_audit_log(house: House) -> None:
    own = house.client("acme")
    own.get("/models/acme/faces/versions/1/export").raise_for_status()
    own.get("/datasets/acme/people/rows?limit=2").raise_for_status()
    answered(own.post("/login", data={"key": "pm_000000000000_wrong"}), 403)
    seen = {one["action"]: one for one in own.get("/audit").json()["items"]}
    assert seen["version.export"]["resource"] == "model:acme/faces:1"
    assert seen["dataset.read"]["after"] == {"start": 0, "rows": 2}
    assert "session.refuse" not in seen
    assert "session.refuse" in house.client("operator").get("/audit").text


def test_a_key_sees_below_its_tenant_and_nothing_beside_it() -> None:
    grants = Grants(["admin"], "acme")
    for name in ("acme2/x", "acme", "Acme/x", "x"):
        assert not grants.allows("score", name)
        assert name not in grants.models
        assert name not in grants.datasets
    assert grants.allows("score", "acme/x")


@pytest.mark.parametrize(
    ("n_bytes", "most"), [(0, 2 * BEGUN_AT_ONCE), (BEGUN_AT_ONCE * LIGHT_BYTES, 2)], ids=["light", "heavy"]
)
def test_a_request_stands_behind_few_of_another_owner_and_none_is_lost(n_bytes: int, most: int) -> None:
    began: list[str] = []
    n = 4 * BEGUN_AT_ONCE

    async def answer(turns: Turns, owner: str, name: str) -> None:
        if (turn := turns.begin(owner, n_bytes)) is not None:
            await turn
        began.append(name)

    async def run() -> None:
        turns = Turns()
        flood = [asyncio.create_task(answer(turns, "a", f"a{at}")) for at in range(n)]
        gone = flood[n // 2]
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(asyncio.create_task(answer(turns, "b", "b")), *flood, return_exceptions=True)
        # Nothing is left behind: who comes later begins at once.
        await asyncio.sleep(0)
        await asyncio.wait_for(answer(turns, "a", "later"), 5)

    asyncio.run(run())
    assert began.index("b") <= most
    assert [name for name in began if name != "b"] == [
        *(f"a{at}" for at in range(n) if at != n // 2),
        "later",
    ]
