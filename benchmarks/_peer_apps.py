"""Plain services that `http_peers` runs beside ours: cosines of pairs sent as JSON, and no more.

Each answers ``/one`` (two vectors), ``/many`` (two lists of as many vectors) and ``/``, written as the framework's
documentation has it, with the fastest JSON that it takes.
"""

from __future__ import annotations

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

Vector = list[float]


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


fastapi = FastAPI()


@fastapi.post("/one")
async def one(pair: Pair) -> dict[str, list[float]]:
    """The cosine."""
    return {"scores": cosines(pair.left, pair.right)}


@fastapi.post("/one-def")
def one_in_a_thread(pair: Pair) -> dict[str, list[float]]:
    """The cosine, by a plain function, which FastAPI runs in a thread."""
    return {"scores": cosines(pair.left, pair.right)}


@fastapi.post("/many")
async def many(pairs: Pairs) -> dict[str, list[float]]:
    """The cosines."""
    return {"scores": cosines(pairs.left, pairs.right)}


@fastapi.get("/")
async def ready() -> str:
    """Whether it answers."""
    return "ready"


async def _scored(request: Request) -> Response:
    pairs = orjson.loads(await request.body())
    answer = orjson.dumps({"scores": cosines(pairs["left"], pairs["right"])})
    return Response(answer, media_type="application/json")


async def _ready(request: Request) -> Response:
    return Response("ready")


starlette = Starlette(
    routes=[
        Route("/one", _scored, methods=["POST"]),
        Route("/many", _scored, methods=["POST"]),
        Route("/", _ready),
    ]
)


class OneStruct(Struct):
    """Body of Litestar's ``/one``."""

    left: Vector
    right: Vector


class ManyStruct(Struct):
    """Body of Litestar's ``/many``."""

    left: list[Vector]
    right: list[Vector]


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
