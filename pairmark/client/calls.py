"""What every group of calls builds on: requests, retries and lists.

Calls are coroutines, written once: `AsyncClient` awaits them on an event loop, `Client` runs them without one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx

from pairmark.client.encoding import jsonable, without_none
from pairmark.client.errors import json_of, problem_of, unanswered
from pairmark.client.transport import Blocking, Waiting

LONGEST_RETRY_WAIT_S = 30.0


class Calls:
    """Requests to one service."""

    def __init__(self, url: str, http: Blocking | Waiting, retries: int) -> None:
        self.url = url
        self.retries = retries
        self._http = http

    async def request(self, /, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, for endpoints that have no method here; ``options`` are those of httpx."""
        for attempt in range(self.retries + 1):
            try:
                response = await self._http.request(method, path, **options)
            except httpx.TransportError as error:
                raise unanswered(self.url, error) from error
            if response.status_code not in (429, 503) or attempt == self.retries or "files" in options:
                break
            await self._http.sleep(retry_wait(response, attempt))
        if response.status_code >= 300:
            raise problem_of(response)
        return response

    async def _get(self, path: str, **params: Any) -> Any:
        """GET as JSON; parameters that are None are left out."""
        return json_of(await self.request("GET", path, params=without_none(params)))

    async def _send(self, method: str, path: str, body: Mapping[str, Any], **options: Any) -> Any:
        """Send JSON, JSON back; members and parameters that are None are left out."""
        # NaN goes out as it is: the service names the field, which says more than this encoder could.
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        content = json.dumps(without_none(body), separators=(",", ":"), default=jsonable).encode()
        params = without_none(options.pop("params", {})) or None  # {} would drop the query of ``path``
        request = self.request(method, path, content=content, headers=headers, params=params, **options)
        return json_of(await request)

    async def pages(
        self, /, path: str, *, limit: int | None = None, **params: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Every entry of a list as JSON, page after page (``limit`` in all)."""
        cursor, left = None, limit
        while left is None or left > 0:
            size = 100 if left is None else min(left, 100)
            page = await self._get(path, limit=size, cursor=cursor, **params)
            for entry in page["items"]:
                yield entry
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return


def retry_wait(response: httpx.Response, attempt: int) -> float:
    """Seconds before a busy service is asked again: its Retry-After, else longer each time."""
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        seconds = 0.5 * 2**attempt
    return min(max(seconds, 0.0), LONGEST_RETRY_WAIT_S)
