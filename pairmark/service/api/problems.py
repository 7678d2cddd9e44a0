"""Errors as RFC 9457 problems, and the page that each problem's ``type`` points to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from pairmark.service import errors
from pairmark.service.errors import PairmarkError

PROBLEM_JSON = "application/problem+json"


class Malformed(PairmarkError, slug="malformed-request"):
    """The request is malformed."""


class UnknownAddress(PairmarkError, slug="not-found"):
    """There is nothing at this address."""


class MethodNotAllowed(PairmarkError, slug="method-not-allowed"):
    """The address does not take this method."""

    headers: dict[str, str]


class NotAcceptable(PairmarkError, slug="not-acceptable"):
    """The answer cannot be given in that form."""


class UnsupportedMediaType(PairmarkError, slug="unsupported-media-type"):
    """The media type is not supported here."""


class NotImplementedHere(PairmarkError, slug="not-implemented"):
    """The request asks for a part of HTTP that is not implemented here."""


class UnmetExpectation(PairmarkError, slug="expectation-failed"):
    """The request expects what this service does not do."""


class SlowBody(PairmarkError, slug="request-timeout"):
    """The request body did not arrive in time."""


class HeadTooLarge(PairmarkError, slug="head-too-large"):
    """The head of the request is too large."""


class TimedOut(PairmarkError, slug="timed-out"):
    """The request took too long."""


class Internal(PairmarkError, slug="internal-error"):
    """Something went wrong inside the service."""


@dataclass(frozen=True, kw_only=True)
class ProblemPage:
    """What the service says about a problem: its status and how to fix it."""

    error: type[PairmarkError]
    status: int
    fix: str
    retry_after: int | None


_FIXES: dict[int, dict[type[PairmarkError], str]] = {
    400: {
        Malformed: "Send HTTP/1.1 with exactly one `Host` header. A proxy in between may have changed the request.",
    },
    401: {
        errors.Unauthenticated: "Send `Authorization: Bearer KEY` or `X-API-Key: KEY`. Keys are made with `pairmark "
        "keys create --scope score`.",
    },
    403: {
        errors.Forbidden: "Use a key that carries the scope named in `detail`: `pairmark keys create --scope SCOPE`.",
    },
    404: {
        errors.UnknownModel: "Write a model as `name` (its production version), `name@alias` or `name:version`. `GET "
        "/models` lists all models. A new version answers to the plain name once it is promoted to `production`.",
        errors.UnknownCalibration: "`GET /models/{name}/versions/{version}` lists a version's calibrations. `POST "
        "/calibrations` calibrates scores of another system.",
        errors.UnknownDataset: "Write a dataset as `name` (its newest version) or `name:version`. `GET /datasets` "
        "lists them.",
        errors.UnknownGallery: "`GET /galleries` lists all galleries; `PUT /galleries/{name}` with a model creates "
        "one.",
        errors.UnknownItem: "`GET /galleries/{name}/items` lists a gallery's items; add `?subject=` for those of one "
        "subject.",
        errors.UnknownLinks: "`GET /links` lists the link jobs that you may see.",
        errors.UnknownJob: "`GET /jobs` lists the jobs.",
        errors.UnknownWebhook: "`GET /webhooks` lists the webhooks.",
        errors.UnknownReview: "`GET /reviews` lists the reviews; `POST /reviews` makes one.",
        errors.UnknownLearner: "`GET /learners` lists the kinds with the JSON Schema of their parameters.",
        errors.UnknownKey: "`pairmark keys list` shows the keys.",
        errors.UnknownTenant: "A key of a tenant makes keys of that tenant alone.",
        UnknownAddress: "`/docs` lists all addresses of this service.",
    },
    405: {
        MethodNotAllowed: "The `Allow` header names the methods of this address. `/docs` lists all addresses.",
    },
    406: {
        NotAcceptable: "Ask for `application/json` or, where raw scores are offered, `application/octet-stream`.",
    },
    408: {
        SlowBody: "Send the whole body, with the length that `Content-Length` states, without a pause.",
    },
    409: {
        errors.Conflict: "`detail` names the conflict. Resolve it, or change the request.",
        errors.Fenced: "Another attempt does the job now. You do not have to do anything.",
    },
    412: {
        errors.PreconditionFailed: "Read the alias again and send its new ETag, if you still want the change.",
    },
    413: {
        errors.TooLarge: "Send less at a time. `detail` names the limit. The operator can raise it, with the setting "
        "that `setting` names or another of the `PAIRMARK_MAX_*` settings. Raw float32 bodies "
        "(`application/octet-stream`) are far smaller than JSON.",
    },
    415: {
        UnsupportedMediaType: "Send `application/json`. Scoring routes also read `application/octet-stream` and "
        "`application/x-npz`; datasets are sent as `multipart/form-data`. Bodies are sent without `Content-Encoding`.",
    },
    417: {
        UnmetExpectation: "Leave the `Expect` header out, or send `100-continue`.",
    },
    422: {
        errors.InvalidInput: "`detail` names the field and what was expected. Vectors are lists of finite numbers (no "
        "NaN, no infinities, no strings) that fit float32. Their length is the model's number of features.",
        errors.AmbiguousModel: "Name one of the models listed in `models`, in the body's `model` field (or `?model=` "
        "for binary bodies).",
        errors.ModelNotCapable: "`GET /models` shows the learner of each model, and `GET /learners` what each learner "
        "can do.",
        errors.UnsupportedRate: "A guarantee at this rate needs more people (closed-set: samples) than the "
        "calibration data has. Ask for `smallest_fpr` or a higher rate, lower `confidence`, or calibrate on "
        "`required_units` people or samples: `POST /models/{name}/versions/{version}/calibrations`. `alternatives` "
        "shows what the other methods would answer. The guarantee of `method=bootstrap` is asymptotic; "
        "`method=estimate` gives no guarantee.",
        errors.ChooseProtocol: "The labels may be people or things that new ones will join, or all classes that there "
        "are. The guarantee is about new ones only in the first case. Send `evaluation.protocol`: `open-set` (new ones "
        "will join) or `closed-set` (these and no others), or upload the dataset with `identity` or `classes` in place "
        "of `label`. `choices` shows what each could guarantee. On the command line: `pairmark train --protocol`.",
        errors.CalibrationOverlap: "Scores of training data are too good, so a threshold from them is wrong. "
        "Calibrate on people (or, closed-set, rows) that were not in the training data.",
    },
    429: {
        errors.RateLimited: "Wait as many seconds as the `Retry-After` header says, and send fewer requests at a time.",
    },
    431: {
        HeadTooLarge: "Send an address and headers of at most 64 KiB together. What is longer goes into the body. A "
        "cookie of another service on the same host may be the cause: delete it.",
    },
    500: {
        errors.TrainingFailed: "`GET /jobs/{id}` lists the attempts and their errors; search the worker's log for the "
        "job's id. Fix the cause and submit the job again.",
        errors.OutOfMemory: "Train on fewer pairs (`n_pairs`), rows or trees, or raise `PAIRMARK_JOB_MEMORY_BYTES` on "
        "workers that have more memory, then submit again.",
        errors.TrainingKilled: "Something other than memory ended the job's process at each attempt: a signal of "
        "somebody's, or of an operating system that stops what runs for long. Find it, then submit the job again.",
        errors.WorkerSilent: "At each attempt the worker stopped renewing the job's lease: it was killed with its "
        "machine or container, was cut off from the database, or the machine was too busy. Run fewer processes there, "
        "or raise `PAIRMARK_LEASE_S`, then submit the job again.",
        errors.JobTimeout: "Train on fewer pairs (`n_pairs`), rows or trees, or raise `PAIRMARK_JOB_TIMEOUT_S` on the "
        "workers, then submit again.",
        Internal: "This is a bug of the service. Report it with its `request_id`, which is in the logs too.",
    },
    501: {
        NotImplementedHere: "Send the body as it is, or with `Transfer-Encoding: chunked`.",
    },
    503: {
        errors.SearchTooLong: "Send fewer queries at a time, or raise `PAIRMARK_REQUEST_TIMEOUT_S`.",
        errors.NotReady: "The service is starting, or its database does not answer. Wait until `GET /readyz` answers "
        "200, and try again.",
        errors.CorruptArtefact: "The checksum of the stored file differs from the registered one, so this version is "
        "not served. Restore the file from a backup, promote another version, or train again.",
        errors.DamagedRow: "`detail` names the row. Restore a backup. Other rows are served as usual.",
        TimedOut: "Send fewer pairs at a time, or raise `PAIRMARK_REQUEST_TIMEOUT_S`.",
    },
    507: {
        errors.StorageFailed: "Nothing was stored. Free disk space (or repair the storage), then send the request "
        "again.",
    },
}
"""How to fix each problem, by its status."""
_RETRY_AFTER: dict[type[PairmarkError], int] = {
    errors.RateLimited: 1,
    errors.SearchTooLong: 5,
    errors.NotReady: 2,
    errors.CorruptArtefact: 30,
    errors.DamagedRow: 30,
    TimedOut: 5,
}
PAGES = {
    error.slug: ProblemPage(error=error, status=status, fix=fix, retry_after=_RETRY_AFTER.get(error))
    for status, fixes in _FIXES.items()
    for error, fix in fixes.items()
}


class Problem(BaseModel, extra="allow"):
    """An error in the form of RFC 9457. Some problems have further members, e.g. ``field`` or ``smallest_fpr``."""

    type: str = Field(
        description="address of a page that explains how to fix it", examples=["/problems/invalid-input"]
    )
    title: str = Field(description="the kind of problem, for people")
    status: int = Field(ge=400, le=599, description="the HTTP status")
    detail: str = Field(description="what is wrong with this request, and what was expected")
    instance: str | None = Field(None, description="path of the request")
    request_id: str | None = Field(None, description="id of the request in the logs")


RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "a problem; `type` is a page that says how to mend it",
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
"""Of every route, for the OpenAPI document."""


class ProblemAnswer:
    """An ASGI answer that says what went wrong; the log finds the problem in the scope."""

    def __init__(self, error: PairmarkError, headers: Mapping[str, str] | None = None) -> None:
        self.error = error
        self._headers = headers or getattr(error, "headers", None) or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["pairmark.problem"] = error = self.error
        page = PAGES.get(error.slug) or PAGES["internal-error"]
        body = {
            # Facts first: they must never overwrite the members that RFC 9457 names.
            **error.facts,
            "type": f"/problems/{page.error.slug}",
            "title": page.error.title,
            "status": page.status,
            "detail": error.detail,
            "instance": scope["path"],
            "request_id": scope.get("pairmark.request_id", ""),
        }
        headers = {"cache-control": "no-store", **self._headers}
        retry_after = error.facts.get("retry_after", page.retry_after)
        if retry_after is not None:
            headers["retry-after"] = str(retry_after)
        if page.status == 408:
            # The rest of the body is not waited for.
            headers["connection"] = "close"
        if page.status == 401:
            headers["www-authenticate"] = 'Bearer realm="pairmark"'
        # ASCII escapes keep lone surrogates, which UTF-8 cannot carry, from failing the answer itself.
        text = json.dumps(body, ensure_ascii=True, allow_nan=False, default=str)
        answer = Response(text, page.status, headers, media_type=PROBLEM_JSON)
        await answer(scope, receive, send)


def status_problem(error: HTTPException) -> PairmarkError:
    """What the framework's own refusals mean here."""
    if error.status_code == 413:
        return errors.TooLarge(str(error.detail))
    if error.status_code == 415:
        return UnsupportedMediaType(str(error.detail))
    if error.status_code >= 500:
        return Internal()
    return errors.InvalidInput(str(error.detail))
