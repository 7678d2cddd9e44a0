"""Bodies: JSON is refused for its size or its structure, and tables as files hold what JSON lists hold."""

import asyncio
import gc
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.client import Client
from pairmark.schemas.base import RefPair
from pairmark.schemas.models import ScoresOptions, ScoresRequest
from pairmark.schemas.reviews import MAX_LISTED
from pairmark.service.api.calibrations import SCORES_LISTS
from pairmark.service.api.routers import guarded_routes
from pairmark.service.api.routing import GuardedRoute
from pairmark.service.app import create_app
from pairmark.service.errors import InvalidInput, PairmarkError
from pairmark.service.galleries.imports import json_batches
from pairmark.service.galleries.rows import RowErrors, VectorForm
from pairmark.service.scheduling import BEGUN_AT_ONCE, LIGHT_BYTES, current_owner
from pairmark.service.scoring.json import PIECE
from pairmark.service.scoring.requests import list_of, parse_features, parse_lists, parse_pairs, parse_scores
from pairmark.service.settings import Settings
from tests.serving import PATIENCE_S, RunningServer, answered

BY_ID = ("id", "name", "created_at")


Rows = list[tuple[float, int, str, str]]


def table() -> Rows:
    """Every pair of 60 samples of 30 people."""
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(30), 2)
    left, right = (people[side] for side in np.triu_indices(60, 1))
    scores = rng.normal(size=left.size) + 3.0 * (left == right)
    return [
        (float(score), int(a == b), f"person, {a}", f"person, {b}")
        for score, a, b in zip(scores, left, right, strict=True)
    ]


def as_file(rows: Rows, kind: str, folder: Path) -> bytes:
    lines = [f'{score!r},{same},"{a}","{b}"' for score, same, a, b in rows]
    path = folder / "table.csv"
    path.write_text("\n".join(["score,same,left_unit,right_unit", *lines]))
    if kind == "parquet":
        duckdb.sql(f"COPY (FROM '{path}') TO '{folder / 'table.parquet'}' (FORMAT parquet)")
    return (folder / f"table.{kind}").read_bytes()


def sent(
    server: RunningServer, path: str, content: bytes | str, file: str = "t.csv", **form: str
) -> httpx.Response:
    return server.http.post(path, files={"file": (file, content)}, data=form)


def told(answer: httpx.Response) -> dict[str, Any]:
    """What a calibration is, apart from what it is called."""
    assert answer.status_code == 201, answer.text
    return {name: value for name, value in answer.json().items() if name not in BY_ID}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_of_scores_calibrates_as_the_same_lists_do(
    plain_server: RunningServer, kind: str, tmp_path: Path
) -> None:
    rows = table()
    names = ("scores", "same", "left_unit", "right_unit")
    lists = dict(zip(names, zip(*rows, strict=True), strict=True))
    options = {"protocol": "open-set", "listing": "all"}
    as_json = plain_server.http.post("/calibrations", json={"name": "listed", **lists, **options})
    filed = sent(
        plain_server,
        "/calibrations",
        as_file(rows, kind, tmp_path),
        f"scores.{kind}",
        name="filed",
        **options,
    )
    assert told(filed) == told(as_json)
    assert filed.headers["location"] == f"/calibrations/{filed.json()['id']}"
    with Client(plain_server.url) as client:
        file = tmp_path / f"table.{kind}"
        assert client.calibrate_scores("filed", file=file, **options)["summary"] == as_json.json()["summary"]
        with pytest.raises(ValueError, match="either scores and same, or a file"):
            client.calibrate_scores("both", [0.5], [1], file=file)
    points = [
        plain_server.http.post(
            "/match",
            params={"fpr": 0.2, "confidence": 0.9, "calibration": answer.json()["id"]},
            json={"scores": [0.5, 5.0]},
        ).json()["operating_point"]
        for answer in (as_json, filed)
    ]
    assert points[0]["guarantee"] == "finite-sample"
    assert {**points[0], "calibration_id": None} == {**points[1], "calibration_id": None}


def test_scores_of_independent_pairs_need_no_units(plain_server: RunningServer) -> None:
    content = "\n".join(["same;score", *(f"{same};{score!r}" for score, same, *_ in table())])
    answered(sent(plain_server, "/calibrations", content, name="alone", independent="true"), 201)


@pytest.mark.parametrize(
    ("content", "form", "field", "said"),
    [
        ("score,left_unit,right_unit\n1,a,b\n", {}, "file", "'same' is missing; expected a first line"),
        ("score,same,left_units\n1,1,a\n", {}, "file", "'left_units' is not read here"),
        ("score,same\n1,1\nhigh,0\n", {}, "score[1]", "'high'; expected a finite number"),
        ("score,same\n1,1\ninf,0\n", {}, "score[1]", "expected a finite number"),
        ("score,same\n1,1\n0,maybe\n", {}, "same[1]", "expected 1 or true"),
        ("score,same\n1,1\n0,\n", {}, "same[1]", "same[1]: expected a valid boolean"),
        ("score,same,left_unit\n1,1,a\n0,0,a\n", {}, "right_unit", "go together"),
        (
            "score,same,left_unit,right_unit\n1,1,a,a\n0,0,,b\n",
            {},
            "left_unit[1]",
            "valid integer or a valid string",
        ),
        ("score,same\n", {}, "file", "no rows"),
        ("score,same\n1,1\n0,0\n", {"listing": "some"}, "listing", "listing"),
        ("score,same\n1,1\n0,0\n", {"protocol": "new"}, "protocol", "expected 'open-set' or 'closed-set'"),
        ("score,same\n1,1\n0,0\n", {"scores": "1"}, "scores", "expected file, name"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    plain_server: RunningServer, content: str, form: dict[str, str], field: str, said: str
) -> None:
    answer = answered(sent(plain_server, "/calibrations", content, name="wrong", **form), 422)
    assert answer.json()["field"] == field
    assert said in answer.json()["detail"]


def test_a_form_without_a_table_is_refused(plain_server: RunningServer) -> None:
    post = plain_server.http.post
    by_name = sent(plain_server, "/calibrations", b"", "t.npz", name="x").json()
    assert (by_name["field"], "expected .csv" in by_name["detail"]) == ("file", True)
    answer = post("/calibrations", files={"name": (None, "x")})
    assert (answer.status_code, answer.json()["field"]) == (422, "file")
    for kind in ("multipart/form-data; boundary=b", "multipart/form-data"):
        damaged = post("/calibrations", content=b"no form", headers={"content-type": kind})
        assert (damaged.status_code, damaged.json()["field"]) == (422, "body")
    too_long = answered(post("/calibrations", json={"name": "x" * 9_000_000}), 413)
    assert "CSV or Parquet" in too_long.json()["detail"]


def test_judgements_and_outcomes_come_as_files(plain_server: RunningServer) -> None:
    http = plain_server.http
    refs = [[f"a{at}", f"b{at}"] for at in range(30)]
    review = http.post("/reviews", json={"source": {"refs": refs}}).json()
    path = f"/reviews/{review['id']}"
    items = [one["item"] for one in http.get(f"{path}/next", params={"n": 20, "by": "ada"}).json()["items"]]
    rows = [f"{item},{'' if at == 7 else 'true'},ada" for at, item in enumerate(items)]
    judged = answered(sent(plain_server, f"{path}/outcomes", "\n".join(["item,same,by", *rows])))
    assert (judged.json()["judged"], judged.json()["wrong"]) == (20, 1)
    many = "\n".join(["item,same", *["x,1"] * 1_001])
    assert sent(plain_server, f"{path}/outcomes", many).status_code == 413
    assert "'item' is missing" in sent(plain_server, f"{path}/outcomes", "same\n1\n").json()["detail"]


def test_a_list_of_decisions_made_elsewhere_is_reviewed_from_a_file(plain_server: RunningServer) -> None:
    rows = [f"a{at},b{at},{at / 30},{'yes' if at < 20 else 'no'}" for at in range(30)]
    lines = "\n".join(["left,right,score,match", *rows]).replace("yes", "1").replace("no", "0")
    asked = {"name": "from a file", "question": "missed-matches", "at_most": "0.1", "confidence": "0.9"}
    made = answered(sent(plain_server, "/reviews", lines, **asked), 201).json()
    assert (made["name"], made["population"], made["confidence"]) == ("from a file", 30, 0.9)
    lists = {
        "refs": [[f"a{at}", f"b{at}"] for at in range(30)],
        "scores": [at / 30 for at in range(30)],
        "matches": [at < 20 for at in range(30)],
    }
    as_json = plain_server.http.post(
        "/reviews", json={**asked, "at_most": 0.1, "confidence": 0.9, "source": lists}
    ).json()
    assert {name: made[name] for name in ("population", "bound", "at_most", "source")} == {
        name: as_json[name] for name in ("population", "bound", "at_most", "source")
    }
    items = plain_server.http.get(f"/reviews/{made['id']}/next", params={"n": 5}).json()["items"]
    assert {item["refs"][0][1:] == item["refs"][1][1:] for item in items} == {True}
    wrong = sent(plain_server, "/reviews", "left,right,match\na,b,perhaps\n", **asked)
    assert wrong.json()["field"] == "match[0]"
    answered(sent(plain_server, "/reviews", "left,right\n,b\n"), 422)


def test_lists_of_decisions_are_bounded_alike_in_json_and_in_files(plain_server: RunningServer) -> None:
    n = 30_000
    refs = [[f"a{at}", f"b{at}"] for at in range(n)]
    as_json = answered(
        plain_server.http.post("/reviews", json={"source": {"refs": refs, "scores": None}}), 201
    )
    filed = sent(plain_server, "/reviews", "\n".join(["left,right", *map(",".join, refs)]))
    assert filed.json()["population"] == as_json.json()["population"] == n
    too_many = sent(plain_server, "/reviews", "\n".join(["left,right", *["a,b"] * (MAX_LISTED + 1)]))
    assert (too_many.status_code, too_many.json()["limit"]) == (413, MAX_LISTED)
    short = {"source": {"refs": [["a", "b"]] * (MAX_LISTED + 1)}}
    assert plain_server.http.post("/reviews", json=short).json()["limit"] == MAX_LISTED
    long = plain_server.http.post("/reviews", json={"source": {"refs": [["a" * 9_000_000, "b"]]}})
    assert (long.status_code, "CSV or Parquet" in long.json()["detail"]) == (413, True)


@pytest.mark.parametrize(
    ("source", "field", "said"),
    [
        ({"refs": [["a", "b"]] * 20_000 + [["a"]]}, "source.refs[20000]", "at least 2 items"),
        ({"refs": [["a", "b"], ["a", ""]]}, "source.refs[1][1]", "at least 1 character"),
        ({"refs": "all"}, "source.refs", "valid array"),
        ({"refs": [["a", "b"]], "matches": [1]}, "source.matches[0]", "expected a valid boolean"),
        ({"refs": [["a", "b"]], "scores": [1e300]}, "source.scores[0]", "beyond float32"),
        ({"refs": [["a", "b"]], "matches": [True, False]}, "source", "expected one for each of refs"),
        ({"model": "m", "gallery": "g"}, "source", "expected exactly one of model, gallery and refs"),
        ({"model": 3}, "source.model", "valid string"),
        ({"people": 3}, "source.people", "not a field"),
        ([], "source", "no JSON object; expected one"),
        (None, "source", "no JSON object; expected one"),
    ],
)
def test_what_is_wrong_with_a_source_is_named(
    plain_server: RunningServer, source: Any, field: str, said: str
) -> None:
    answer = answered(plain_server.http.post("/reviews", json={"source": source}), 422)
    assert answer.json()["field"] == field
    assert said in answer.json()["detail"]


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


def test_a_body_in_pieces_counts_as_a_long_one_and_waiting_for_a_turn_takes_time(settings: Settings) -> None:
    waits: list[bool] = []

    async def ask() -> httpx.Response:
        app = create_app(settings.model_copy(update={"request_timeout_s": 0.01}), warm=False)
        turns = app.state.services.turns

        async def pieces() -> AsyncIterator[bytes]:
            waits.append(turns.begin(current_owner()) is not None)
            yield b"{}"

        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http,
        ):
            await http.post("/similarity", content=pieces(), headers=JSON)
            for _ in range(50_000):
                turns.begin("", n_bytes=BEGUN_AT_ONCE * LIGHT_BYTES)
            return await http.post("/similarity", json={}, timeout=PATIENCE_S)

    assert asyncio.run(ask()).status_code == 408
    assert waits == [True]
