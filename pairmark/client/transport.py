"""What every call builds on: errors, how arrays and files travel, requests, retries and lists.

Calls are coroutines, written once: `AsyncClient` awaits them on an event loop, `Client` runs them without one. NumPy is
used where it is installed; without it arrays are lists.
"""

import datetime
import io
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote, urlsplit

import httpx


class ClientError(Exception):
    """Something went wrong between here and the service."""


class Unreachable(ClientError):
    """Nobody answers at that address."""


class TimedOut(ClientError):
    """The service is there, and did not answer in time."""


class JobFailed(ClientError):
    """The job did not succeed; ``job`` says why."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        error = job.get("error") or {}
        detail = error.get("detail") or job.get("message") or "no reason was given"
        super().__init__(f"job {job.get('id')} {job.get('state')}: {detail}")


class InvalidName(ClientError, ValueError):
    """A name or id that cannot stand in an address; nothing was sent."""


class Problem(ClientError):
    """The service refused, and said why (RFC 9457).

    Attributes
    ----------
    status : HTTP status.
    slug : the last part of the problem's ``type``, e.g. ``unknown-model``.
    title, detail : for people.
    facts : the problem's extra members, e.g. ``field`` or ``smallest_fpr``.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.slug = str(problem.get("type", "")).rstrip("/").rsplit("/", 1)[-1]
        self.title = str(problem.get("title", f"HTTP {status}"))
        self.detail = str(problem.get("detail", self.title))
        self.facts = {
            name: value
            for name, value in problem.items()
            if name not in {"type", "title", "status", "detail", "instance"}
        }
        super().__init__(self.detail)


class InvalidInput(Problem):
    """The request is not of the expected form, or asks for what cannot be had."""


class InsufficientCalibration(InvalidInput):
    """The calibration data cannot support that rate."""


class Denied(Problem):
    """A key is missing, unknown or lacks the scope."""


class NotFound(Problem):
    """There is no such thing."""


class Conflict(Problem):
    """The present state forbids it."""


class TooLarge(Problem):
    """The request is beyond a bound of the service."""


class Busy(Problem):
    """Too much is waiting, or the service is not ready."""


class ServerFailed(Problem):
    """The service failed."""


_BY_STATUS: dict[int, type[Problem]] = {
    400: InvalidInput,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: TooLarge,
    415: InvalidInput,
    422: InvalidInput,
    429: Busy,
    503: Busy,
}


def unanswered_error(url: str, error: httpx.TransportError) -> ClientError:
    """The exception that a request without an answer means: one that was connected may only take longer."""
    if isinstance(error, httpx.ReadTimeout):
        return TimedOut(f"{url} took too long: allow more with Client(timeout=...), or send less at a time")
    return Unreachable(
        f"{url} does not answer ({type(error).__name__}: {error}); start it with `pairmark serve`, or name another "
        "service in PAIRMARK_URL"
    )


def json_of(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a response."""
    try:
        value = response.json()
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ClientError(f"{response.url} answered with no JSON object: is it a Pairmark service?")
    return value


def problem_of(response: httpx.Response) -> Problem:
    """The exception that an unsuccessful, fully read response means."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        text = response.text.strip()[:300]
        body = {"title": f"HTTP {response.status_code}", "detail": text or f"HTTP {response.status_code}"}
    if str(body.get("type", "")).endswith("/insufficient-calibration-data"):
        return InsufficientCalibration(response.status_code, body)
    fallback = ServerFailed if response.status_code >= 500 else Problem
    return _BY_STATUS.get(response.status_code, fallback)(response.status_code, body)


try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]

HAS_NUMPY = np is not None
RAW_FROM = 4096
"""Numbers in a request from which dense arrays travel as raw float32 (1/23 of the CPU of the best JSON)."""
Progress = Callable[[float, str], None]
Vectors = Any
"""A vector, a list of vectors, an (n, d) array, or a SciPy sparse matrix; for a model of records a
``{"column": value}``, a list of those, a pandas or polars frame, or an Arrow table."""
Side = Any
"""`Vectors`, or a subject of several samples ``{"samples": Vectors}``, or a list of subjects."""


def array(values: Any, dtype: str | None) -> Any:
    """Values as an array; without NumPy as they are."""
    return values if np is None else np.asarray(values, dtype=dtype)


def from_bytes(scores: bytes) -> Any:
    """The float32 numbers of a raw answer."""
    return np.frombuffer(scores, dtype="<f4").astype(np.float32, copy=False)


def is_array(value: Any) -> bool:
    """Whether a value is a dense array of numbers."""
    return np is not None and isinstance(value, np.ndarray) and value.dtype.kind in "fiu"


def raw_pairs(left: Vectors, right: Vectors) -> tuple[bytes, dict[str, int]] | None:
    """Both sides as raw float32 and its query parameters, or None where JSON says it better."""
    if not is_array(left) or not is_array(right) or left.size + right.size < RAW_FROM:
        return None
    a, b = np.atleast_2d(left), np.atleast_2d(right)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        return None
    body = np.ascontiguousarray(a, dtype="<f4").tobytes() + np.ascontiguousarray(b, dtype="<f4").tobytes()
    return body, {"dim": a.shape[1], "n_left": a.shape[0], "pairs": max(len(a), len(b))}


def jsonable(value: Any) -> Any:
    """Arrays as lists, sparse rows as their indices and values."""
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        edges = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [
            {"indices": rows.indices[start:end].tolist(), "values": rows.data[start:end].tolist()}
            for start, end in edges
        ]
    if isinstance(value, datetime.date):
        return value.isoformat()
    records = records_of(value)
    if records is not None:
        return records
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_numpy"):
        return value.to_numpy().tolist()
    raise TypeError(
        f"{type(value).__name__} cannot be sent; expected lists, NumPy arrays or SciPy sparse matrices"
    )


def records_of(frame: Any) -> list[dict[str, Any]] | None:
    """Records of a pandas or polars frame or an Arrow table, missing cells left out; None for what holds numbers alone,
    which are vectors."""
    if hasattr(frame, "to_dicts"):
        rows = frame.to_dicts()
    elif hasattr(frame, "column_names") and hasattr(frame, "to_pylist"):
        rows = frame.to_pylist()
    elif hasattr(frame, "columns") and hasattr(frame, "to_dict"):
        rows = frame.to_dict("records")
    else:
        return None
    records = [
        {str(name): _cell(cell) for name, cell in row.items() if not _is_missing(cell)} for row in rows
    ]
    texts = any(not isinstance(cell, (int, float)) for row in records for cell in row.values())
    return records if texts or any(len(row) < len(records[0]) for row in records) else None


def _cell(cell: Any) -> Any:
    # What pandas has of its own: numbers of NumPy, and times, of which midnight is a date.
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return cell.item() if hasattr(cell, "item") else cell


def _is_missing(cell: Any) -> bool:
    return (
        cell is None
        or type(cell).__name__ in ("NaTType", "NAType")
        or (isinstance(cell, float) and cell != cell)
    )


def listed_rows(features: Vectors) -> Any:
    """A list of rows, also from one row."""
    if is_array(features):
        return np.atleast_2d(features)
    is_row = isinstance(features, Sequence) and features and isinstance(features[0], (int, float))
    return [features] if is_row else features


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given: a parameter that is None is left to the service."""
    return {name: value for name, value in values.items() if value is not None}


def path_part(name: object) -> str:
    """A name, id or subject as one path segment; ':' and '@' are part of references and stay readable.

    Raises
    ------
    InvalidName
        For what is no segment: empty, ``.`` or ``..``. They survive quoting, and HTTP libraries resolve them, so the
        request would go to another address.
    """
    text = str(name)
    if text in ("", ".", ".."):
        raise InvalidName(f"{text!r} cannot stand in an address; expected another name or id")
    return quote(text, safe=":@")


def npz(**arrays: Any) -> bytes:
    """Those arrays that are not None, as one npz file."""
    stream = io.BytesIO()
    np.savez(stream, **without_none(arrays))
    return stream.getvalue()


class ProgressReader(io.RawIOBase):
    """A file that reports how much of it was read."""

    def __init__(self, stream: IO[bytes], progress: Progress) -> None:
        self._stream, self._progress = stream, progress
        self._size = max(stream.seek(0, os.SEEK_END), 1)
        stream.seek(0)

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._progress(min(self._stream.tell() / self._size, 1.0), "uploading")
        return chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


LONGEST_RETRY_WAIT_S = 30.0
LOOK_S = 0.5
log = logging.getLogger("pairmark.client")
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


Request = Callable[..., Awaitable[httpx.Response]]
Sleep = Callable[[float], Awaitable[None]]


class Calls:
    """Requests to one service."""

    def __init__(self, url: str, request: Request, sleep: Sleep, retries: int, patience: float) -> None:
        self.url = url
        self.retries = retries
        self._send_request, self._sleep = request, sleep
        # Only until it has answered once: a service that ends later is told at once.
        self._patience = patience if urlsplit(url).hostname in _THIS_MACHINE else 0.0

    async def request(self, /, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, for endpoints that have no method here; ``options`` are those of httpx."""
        for attempt in range(self.retries + 1):
            response = await self._answer(method, path, options)
            if response.status_code not in (429, 503) or attempt == self.retries or "files" in options:
                break
            await self._sleep(retry_wait(response, attempt))
        if response.status_code >= 300:
            raise problem_of(response)
        return response

    async def _answer(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        """One answer; a service of this machine that does not answer may be starting."""
        deadline, is_told = time.monotonic() + self._patience, False
        while True:
            try:
                response = await self._send_request(method, path, **options)
            except httpx.TransportError as error:
                if not isinstance(error, httpx.ConnectError) or time.monotonic() >= deadline:
                    # What went on below says nothing more, at great length.
                    raise unanswered_error(self.url, error) from None
                if not is_told:
                    log.warning(
                        "%s does not answer yet: waiting up to %g s for it to start", self.url, self._patience
                    )
                is_told = True
                await self._sleep(LOOK_S)
            else:
                self._patience = 0.0
                return response

    async def _get(self, path: str, **params: Any) -> Any:
        """GET as JSON; parameters that are None are left out."""
        return json_of(await self.request("GET", path, params=without_none(params)))

    async def _send(self, method: str, path: str, body: Mapping[str, Any], **options: Any) -> Any:
        """Send JSON, JSON back; members and parameters that are None are left out."""
        # NaN goes out as it is: the service names the field, which says more than this encoder could.
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        content = json.dumps(without_none(body), separators=(",", ":"), default=jsonable).encode()
        params = without_none(options.pop("params", {}))
        return json_of(
            await self.request(method, path, content=content, headers=headers, params=params, **options)
        )

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


def connection(url: str | None, api_key: str | None) -> tuple[str, dict[str, str]]:
    """The service's address and the headers of every request, where needed from the environment.

    Raises
    ------
    ValueError
        For what is no address. Without a scheme it is ``http``, as in ``localhost:8000``.
    """
    address = (url or os.environ.get("PAIRMARK_URL") or "http://127.0.0.1:8000").strip()
    key = api_key if api_key is not None else os.environ.get("PAIRMARK_API_KEY")
    full = address if "://" in address else f"http://{address}"
    wrong = ValueError(f"url is {address!r}; expected http://HOST:PORT or https://...")
    try:
        parsed = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise wrong from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise wrong
    return full.rstrip("/"), {"Authorization": f"Bearer {key}"} if key else {}
