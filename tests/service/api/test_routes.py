"""The table of routes: what each needs, how requests find theirs, and what follows from a row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from pairmark.service.api.docs import operation_groups
from pairmark.service.api.query import FROM_QUERY, PageQuery, Query, QueryReader
from pairmark.service.api.routes import ROUTES
from pairmark.service.api.routing import JSON_TYPE, Route, RouteTable
from pairmark.service.app import create_app
from pairmark.service.console.pages import ROUTES as PAGES
from pairmark.service.errors import InvalidInput
from pairmark.service.settings import Settings

TABLE = RouteTable((*ROUTES, *PAGES))


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(Settings(home=tmp_path_factory.mktemp("home"))).openapi()


@pytest.mark.parametrize(
    ("method", "path", "access"),
    [
        ("POST", "/similarity", "score"),
        ("POST", "/match", "decide"),
        ("GET", "/rank-labels", "score"),
        ("HEAD", "/rank-labels", "score"),
        ("GET", "/healthz", "open"),
        ("GET", "/static/console.css", "open"),
        ("GET", "/problems/invalid-input", "open"),
        ("GET", "/metrics", "metrics"),
        ("GET", "/", "any"),
        ("GET", "/models/m/versions/1/roc.png", "model"),
        ("GET", "/datasets/d", "dataset"),
        ("POST", "/models", "import"),
        ("POST", "/keys", "admin"),
        ("GET", "/models/m/versions/1/export", "train"),
        ("POST", "/datasets", "train"),
        ("DELETE", "/datasets/d", "train"),
        ("POST", "/jobs/x/cancel", "any"),
        ("PUT", "/models/m/aliases/production", "train"),
        ("DELETE", "/models/m/versions/1", "admin"),
        ("POST", "/calibrations", "train"),
        ("PUT", "/galleries/g/items", "gallery"),
        ("POST", "/galleries/g/search", "gallery"),
    ],
)
def test_what_a_request_needs(method: str, path: str, access: str) -> None:
    found = TABLE.find(method, path)
    assert found is not None
    assert found.route.access == access


@pytest.mark.parametrize("path", ["/anything/else", "/modelsx", "/staticx", "", "/models/", "//models"])
def test_what_is_not_in_the_table_is_not_there(path: str) -> None:
    assert TABLE.find("GET", path) is None
    assert TABLE.methods_of(path) == []


def test_paths_give_their_parameters() -> None:
    found = TABLE.find("POST", "/galleries/g/subjects/a/b/verify")
    assert found is not None
    assert found.route.operation_id == "verify_subject"
    assert found.path == {"gallery": "g", "subject": "a/b"}
    assert TABLE.methods_of("/galleries/g/subjects/a") == ["DELETE"]
    assert TABLE.methods_of("/match") == ["POST"]


def test_two_rows_may_not_answer_the_same_request() -> None:
    row = next(route for route in ROUTES if route.path == "/healthz")
    with pytest.raises(ValueError, match="healthz"):
        RouteTable((row, row))


def test_every_answer_in_json_has_a_model() -> None:
    rows = [row for row in ROUTES if row.tag and row.gives == JSON_TYPE and row.status != 204]
    assert [row.operation_id for row in rows if row.answer is None] == []


class GreetingQuery(Query):
    name: str = Field(max_length=10, description="whom")


class Greeting(BaseModel):
    text: str


async def greet(query: Annotated[GreetingQuery, FROM_QUERY]) -> Greeting:
    """Say hello."""
    return Greeting(text=query.name)


def test_a_new_endpoint_is_a_row_and_a_handler(tmp_path: Path) -> None:
    route = Route("GET", "/greeting", greet, access="open", tag="status")
    app = create_app(Settings(home=tmp_path))
    app.table = RouteTable((*ROUTES, route))  # type: ignore[attr-defined]
    made = app.openapi()["paths"]["/greeting"]["get"]
    assert made["operationId"] == "greet"
    assert made["parameters"] == [
        {
            "name": "name",
            "in": "query",
            "required": True,
            "description": "whom",
            "schema": {"type": "string", "maxLength": 10},
        }
    ]
    assert "security" not in made
    answer = made["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer == {"$ref": "#/components/schemas/Greeting"}


# ---------------------------------------------------------------- queries


# Every provider adds what it likes to the address that it sends people back to.
STRICT = [one for one in TABLE.routes if one.operation_id != "end_sign_on"]


@pytest.mark.parametrize("route", STRICT, ids=lambda one: one.operation_id)
def test_every_route_refuses_parameters_it_does_not_know(route: Route) -> None:
    with pytest.raises(InvalidInput, match="'surprise' is not a query parameter here") as refused:
        route.reader.read(b"surprise=1")
    assert refused.value.facts["field"] == "surprise"


@pytest.mark.parametrize(
    ("raw", "field", "said"),
    [
        (b"limit=0", "limit", "limit is '0'; expected a whole number from 1 to"),
        (b"limit=1_0", "limit", "expected a whole number"),
        (b"limit=+5", "limit", "expected a whole number"),
        (b"limit=%205", "limit", "expected a whole number"),
        (b"limit=1&limit=2", "limit", "given twice"),
        (b"limit", "query", "not of the form"),
        (b"limit=%ff", "query", "not of the form"),
    ],
)
def test_a_query_that_is_wrong_names_the_parameter(raw: bytes, field: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        QueryReader(PageQuery).read(raw)
    assert refused.value.facts["field"] == field


def test_queries_are_read_and_blank_ones_are_not_given() -> None:
    reader = QueryReader(PageQuery)
    assert reader.read(b"limit=7&cursor=") == PageQuery(limit=7)
    assert reader.read(b"limit=7&cursor=") is reader.read(b"limit=7&cursor=")
    long = b"cursor=" + b"x" * 900
    assert reader.read(long) is not reader.read(long)


# ---------------------------------------------------------------- the document


def test_operations_and_schemas_have_clean_names(document: dict[str, Any]) -> None:
    names = [one["operationId"] for operations in document["paths"].values() for one in operations.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)
    schemas = document["components"]["schemas"]
    assert all(name.isalnum() for name in schemas), sorted(schemas)
    text = repr(document)
    for name in schemas:
        assert f"#/components/schemas/{name}'" in text, f"{name} is used nowhere"


def test_links_lead_to_operations_with_the_parameters_they_give(document: dict[str, Any]) -> None:
    known = {
        one["operationId"]: {given["name"] for given in one.get("parameters", ()) if given["in"] == "path"}
        for operations in document["paths"].values()
        for one in operations.values()
    }
    links = [
        link
        for operations in document["paths"].values()
        for one in operations.values()
        for answer in one["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert len(links) > 10
    for link in links:
        assert set(link["parameters"]) == known[link["operationId"]], link


def test_match_takes_pairs_or_scores(document: dict[str, Any]) -> None:
    operation = document["paths"]["/match"]["post"]
    given = {one["name"]: one for one in operation["parameters"]}
    # Either a rate or a prior: which of them, the handler checks.
    assert [name for name, one in given.items() if one["required"]] == []
    assert {"fpr", "prior", "cost_ratio"} <= set(given)
    bodies = operation["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
    assert [one["$ref"].rpartition("/")[2] for one in bodies] == ["PairsBody", "ScoresBody"]
    schemas = document["components"]["schemas"]
    assert schemas["PairsBody"]["required"] == ["left", "right"]
    assert schemas["ScoresBody"]["required"] == ["scores"]


def test_the_page_marks_fields_as_required_by_the_body_they_are_in(document: dict[str, Any]) -> None:
    groups = dict(operation_groups(document, "http://here"))
    (match,) = [one for one in groups["scoring"] if one["path"] == "/match"]
    bodies = [one for one in match["bodies"] if one["media_type"] == "application/json"]
    assert [{field["name"] for field in one["fields"] if field["required"]} for one in bodies] == [
        {"left", "right"},
        {"scores"},
    ]
