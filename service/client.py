"""The Python client: the service's endpoints as calls, NumPy arrays in and out.

>>> from service.client import Client
>>> client = Client("http://127.0.0.1:8000", api_key="pm_...")
>>> client.similarity(left, right, model="faces")        # (n,) float32
>>> client.match(left, right, fpr=0.001).matches         # (n,) bool

Errors are one tree::

    ClientError
    ├── Unreachable            nobody answers at that address
    ├── JobFailed              a job that was waited for failed or was cancelled (.job)
    └── Problem                the service refused (.status, .slug, .title, .detail, .facts)
        ├── InvalidInput       400, 415, 422
        │   └── InsufficientCalibration   (.facts: smallest_fpr, required_units)
        ├── Denied             401, 403
        ├── NotFound           404
        ├── Conflict           409, 412
        ├── TooLarge           413
        ├── Busy               429, 503: still so after the retries
        └── ServerFailed       other 5xx
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote

import httpx
import numpy as np
from numpy.typing import NDArray

RAW_FROM = 4096
"""Numbers in a request from which dense arrays travel as raw float32 (1/23 of the CPU of the best JSON)."""
UPSERT_ROWS = 50_000
"""Rows of a gallery sent at a time."""
LONGEST_RETRY_WAIT_S = 30.0
Progress = Callable[[float, str], None]
Vectors = Any
"""A vector, a list of vectors, an (n, d) array, or a SciPy sparse matrix."""


class ClientError(Exception):
    """Something went wrong between here and the service."""


class Unreachable(ClientError):
    """Nobody answers at that address."""


class JobFailed(ClientError):
    """The job did not succeed; ``job`` says why."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        error = job.get("error") or {}
        detail = error.get("detail") or job.get("message") or "no reason was given"
        super().__init__(f"job {job.get('id')} {job.get('state')}: {detail}")


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


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Decisions at a false positive rate.

    Attributes
    ----------
    matches : (n,) bool, ``scores > threshold``.
    scores : (n,) float32.
    operating_point : threshold, fpr, fpr_upper_bound, confidence, method, tpr, ... as the service states them.
    model : name, version and kind (None where the scores were given).
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: dict[str, Any]
    model: dict[str, Any] | None


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


_C = TypeVar("_C", bound="Client")


class Client:
    """A synchronous client. Safe to share between threads; close it, or use it in a ``with`` block.

    Parameters
    ----------
    url : address of the service; default PAIRMARK_URL, else http://127.0.0.1:8000.
    api_key : default PAIRMARK_API_KEY.
    timeout : seconds that one request may take (uploads and event streams: without activity).
    retries : how often a 429 or 503 is tried again after its Retry-After (at most 30 s each).
    transport : an httpx transport, for tests and for the embedded service.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = (url or os.environ.get("PAIRMARK_URL") or "http://127.0.0.1:8000").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}; expected http://HOST:PORT or https://...")
        self.retries = retries
        key = api_key if api_key is not None else os.environ.get("PAIRMARK_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)

    def __enter__(self: _C) -> _C:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    # -- the calls underneath --------------------------------------------------------------------------------

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request: retried while the service is busy, raised as a `ClientError` when it refuses."""
        for attempt in range(self.retries + 1):
            try:
                response = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                raise Unreachable(f"{self.url} does not answer ({type(error).__name__}: {error})") from error
            if response.status_code not in (429, 503) or attempt == self.retries or "files" in options:
                break
            time.sleep(_retry_wait(response, attempt))
        if response.status_code >= 300:
            raise problem_of(response)
        return response

    def get(self, path: str, **params: Any) -> Any:
        """GET as JSON; parameters that are None are left out."""
        return self.request("GET", path, params=_given(params)).json()

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """POST JSON, JSON back."""
        return self._send("POST", path, body, **options).json()

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

    def _send(self, method: str, path: str, body: Any, **options: Any) -> httpx.Response:
        # NaN goes out as it is: the service names the field, which says more than this encoder could.
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        content = json.dumps(body, separators=(",", ":"), default=_jsonable).encode()
        return self.request(method, path, content=content, headers=headers, **options)

    # -- scoring ---------------------------------------------------------------------------------------------

    def similarity(self, left: Vectors, right: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """Scores of pairs, (n,) float32; higher is more similar. Sizes n:n, 1:n or n:1."""
        raw = _raw_pairs(left, right)
        if raw is not None:
            response = self.request(
                "POST",
                "/similarity",
                content=raw[0],
                params=_given({**raw[1], "model": model}),
                headers={"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"},
            )
            return np.frombuffer(response.content, dtype="<f4").astype(np.float32, copy=False)
        answer = self.post("/similarity", _given({"model": model, "left": left, "right": right}))
        return np.asarray(answer["scores"], dtype=np.float32)

    def match(
        self,
        left: Vectors = None,
        right: Vectors = None,
        *,
        fpr: float,
        confidence: float | None = None,
        method: str | None = None,
        calibration: str | None = None,
        model: str | None = None,
        scores: Sequence[float] | NDArray[Any] | None = None,
    ) -> MatchResult:
        """Same or different at a false positive rate; or decide on ``scores`` with a stored ``calibration``.

        Raises
        ------
        InsufficientCalibration
            When the calibration data cannot support the rate; ``.facts`` holds ``smallest_fpr``.
        """
        params = _given({"fpr": fpr, "confidence": confidence, "method": method, "calibration": calibration})
        raw = None if scores is not None else _raw_pairs(left, right)
        if raw is not None:
            answer = self.request(
                "POST",
                "/match",
                content=raw[0],
                params={**params, **_given({**raw[1], "model": model})},
                headers={"Content-Type": "application/octet-stream"},
            ).json()
        elif scores is not None:
            answer = self.post("/match", {"scores": scores}, params=params)
        else:
            answer = self.post(
                "/match", _given({"model": model, "left": left, "right": right}), params=params
            )
        return MatchResult(
            matches=np.array([entry["match"] for entry in answer["matches"]], dtype=np.bool_),
            scores=np.array([entry["score"] for entry in answer["matches"]], dtype=np.float32),
            operating_point=answer["operating_point"],
            model=answer.get("model"),
        )

    def explain(self, left: Vectors, right: Vectors, *, model: str | None = None) -> dict[str, Any]:
        """Why one pair scores as it does."""
        return _dict(self.post("/explain", _given({"model": model, "left": left, "right": right})))

    def rank_labels(
        self,
        features: Vectors | Mapping[str, float],
        *,
        model: str | None = None,
        top: int | None = None,
        detail: bool = False,
        abstain: float | None = None,
    ) -> dict[str, Any]:
        """Labels of each point, best first.

        Parameters
        ----------
        features : points by position, or by name (a mapping, or a list of them).
        top : only the first so many labels.
        detail : also how sure the ranking and each pair of labels is.
        abstain : keep only order that is at least this sure; other labels share a place.
        """
        given = features if isinstance(features, Mapping) else _rows(features)
        body = {"model": model, "features": given, "top": top, "detail": detail or None, "abstain": abstain}
        body = _given(body)
        return _dict(self.post("/rank-labels", body))

    def classify(self, features: Vectors, *, model: str | None = None) -> dict[str, Any]:
        """``labels`` and ``probabilities`` of each point."""
        return _dict(self.post("/classify", _given({"model": model, "features": features})))

    def embed(self, features: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """The model's own vectors of each point, (n, n_components) float32."""
        answer = self.post("/embed", _given({"model": model, "features": features}))
        return np.asarray(answer["vectors"], dtype=np.float32)

    # -- galleries -------------------------------------------------------------------------------------------

    def search(self, gallery: str, queries: Vectors, *, k: int = 10, **options: Any) -> dict[str, Any]:
        """Exact search; ``options`` are ``filter``, ``group_by``, ``fpir``, ``fpr`` and ``confidence``.

        Returns
        -------
        ``model``, ``results`` (one list of ``{"id", "subject", "score"}`` a query, best first) and, with a rate,
        ``operating_point``: then only matches are listed, and an empty list means "unknown".
        """
        body = _given({"queries": queries, "k": k, **options})
        return _dict(self.post(f"/galleries/{_part(gallery)}/search", body))

    def verify(
        self, gallery: str, subject: str, probe: Vectors, *, fpr: float, **options: Any
    ) -> dict[str, Any]:
        """Whether a vector is of a subject: its best score with the subject's items, and the decision at ``fpr``."""
        path = f"/galleries/{_part(gallery)}/subjects/{_segment(subject)}/verify"
        return _dict(self.post(path, {"probe": probe}, params=_given({"fpr": fpr, **options})))

    def upsert(
        self,
        gallery: str,
        items: Sequence[Mapping[str, Any]] | None = None,
        *,
        ids: Sequence[str] | NDArray[Any] | None = None,
        vectors: Any = None,
        subjects: Sequence[str | None] | NDArray[Any] | None = None,
        model: str | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Enrol items, or replace those of the same id.

        Parameters
        ----------
        items : ``{"id", "vector", "subject"?, "metadata"?}`` each; or else arrays:
        ids, vectors, subjects : (n,), (n, d), (n,); sent as npz, 50,000 rows at a time.
        model : creates the gallery first.
        progress : called with (fraction sent, "enrolling").

        Returns
        -------
        ``upserted``, ``n_errors``, and ``errors`` with the ``row`` of each item that was refused.
        """
        if (items is None) == (vectors is None):
            raise ValueError("expected either items or the arrays ids and vectors")
        if model is not None:
            self.put_gallery(gallery, model)
        path = f"/galleries/{_part(gallery)}/items"
        if items is not None:
            n = len(items)
            sent = (
                self._send("PUT", path, {"items": list(items[start : start + 5_000])})
                for start in range(0, max(n, 1), 5_000)
            )
            return _enrolled(sent, 5_000, n, progress)
        rows = np.asarray(vectors, dtype=np.float32)
        if rows.ndim != 2 or ids is None or len(ids) != len(rows):
            raise ValueError("expected as many ids as rows of vectors, (n, d)")
        names = np.asarray(ids, dtype=str)
        whose = (
            None
            if subjects is None
            else np.array(["" if one is None else one for one in subjects], dtype=str)
        )
        arrays = (
            _npz(
                ids=names[start : start + UPSERT_ROWS],
                vectors=rows[start : start + UPSERT_ROWS],
                subjects=None if whose is None else whose[start : start + UPSERT_ROWS],
            )
            for start in range(0, max(len(rows), 1), UPSERT_ROWS)
        )
        sent = (
            self.request("PUT", path, content=body, headers={"Content-Type": "application/x-npz"})
            for body in arrays
        )
        return _enrolled(sent, UPSERT_ROWS, len(rows), progress)

    def upsert_file(
        self, gallery: str, file: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any
    ) -> dict[str, Any]:
        """Enrol a CSV, Parquet or npz file in one request; ``options`` are ``id``, ``subject`` and ``metadata``."""
        kinds = {
            ".csv": "text/csv",
            ".npz": "application/x-npz",
            ".parquet": "application/vnd.apache.parquet",
            ".pq": "application/vnd.apache.parquet",
        }
        suffix = Path(file).suffix.lower()
        if suffix not in kinds:
            raise ValueError(f"{file}: expected a file named .csv, .npz or .parquet")
        with open(file, "rb") as stream:
            told = _Told(stream, progress or (lambda fraction, stage: None))
            return _dict(
                self.request(
                    "PUT",
                    f"/galleries/{_part(gallery)}/items",
                    content=iter(lambda: told.read(1 << 20), b""),
                    params=_given(options),
                    headers={"Content-Type": kinds[suffix]},
                    timeout=httpx.Timeout(60.0, read=None),
                ).json()
            )

    def put_gallery(self, gallery: str, model: str | None = None) -> dict[str, Any]:
        """Make a gallery for a model, or move it to another version."""
        return _dict(self._send("PUT", f"/galleries/{_part(gallery)}", _given({"model": model})).json())

    def galleries(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Galleries by name."""
        return list(self.pages("/galleries", limit=limit))

    def gallery(self, gallery: str) -> dict[str, Any]:
        """One gallery."""
        return _dict(self.get(f"/galleries/{_part(gallery)}"))

    def delete_gallery(self, gallery: str) -> None:
        """Delete a gallery with everything in it."""
        self.request("DELETE", f"/galleries/{_part(gallery)}", timeout=None)

    def items(
        self, gallery: str, *, subject: str | None = None, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """A gallery's items by id, without their vectors."""
        return self.pages(f"/galleries/{_part(gallery)}/items", limit=limit, subject=subject)

    def item(self, gallery: str, id: str) -> dict[str, Any]:
        """One item with its vector."""
        return _dict(self.get(f"/galleries/{_part(gallery)}/items/{_segment(id)}"))

    def erase(self, gallery: str, *, id: str | None = None, subject: str | None = None) -> dict[str, Any]:
        """Erase an item, or everything of a subject; the receipt says what was removed."""
        if (id is None) == (subject is None):
            raise ValueError("expected either id or subject")
        what = f"items/{_segment(id)}" if id is not None else f"subjects/{_segment(subject or '')}"
        return _dict(self.request("DELETE", f"/galleries/{_part(gallery)}/{what}").json())

    def calibrate_gallery(
        self, gallery: str, dataset: str | None = None, *, vectors: Any = None, subjects: Any = None
    ) -> dict[str, Any]:
        """Calibrate searches with probes of people, some of whom are not enrolled: a dataset, or arrays."""
        body = _given({"dataset": dataset, "vectors": vectors, "subjects": subjects})
        return _dict(self.post(f"/galleries/{_part(gallery)}/calibrations", body, timeout=None))

    def evaluate_gallery(
        self,
        gallery: str,
        dataset: str | None = None,
        *,
        vectors: Any = None,
        subjects: Any = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Measure a gallery with probes; ``options`` are ``max_rank``, ``fpir``, ``confidence``, ``leave_one_out``."""
        body = _given({"dataset": dataset, "vectors": vectors, "subjects": subjects, **options})
        return _dict(self.post(f"/galleries/{_part(gallery)}/evaluations", body, timeout=None))

    # -- datasets --------------------------------------------------------------------------------------------

    def add_dataset(
        self,
        name: str,
        file: str | os.PathLike[str] | IO[bytes] | None = None,
        *,
        X: Any = None,
        y: Any = None,
        label: str | None = None,
        ranking: str | Sequence[str] | None = None,
        group: str | None = None,
        id: str | None = None,
        exclude: Sequence[str] = (),
        header: bool = True,
        format: str | None = None,
        pairs: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Upload a CSV, Parquet, npz or svmlight file, or the arrays ``X`` (n, d) and ``y`` (n,).

        Parameters
        ----------
        label : the identity (or class) column.
        ranking : the ranking column, or the position columns.
        group, id : column of groups that stay together; column of row ids, which ``pairs`` may refer to.
        exclude : columns to leave out.
        header : whether a CSV's first line holds column names.
        format : csv, parquet, npz or svmlight; default by the file's extension.
        pairs : a file of explicit pairs with columns left, right, same and perhaps weight.
        progress : called with (fraction sent, "uploading").
        """
        if (file is None) == (X is None):
            raise ValueError("expected either a file or the arrays X (and y)")
        fields: dict[str, Any] = _given(
            {
                "name": name,
                "label": label,
                "group": group,
                "id": id,
                "format": format,
                "header": str(header).lower(),
            }
        )
        if ranking is not None:
            fields["ranking"] = ranking if isinstance(ranking, str) else ",".join(ranking)
        if exclude:
            fields["exclude"] = ",".join(exclude)
        with contextlib.ExitStack() as stack:
            if file is None:
                stream: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
                np.savez(stream, **_given({"X": np.asarray(X), "y": None if y is None else np.asarray(y)}))
                stream.seek(0)
                fields.setdefault("format", "npz")
                filename = f"{name}.npz"
            elif isinstance(file, (str, os.PathLike)):
                stream = stack.enter_context(Path(file).open("rb"))
                filename = Path(file).name
            else:
                stream, filename = file, Path(str(getattr(file, "name", name))).name
            files = {"file": (filename, _Told(stream, progress) if progress else stream)}
            if pairs is not None:
                files["pairs"] = (Path(pairs).name, stack.enter_context(Path(pairs).open("rb")))
            return _dict(self.request("POST", "/datasets", data=fields, files=files).json())

    def datasets(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Datasets, newest first."""
        return list(self.pages("/datasets", limit=limit))

    def dataset(self, ref: str) -> dict[str, Any]:
        """One dataset: ``name`` or ``name:version``."""
        return _dict(self.get(f"/datasets/{_part(ref)}"))

    def delete_dataset(self, ref: str) -> None:
        """Delete a dataset that no waiting or running job uses."""
        self.request("DELETE", f"/datasets/{_part(ref)}")

    # -- jobs ------------------------------------------------------------------------------------------------

    def train(
        self,
        learner: str,
        dataset: str,
        model: str,
        *,
        params: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        unlabelled: str | None = None,
        promote: bool | str | None = None,
        wait: bool = True,
        progress: Progress | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Submit a training job and, unless told otherwise, wait for it.

        Returns
        -------
        The job: succeeded when waited for, as submitted otherwise.

        Raises
        ------
        JobFailed
            When the job that was waited for failed or was cancelled.
        """
        body = _given(
            {
                "learner": learner,
                "dataset": dataset,
                "model": model,
                "params": params,
                "evaluation": evaluation,
                "unlabelled": unlabelled,
                "promote": promote,
            }
        )
        # With a key, an answer that was lost on the way can be asked for again without training twice.
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        job = _dict(self.post("/jobs", body, headers=headers))
        return self.wait(job["id"], progress=progress) if wait else job

    def wait(self, job_id: str, *, progress: Progress | None = None) -> dict[str, Any]:
        """Follow a job to its end; raises `JobFailed` unless it succeeded."""
        for event, data in self.events(job_id):
            if event == "progress" and progress is not None:
                progress(float(data.get("progress", 0.0)), str(data.get("stage", "")))
        job = self.job(job_id)
        if job["state"] != "succeeded":
            raise JobFailed(job)
        if progress is not None:
            progress(1.0, "done")
        return job

    def events(self, job_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """A job's events until it is done: (``progress`` | ``log`` | ``done``, data). A cut stream is resumed."""
        last, failures = None, 0
        while True:
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
            try:
                with self._http.stream("GET", f"/jobs/{_part(job_id)}/events", headers=headers) as response:
                    if response.status_code >= 300:
                        response.read()
                        raise problem_of(response)
                    for event_id, event, data in _server_sent(response.iter_lines()):
                        last, failures = event_id or last, 0
                        yield event, data
                        if event == "done":
                            return
            except (httpx.TransportError, Busy) as error:
                failures += 1
                if failures > max(self.retries, 1) * 5:
                    raise Unreachable(f"{self.url} stopped answering about job {job_id}") from error
            if self.job(job_id)["state"] in ("succeeded", "failed", "cancelled") and failures == 0:
                return
            time.sleep(min(0.2 * 2**failures, 5.0))

    def job(self, job_id: str) -> dict[str, Any]:
        """One job."""
        return _dict(self.get(f"/jobs/{_part(job_id)}"))

    def jobs(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Jobs, newest first."""
        return list(self.pages("/jobs", limit=limit))

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job."""
        return _dict(self.request("POST", f"/jobs/{_part(job_id)}/cancel").json())

    # -- models ----------------------------------------------------------------------------------------------

    def learners(self) -> list[dict[str, Any]]:
        """Learner kinds with capabilities and the JSON Schema of their parameters."""
        answer = self.get("/learners")
        return list(answer["items"] if isinstance(answer, dict) else answer)

    def models(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Models with their aliases."""
        return list(self.pages("/models", limit=limit))

    def model(self, name: str) -> dict[str, Any]:
        """One model."""
        return _dict(self.get(f"/models/{_part(name)}"))

    def version(self, name: str, version: int) -> dict[str, Any]:
        """One version: kind, params, metrics with intervals, lineage."""
        return _dict(self.get(f"/models/{_part(name)}/versions/{version}"))

    def promote(
        self, name: str, version: int, alias: str = "production", *, if_match: str | None = None
    ) -> dict[str, Any]:
        """Move an alias to a version; ``if_match`` is the alias's ETag, to move it only if nobody else did."""
        headers = _given({"If-Match": if_match})
        return _dict(
            self._send(
                "PUT", f"/models/{_part(name)}/aliases/{_part(alias)}", {"version": version}, headers=headers
            ).json()
        )

    def calibrate(self, name: str, version: int, dataset: str, **options: Any) -> dict[str, Any]:
        """Calibrate a version on another dataset; ``options`` are ``protocol``, ``n_pairs`` and ``default``, which
        makes it the one that answers from now on."""
        path = f"/models/{_part(name)}/versions/{version}/calibrations"
        return _dict(self.post(path, {"dataset": dataset, **options}, timeout=None))

    def calibrate_scores(
        self,
        name: str,
        scores: Sequence[float] | NDArray[Any],
        same: Sequence[int] | NDArray[Any],
        *,
        left_unit: Sequence[int | str] | NDArray[Any] | None = None,
        right_unit: Sequence[int | str] | NDArray[Any] | None = None,
    ) -> dict[str, Any]:
        """Calibrate scores made elsewhere; decide others with `match(scores=.., calibration=answer["id"])`.

        Units are the identity (open-set) or the sample (closed-set) on each side; none when pairs are independent.
        """
        body = {
            "name": name,
            "scores": scores,
            "same": same,
            "left_unit": left_unit,
            "right_unit": right_unit,
        }
        return _dict(self.post("/calibrations", _given(body), timeout=None))

    def calibration(self, calibration_id: str) -> dict[str, Any]:
        """A calibration: what it is of, its counts, the smallest rates it supports, and its curve."""
        return _dict(self.get(f"/calibrations/{_part(calibration_id)}"))

    def evaluate(
        self, name: str, version: int, dataset: str, *, protocol: str | None = None
    ) -> dict[str, Any]:
        """Measure a version on another dataset: metrics, ROC, and what its thresholds do there."""
        body = _given({"dataset": dataset, "protocol": protocol})
        return _dict(self.post(f"/models/{_part(name)}/versions/{version}/evaluations", body, timeout=None))

    def export_version(self, name: str, version: int, file: str | os.PathLike[str]) -> None:
        """Write a version with its calibration to one file, whole or not at all."""
        target = Path(file)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with self._http.stream("GET", f"/models/{_part(name)}/versions/{version}/export") as response:
                if response.status_code >= 300:
                    response.read()
                    raise problem_of(response)
                with part.open("wb") as stream:
                    for chunk in response.iter_bytes(1 << 20):
                        stream.write(chunk)
            part.replace(target)
        except httpx.TransportError as error:
            raise Unreachable(f"{self.url} stopped answering: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def import_version(
        self, file: str | os.PathLike[str], *, name: str | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Register a version from an exported file, under its own or another name."""
        with Path(file).open("rb") as stream:
            files = {"file": (Path(file).name, _Told(stream, progress) if progress else stream)}
            return _dict(self.request("POST", "/models", data=_given({"name": name}), files=files).json())

    def delete_version(self, name: str, version: int) -> None:
        """Delete a version that no alias holds."""
        self.request("DELETE", f"/models/{_part(name)}/versions/{version}")


def _raw_pairs(left: Vectors, right: Vectors) -> tuple[bytes, dict[str, int]] | None:
    """Both sides as raw float32 and its query parameters, or None where JSON says it better."""
    if not isinstance(left, np.ndarray) or not isinstance(right, np.ndarray):
        return None
    if left.dtype.kind not in "fiu" or right.dtype.kind not in "fiu" or left.size + right.size < RAW_FROM:
        return None
    a, b = np.atleast_2d(left), np.atleast_2d(right)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        return None
    body = np.ascontiguousarray(a, dtype="<f4").tobytes() + np.ascontiguousarray(b, dtype="<f4").tobytes()
    return body, {"dim": a.shape[1], "n_left": a.shape[0]}


def _jsonable(value: Any) -> Any:
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        edges = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [
            {"indices": rows.indices[start:end].tolist(), "values": rows.data[start:end].tolist()}
            for start, end in edges
        ]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if hasattr(value, "to_numpy"):
        return value.to_numpy().tolist()
    raise TypeError(
        f"{type(value).__name__} cannot be sent; expected lists, NumPy arrays or SciPy sparse matrices"
    )


def _rows(features: Vectors) -> Any:
    """A list of rows, also from one row."""
    if isinstance(features, np.ndarray):
        return np.atleast_2d(features)
    if (
        isinstance(features, Sequence)
        and features
        and not isinstance(features[0], (Sequence, np.ndarray, Mapping))
    ):
        return [features]
    return features


def _server_sent(lines: Iterator[str]) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """(id, event, data) of a text/event-stream."""
    event_id, event, data = None, "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield event_id, event, json.loads("\n".join(data))
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            event_id = value
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


def _retry_wait(response: httpx.Response, attempt: int) -> float:
    try:
        asked = float(response.headers.get("Retry-After", ""))
    except ValueError:
        asked = 0.5 * 2**attempt
    return min(max(asked, 0.0), LONGEST_RETRY_WAIT_S)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _part(text: str) -> str:
    """One path segment; ':' and '@' are part of references and stay readable."""
    return quote(str(text), safe=":@")


def _segment(text: str) -> str:
    """An id or subject in a path: it may hold anything, slashes too."""
    return quote(str(text), safe="")


def _npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **_given(arrays))
    return stream.getvalue()


def _enrolled(sent: Iterator[httpx.Response], size: int, n: int, progress: Progress | None) -> dict[str, Any]:
    """Answers to parts of ``size`` items, as one answer to all n."""
    told: dict[str, Any] = {"upserted": 0, "errors": [], "n_errors": 0}
    for part, response in enumerate(sent):
        answer = _dict(response.json())
        told["upserted"] += answer["upserted"]
        told["n_errors"] += answer["n_errors"]
        told["errors"] += [{**error, "row": error["row"] + part * size} for error in answer["errors"]]
        if progress is not None:
            progress(min((part + 1) * size / max(n, 1), 1.0), "enrolling")
    return told


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ClientError(f"expected a JSON object from the service, got {type(value).__name__}")
    return value


class _Told(io.RawIOBase):
    """A file that tells how much of it was read."""

    def __init__(self, stream: IO[bytes], progress: Progress) -> None:
        self._stream, self._progress = stream, progress
        start = stream.tell()
        self._size = max(stream.seek(0, os.SEEK_END) - start, 1)
        self._start = start
        stream.seek(start)

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._progress(min((self._stream.tell() - self._start) / self._size, 1.0), "uploading")
        return chunk

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


__all__ = [
    "Busy",
    "Client",
    "ClientError",
    "Conflict",
    "Denied",
    "InsufficientCalibration",
    "InvalidInput",
    "JobFailed",
    "MatchResult",
    "NotFound",
    "Problem",
    "ServerFailed",
    "TooLarge",
    "Unreachable",
]
