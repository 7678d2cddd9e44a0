"""Submits training jobs: validated, and queued once per idempotency key.

Registered versions that a fusion job names are resolved to what they were trained with. The job learns them anew on its
own training part, since a version that had seen people of the calibration part would make the promise too good.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy.orm import Session

from pairmark.models.core.registry import spec_of
from pairmark.models.fusion.params import FUSED
from pairmark.service.blobs import open_blobs
from pairmark.service.datasets.ingest import dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.jobs.schemas import JobOut, NewJob, Once
from pairmark.service.store.refs import name_of, parse_ref
from pairmark.service.store.versions import VersionStore
from pairmark.service.training.schemas import JobRequest
from pairmark.service.training.validation import checked_request

FUSION = "fusion"
_FIELD = "params.models"


class TrainingQueue(JobQueue):
    """The job queue, with training jobs checked before they enter it."""

    def submit(self, request: JobRequest, idempotency_key: str | None = None) -> JobOut:
        """Validate a request and queue it; the same ``idempotency_key`` with the same request gives the job it made
        before, with another request a `Conflict`."""
        if idempotency_key is not None and not (
            idempotency_key.isprintable() and 1 <= len(idempotency_key) <= 200
        ):
            raise InvalidInput(
                "Idempotency-Key: expected 1 to 200 printable characters", field="Idempotency-Key"
            )
        once = None if idempotency_key is None else Once(key=idempotency_key, request_sha256=_digest(request))

        def prepare(session: Session) -> NewJob:
            dataset = dataset_out(dataset_of(session, request.dataset, hold=True))
            more = request.unlabelled
            unlabelled = None if more is None else dataset_out(dataset_of(session, more, hold=True))
            resolved = self._with_versions(request, session)
            return checked_request(resolved, dataset, self._settings, unlabelled)

        return self.enqueue(prepare, once)

    def _with_versions(self, request: JobRequest, session: Session) -> JobRequest:
        """The request with each registered version by its kind, parameters and number."""
        given = _given(request)
        if not any(isinstance(one, str) for one in given):
            return request
        versions = VersionStore(self._db, open_blobs(self._settings), self._settings)
        models = [_component(one, versions, session) if isinstance(one, str) else one for one in given]
        return request.model_copy(update={"params": {**request.params, "models": models}})


def models_named(request: JobRequest) -> list[str]:
    """Names of the registered models that a fusion job combines."""
    return [name_of(one) for one in _given(request) if isinstance(one, str)]


def _given(request: JobRequest) -> list[Any]:
    given = request.params.get("models")
    return given if request.learner == FUSION and isinstance(given, list) else []


def _component(text: str, versions: VersionStore, session: Session) -> dict[str, Any]:
    model, row = versions.resolved(session, parse_ref(text, _FIELD))
    name = f"{model.name}:{row.version}"
    if row.kind not in FUSED:
        raise ModelNotCapable(
            f"{name} is a {row.kind}, whose scores cannot be combined; expected a version of {', '.join(FUSED)}",
            field=_FIELD,
        )
    retired = spec_of(row.kind).retired
    params = {key: value for key, value in row.params.items() if key not in retired}
    return {"learner": row.kind, "params": params, "version": name}


def _digest(request: JobRequest) -> str:
    body = json.dumps(request.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
