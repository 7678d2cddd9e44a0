"""Requests: addresses, keys, retries, pages."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, Self

import httpx

from pairmark.client.errors import Unreachable, problem_of
from pairmark.client.wire import jsonable, without_none

LONGEST_RETRY_WAIT_S = 30.0


def retry_wait(response: httpx.Response, attempt: int) -> float:
    """Seconds before a busy service is asked again: its Retry-After, else longer each time."""
    try:
        asked = float(response.headers.get("Retry-After", ""))
    except ValueError:
        asked = 0.5 * 2**attempt
    return min(max(asked, 0.0), LONGEST_RETRY_WAIT_S)


def address(url: str) -> str:
    """The address of a service; without a scheme it is ``http``, as in ``localhost:8000``.

    Raises
    ------
    ValueError
        For what is no address.
    """
    full = url.strip()
    if "://" not in full:
        full = f"http://{full}"
    try:
        parsed = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise ValueError(f"url is {url!r}; expected http://HOST:PORT or https://...") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"url is {url!r}; expected http://HOST:PORT or https://...")
    return full.rstrip("/")


class Transport:
    """One connection to a service; `Client` documents its parameters."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = address(url or os.environ.get("PAIRMARK_URL") or "http://127.0.0.1:8000")
        self.retries = retries
        key = api_key if api_key is not None else os.environ.get("PAIRMARK_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request: retried while the service is busy, raised as a `ClientError` when it refuses."""
        for attempt in range(self.retries + 1):
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                raise Unreachable(f"{self.url} does not answer ({type(error).__name__}: {error})") from error
            if response.status_code not in (429, 503) or attempt == self.retries or "files" in options:
                break
            time.sleep(retry_wait(response, attempt))
        if response.status_code >= 300:
            raise problem_of(response)
        return response

    def get(self, path: str, **params: Any) -> Any:
        """GET as JSON; parameters that are None are left out."""
        return self.request("GET", path, params=without_none(params)).json()

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """POST JSON, JSON back."""
        return self.send("POST", path, body, **options).json()

    def pages(self, path: str, *, limit: int | None = None, **params: Any) -> Iterator[dict[str, Any]]:
        """Every entry of a list, page after page (``limit`` in all)."""
        cursor, left = None, limit
        while left is None or left > 0:
            page = self.get(path, limit=100 if left is None else min(left, 100), cursor=cursor, **params)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def send(self, method: str, path: str, body: Any, **options: Any) -> httpx.Response:
        # NaN goes out as it is: the service names the field, which says more than this encoder could.
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        content = json.dumps(body, separators=(",", ":"), default=jsonable).encode()
        return self.request(method, path, content=content, headers=headers, **options)
