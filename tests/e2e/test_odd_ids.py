"""Ids that programs take for addresses: refused on every way in, and no request about one reaches anything else."""

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import duckdb
import httpx
import numpy as np
import pytest
from sqlalchemy import create_engine, text

from pairmark.client import AsyncClient, Client, ClientError
from tests.serving import RunningServer, answered, serving

ODD = ("..", ".", "../x", "a/../b", "%2e%2e", "//", "/")
"""Ids of items, and subjects; the empty one was never stored."""
REFUSED = ("..", ".", "../x", "a/../b", "a\\..\\b", "x/.", "a\x85", "a\u202eb", "a\u2066b", "é" * 257)
ATTACKS = (*ODD, "../../../keys/{victim}", "../../bob")


@contextmanager
def guarded(home: Path, database_url: str) -> Iterator[RunningServer]:
    """A server with two galleries, `alice` and `bob`, and two keys: an admin's, and one that attacks would revoke."""
    with serving(home, database_url) as server:
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(60), 4)
        X = (rng.normal(size=(60, 4))[y] + 0.2 * rng.normal(size=(240, 4))).astype(np.float32)
        server.upload("people", X, y)
        server.train(
            learner="metric", dataset="people", model="people", params={"metric": "euclidean"}, promote=True
        )
        for name in ("alice", "bob"):
            server.enroll(name, "people", X[:12:4])
        admin, victim = (server.key("admin") for _ in range(2))
        server.environment["PAIRMARK_API_KEY"] = admin["key"]
        server.http.headers["X-API-Key"] = admin["key"]
        server.facts.update(X=X, key=admin["key"], victim=victim["id"])
        yield server


def stored(server: RunningServer) -> set[tuple[str, ...]]:
    """Everything that a DELETE could take away."""

    def entries(path: str) -> list[dict]:
        return answered(server.http.get(f"{path}?limit=500")).json()["items"]

    found: set[tuple[str, ...]] = {("model", one["name"]) for one in entries("/models")}
    found |= {("dataset", one["name"]) for one in entries("/datasets")}
    found |= {("key", one["id"]) for one in entries("/keys") if one["revoked_at"] is None}
    for gallery in entries("/galleries"):
        found.add(("gallery", gallery["name"]))
        found |= {
            ("item", gallery["name"], one["id"]) for one in entries(f"/galleries/{gallery['name']}/items")
        }
    return found


def insert(server: RunningServer, name: str) -> tuple[str, ...]:
    """Store an item of this id and subject in `alice`, as versions without today's rule did."""
    engine = create_engine(server.environment["PAIRMARK_DATABASE_URL"])
    with engine.begin() as connection:
        gallery, seq = connection.execute(text("SELECT id, seq FROM galleries WHERE name = 'alice'")).one()
        row = {"gallery": gallery, "seq": seq + 1, "name": name}
        connection.execute(
            text(
                "INSERT INTO gallery_items (gallery_id, id, subject, vector, metadata, seq) "
                "SELECT gallery_id, :name, :name, vector, NULL, :seq FROM gallery_items "
                "WHERE gallery_id = :gallery AND id = 'i0'"
            ),
            row,
        )
        connection.execute(
            text("UPDATE galleries SET seq = :seq, items = items + 1 WHERE id = :gallery"), row
        )
    engine.dispose()
    return ("item", "alice", name)


@pytest.fixture(scope="module")
def server(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with guarded(tmp_path_factory.mktemp("odd-ids"), new_database("sqlite")) as running:
        yield running


def by_client(server: RunningServer, field: str, name: str) -> None:
    with Client(server.url, api_key=server.facts["key"]) as client:
        client.erase("alice", **{field: name})


def by_async_client(server: RunningServer, field: str, name: str) -> None:
    async def erase() -> None:
        async with AsyncClient(server.url, api_key=server.facts["key"]) as client:
            await client.erase("alice", **{field: name})

    asyncio.run(erase())


def by_body(server: RunningServer, field: str, name: str) -> None:
    answer = server.http.post("/galleries/alice/erase", json={field: name})
    if answer.status_code != 200:
        assert answer.status_code == 422
        raise ClientError(answer.text)
    assert answer.json()[field] == name


WAYS = (by_client, by_async_client, by_body)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("field", ["id", "subject"])
def test_erasing_an_odd_id_takes_that_item_and_nothing_else(
    server: RunningServer, way: Callable[[RunningServer, str, str], None], field: str
) -> None:
    before = stored(server)
    for attack in ATTACKS:
        name = attack.format(**server.facts)
        item = insert(server, name)
        assert stored(server) == before | {item}
        way(server, field, name)
        assert stored(server) == before, name
    with pytest.raises(ClientError):
        way(server, field, "")
    assert stored(server) == before


@pytest.mark.parametrize("collection", ["items", "subjects"])
def test_a_key_for_items_deletes_no_gallery_whoever_resolves_its_addresses(
    server: RunningServer, collection: str
) -> None:
    key = server.key("gallery:alice:items")["key"]
    before = stored(server)
    # httpx resolves what is left of a quoted "..", and sends DELETE /galleries/alice.
    with httpx.Client(base_url=server.url, headers={"X-API-Key": key}, timeout=60) as http:
        for name in ("..", ".", "../", "../.", *(attack.format(**server.facts) for attack in ATTACKS)):
            for written in {name, quote(name, safe="")}:
                answer = http.delete(f"/galleries/alice/{collection}/{written}")
                assert answer.status_code in (200, 403, 404, 405), (written, answer.text)
                assert stored(server) == before, (written, answer.request.url)
        assert http.delete("/galleries/alice").json()["type"] == "/problems/forbidden"
        assert http.put("/galleries/alice", json={"model": "people"}).status_code == 403
        row = {"id": "new", "subject": "new", "vector": server.facts["X"][0].tolist()}
        assert http.put("/galleries/alice/items", json={"items": [row]}).is_success
    with Client(server.url, api_key=key) as client:
        assert client.erase("alice", subject="new").items == 1
        with pytest.raises(ClientError, match="gallery"):
            client.delete_gallery("alice")
    assert stored(server) == before


def bodies(names: list[str], vectors: np.ndarray, subjects: list[str], folder: Path) -> dict[str, bytes]:
    """The same items in every format."""
    items = [
        {"id": id, "subject": subject, "vector": row}
        for id, subject, row in zip(names, subjects, vectors.tolist(), strict=True)
    ]
    stream = io.BytesIO()
    np.savez(stream, ids=np.array(names), vectors=vectors, subjects=np.array(subjects))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id VARCHAR, subject VARCHAR, a FLOAT, b FLOAT, c FLOAT, d FLOAT)")
        for item in items:
            row = [item["id"], item["subject"], *item["vector"]]
            connection.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute(f"COPY t TO '{folder / 't.parquet'}' (FORMAT parquet)")
        connection.execute(f"COPY t TO '{folder / 't.csv'}' (FORMAT csv, HEADER)")
    return {
        "application/json": json.dumps({"items": items}).encode(),
        "application/x-npz": stream.getvalue(),
        "application/vnd.apache.parquet": (folder / "t.parquet").read_bytes(),
        "text/csv": (folder / "t.csv").read_bytes(),
    }


def test_odd_ids_and_subjects_are_refused_on_every_way_in(server: RunningServer, tmp_path: Path) -> None:
    before = stored(server)
    n = len(REFUSED)
    names = [*REFUSED, *(f"n{at}" for at in range(n)), "ok..", "a/.b", "Zoe\u0308"]
    subjects = ["s"] * n + [*REFUSED] + ["s"] * 3
    vectors = np.repeat(server.facts["X"][:1], len(names), axis=0)
    for kind, body in bodies(names, vectors, subjects, tmp_path).items():
        answer = server.http.put(
            "/galleries/alice/items", content=body, headers={"content-type": kind}
        ).json()
        assert answer["upserted"] == 3, (kind, answer)
        assert [one["row"] for one in answer["errors"]] == list(range(2 * n)), kind
        assert "a segment '.' or '..'" in answer["errors"][0]["detail"]
        added = {("item", "alice", id) for id in ("ok..", "a/.b", "Zo\u00eb")}
        assert stored(server) == before | added, kind
        for _, _, id in added:
            assert server.http.post("/galleries/alice/erase", json={"id": id}).status_code == 200
    answered(
        server.http.put(
            "/galleries/alice/items?prefix=../",
            content=vectors[:1].astype("<f4").tobytes(),
            headers={"content-type": "application/octet-stream"},
        ),
        422,
    )
    assert stored(server) == before


def test_text_is_compared_as_nfc(server: RunningServer) -> None:
    http: httpx.Client = server.http
    composed, apart = "Zo\u00eb", "Zoe\u0308"
    vector = server.facts["X"][0].tolist()
    before = stored(server)
    # One from before, in another form, is found and erased by its own id.
    insert(server, apart)
    assert http.get(f"/galleries/alice/items/{quote(composed)}").json()["id"] == apart
    assert http.delete(f"/galleries/alice/items/{quote(composed)}").json()["items"] == 1
    body = {"items": [{"id": apart, "subject": apart, "vector": vector}]}
    assert http.put("/galleries/alice/items", json=body).json()["upserted"] == 1
    assert stored(server) == before | {("item", "alice", composed)}
    for name in (composed, apart):
        assert http.get(f"/galleries/alice/items/{quote(name)}").json()["subject"] == composed
        listed = http.get("/galleries/alice/items", params={"subject": name}).json()["items"]
        assert [one["id"] for one in listed] == [composed]
    assert http.delete(f"/galleries/alice/items/{quote(apart)}").json()["items"] == 1
    assert stored(server) == before
    # Both forms of a subject are one person.
    http.put("/galleries/alice/items", json={"items": [{"id": "z", "subject": composed, "vector": vector}]})
    insert(server, apart)
    assert http.delete(f"/galleries/alice/subjects/{quote(apart)}").json()["items"] == 2
    assert stored(server) == before
