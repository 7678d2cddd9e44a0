"""The errors of the service, free of HTTP. The API maps each class to a status and a page."""

from __future__ import annotations

from typing import Any, ClassVar


class PairmarkError(Exception):
    """Something went wrong that a person can act on.

    Parameters
    ----------
    detail : what was wrong and what was expected.
    facts : JSON-able extras that travel with the answer, e.g. ``field`` or ``smallest_fpr``.
    """

    slug: ClassVar[str] = "error"
    title: ClassVar[str] = "Something went wrong"

    def __init__(self, detail: str | None = None, **facts: Any) -> None:
        self.detail = detail or (self.__doc__ or "").strip().splitlines()[0]
        self.facts = {name: value for name, value in facts.items() if value is not None}
        super().__init__(self.detail)


class InvalidInput(PairmarkError):
    """The input is not of the expected form."""

    slug, title = "invalid-input", "The input is not valid"


class TooLarge(PairmarkError):
    """The input is beyond a bound of this service."""

    slug, title = "too-large", "The input is larger than this service accepts"


class UnknownModel(PairmarkError):
    """There is no such model, version or alias."""

    slug, title = "unknown-model", "No such model, version or alias"


class AmbiguousModel(PairmarkError):
    """Several models could serve the request."""

    slug, title = "ambiguous-model", "Several models match; name one"


class ModelNotCapable(PairmarkError):
    """The model cannot do what was asked."""

    slug, title = "model-not-capable", "The model does not support this request"


class InsufficientCalibration(PairmarkError):
    """The calibration data cannot support that rate."""

    slug, title = "insufficient-calibration-data", "The calibration data cannot support that rate"


class CalibrationOverlap(PairmarkError):
    """The calibration data overlaps the training data."""

    slug, title = "calibration-overlap", "The calibration data overlaps the training data"


class UnknownCalibration(PairmarkError):
    """There is no such calibration."""

    slug, title = "unknown-calibration", "There is no such calibration"


class UnknownDataset(PairmarkError):
    """There is no such dataset."""

    slug, title = "unknown-dataset", "There is no such dataset"


class UnknownGallery(PairmarkError):
    """There is no such gallery."""

    slug, title = "unknown-gallery", "There is no such gallery"


class UnknownItem(PairmarkError):
    """The gallery has no such item or subject."""

    slug, title = "unknown-item", "The gallery has no such item or subject"


class UnknownEvaluation(PairmarkError):
    """There is no such evaluation."""

    slug, title = "unknown-evaluation", "There is no such evaluation"


class SearchTooLong(PairmarkError):
    """The search took longer than a request may."""

    slug, title = "search-too-long", "The search took too long"


class UnknownJob(PairmarkError):
    """There is no such job."""

    slug, title = "unknown-job", "There is no such job"


class UnknownLearner(PairmarkError):
    """There is no such learner."""

    slug, title = "unknown-learner", "There is no such learner"


class UnknownKey(PairmarkError):
    """There is no such API key."""

    slug, title = "unknown-key", "There is no such API key"


class Conflict(PairmarkError):
    """The state of things forbids it."""

    slug, title = "conflict", "The request conflicts with the current state"


class PreconditionFailed(PairmarkError):
    """The thing was changed by someone else meanwhile."""

    slug, title = "precondition-failed", "The resource was changed in the meantime"


class RateLimited(PairmarkError):
    """Too much is waiting already."""

    slug, title = "rate-limited", "Too many requests"


class Unauthenticated(PairmarkError):
    """A valid API key is required."""

    slug, title = "unauthenticated", "A valid API key is required"


class Forbidden(PairmarkError):
    """The API key does not carry the scope."""

    slug, title = "forbidden", "The API key does not have the required scope"


class NotReady(PairmarkError):
    """The service is not ready to answer."""

    slug, title = "not-ready", "The service is not ready to answer"


class SchemaMismatch(NotReady):
    """The database's schema is not the one that this version works with."""


class StorageFailed(PairmarkError):
    """Storage did not take the data."""

    slug, title = "storage-failed", "The data could not be stored"


class CorruptArtefact(PairmarkError):
    """An artefact's bytes are not those that were stored."""

    slug, title = "corrupt-artefact", "A stored model file is damaged"


class TrainingFailed(PairmarkError):
    """Training failed."""

    slug, title = "training-failed", "Training failed"


class OutOfMemory(PairmarkError):
    """The job ran out of memory: train on fewer pairs or rows, or give the worker more memory."""

    slug, title = "out-of-memory", "The job ran out of memory"


class TrainingKilled(PairmarkError):
    """The job's process was killed."""

    slug, title = "training-killed", "The job's process was killed"


class JobTimeout(PairmarkError):
    """The job took longer than a job may."""

    slug, title = "job-timeout", "The job exceeded its time limit"


class Fenced(PairmarkError):
    """This attempt at the job was superseded or cancelled; its writes are refused."""

    slug, title = "fenced", "Another attempt took over the job"
