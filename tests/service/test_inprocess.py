"""The in-process transport: the same HTTP, without a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request, UploadFile
from fastapi.responses import StreamingResponse

from pairmark.service.inprocess import TRUSTED, InProcessTransport


class Deployment:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.gone = threading.Event()
        self.app = FastAPI(lifespan=self.lifespan)
        self.app.post("/echo")(self.echo)
        self.app.post("/upload")(self.upload)
        self.app.get("/slow")(self.slow)
        self.app.get("/broken")(self.broken)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        self.events.append("up")
        yield {"kept": 7}
        self.events.append("down")

    async def echo(self, request: Request) -> dict[str, Any]:
        body = await request.body()
        return {
            "body": body.decode(),
            "query": request.url.query,
            "path": request.url.path,
            "trusted": request.scope.get(TRUSTED, False),
            "kept": request.state.kept,
            "header": request.headers.get("x-mine"),
        }

    async def upload(self, file: UploadFile, name: str) -> dict[str, Any]:
        return {"name": name, "size": len(await file.read())}

    async def slow(self) -> StreamingResponse:
        async def ticks() -> AsyncIterator[bytes]:
            try:
                for number in range(1000):
                    yield b"tick %d\n" % number
                    await asyncio.sleep(0.01)
            finally:
                self.gone.set()

        return StreamingResponse(ticks())

    async def broken(self) -> None:
        raise RuntimeError("a bug")


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


@pytest.fixture
def client(deployment: Deployment) -> Iterator[httpx.Client]:
    with httpx.Client(transport=InProcessTransport(deployment.app), base_url="http://here") as client:
        yield client


def test_a_request_arrives_whole_and_marked_as_trusted(client: httpx.Client) -> None:
    answer = client.post("/echo?a=1%202&b=%C3%A9", content=b"some bytes", headers={"X-Mine": "yes"}).json()
    assert answer == {
        "body": "some bytes",
        "query": "a=1%202&b=%C3%A9",
        "path": "/echo",
        "trusted": True,
        "kept": 7,
        "header": "yes",
    }


def test_an_upload_streams(client: httpx.Client, tmp_path) -> None:
    file = tmp_path / "big"
    file.write_bytes(b"x" * 3_000_000)
    with file.open("rb") as stream:
        answer = client.post("/upload?name=n", files={"file": ("big", stream)}).json()
    assert answer == {"name": "n", "size": 3_000_000}


def test_an_answer_streams_and_closing_it_ends_it(client: httpx.Client, deployment: Deployment) -> None:
    with client.stream("GET", "/slow") as response:
        assert next(response.iter_lines()) == "tick 0"
        assert not deployment.gone.is_set()
    assert deployment.gone.wait(5)


def test_a_failed_start_is_raised() -> None:
    @asynccontextmanager
    async def failing(app: FastAPI) -> AsyncIterator[None]:
        raise ValueError("no database")
        yield

    with pytest.raises(Exception, match="no database"):
        InProcessTransport(FastAPI(lifespan=failing))
