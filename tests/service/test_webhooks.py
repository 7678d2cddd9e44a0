"""Webhooks on both databases: signed, tried again, listed, and sent to named hosts only; pictures for reviewers."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, update

from pairmark.schemas.admin import NewWebhook, WebhookRequest
from pairmark.service.audit.log import record
from pairmark.service.db import Database
from pairmark.service.settings import Settings
from pairmark.service.tables import WebhookDelivery
from pairmark.service.webhooks.webhooks import PAUSES_S, Webhooks
from tests.serving import answered, serving, until

pytestmark = pytest.mark.each_database


class Listener:
    """A host that keeps what it is sent, and answers as it is told."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                listener.messages.append(({k.lower(): v for k, v in self.headers.items()}, body))
                status = listener.answers.pop(0) if listener.answers else 204
                self.send_response(status)
                if status == 307:
                    self.send_header("location", f"{listener.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"http://127.0.0.1:{self.server.server_port}"
        self.url = f"{self.host}/told"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.server.shutdown()
    listening.server.server_close()


@pytest.fixture
def webhooks(database: Database, settings: Settings, listener: Listener) -> Webhooks:
    return Webhooks(database, settings.model_copy(update={"webhook_hosts": f"hooks.test, {listener.host}"}))


def happens(database: Database, action: str = "review.alarm") -> None:
    with database.write() as session:
        record(session, database.now(session), action, "review:1", after={"wrong": 3})


def deliver(webhooks: Webhooks) -> int:
    return asyncio.run(webhooks.deliver())


def waiting(database: Database) -> list[tuple[str, int, float]]:
    """Id, attempts and next attempt of each message that is not delivered yet."""
    columns = WebhookDelivery.id, WebhookDelivery.attempts, WebhookDelivery.next_at
    with database.read() as session:
        return [tuple(row) for row in session.execute(select(*columns))]


def made(webhooks: Webhooks, url: str, *events: str) -> NewWebhook:
    asked = {"url": url, **({"events": list(events)} if events else {})}
    return webhooks.create(WebhookRequest.model_validate(asked))


def test_a_message_is_signed_and_sent_once(
    webhooks: Webhooks, database: Database, listener: Listener
) -> None:
    hook = made(webhooks, listener.url, "review.alarm")
    happens(database)
    happens(database, "review.enough")
    happens(database, "key.create")
    assert deliver(webhooks) == 1
    assert deliver(webhooks) == 0
    ((headers, body),) = listener.messages
    secret = base64.b64decode(hook.secret.removeprefix("whsec_"))
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    message = json.loads(body)
    assert (message["type"], message["data"]) == ("review.alarm", {"resource": "review:1", "wrong": 3})
    assert waiting(database) == []
    assert made(webhooks, listener.url).secret != hook.secret


def test_what_is_rolled_back_is_not_told(webhooks: Webhooks, database: Database, listener: Listener) -> None:
    made(webhooks, listener.url)

    def fails() -> None:
        with database.write() as session:
            record(session, 1.0, "job.end", "job:1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert deliver(webhooks) == 0


def test_a_refused_message_is_tried_again_with_growing_pauses(
    webhooks: Webhooks, database: Database, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    made(webhooks, listener.url)
    happens(database)
    ((message_id, _, _),) = waiting(database)
    listener.answers = [500, 307, *[503] * 10]
    pauses = []
    for attempt in range(1, len(PAUSES_S) + 1):
        assert deliver(webhooks) == 1
        ((_, attempts, next_at),) = waiting(database)
        assert attempts == attempt
        with database.write() as session:
            now = database.now(session)
            pauses.append(round((next_at - now) / 10) * 10)
            session.execute(update(WebhookDelivery).values(next_at=now))
    assert pauses == [*PAUSES_S]
    caplog.clear()
    assert deliver(webhooks) == 1
    assert waiting(database) == [], "after its last attempt a message is given up"
    (warning,) = (vars(record) for record in caplog.records if record.name.endswith("webhooks"))
    assert (warning["delivery"], warning["answer"], warning["given_up"]) == (message_id, "503", True)
    assert deliver(webhooks) == 0
    ids = {headers["webhook-id"] for headers, _ in listener.messages}
    assert ids == {message_id}, "an attempt is known by its message's id, and redirects are not followed"
    assert len(listener.messages) == len(PAUSES_S) + 1


def test_a_slow_receiver_delays_nobody_and_one_that_fails_rests(
    webhooks: Webhooks, database: Database, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, failing = f"{listener.url}/slow", f"{listener.url}/failing"
    for url in (slow, failing, listener.url):
        made(webhooks, url)
    happens(database)
    happens(database)

    async def scenario() -> None:
        free = asyncio.Event()

        async def send(_: Any, due: Any) -> tuple[str, bool]:
            if due.url == slow:
                await free.wait()
            sent.append(due.url)
            return "", due.url != failing

        monkeypatch.setattr(webhooks, "_send", send)
        first = asyncio.create_task(webhooks.deliver())
        while len(sent) < 3 or len(webhooks._busy) > 1:
            await asyncio.sleep(0.01)
        happens(database)
        # The next look tells the others, and leaves the slow one to the first.
        assert await webhooks.deliver() == 2
        free.set()
        assert await first == 6

    sent: list[str] = []
    asyncio.run(scenario())
    assert sent.count(slow) == sent.count(listener.url) == 3
    # The message that came meanwhile is one more try; what came before it waits.
    assert sent.count(failing) == 2


def test_a_host_that_the_setting_no_longer_names_is_told_nothing(
    webhooks: Webhooks,
    database: Database,
    settings: Settings,
    listener: Listener,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made(webhooks, listener.url)
    happens(database)
    assert deliver(Webhooks(database, settings)) == 1
    assert not listener.messages
    assert any("names none" in str(vars(record).get("answer")) for record in caplog.records)


def test_a_running_service_tells_of_an_ended_job_and_of_a_promotion(
    new_database: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
    listener: Listener,
) -> None:
    home = tmp_path_factory.mktemp("webhooks")
    environment = {
        "PAIRMARK_WEBHOOK_HOSTS": listener.host,
        "PAIRMARK_REVIEW_IMAGES": "https://pictures.test/{ref}.jpg",
    }
    with serving(home, new_database("sqlite"), **environment) as server:
        http = server.http
        for wrong, field in (
            ({"url": "http://127.0.0.1:9/", "events": ["job.end"]}, "url"),
            ({}, "url"),
            ({"url": listener.url, "events": ["all"]}, "events[0]"),
            ({"url": listener.url, "events": []}, "events"),
        ):
            refused = http.post("/webhooks", json=wrong)
            assert (refused.status_code, refused.json()["field"]) == (422, field), wrong
        webhook = answered(http.post("/webhooks", json={"url": listener.url}), 201).json()
        assert webhook["secret"] not in http.get("/webhooks").text
        y = np.repeat(np.arange(40), 3)
        server.upload(
            "people", (np.random.default_rng(0).normal(size=(40, 3))[y]).astype(np.float32) + 0.1, y
        )
        job = server.train(learner="metric", dataset="people", model="people", params={"metric": "euclidean"})

        def both() -> dict[str, Any] | None:
            messages = [json.loads(body) for _, body in listener.messages]
            told = {message["type"]: message["data"] for message in messages}
            return told if {"job.end", "alias.move"} <= told.keys() else None

        told = until(both, "both events are told")
        assert (told["job.end"]["resource"], told["job.end"]["state"]) == (f"job:{job['id']}", "succeeded")
        assert told["alias.move"]["resource"] == "model:people@production"
        path = f"/webhooks/{webhook['id']}"
        other = http.post("/webhooks", json={"url": listener.url, "events": ["review.alarm"]}).json()
        assert (other["events"], other["secret"][:6]) == (["review.alarm"], "whsec_")
        assert http.delete(f"/webhooks/{other['id']}").status_code == 204
        assert ["secret" in remaining for remaining in http.get("/webhooks").json()["items"]] == [False]
        assert http.delete(path).status_code == 204
        assert http.delete(path).status_code == 404
        # Pictures come from the host of the setting, which the page's policy names, and from no other.
        review = http.post("/reviews", json={"source": {"refs": [["../x y", "b"]]}}).json()["id"]
        page = http.get(f"/console/reviews/{review}", headers={"accept": "text/html"})
        assert 'data-images="https://pictures.test/{ref}.jpg"' in page.text
        assert "img-src 'self' https://pictures.test;" in page.headers["content-security-policy"]
        plain_page = http.get("/console/reviews", headers={"accept": "text/html"})
        assert "img-src 'self';" in plain_page.headers["content-security-policy"]
