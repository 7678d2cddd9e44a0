"""A served deployment in which a wrong DELETE would be seen, and ids that programs could take for addresses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sqlalchemy import create_engine, text

from tests.serving import RunningServer, answered, serving

ODD = ("..", ".", "../x", "a/../b", "%2e%2e", "//", "/")
"""Ids of items, and subjects; the empty one was never stored."""


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
