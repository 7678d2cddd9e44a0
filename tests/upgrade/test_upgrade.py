"""A deployment made at acb9ee2f, before 1.0, upgraded: every model, gallery, review and key answers as it did there.

The archive holds its home with an embedded database, and the requests it was sent with their answers. Thresholds are
not compared: the rule that chooses them has changed since.
"""

import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import JSON, Integer, MetaData, create_engine, text

from pairmark.service.app import create_app, embedded_transport
from pairmark.service.db import Database
from pairmark.service.settings import Settings
from tests.serving import serving

ARCHIVE = Path(__file__).parent / "acb9ee2f.tar.xz"
REVISION = "0018"
REFUSED: dict[str, str] = {
    "weather-auto": "pairmark train --learner label-ranking-auto",
    "ghost": "pairmark train --learner ghost",
    "logistic": "pairmark train --learner similarity-logistic",
    "customers": "pairmark train --learner record-trees",
    "gallery customers": "pairmark train --learner record-trees",
    "linkage": "pairmark train --learner fellegi-sunter",
}
"""Models whose format has changed since: the command that the refusal names, by model."""


@dataclass(frozen=True)
class Upgraded:
    """The deployment, upgraded and asked."""

    http: httpx.Client
    requests: list[dict[str, Any]]
    review: dict[str, Any]
    keys: dict[str, str]


def copy_rows(source: str, target: str) -> None:
    """Fill the empty tables of a database from those of another; both are of the same revision."""
    read, write = create_engine(source), create_engine(target)
    theirs, ours = MetaData(), MetaData()
    theirs.reflect(read)
    ours.reflect(write)
    with read.connect() as reading, write.begin() as writing:
        for table in ours.sorted_tables:
            if table.name == "alembic_version":
                continue
            writing.execute(table.delete())
            rows = [dict(row._mapping) for row in reading.execute(theirs.tables[table.name].select())]
            for column in table.columns:
                if isinstance(column.type, JSON):
                    column.type.none_as_null = True
            if rows:
                writing.execute(table.insert(), rows)
            for column in table.columns:
                if column.primary_key and isinstance(column.type, Integer):
                    writing.execute(
                        text(
                            f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), "
                            f"coalesce(max({column.name}), 1)) FROM {table.name}"
                        )
                    )
    read.dispose()
    write.dispose()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def upgraded(
    request: pytest.FixtureRequest,
    new_database: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Upgraded]:
    """SQLite as `pairmark serve` upgrades it, behind keys; PostgreSQL as the set-up job does, asked in this process."""
    folder = tmp_path_factory.mktemp("upgrade")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    home, kept = folder / "home", json.loads((folder / "answers.json").read_text())
    source = f"sqlite:///{home / 'pairmark.db'}"
    if request.param == "sqlite":
        with serving(home, source, PAIRMARK_REQUEST_TIMEOUT_S="600") as server:
            server.http.headers["X-API-Key"] = kept["keys"]["admin"]
            yield Upgraded(server.http, **kept)
        return
    url = new_database("postgresql", migrated=False)
    database = Database(url)
    database.upgrade(REVISION)
    copy_rows(source, url)
    database.upgrade()
    database.dispose()
    settings = Settings(home=home, database_url=url, request_timeout_s=600)
    with (
        embedded_transport(create_app(settings, warm=False)) as transport,
        httpx.Client(transport=transport, base_url="http://upgraded", timeout=600) as http,
    ):
        yield Upgraded(http, **kept)


def scores(answer: dict[str, Any]) -> list[float]:
    """Every score in an answer, in order."""
    if "scores" in answer:
        return answer["scores"]
    found = answer.get("matches") or [hit for hits in answer.get("results", ()) for hit in hits]
    return [one["score"] for one in found]


def test_models_and_galleries_answer_as_before(upgraded: Upgraded) -> None:
    for sent in upgraded.requests:
        answer = upgraded.http.post(sent["path"], json=sent["body"])
        if sent["name"] in REFUSED:
            assert answer.status_code == 409, (sent["name"], answer.text)
            assert REFUSED[sent["name"]] in answer.json()["detail"]
            continue
        assert answer.status_code == 200, (sent["name"], sent["path"], answer.text)
        before, now = sent["answer"], answer.json()
        assert now["model"] == before["model"]
        assert scores(now) == pytest.approx(scores(before), rel=1e-5), sent["name"]
        for name in ("rankings", "labels"):
            assert json.dumps(now.get(name)) == json.dumps(before.get(name)), sent["name"]
        if "results" in before and "operating_point" not in before:
            assert [[hit["id"] for hit in hits] for hits in now["results"]] == [
                [hit["id"] for hit in hits] for hits in before["results"]
            ]
        if "operating_point" in before:
            point = now["operating_point"]
            for name in ("fpr", "fpir", "confidence", "protocol", "guarantee"):
                assert point.get(name) == before["operating_point"].get(name), (sent["name"], name)
            if "matches" in now:
                for one in now["matches"]:
                    # Calibrations that did not keep their records decide complete ones only.
                    assert one.get("reason") in (None, "too-little-to-compare")
                    assert one["match"] is ("reason" not in one and one["score"] > point["threshold"])


def test_reviews_go_on_and_pages_of_models_are_shown(upgraded: Upgraded) -> None:
    review = upgraded.http.get(f"/reviews/{upgraded.review['id']}").json()
    assert {name: review[name] for name in upgraded.review} == upgraded.review
    for model in upgraded.http.get("/models?limit=100").json()["items"]:
        if model["name"] not in REFUSED:
            path = f"/models/{model['name']}/versions/1"
            for page in (path, f"{path}/report", f"{path}/leaderboard"):
                assert upgraded.http.get(page).status_code == 200, page


def test_keys_and_what_they_may_do_are_kept(upgraded: Upgraded) -> None:
    assert {key["name"] for key in upgraded.http.get("/keys").json()["items"]} == {"admin", "scoring"}
    # A client in the same process needs no key.
    if "X-API-Key" in upgraded.http.headers:
        assert upgraded.http.get("/keys", headers={"X-API-Key": upgraded.keys["scoring"]}).status_code == 403
        assert upgraded.http.get("/keys", headers={"X-API-Key": "pm_none"}).status_code == 401
