"""The OpenAPI document is whole and true: requests made from it never break the service or surprise its reader."""

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serving import RunningServer, answered

# The one that has more to refuse.
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
STREAMS = {"/jobs/{job_id}/events"}
"""An answer that need not end cannot be read whole; `test_resources` follows it."""


@pytest.fixture(scope="module")
def document(digits_deployment: RunningServer) -> dict[str, Any]:
    return digits_deployment.http.get("/openapi.json").json()


def test_every_operation_says_how_it_can_fail(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"], where
            assert operation["tags"], where
            assert set(operation["responses"]) & {"200", "201", "202", "204"}, where
            assert set(operation["responses"]["default"]["content"]) == {"application/problem+json"}, where


def test_nothing_made_from_the_document_breaks_the_service(
    digits_deployment: RunningServer, document: dict[str, Any]
) -> None:
    # Without security, or most requests would carry a made-up key and be refused at the door.
    opened = json.loads(json.dumps(document))
    del opened["components"]["securitySchemes"]
    for operations in opened["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    schema = schemathesis.openapi.from_dict(opened)
    schema.config.update(base_url=digits_deployment.url)
    there: dict[str, Any] = {
        "name": "digits",
        "version": 1,
        "ref": "digits",
        "kind": "similarity-forest",
        "alias": "production",
        "job_id": digits_deployment.facts["job"]["id"],
        "slug": "invalid-input",
        "gallery": "fuzzed",
        "id": "a",
        "subject": "s",
    }
    assert digits_deployment.http.put("/galleries/fuzzed", json={"model": "digits"}).status_code in (200, 201)
    item = {"id": "a", "subject": "s", "vector": digits_deployment.facts["X"][0].tolist()}
    assert (
        digits_deployment.http.put("/galleries/fuzzed/items", json={"items": [item]}).json()["upserted"] == 1
    )
    pairs = [[f"a{number}", f"b{number}"] for number in range(50)]
    review = answered(digits_deployment.http.post("/reviews", json={"source": {"refs": pairs}}), 201)
    there["review_id"] = review.json()["id"]
    table = {"file": ("table.csv", "id,name\n1,ann\n2,bob\n3,cem\n")}
    form = {"name": "table", "unlabelled": "true"}
    assert digits_deployment.http.post("/datasets", data=form, files=table).status_code == 201
    there["link_id"] = answered(digits_deployment.http.post("/links", json={"left": "table"}), 202).json()[
        "id"
    ]
    assert digits_deployment.finished(there["link_id"])["state"] == "succeeded"
    seen: dict[str, set[int]] = {}

    # Hypothesis parses the source of lambdas, numba that of what it compiles for a job: Python 3.11 takes two
    # threads that parse at once for a fault of its parser (SystemError), so jobs wait.
    with digits_deployment.jobs.at_work:
        for result in schema.get_all_operations():
            operation = result.ok()
            if operation.path in STREAMS:
                continue
            if operation.path.startswith("/keys") and operation.method.upper() != "GET":
                # A key would close this server, which other tests share, to every request without one.
                continue
            made = operation.as_strategy() | operation.as_strategy(
                generation_mode=schemathesis.GenerationMode.NEGATIVE
            )

            @settings(
                max_examples=6,
                database=None,
                deadline=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=made, known=st.sampled_from((True, True, True, False)))
            def check(case: Any, known: bool) -> None:
                if known and case.path_parameters and case.method != "DELETE":
                    # Words made up for a path are nobody's name; mostly it is one that is there.
                    case.path_parameters = {
                        name: there.get(name, value) for name, value in case.path_parameters.items()
                    }
                if known and case.method == "GET":
                    # Six made-up queries are rarely all right.
                    case.query = {}
                if known and isinstance(case.body, dict) and case.operation.path != "/links":
                    # Vectors of the right length are not made up by chance, nor rates that a calibration supports.
                    if vectors := case.body.keys() & {"left", "right", "queries", "probe"}:
                        case.body = dict.fromkeys(vectors, item["vector"])
                        case.query = {name: 0.1 for name in case.query or () if name == "fpr"}
                    elif "items" in case.body:
                        case.body = {"items": [item]}
                answer = case.call(timeout=60)
                seen.setdefault(f"{case.method} {case.operation.path}", set()).add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

            check()
    assert all(status < 500 for statuses in seen.values() for status in statuses)
    # Requests reached the handlers: a run whose requests are all refused at the edge proves little.
    reached = [where for where, statuses in seen.items() if statuses & {200, 201, 202, 204}]
    assert len(reached) > len(seen) / 2, {w: s for w, s in seen.items() if w not in reached}
    assert digits_deployment.http.get("/healthz").status_code == 200
