"""Routes: what each declares, how queries are read, and what follows for the document."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from starlette.routing import Match

from pairmark.service.api.routers import ROUTERS, guarded_routes
from pairmark.service.app import create_app
from pairmark.service.console.pages import ROUTERS as PAGES
from pairmark.service.settings import Settings
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
