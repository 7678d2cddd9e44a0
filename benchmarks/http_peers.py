"""Pairs of 128 numbers over HTTP: server CPU beside FastAPI, Starlette and Litestar.

All answer cosines of one pair or of 100 sent as JSON, over 8 kept-alive connections, every one with a
request on the way. The client is raw sockets; what counts is the CPU of every thread of the server. Ours is
`pairmark serve` with a model of the learner ``metric``, checks of inputs included. The plain services below
check nothing and run on uvicorn, uvloop and httptools without an access log. Linux only (it reads /proc).
"""

import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from typing import Any

import numpy as np
import orjson
from fastapi import FastAPI
from litestar import Litestar, get, post
from msgspec import Struct
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks._served import JSON, environment_of, request_of, running_server, trained
from benchmarks.common import Claim, Preset, Result, in_turns, people, ratio

DIMENSION, CONNECTIONS = 128, 8
OURS, FASTAPI = "pairmark", "FastAPI + numpy, async def"
STARLETTE, LITESTAR = "Starlette + orjson + numpy", "Litestar + numpy"
GOALS = {
    ("one pair", FASTAPI): 0.5,
    ("one pair", STARLETTE): 1.25,
    ("100 pairs", FASTAPI): 0.25,
    ("100 pairs", LITESTAR): 0.75,
}
"""Our CPU over a peer's, at most."""
Vector = list[float]


def run(preset: Preset) -> Result:
    """Servers in turns: quick 9 rounds of 1,600 requests, full 25 of 4,000; a tenth of that with 100 pairs each."""
    rounds, times = (9, 1_600) if preset == "quick" else (25, 4_000)
    left, right = np.random.default_rng(0).standard_normal((2, 100, DIMENSION)).astype(np.float32)
    one = json.dumps({"left": left[0].tolist(), "right": right[0].tolist()}).encode()
    many = json.dumps({"left": left.tolist(), "right": right.tolist()}).encode()
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder, ExitStack() as stack:
        environment = environment_of(folder)
        X, y, _ = people(60, 10, DIMENSION)
        trained(environment, [{"learner": "metric", "model": "cosine"}], X=X, y=y)
        served = {OURS: stack.enter_context(running_server(environment))}
        for name, application in ((FASTAPI, "fastapi"), (STARLETTE, "starlette"), (LITESTAR, "litestar")):
            command = [
                sys.executable, "-m", "uvicorn", f"benchmarks.http_peers:{application}", "--no-access-log",
                "--loop", "uvloop", "--http", "httptools", "--log-level", "warning", "--port",
            ]  # fmt: skip
            served[name] = stack.enter_context(running_server(environment, command, "/"))
        rows: list[dict[str, Any]] = []
        for what, path, body, n in (
            ("one pair", "/one", one, times),
            ("100 pairs", "/many", many, times // 10),
        ):
            requests = {
                name: request_of("/similarity" if name == OURS else path, body, JSON) for name in served
            }
            asked = {
                name: lambda _, server=server, request=requests[name], n=n: server.cpu_of(
                    request, n, CONNECTIONS
                )
                for name, server in served.items()
            }
            in_turns(asked, 1)  # What the first requests load or compile counts nowhere.
            spent = in_turns(asked, rounds)[1]
            rows += [
                {
                    "request": what,
                    "server": name,
                    "CPU us a request": 1e6 * statistics.median(seconds),
                    "ours over it": ratio(spent[OURS], seconds),
                }
                for name, seconds in spent.items()
            ]
    shares = {(row["request"], row["server"]): row["ours over it"] for row in rows}
    return Result(
        rows=rows,
        claims=[
            Claim.at_most(
                f"{what} of {DIMENSION} numbers: server CPU over that of {name}", goal, shares[what, name]
            )
            for (what, name), goal in GOALS.items()
        ],
        facts={"connections": CONNECTIONS, "requests": rounds * times},
    )


# ---------------------------------------------------------------- the plain services


def cosines(left: Any, right: Any) -> list[float]:
    """Of one pair or of many."""
    left, right = (np.atleast_2d(np.array(side, dtype=np.float32)) for side in (left, right))
    dots = [np.einsum("ij,ij->i", *rows) for rows in ((left, right), (left, left), (right, right))]
    return (dots[0] / np.sqrt(dots[1] * dots[2])).tolist()


class Pair(BaseModel):
    """Body of FastAPI's ``/one``."""

    left: Vector
    right: Vector


class Pairs(BaseModel):
    """Body of FastAPI's ``/many``."""

    left: list[Vector]
    right: list[Vector]


class OneStruct(Struct):
    """Body of Litestar's ``/one``."""

    left: Vector
    right: Vector


class ManyStruct(Struct):
    """Body of Litestar's ``/many``."""

    left: list[Vector]
    right: list[Vector]


fastapi = FastAPI()


@fastapi.post("/one")
async def fastapi_one(pair: Pair) -> dict[str, list[float]]:
    """The cosine."""
    return {"scores": cosines(pair.left, pair.right)}


@fastapi.post("/many")
async def fastapi_many(pairs: Pairs) -> dict[str, list[float]]:
    """The cosines."""
    return {"scores": cosines(pairs.left, pairs.right)}


@fastapi.get("/")
async def fastapi_ready() -> str:
    """Whether it answers."""
    return "ready"


async def starlette_scored(request: Request) -> Response:
    """The cosines."""
    if request.method == "GET":
        return Response("ready")
    pairs = orjson.loads(await request.body())
    answer = orjson.dumps({"scores": cosines(pairs["left"], pairs["right"])})
    return Response(answer, media_type="application/json")


starlette = Starlette(
    routes=[Route(path, starlette_scored, methods=["GET", "POST"]) for path in ("/", "/one", "/many")]
)


@post("/one", status_code=200)
async def litestar_one(data: OneStruct) -> dict[str, list[float]]:
    """The cosine."""
    return {"scores": cosines(data.left, data.right)}


@post("/many", status_code=200)
async def litestar_many(data: ManyStruct) -> dict[str, list[float]]:
    """The cosines."""
    return {"scores": cosines(data.left, data.right)}


@get("/")
async def litestar_ready() -> str:
    """Whether it answers."""
    return "ready"


litestar = Litestar([litestar_one, litestar_many, litestar_ready], openapi_config=None)
