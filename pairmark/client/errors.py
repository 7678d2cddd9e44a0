"""The client's exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def unanswered(url: str, error: httpx.TransportError) -> ClientError:
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
