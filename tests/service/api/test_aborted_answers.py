"""An answer whose client is gone before it begins, or in its midst, leaves nothing on disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from pairmark.service.app import TRUSTED, create_app
from tests.service.conftest import Deployment


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
