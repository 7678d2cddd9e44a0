"""JSON bodies: refused for their size or their structure before anything is made of them, on every route."""

import asyncio
import gc
import json
import re
import threading
import time
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.schemas.base import RefPair
from pairmark.schemas.models import ScoresOptions, ScoresRequest
from pairmark.service.api.calibrations import SCORES_LISTS
from pairmark.service.api.routers import guarded_routes
from pairmark.service.api.routing import GuardedRoute
from pairmark.service.app import create_app
from pairmark.service.errors import InvalidInput, PairmarkError
from pairmark.service.galleries.imports import json_batches
from pairmark.service.galleries.rows import RowErrors, VectorForm
from pairmark.service.scoring.json import PIECE
from pairmark.service.scoring.lists import list_of, parse_lists
from pairmark.service.scoring.requests import parse_features, parse_pairs, parse_scores
from pairmark.service.settings import Settings
from tests.serving import PATIENCE_S

JSON_ROUTES = [
    route for route in guarded_routes() if route.method in ("POST", "PUT") and route.body_field is not None
]
JSON = {"content-type": "application/json"}


async def refused(
    settings: Settings, routes: list[GuardedRoute], bodies: dict[str, bytes], declared: bool
) -> None:
    """Send each body to each route of a service in this process: it is refused, and never with a 5xx."""
    app = create_app(settings, warm=False)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE_S
        ) as http:
            for route in routes:
                path = re.sub(
                    r"\{(\w+)(:\w+)?\}", lambda part: "1" if part[1] == "version" else "x", route.path
                )
                for name, body in bodies.items():

                    async def pieces(body: bytes = body) -> AsyncIterator[bytes]:
                        for start in range(0, len(body), 65_536):
                            yield body[start : start + 65_536]

                    content = body if declared else pieces()
                    query = {"fpr": "0.1"} if path.endswith("verify") else {}
                    answer = await http.request(
                        route.method, path, content=content, headers=JSON, params=query
                    )
                    assert answer.status_code in (404, 413, 422), f"{route.path} {name}: {answer.text}"
                    if len(body) > settings.max_json_bytes and declared:
                        assert answer.status_code == 413, f"{route.path} {name}: {answer.text}"
                        assert str(answer.json()["limit"]) in answer.json()["detail"]


@pytest.mark.parametrize("declared", [True, False])
def test_every_json_route_refuses_what_is_too_large(settings: Settings, declared: bool) -> None:
    limited = settings.model_copy(update={"max_json_bytes": 400_000, "max_control_bytes": 100_000})
    asyncio.run(refused(limited, JSON_ROUTES, {"lists": b'{"left":[%b' % (b"[]," * 200_000)}, declared))


def test_every_json_route_refuses_bodies_of_brackets(settings: Settings) -> None:
    # Each kind of element under a third of the names, each name with some.
    elements = {"lists": b"[],", "objects": b"{},", "words": b'"a",', "numbers": b"1,"}
    names = b"left features queries probe items scores pairs answers outcomes vectors".split()
    bodies = {
        f"{kind} {name!r}": b'{"%b":[%b]}' % (name, (element * 2_000)[:-1])
        for at, (kind, element) in enumerate(elements.items())
        for name in names[at % 3 :: 3]
    }
    bodies["nested"] = b'{"left":' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    asyncio.run(refused(settings, JSON_ROUTES, bodies, True))


@pytest.mark.parametrize("mark", [b"[", b"{"])
def test_a_body_of_too_many_brackets_is_refused_before_it_is_whole(settings: Settings, mark: bytes) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield mark * 65_536

    async def ask() -> httpx.Response:
        app = create_app(settings, warm=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
        ):
            return await http.post("/similarity", content=endless(), headers=JSON, timeout=PATIENCE_S)

    assert asyncio.run(ask()).status_code == 413
    assert sent < 40


@pytest.mark.parametrize("element", [b"[]", b"{}", b'"a"', b"null", b"[{}]", b'{"samples":[]}'])
def test_the_first_wrong_element_ends_the_parse(element: bytes) -> None:
    """A body of wrong elements makes no object for each of them."""
    many = b",".join([element] * 300_000)
    gc.collect()
    before = len(gc.get_objects())
    for parse, body in (
        (parse_pairs, b'{"left":[[1,2],%b],"right":[1,2]}' % many),
        (parse_features, b'{"features":[[1,2],%b]}' % many),
        (parse_scores, b'{"scores":[1,%b]}' % many),
        (
            lambda body: parse_lists(ScoresRequest, body, SCORES_LISTS, ScoresOptions),
            b'{"name":"a","scores":[1,%b],"same":[1]}' % many,
        ),
    ):
        with pytest.raises(PairmarkError):
            parse(body)
        assert len(gc.get_objects()) < before + 10_000


def test_sparse_vectors_and_metadata_make_no_objects_by_the_hundred_thousand() -> None:
    """The collector would look at all of them, again and again, while nobody else is answered."""
    gc.collect()
    before = len(gc.get_objects())
    pairs = parse_pairs(
        b'{"left":[%b],"right":{"indices":[1],"values":[1]}}' % _listed(b'{"indices":[1],"values":[2]}')
    )
    assert (len(pairs.left), len(gc.get_objects()) < before + 1_000) == (90_000, True)
    body = b'{"items":[{"id":"a","vector":[1,2],"metadata":{%b}}]}' % b",".join(
        b'"a%d":1' % at for at in range(600_000)
    )
    errors = RowErrors()
    assert [len(rows) for rows in json_batches(body, VectorForm(2), errors)] == [0]
    assert "more than 20000 members" in errors.items[0]["detail"]


def _listed(element: bytes, n: int = 90_000) -> bytes:
    return b",".join([element] * n)


@given(
    rows=st.integers(1, 400),
    width=st.integers(1, 300),
    gap=st.sampled_from([b"", b" ", b" \n\t"]),
    seed=st.integers(0, 9),
)
def test_long_sides_are_read_in_pieces_as_short_ones_are(
    rows: int, width: int, gap: bytes, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)
    text = json.dumps(values.tolist()).encode().replace(b"], [", b"]%b,%b[" % (gap, gap))
    np.testing.assert_array_equal(parse_pairs(b'{"left":%b,"right":%b}' % (text, text)).left, values)
    flat = values.ravel()
    np.testing.assert_array_equal(parse_scores(b'{"scores":%b}' % json.dumps(flat.tolist()).encode()), flat)


@pytest.mark.parametrize("text", ["a", 'quo"te', "back\\\\slash", '","', "],", "tail\\\\"])
def test_texts_are_never_cut_in_two(text: str) -> None:
    units = [text, 7] * 60_000
    assert list_of(int | str)(json.dumps(units).encode(), "units") == units


def test_a_wrong_number_far_into_a_long_side_is_named() -> None:
    rows = [[0.123456789] * 16 for _ in range(5 * PIECE // 200)]
    for wrong, said in (
        (["x"], "valid number"),
        ([1e39] * 16, "beyond float32"),
        ([1.0] * 3, "has 3 numbers"),
    ):
        body = json.dumps({"left": [*rows, wrong], "right": rows[0]}).encode()
        with pytest.raises(InvalidInput, match=said) as refusal:
            parse_pairs(body)
        assert str(refusal.value.facts["field"]).startswith(f"left[{len(rows)}]")


def test_a_text_full_of_ends_is_passed_at_once() -> None:
    """It was read once for each end in it: 2 MiB took hours."""
    text = b'],\\"' * 600_000
    start = time.process_time()
    refs = list_of(RefPair, of_lists=True)
    for parse in (parse_pairs, lambda body: refs(body[8:-11], "refs")):
        with pytest.raises(InvalidInput):
            parse(b'{"left":[["%b","a"]],"right":1}' % text)
    assert time.process_time() - start < 10.0


def test_names_that_look_like_ends_are_read_as_they_are() -> None:
    names = ['],["', 'a"],["', "\\", '\\"],', "], [", "plain"]
    pairs = [[names[at % 6], names[at % 5]] for at in range(40_000)]
    text = json.dumps(pairs).encode()
    assert len(text) > 4 * PIECE
    assert list_of(RefPair, of_lists=True)(text, "refs") == pairs


def test_long_bodies_of_one_owner_wait_for_each_other(settings: Settings) -> None:
    """The turn is the thread's: it ends with it, also where the caller is gone."""
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        ended.wait(PATIENCE_S)

    async def ask() -> httpx.Response:
        app = create_app(settings, warm=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
        ):
            reading = asyncio.ensure_future(app.state.services.reading.run(hold))
            await asyncio.to_thread(begun.wait, PATIENCE_S)
            reading.cancel()
            body = b'{"left":[["%b"]],"right":[1]}' % (b"a" * 100_000)
            waits = asyncio.ensure_future(
                http.post("/similarity", content=body, headers=JSON, timeout=PATIENCE_S)
            )
            # Threads that are free end meanwhile.
            for _ in range(50):
                await asyncio.to_thread(int)
            was_answered = waits.done()
            ended.set()
            assert not was_answered
            return await waits

    assert asyncio.run(ask()).status_code == 422
