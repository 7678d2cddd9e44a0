"""Submits training jobs: validated, and queued once per idempotency key."""

from __future__ import annotations

import hashlib
import json

from sqlalchemy.orm import Session

from pairmark.schemas.jobs import JobOut, JobRequest
from pairmark.service.datasets.ingest import dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.errors import InvalidInput
from pairmark.service.jobs.claims import NewJob, Once
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.names import EVERY_NAME, VisibleNames
from pairmark.service.training.validation import checked_request


class TrainingQueue(JobQueue):
    """The job queue, with training jobs checked before they enter it."""

    def submit(
        self, request: JobRequest, idempotency_key: str | None = None, names: VisibleNames = EVERY_NAME
    ) -> JobOut:
        """Validate a request and queue it; the same ``idempotency_key`` with the same request gives the job it made
        before, with another request a `Conflict`. Those who see other ``names`` have other keys."""
        if idempotency_key is not None and not (
            idempotency_key.isprintable() and 1 <= len(idempotency_key) <= 200
        ):
            raise InvalidInput(
                "Idempotency-Key: expected 1 to 200 printable characters", field="Idempotency-Key"
            )
        once = (
            None
            if idempotency_key is None
            else Once(key=_among(idempotency_key, names), request_sha256=_digest(request))
        )

        def prepare(session: Session) -> NewJob:
            dataset = dataset_out(dataset_of(session, request.dataset, hold=True))
            unlabelled_ref = request.unlabelled
            unlabelled = (
                None
                if unlabelled_ref is None
                else dataset_out(dataset_of(session, unlabelled_ref, hold=True))
            )
            return checked_request(request, dataset, self._settings, unlabelled)

        return self.enqueue(prepare, once)


def _among(key: str, names: VisibleNames) -> str:
    """The key as it is stored: no other names give the same, and no key has a space."""
    if names.everything:
        return key
    visible = json.dumps([names.prefix, sorted(names.members) if names.members is not None else None])
    return f"{hashlib.sha256(visible.encode()).hexdigest()[:32]} {hashlib.sha256(key.encode()).hexdigest()}"


def _digest(request: JobRequest) -> str:
    body = json.dumps(request.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
