"""Routes: what each declares, its examples, whose fault a problem names, pages of the guide, and shared rates."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.routing import Match

from pairmark.schemas.links import LinksRequest
from pairmark.schemas.models import CompareQuery, ScoresOptions, ScoresRequest
from pairmark.service.api import docs
from pairmark.service.api.calibrations import SCORES_LISTS
from pairmark.service.api.datasets import RowsQuery
from pairmark.service.api.reviews import NextQuery
from pairmark.service.api.routers import ROUTERS, guarded_routes
from pairmark.service.api.routing import finish_within
from pairmark.service.app import TRUSTED, create_app, embedded_transport
from pairmark.service.console.pages import ROUTERS as PAGES
from pairmark.service.errors import InvalidInput, RateLimited, TooLarge, invalid_field
from pairmark.service.scheduling import SETS, WAYS, Rates, limit_of
from pairmark.service.scoring.requests import parse_lists
from pairmark.service.settings import Settings
from tests.service.conftest import Deployment
from tests.serving import PATIENCE_S

EVERY = guarded_routes(*ROUTERS, *PAGES)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(Settings(home=tmp_path_factory.mktemp("home"))).openapi()


def test_operations_have_names_of_their_own() -> None:
    names = [route.operation_id for route in EVERY]
    assert len(set(names)) == len(names)
    places = [(route.method, route.path) for route in EVERY]
    assert len(set(places)) == len(places)


def test_routes_are_made_when_modules_are_imported(settings: Settings) -> None:
    """Made at the first request, on the event loop and in the thread that makes the document, some came to nothing: a
    warning that each silences for itself became the request's error."""
    served = {id(route) for route in create_app(settings).routes}
    assert all(id(route) in served for route in EVERY)


def test_every_address_reaches_its_own_route() -> None:
    for route in EVERY:
        for name in ("word", "tenant/word"):
            values = {
                key: name if kind == ":name" else "1"
                for key, kind in re.findall(r"{(\w+)(:\w+)?}", route.path)
            }
            scope = {"type": "http", "method": route.method, "path": route.path_format.format(**values)}
            reached = next(each for each in EVERY if each.matches(scope)[0] is Match.FULL)
            assert reached is route, (scope["path"], reached.path)


# ---------------------------------------------------------------- queries


def test_every_route_refuses_parameters_it_does_not_know(settings: Settings) -> None:
    """Before anything else is looked at: the names in the paths are of nothing."""

    async def scenario() -> None:
        app = create_app(settings, warm=False)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE_S) as http,
        ):
            for route in EVERY:
                path = route.path_format.replace("{version}", "1").replace("{", "").replace("}", "")
                answer = await http.request(route.method, f"{path}?surprise=1", json={})
                assert answer.status_code == 422, (route.path, answer.text)
                if not route.path.startswith("/rank"):
                    assert "surprise" in answer.text, (route.path, answer.text)
                twice = await http.request(route.method, f"{path}?surprise=1&surprise=1")
                assert twice.status_code == 422, (route.path, twice.text)

    asyncio.run(scenario())


# ---------------------------------------------------------------- the document


def test_all_who_ask_for_the_document_first_get_it(settings: Settings) -> None:
    async def ask() -> list[httpx.Response]:
        app = create_app(settings, warm=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", timeout=PATIENCE_S
            ) as http,
        ):
            return await asyncio.gather(*(http.get("/openapi.json") for _ in range(8)))

    answers = asyncio.run(ask())
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1


NewDatabase = Callable[..., str]


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_database: NewDatabase
) -> Iterator[httpx.Client]:
    folder = tmp_path / "guide"
    (folder / "how-to").mkdir(parents=True)
    (folder / "index.html").write_text("<p>first</p>")
    (folder / "how-to" / "keys.html").write_text("<p>keys</p>")
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr(docs, "GUIDE", folder)
    settings = Settings(home=tmp_path, database_url=new_database("sqlite"))
    with (
        embedded_transport(create_app(settings, warm=False)) as transport,
        httpx.Client(
            transport=transport, base_url="http://127.0.0.1", follow_redirects=True, timeout=PATIENCE_S
        ) as opened,
    ):
        yield opened


def test_pages_are_served_and_nothing_beside_them(client: httpx.Client) -> None:
    assert client.get("/guide").text == "<p>first</p>"
    assert client.get("/guide/?q=keys").text == "<p>first</p>"
    page = client.get("/guide/how-to/keys.html")
    assert (page.text, page.headers["referrer-policy"]) == ("<p>keys</p>", "same-origin")
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in ("/guide/../secret", "/guide/..%2fsecret", "/guide/%2e%2e/secret"):
        assert client.get(path).status_code == 404


def test_the_problem_of_too_few_people_leads_to_their_page(client: httpx.Client) -> None:
    assert (
        'href="/guide/how-to/few-people.html"' in client.get("/problems/insufficient-calibration-data").text
    )
    assert "/guide/" not in client.get("/problems/conflict").text


BODIES = {
    route.operation_id: route.body_field.field_info.annotation
    for route in guarded_routes()
    if route.body_field is not None
}


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return create_app(Settings(), warm=False).openapi()


def _operations(openapi: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for operations in openapi["paths"].values() for operation in operations.values()]


def test_each_body_in_json_has_an_example_that_the_service_takes(openapi: dict[str, Any]) -> None:
    for operation in _operations(openapi):
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            example = json.dumps(content["application/json"]["example"])
            TypeAdapter(BODIES[operation["operationId"]]).validate_json(example)


def test_each_answer_in_json_has_an_example_that_fits_its_schema(openapi: dict[str, Any]) -> None:
    for operation in _operations(openapi):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/json")
            if status.startswith("2") and content is not None:
                schema = {**content["schema"], "components": openapi["components"]}
                validator = jsonschema_rs.Draft202012Validator(schema)
                errors = [error.message for error in validator.iter_errors(content["example"])]
                assert errors == [], operation["operationId"]


def test_an_alternative_is_no_part_of_a_field() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(ScoresRequest).validate_python(
            {"name": "vendor", "scores": [0.5, "high"], "same": [1, 0]}
        )
    problem = invalid_field([{**error, "loc": ("body", *error["loc"])} for error in refused.value.errors()])
    assert problem.facts["field"] == "scores[1]"
    assert str(problem.detail).startswith("scores[1]: ")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (CompareQuery, {"versions": "1"}, "versions: expected two version numbers, such as 1,2"),
        (
            RowsQuery,
            {"rows": "a"},
            "rows: expected 0-based rows separated by commas, at most 100, such as 0,17",
        ),
        (NextQuery, {"by": "a\n"}, "by: expected text without control characters"),
        (LinksRequest, {"tables": []}, "tables: expected at least 1 item, not 0"),
        (LinksRequest, {"left": "a", "confidence": 2}, "confidence: expected less than or equal to 0.9999"),
    ],
)
def test_a_refusal_says_what_was_expected(kind: type[BaseModel], body: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(body)
    assert invalid_field(refused.value.errors()).detail == words


def test_labels_in_words_are_told_what_was_expected() -> None:
    def read(same: str) -> list[int]:
        body = b'{"name": "vendor", "scores": [0.9, 0.1], "same": %b}' % same.encode()
        return parse_lists(ScoresRequest, body, SCORES_LISTS, ScoresOptions).same

    with pytest.raises(InvalidInput, match=r"'different'; expected 1 \(same\) or 0 \(different\)") as refused:
        read('[1, "different"]')
    assert refused.value.facts["field"] == "same[1]"
    assert read('["1", 0]') == [1, 0]


@pytest.mark.parametrize("last", ["http.response.start", "http.response.body", None])
def test_an_aborted_export_leaves_nothing(deployment: Deployment, last: str | None) -> None:
    deployment.train()
    app = create_app(deployment.settings, warm=False)
    under_way = Path(deployment.settings.resolved_artefacts) / "tmp"
    seen: list[tuple[str, int]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        seen.append((message["type"], len(list(under_way.iterdir()))))
        if message["type"] == last:
            raise OSError("the client is gone")

    async def ask() -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "GET",
            "headers": [(b"host", b"127.0.0.1")],
            "scheme": "http",
            "path": "/models/faces/versions/1/export",
            "raw_path": b"/models/faces/versions/1/export",
            "query_string": b"",
            "root_path": "",
            "client": ("127.0.0.1", 0),
            TRUSTED: True,
        }
        async with app.router.lifespan_context(app):
            with contextlib.suppress(OSError):
                await app(scope, receive, send)

    asyncio.run(ask())
    # A folder while it is sent.
    assert seen[0] == ("http.response.start", 1)
    assert list(under_way.iterdir()) == []


SLOW = limit_of("tries", 0.01, 500)


def taken(rates: Rates, name: str, tries: int, per_second: float = 0.01, burst_s: float = 500) -> int:
    """How many of so many tries were let through."""
    limit = limit_of("tries", per_second, burst_s)
    return sum(rates.take(name, limit).wait_s == 0 for _ in range(tries))


def test_a_bucket_gives_its_burst_and_then_says_when(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    assert taken(rates, "a", 20) == 5
    assert taken(rates, "b", 3) == 3
    with pytest.raises(RateLimited, match="at most 5 tries of it in 500 s; try again in") as refused:
        rates.draw({}, "a", SLOW, "tries of it")
    assert 90 <= refused.value.facts["retry_after"] <= 100


def test_who_has_no_place_left_is_told_which_share_is_spent(settings: Settings) -> None:
    async def ask() -> httpx.Response:
        app = create_app(settings, warm=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
        ):
            slots = app.state.services.runtime.batch_place.slots
            for _ in range(slots.limit):
                slots.take("")
            body = {"name": "scores", "scores": [0.1, 0.9], "same": [0, 1]}
            return await http.post("/calibrations", json=body, timeout=PATIENCE_S)

    refused = asyncio.run(ask())
    assert refused.status_code == 429, refused.text
    assert refused.headers["ratelimit"] == '"batch";r=0'
    assert refused.headers["ratelimit-policy"] == f'"batch";q={settings.max_concurrent_batches}'


def test_several_are_taken_at_once_or_none(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    assert rates.take("a", SLOW, 3).remaining == 2
    refused = rates.take("a", SLOW, 4)
    assert refused.remaining == 2
    assert 190 <= refused.wait_s <= 200
    assert rates.take("a", SLOW, 2) == (0, 500, 0)
    with pytest.raises(TooLarge, match="the request has 6 tries; at most 5 are taken in 500 s") as never:
        rates.draw({}, "b", SLOW, "tries", 6)
    assert never.value.facts["limit"] == 5
    assert rates.take("b", SLOW, 5).wait_s == 0


def test_processes_share_their_buckets(tmp_path: Path) -> None:
    assert taken(Rates(tmp_path / "rates"), "a", 3) == 3
    code = (
        "import sys; from pathlib import Path; from pairmark.service.scheduling import Rates, limit_of;"
        "rates, limit = Rates(Path(sys.argv[1])), limit_of('tries', 0.01, 500);"
        "print(sum(rates.take('a', limit).wait_s == 0 for _ in range(10)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "rates")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "2"


def test_a_crowd_of_names_is_bounded_and_starves_nobody(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    for number in range(3 * SETS * WAYS):
        rates.take(f"name {number}", limit_of("tries", 1000.0, 0.001))
    assert (tmp_path / "rates").stat().st_size == SETS * WAYS * 16
    assert taken(rates, "somebody else", 20) == 5


def test_what_waits_has_a_time_limit_and_can_be_cancelled() -> None:
    class Held:
        """What a request holds while it waits."""

    ended, held = [], weakref.WeakSet[Held]()

    async def late() -> None:
        held.add(holding := Held())
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            ended.append(holding is not None)

    async def patient() -> str:
        # A limit of its own that the work survives is not that of the whole.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(PATIENCE_S)
        await asyncio.sleep(0)
        return "went on"

    async def scenario() -> None:
        assert await finish_within(PATIENCE_S, patient()) == "went on"
        with contextlib.suppress(TimeoutError):
            await finish_within(0.01, late())
            raise AssertionError("it was not ended")
        # The task's step holds the cancellation; after it nothing does, whether the collector runs or not.
        await asyncio.sleep(0)
        assert not held
        cancelled = asyncio.create_task(finish_within(None, late()))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(scenario())
    assert ended == [True, True]


def test_half_as_many_names_as_there_are_places_are_remembered(tmp_path: Path) -> None:
    rates, limit = Rates(tmp_path / "rates"), limit_of("tries", 1 / 3600, 3600)
    names = [f"name {number}" for number in range(SETS * WAYS // 2)]
    for name in names:
        rates.take(name, limit)
    assert sum(rates.take(name, limit).wait_s > 0 for name in names) > 0.95 * len(names)
