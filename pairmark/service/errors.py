"""The errors of the service, free of HTTP. The API maps each class to a status and a page."""

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar


class PairmarkError(Exception):
    """Something went wrong that a person can act on; a subclass's docstring is its title.

    Parameters
    ----------
    detail : what was wrong and what was expected.
    facts : JSON-able extras that travel with the answer, e.g. ``field`` or ``smallest_fpr``.
    """

    slug: ClassVar[str] = "error"
    title: ClassVar[str] = "Something went wrong"

    def __init_subclass__(cls, slug: str | None = None) -> None:
        if slug is not None:
            cls.slug, cls.title = slug, (cls.__doc__ or slug).removesuffix(".")

    def __init__(self, detail: str | None = None, **facts: Any) -> None:
        self.detail = detail or f"{self.title}."
        self.facts = {name: value for name, value in facts.items() if value is not None}
        super().__init__(self.detail)


class InvalidInput(PairmarkError, slug="invalid-input"):
    """The input is not valid."""


class TooLarge(PairmarkError, slug="too-large"):
    """The input is larger than this service accepts."""


class UnknownModel(PairmarkError, slug="unknown-model"):
    """No such model, version or alias."""


class AmbiguousModel(PairmarkError, slug="ambiguous-model"):
    """Several models match; name one."""


class ModelNotCapable(PairmarkError, slug="model-not-capable"):
    """The model does not support this request."""


class UnsupportedRate(PairmarkError, slug="insufficient-calibration-data"):
    """The calibration data cannot support that rate."""


class ChooseProtocol(PairmarkError, slug="choose-protocol"):
    """It is not said whether new people or things will join."""


class CalibrationOverlap(PairmarkError, slug="calibration-overlap"):
    """The calibration data overlaps the training data."""


class UnknownCalibration(PairmarkError, slug="unknown-calibration"):
    """There is no such calibration."""


class UnknownDataset(PairmarkError, slug="unknown-dataset"):
    """There is no such dataset."""


class UnknownGallery(PairmarkError, slug="unknown-gallery"):
    """There is no such gallery."""


class UnknownLinks(PairmarkError, slug="unknown-links"):
    """There are no such links."""


class UnknownItem(PairmarkError, slug="unknown-item"):
    """The gallery has no such item or subject."""


class SearchTooLong(PairmarkError, slug="search-too-long"):
    """The search took too long."""


class UnknownReview(PairmarkError, slug="unknown-review"):
    """There is no such review."""


class UnknownWebhook(PairmarkError, slug="unknown-webhook"):
    """There is no such webhook."""


class UnknownJob(PairmarkError, slug="unknown-job"):
    """There is no such job."""


class UnknownLearner(PairmarkError, slug="unknown-learner"):
    """There is no such learner."""


class UnknownKey(PairmarkError, slug="unknown-key"):
    """There is no such API key."""


class UnknownTenant(PairmarkError, slug="unknown-tenant"):
    """There is no such tenant."""


class Conflict(PairmarkError, slug="conflict"):
    """The request conflicts with the current state."""


class PreconditionFailed(PairmarkError, slug="precondition-failed"):
    """The resource was changed in the meantime."""


class RateLimited(PairmarkError, slug="rate-limited"):
    """Too many requests."""

    def __init__(
        self, detail: str | None = None, *, spent: tuple[str, int] | None = None, **facts: Any
    ) -> None:
        super().__init__(detail, **facts)
        self.spent = spent
        """Name and size of the share of which nothing remains, for the ``RateLimit`` fields of the answer."""


class Unauthenticated(PairmarkError, slug="unauthenticated"):
    """A valid API key is required."""


class Forbidden(PairmarkError, slug="forbidden"):
    """The API key does not have the required scope."""


class NotReady(PairmarkError, slug="not-ready"):
    """The service is not ready to answer."""


def out_of_files(error: BaseException) -> NotReady | None:
    """What to answer where an error says that the process has as many files open as it may: nothing is damaged."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    return NotReady(
        "the process has as many files and connections open as it may: close idle connections, or raise its limit "
        "(ulimit -n), and try again"
    )


class SchemaMismatch(NotReady):
    """The database's schema is not the one that this version works with."""


class StorageFailed(PairmarkError, slug="storage-failed"):
    """The data could not be stored."""


class CorruptArtefact(PairmarkError, slug="corrupt-artefact"):
    """A stored model file is damaged."""


class DamagedRow(PairmarkError, slug="damaged-row"):
    """A row of the database is damaged."""


class TrainingFailed(PairmarkError, slug="training-failed"):
    """Training failed."""


class OutOfMemory(PairmarkError, slug="out-of-memory"):
    """The job ran out of memory."""


class TrainingKilled(PairmarkError, slug="training-killed"):
    """The job's process was killed."""


class WorkerSilent(PairmarkError, slug="worker-silent"):
    """The job's worker did not respond in time."""


class JobTimeout(PairmarkError, slug="job-timeout"):
    """The job exceeded its time limit."""


class Fenced(PairmarkError, slug="fenced"):
    """Another attempt took over the job."""


@contextmanager
def refusals(what: str, **facts: Any) -> Iterator[None]:
    """Turn a ``ValueError`` of `pairmark.models` into `InvalidInput` that begins with ``what``."""
    try:
        yield
    except ValueError as error:
        raise InvalidInput(f"{what}: {str(error)[:2000]}", **facts) from error


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Tell an `OSError` while writing as `StorageFailed`: a full disk in words that a person can act on.
    `NotReady` where the process has too many files open."""
    try:
        yield
    except OSError as error:
        refusal = out_of_files(error)
        if refusal is not None:
            raise refusal from error
        # NumPy raises one without a number when a disk takes a part of an array only.
        if error.errno in _FULL or (error.errno is None and "requested and" in str(error)):
            raise StorageFailed(f"no space left while {doing}: free some space and try again") from error
        reason = error.strerror or type(error).__name__
        raise StorageFailed(f"the file system failed while {doing}: {reason}") from error


_ALTERNATIVE = re.compile(r"bool|int|float|str|(list|dict|tuple)\[.*")


def invalid_field(problems: Sequence[Any], *place: str) -> InvalidInput:
    """What pydantic says of fields, as a problem: what is not known here before what is missing.

    ``place`` : ``body`` or ``query``, where that is not the first part of their locations.
    """
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    part, *parts = (*place, *first["loc"]) or ("body",)
    if part == "body" and first["type"] == "json_invalid":
        return InvalidInput("the body is not JSON", field="body")
    # Of alternatives, Pydantic names the one that it tried: `scores.list[float][5]`.
    places = (part for part in parts if isinstance(part, int) or not _ALTERNATIVE.fullmatch(part))
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in places).lstrip(".")[:200]
    message = "is missing" if first["type"] == "missing" else _in_words(first["msg"])
    if first["type"] == "string_pattern_mismatch":
        # Here: every command imports this file, and none needs pydantic to say what it does.
        from pairmark.schemas.base import FORMS

        message = f"expected {FORMS[first['ctx']['pattern']]}"
    elif _ALTERNATIVE.fullmatch(str(first["loc"][-1])):
        tried = [_in_words(other["msg"]) for other in problems[:4] if other["loc"][:-1] == first["loc"][:-1]]
        message = " or ".join(dict.fromkeys(tried)).replace(" or expected", " or")
    if first["type"] == "extra_forbidden":
        if part == "query":
            return InvalidInput(f"{field[:100]!r} is not a query parameter here", field=field[:100])
        message = "is not a field of this request"
    return InvalidInput(f"{field or part}: {message}"[:1000], field=field or str(part))


def _in_words(message: str) -> str:
    """What pydantic says, without its own terms."""
    message = re.sub(r"^\w+ should (be|have|match)", "expected", message.removeprefix("Value error, "))
    return message.replace(" after validation", "")
