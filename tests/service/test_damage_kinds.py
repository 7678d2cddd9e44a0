"""Forty kinds of damage in rows, pages and blobs: the doctor names each with its repair, the service stays up, and no
request is answered with a 500."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from pairmark.service.api.routes import ROUTES
from pairmark.service.app import create_app
from pairmark.service.blobs import open_blobs
from pairmark.service.cli import app as cli
from pairmark.service.console import pages as console
from pairmark.service.db import Database
from pairmark.service.inprocess import InProcessTransport
from pairmark.service.keys import Keys
from pairmark.service.keys.schemas import Quotas
from pairmark.service.keys.sessions import Sessions
from pairmark.service.keys.tenants import Tenants
from pairmark.service.operations.doctor import Doctor, Finding, as_json
from pairmark.service.settings import Settings
from tests.service.conftest import Deployment, people


@dataclass
class Place:
    """A deployment with a row in every table, and how it was when it was sound."""

    deployment: Deployment
    facts: dict[str, str] = field(default_factory=dict)
    sound: dict[Path, bytes] = field(default_factory=dict)
    usual: dict[str, int] = field(default_factory=dict)

    def client(self) -> httpx.Client:
        """The service, started anew."""
        app = create_app(self.deployment.settings, warm=False)
        return httpx.Client(transport=InProcessTransport(app), base_url="http://here", timeout=60)

    def findings(self, *, quick: bool = True) -> list[Finding]:
        settings = self.deployment.settings
        doctor = Doctor(self.deployment.db, open_blobs(settings), settings, quick=True)
        if quick:
            return doctor.examine()
        doctor = Doctor(self.deployment.db, open_blobs(settings), settings)
        return [Finding("blobs", *one) for one in doctor.stored_files()]

    @property
    def file(self) -> Path:
        return Path(str(self.deployment.db.url.database))

    def keep(self) -> None:
        self.deployment.db.truncate_log()
        self.deployment.db.dispose()
        home = self.deployment.settings.home
        self.sound = {path: path.read_bytes() for path in (self.file, *home.rglob("*")) if path.is_file()}

    def put_back(self) -> None:
        self.deployment.db.dispose()
        for end in ("-wal", "-shm"):
            self.file.with_name(self.file.name + end).unlink(missing_ok=True)
        for path, data in self.sound.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(data)

    def spoil(self, *statements: str) -> None:
        """Change rows as no service does."""
        with sqlite3.connect(self.file) as connection:
            for statement in statements:
                connection.execute(statement.format(**self.facts))
        connection.close()


def furnish(deployment: Deployment) -> Place:
    place = Place(deployment)
    deployment.train()
    X, y = people(40, 5)
    with place.client() as client:

        def done(method: str, path: str, **body: Any) -> Any:
            answer = client.request(method, path, json=body)
            assert answer.is_success, answer.text
            return answer.json()

        done("PUT", "/galleries/staff", model="faces")
        items = [
            {"id": f"i{at}", "subject": f"s{y[at]}", "vector": X[at].tolist(), "metadata": {"site": "n"}}
            for at in range(20)
        ]
        done("PUT", "/galleries/staff/items", items=items)
        strangers = {"vectors": X[20:].tolist(), "subjects": [f"s{one}" for one in y[20:]]}
        place.facts["gallery_calibration"] = done("POST", "/galleries/staff/calibrations", **strangers)["id"]
        known = {"vectors": X.tolist(), "subjects": [f"s{one}" for one in y]}
        place.facts["evaluation"] = done("POST", "/galleries/staff/evaluations", **known)["id"]
        assert client.delete("/galleries/staff/items/i0").is_success
        place.facts["job"] = done("GET", "/jobs")["items"][0]["id"]
        version = done("GET", "/models/faces/versions/1")
        place.facts["calibration"] = version["calibrations"][0]["id"]
    keys = Keys(deployment.db)
    made = keys.create("laptop", ["admin"])
    place.facts["key"] = made.id
    Sessions(deployment.db).begin(made.id)
    Tenants(deployment.db, deployment.settings).set_quotas("acme", Quotas(rows=1_000))
    deployment.queue.mark_alive("me")
    place.keep()
    return place


@dataclass(frozen=True)
class Damage:
    """What to break, how the doctor names it, and what it advises."""

    statement: str
    detail: str
    advice: str


PROMOTE, DELETE = "promote another version", "restore a backup, or delete the row: DELETE FROM"
ROWS = {
    # ---------------------------------------------------------------- models
    "capabilities that are not JSON": Damage(
        "UPDATE model_versions SET capabilities = 'x'", "capabilities is not JSON", PROMOTE
    ),
    "capabilities of another type": Damage(
        "UPDATE model_versions SET capabilities = '{{}}'", "capabilities is not a JSON list", PROMOTE
    ),
    "facts that are empty": Damage(
        "UPDATE model_versions SET facts = '{{}}'", "cannot be shown: KeyError", PROMOTE
    ),
    "metrics of another type": Damage(
        "UPDATE model_versions SET metrics = '7'", "metrics is not a JSON", PROMOTE
    ),
    "a lineage that is empty": Damage(
        "UPDATE model_versions SET lineage = '{{}}'", "cannot be shown", PROMOTE
    ),
    "parameters that are not JSON": Damage(
        "UPDATE model_versions SET params = '{{'", "params is not JSON", PROMOTE
    ),
    "a learner that nobody knows": Damage(
        "UPDATE model_versions SET kind = 'martian'", "unknown learner 'martian'", PROMOTE
    ),
    "a hash that is none": Damage("UPDATE model_versions SET artefact_sha256 = 'x'", "no SHA-256", PROMOTE),
    "a time that is text": Damage(
        "UPDATE model_versions SET created_at = 'soon'", "created_at is no number", PROMOTE
    ),
    "a number used twice": Damage(
        "UPDATE models SET next_version = 1", "next_version is 1", "UPDATE models SET next_version = 2"
    ),
    "an alias to nothing": Damage(
        "UPDATE aliases SET version = 9", "alias faces@production points to version 9", "move it"
    ),
    "an alias of no model": Damage(
        "UPDATE aliases SET model_id = 'x'",
        "refers to a row of models that is not there",
        "DELETE FROM aliases",
    ),
    "an alias without a revision": Damage(
        "UPDATE aliases SET revision = 'x'", "revision is no whole number", "DELETE FROM aliases"
    ),
    # ---------------------------------------------------------------- calibrations
    "no calibration": Damage(
        "DELETE FROM calibrations", "faces:1 is decided by calibration", "calibrate it again"
    ),
    "a summary of a calibration": Damage(
        "UPDATE calibrations SET summary = 'x'", "summary is not JSON", "DELETE FROM cal"
    ),
    "a protocol that nobody knows": Damage(
        "UPDATE calibrations SET protocol = 'sideways'", "cannot be shown", "DELETE FROM calibrations"
    ),
    "a calibration of no model": Damage(
        "UPDATE calibrations SET model_id = 'x'", "refers to a row of models", "DELETE FROM calibrations"
    ),
    "a calibration of subjects without its own": Damage(
        "UPDATE calibrations SET parent_id = 'x', subjects = 's'",
        "is of subjects",
        "DELETE FROM calibrations",
    ),
    "no secret of the service": Damage(
        "UPDATE service_secret SET value = x'00'", "1 bytes of secret", "restore a backup"
    ),
    # ---------------------------------------------------------------- datasets and jobs
    "a summary of a dataset": Damage(
        "UPDATE datasets SET summary = '[]'", "summary is not a JSON object", DELETE
    ),
    "rows that are text": Damage("UPDATE datasets SET rows = 'many'", "rows is no whole number", DELETE),
    "a job's parameters": Damage(
        "UPDATE jobs SET params = 'x'", "params is not JSON", "DELETE FROM jobs WHERE id"
    ),
    "a job in no state": Damage(
        "UPDATE jobs SET state = 'flying'", "cannot be shown", "DELETE FROM jobs WHERE id"
    ),
    "an event's data": Damage(
        "UPDATE job_events SET data = '7'", "data is not a JSON object", "DELETE FROM job_events"
    ),
    "an event of no job": Damage(
        "UPDATE job_events SET job_id = 'x'", "refers to a row of jobs", "DELETE FROM"
    ),
    "an attempt that never began": Damage(
        "UPDATE job_attempts SET started_at = 'x'", "started_at is no number", "DELETE FROM job_attempts"
    ),
    # ---------------------------------------------------------------- galleries
    "a vector of one byte": Damage(
        "UPDATE gallery_items SET vector = x'00' WHERE id = 'i1'",
        "'i1' has 1 bytes, expected 24",
        "enrol it again",
    ),
    "a vector that is no number": Damage(
        "UPDATE gallery_items SET vector = CAST(x'0000c07f' || substr(vector, 5) AS BLOB) WHERE id = 'i1'",
        "'i1' is not finite",
        "enrol it again",
    ),
    "a vector that is text": Damage(
        "UPDATE gallery_items SET vector = 'abcdabcdabcdabcdabcdabcd' WHERE id = 'i1'",
        "'i1'",
        "enrol it again",
    ),
    "metadata that is empty": Damage(
        "UPDATE gallery_items SET metadata = '' WHERE id = 'i1'",
        "metadata of 'i1' is no JSON",
        "enrol it again",
    ),
    "metadata cut short": Damage(
        "UPDATE gallery_items SET metadata = '{{\"a}}' WHERE id = 'i1'",
        "metadata of 'i1' is no JSON",
        "enrol it again",
    ),
    "a gallery of no version": Damage(
        "UPDATE galleries SET version = 9", "gallery staff is served by version 9", "import that version"
    ),
    "a gallery of another dimension": Damage(
        "UPDATE galleries SET dimension = 7", "has the dimension 7", "UPDATE galleries SET dimension = 6"
    ),
    "a count of items": Damage(
        "UPDATE galleries SET items = 99", "counts 99 items, and has 19", "UPDATE galleries SET items = 19"
    ),
    "a sequence that went back": Damage(
        "UPDATE galleries SET seq = 1", "has the sequence number 1", "UPDATE galleries SET seq = 1000020"
    ),
    "fields that are not JSON": Damage(
        "UPDATE galleries SET fields = 'x'", "fields is not JSON", "DELETE FROM galleries"
    ),
    "scores cut short": Damage(
        "UPDATE gallery_calibrations SET best = x'00'", "whole numbers of scores", "calibrate it again"
    ),
    "a gallery calibration's summary": Damage(
        "UPDATE gallery_calibrations SET summary = '{{}}'",
        "cannot be shown",
        "DELETE FROM gallery_calibrations",
    ),
    "probes that are not all there": Damage(
        "DELETE FROM gallery_probes WHERE place = 3", "probes, and scores of", "calibrate it again"
    ),
    "a probe of one byte": Damage(
        "UPDATE gallery_probes SET vector = x'00' WHERE place = 3",
        "has 1 bytes, expected 24",
        "calibrate it again",
    ),
    "an evaluation's result": Damage(
        "UPDATE gallery_evaluations SET result = '{{}}'", "cannot be shown", "DELETE FROM gallery_evaluations"
    ),
    # ---------------------------------------------------------------- keys and the log
    "scopes that are unreadable": Damage(
        "UPDATE api_keys SET scopes = '[\"fly\"]'", "api_keys (id", "DELETE FROM api_keys WHERE id = '"
    ),
    "a key's hash": Damage(
        "UPDATE api_keys SET sha256 = 'x'", "sha256 is no SHA-256", "DELETE FROM api_keys"
    ),
    "a key that expires at no time": Damage(
        "UPDATE api_keys SET expires_at = 'soon'", "expires_at is no number", "DELETE FROM api_keys"
    ),
    "a session of no key": Damage(
        "UPDATE sessions SET key_id = 'x'", "refers to a row of api_keys", "DELETE FROM"
    ),
    "quotas that are not JSON": Damage(
        "UPDATE tenants SET quotas = '{{'", "quotas is not JSON", "DELETE FROM tenants"
    ),
    "a quota that is no number": Damage(
        'UPDATE tenants SET quotas = \'{{"rows": "many"}}\'', "rows", "DELETE FROM tenants"
    ),
    "a log that can be changed": Damage(
        "DROP TRIGGER audit_stays", "audit_stays is not there", "restore a backup"
    ),
    "no revision": Damage("DELETE FROM revision", "revision has no row", "INSERT INTO revision"),
    "no column of events": Damage(
        "ALTER TABLE job_events DROP COLUMN data", "job_events has no column data", "restore a backup"
    ),
    "no table of jobs": Damage("DROP TABLE job_events", "table job_events is not there", "restore a backup"),
    "no index": Damage(
        "DROP INDEX ix_gallery_items_seq",
        "ix_gallery_items_seq is not",
        "CREATE UNIQUE INDEX ix_gallery_items_seq",
    ),
}


FROM_CODE = ("/docs", "/openapi.json")
"""Drawn from the table of routes: each takes as long as ten others."""


def requests(place: Place) -> Iterator[tuple[str, str, Any]]:
    """Every address that is read and answers from rows, and what is scored, decided and searched."""
    named = {
        "ref": "people", "name": "faces", "version": "1", "alias": "production", "gallery": "staff", "id": "i1",
        "kind": "plda", "slug": "damaged-row", "file": "index.html", "key_id": place.facts["key"],
        "job_id": place.facts["job"], "calibration_id": place.facts["calibration"],
        "calibration": place.facts["gallery_calibration"], "evaluation": place.facts["evaluation"], "tenant": "acme",
        "review_id": "none", "webhook_id": "none",
    }  # fmt: skip
    for route in (*ROUTES, *console.ROUTES):
        if route.method == "GET" and route.gives != "text/event-stream" and route.path not in FROM_CODE:
            names = {**named, "name": "staff"} if "/console/galleries" in route.path else named
            yield (
                "GET",
                re.sub(r"{(\w+)(?::path)?}", lambda part, names=names: names[part[1]], route.path),
                None,
            )
    yield "GET", "/models/faces/versions/1/operating-point?fpr=0.5", None
    yield "GET", "/models/faces/versions/1/roc?fpr=0.5", None
    pair = people(2, 1)[0].tolist()
    body = {"model": "faces", "left": pair[0], "right": pair[1]}
    for path in ("/similarity", "/match?fpr=0.5", "/match?prior=0.5", "/similarity?log_lr=true", "/explain"):
        yield "POST", path, body
    query = {"queries": pair, "k": 3}
    for more in ({}, {"fpir": 0.5}, {"fpr": 0.5}, {"filter": {"site": "n"}}, {"group_by": "subject"}):
        yield "POST", "/galleries/staff/search", {**query, **more}
    yield "POST", "/galleries/staff/subjects/s1/verify?fpr=0.5", {"probe": pair[0]}


def named_by(request: tuple[str, str, Any]) -> str:
    """One request among the others, which may go to the same address."""
    method, path, body = request
    return f"{method} {path} {json.dumps(body)}"


def overwrite_pages(place: Place) -> None:
    with place.file.open("r+b") as stream:
        for page in range(3, stream.seek(0, 2) // 4096, 2):
            stream.seek(page * 4096)
            stream.write(b"\xa5" * 4096)


def overwrite_header(place: Place) -> None:
    with place.file.open("r+b") as stream:
        stream.write(b"\xa5" * 4096)


def cut_short(place: Place) -> None:
    with place.file.open("r+b") as stream:
        stream.truncate(stream.seek(0, 2) // 2)


def empty_file(place: Place) -> None:
    place.file.write_bytes(b"")


def delete_file(place: Place) -> None:
    place.file.unlink()


def newer_schema(place: Place) -> None:
    place.spoil("UPDATE alembic_version SET version_num = '9999'")


def older_schema(place: Place) -> None:
    place.spoil("UPDATE alembic_version SET version_num = '0003'")


ELSEWHERE = "restore a backup into another PAIRMARK_HOME"
FILES: dict[str, tuple[Callable[[Place], None], str, str]] = {
    "pages overwritten": (overwrite_pages, "the database file is damaged", ELSEWHERE),
    "a header overwritten": (overwrite_header, "the database file is damaged", ELSEWHERE),
    "a file cut short": (cut_short, "the database file is damaged", ELSEWHERE),
    "an empty file": (empty_file, "has no Pairmark tables yet", "pairmark db upgrade"),
    "no file": (delete_file, "has no Pairmark tables yet", "pairmark db upgrade"),
    "a newer schema": (newer_schema, "at revision 9999", "restore a backup"),
    "an older schema": (older_schema, "at revision 0003", "pairmark db upgrade"),
}


def blob_of(place: Place, column: str, table: str) -> Path:
    with sqlite3.connect(place.file) as connection:
        (key,) = connection.execute(f"SELECT {column} FROM {table}").fetchone()
    connection.close()
    return place.deployment.blobs.folder(key)


def lose(place: Place, folder: Path) -> None:
    shutil.rmtree(folder)


def change(place: Place, folder: Path) -> None:
    file = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"!")


def shorten(place: Place, folder: Path) -> None:
    file = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    file.chmod(0o644)
    file.write_bytes(b"")


BLOBS = {
    f"{what} of {of}": (break_it, column, table)
    for what, break_it in (("loss", lose), ("a changed byte", change), ("an empty file", shorten))
    for of, column, table in (
        ("a dataset", "blob", "datasets"), ("a model", "artefact", "model_versions"),
        ("a report", "report", "model_versions"), ("a calibration", "blob", "calibrations"),
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def place(new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("damage")
    settings = Settings(home=folder / "home", database_url=new_database("sqlite"), job_threads=1)
    database = Database(settings.resolved_database_url)
    deployment = Deployment(settings, database, open_blobs(settings), folder)
    deployment.upload("people", *people(40, 5))
    made = furnish(deployment)
    with made.client() as client:
        made.usual = {
            named_by(one): client.request(*one[:2], json=one[2]).status_code for one in requests(made)
        }
    made.put_back()
    assert [one.detail for one in made.findings() if one.check == "rows"] == ["every row fits the schema"]
    yield made
    database.dispose()


@pytest.fixture(autouse=True)
def _sound_again(place: Place) -> Iterator[None]:
    yield
    place.put_back()


def test_there_are_forty_kinds_and_more() -> None:
    assert len(ROWS) + len(FILES) + len(BLOBS) >= 40


def named(findings: list[Finding], detail: str, advice: str) -> bool:
    return any(one.status == "failure" and detail in one.detail and advice in one.advice for one in findings)


def answers(place: Place) -> dict[str, httpx.Response]:
    """What the service answers otherwise than when all is sound."""
    with place.client() as client:
        given = {named_by(one): client.request(*one[:2], json=one[2]) for one in requests(place)}
    return {asked: answer for asked, answer in given.items() if answer.status_code != place.usual[asked]}


@pytest.mark.parametrize("name", ROWS)
def test_a_damaged_row_is_named_with_its_repair_and_never_a_500(place: Place, name: str) -> None:
    damage = ROWS[name]
    place.spoil(damage.statement)
    findings = place.findings()
    assert named(findings, damage.detail, damage.advice), findings
    assert json.loads(json.dumps(as_json(findings)))["status"] == "failure"
    for asked, answer in answers(place).items():
        assert answer.status_code in (503, 404, 422, 409), (asked, answer.text)
        if answer.status_code == 503 and "json" in answer.headers["content-type"]:
            problem = answer.json()
            assert problem["type"] in (
                "/problems/damaged-row",
                "/problems/corrupt-artefact",
                "/problems/not-ready",
            )
            if problem["type"] == "/problems/damaged-row":
                repairs = ("pairmark doctor", "enrol it again", "restore a backup")
                assert any(words in problem["detail"] for words in repairs), problem


@pytest.mark.parametrize("name", FILES)
def test_the_doctor_speaks_json_whatever_the_state_of_the_file(
    place: Place, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, detail, advice = FILES[name]
    place.deployment.db.dispose()
    spoil(place)
    monkeypatch.setenv("PAIRMARK_HOME", str(place.deployment.settings.home))
    monkeypatch.setenv("PAIRMARK_DATABASE_URL", place.deployment.settings.resolved_database_url)
    done = CliRunner().invoke(cli, ["doctor", "--quick", "--json"])
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert report["status"] == "failure"
    assert any(detail in one["detail"] and advice in one["advice"] for one in report["findings"]), report
    assert "disk" in {one["check"] for one in report["findings"]}


@pytest.mark.parametrize("name", BLOBS)
def test_a_damaged_blob_is_named_and_never_a_500(place: Place, name: str) -> None:
    break_it, column, table = BLOBS[name]
    folder = blob_of(place, column, table)
    break_it(place, folder)
    findings = place.findings(quick="loss" in name)
    assert named(findings, folder.name[:12], "restore a backup elsewhere"), findings
    for asked, answer in answers(place).items():
        assert answer.status_code == 503, (asked, answer.text)


def test_production_whose_calibration_has_no_blob_is_not_ready(place: Place) -> None:
    with place.client() as client:
        client._transport._app.state.services.runtime.warm = True  # type: ignore[attr-defined]
        assert client.get("/readyz").status_code == 200
        lose(place, blob_of(place, "blob", "calibrations"))
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "1 production versions" in answer.json()["detail"]


def test_deleting_a_gallery_of_no_version_repairs_it(place: Place) -> None:
    place.spoil("UPDATE galleries SET version = 9")
    with place.client() as client:
        assert "staff" in client.get("/galleries/staff").json()["detail"]
        assert client.delete("/galleries/staff").status_code == 204
    assert not named(place.findings(), "staff", "")


def test_items_beside_a_damaged_one_are_searched(place: Place) -> None:
    place.spoil(
        ROWS["a vector that is no number"].statement, ROWS["metadata cut short"].statement.replace("i1", "i2")
    )
    with place.client() as client:
        query = {"queries": people(1, 1)[0].tolist(), "k": 20}
        ids = {one["id"] for one in client.post("/galleries/staff/search", json=query).json()["results"][0]}
    assert ids == {f"i{at}" for at in range(3, 20)}
