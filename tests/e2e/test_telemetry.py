"""Spans of requests and jobs reach an OpenTelemetry collector, with their parents."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.service.conftest import people

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PATIENCE_S = 60.0


class Collector:
    """What was posted to it: headers and spans."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, str], dict]] = []
        ours = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                # Names of headers have no case.
                headers = {name.lower(): value for name, value in self.headers.items()}
                ours.messages.append((self.path, headers, body))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def spans(self) -> list[dict]:
        return [
            span
            for _, _, body in self.messages
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def named(self, name: str) -> dict:
        """The span of that name, once it has come."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for span in self.spans:
                if span["name"] == name:
                    return span
            time.sleep(0.05)
        raise AssertionError(f"no span {name!r} among {sorted({one['name'] for one in self.spans})}")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def facts(span: dict) -> dict:
    """Attributes by name."""
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_a_request_and_its_job_are_spans_of_the_callers_trace(serve, collector):
    server = serve(
        "--with-worker",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_EXPORTER_OTLP_HEADERS="x-tenant=a%20b",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        OTEL_SERVICE_NAME="faces",
    )
    server.upload("people", *people(40, 5))
    asked = {"learner": "metric", "dataset": "people", "model": "people"}
    traced = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
    answer = server.http.post("/jobs", json=asked, headers=traced)
    assert server.finished(answer.json()["id"])["state"] == "succeeded"
    request, submission, attempt = map(collector.named, ("POST /jobs", "submit training", "run training"))
    assert {one["traceId"] for one in (request, submission, attempt)} == {TRACE}
    assert request["parentSpanId"] == CALLER
    assert answer.headers["traceparent"].split("-")[2] == request["spanId"]
    assert submission["parentSpanId"] == request["spanId"]
    assert attempt["parentSpanId"] == submission["spanId"]
    assert facts(request)["http.response.status_code"] == "202"
    assert facts(request)["http.route"] == "/jobs"
    assert facts(attempt)["learner"] == "metric"
    assert int(attempt["startTimeUnixNano"]) < int(attempt["endTimeUnixNano"])
    # A request without a trace begins one; one whose caller keeps no trace is not sent.
    begun = server.http.get("/models").headers["traceparent"].split("-")
    assert collector.named("GET /models")["traceId"] == begun[1]
    server.http.get("/learners", headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    server.http.get("/nowhere")
    failed = collector.named("GET unmatched")
    assert facts(failed)["error.type"] == "not-found"
    assert failed["status"] == {}
    assert "GET /learners" not in {span["name"] for span in collector.spans}
    assert not any(span["name"].endswith(("readyz", "healthz")) for span in collector.spans)
    path, headers, body = collector.messages[0]
    assert (path, headers["x-tenant"]) == ("/v1/traces", "a b")
    resource = {
        one["key"]: one["value"]["stringValue"] for one in body["resourceSpans"][0]["resource"]["attributes"]
    }
    assert resource["service.name"] == "faces"
    assert resource["deployment.environment.name"] == "test"
