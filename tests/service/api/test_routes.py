"""The table of routes: what each needs, how requests find theirs, and what follows from a row."""

from __future__ import annotations

from typing import Any

import pytest

from pairmark.service.api.query import PageQuery, QueryReader
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


def test_every_answer_in_json_has_a_model() -> None:
    rows = [row for row in ROUTES if row.tag and row.gives == JSON_TYPE and row.status != 204]
    assert [row.operation_id for row in rows if row.answer is None] == []


# ---------------------------------------------------------------- queries


# Every provider adds what it likes to the address that it sends people back to.
STRICT = [one for one in TABLE.routes if one.operation_id != "end_sign_on"]


@pytest.mark.parametrize("route", STRICT, ids=lambda one: one.operation_id)
def test_every_route_refuses_parameters_it_does_not_know(route: Route) -> None:
    with pytest.raises(InvalidInput, match="'surprise' is not a query parameter here") as refused:
        route.reader.read(b"surprise=1")
    assert refused.value.facts["field"] == "surprise"


def test_queries_are_read_and_blank_ones_are_not_given() -> None:
    reader = QueryReader(PageQuery)
    assert reader.read(b"limit=7&cursor=") == PageQuery(limit=7)
    assert reader.read(b"limit=7&cursor=") is reader.read(b"limit=7&cursor=")
    long = b"cursor=" + b"x" * 900
    assert reader.read(long) is not reader.read(long)


# ---------------------------------------------------------------- the document


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
