"""Searches and verifications: a parsed request and a view in, the answer's JSON out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import to_json

from pairmark.models.core.subjects import SampleSets
from pairmark.service.errors import InvalidInput, TooLarge, UnknownItem
from pairmark.service.galleries import item_repository
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.kept import Thresholds
from pairmark.service.galleries.metadata import parse_filter
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import StoredRows, checked_id
from pairmark.service.galleries.schemas import SearchBody, VerifyBody
from pairmark.service.galleries.templates import SubjectHit
from pairmark.service.galleries.view import Hit
from pairmark.service.runtime.diagnosis import check_side, check_vectors, json_object, raise_first_error
from pairmark.service.runtime.parsing import side_of, subjects_of
from pairmark.service.runtime.scoring import Decision, Served
from pairmark.service.runtime.vectors import SparseRows, to_rows
from pairmark.service.settings import Settings

Float32 = NDArray[np.float32]
DECISIONS = ("different", "match", "review")
"""Names of the codes that `Decision.decided` gives."""
MAX_TEMPLATES = 10_000
"""Most items of one subject that a verification compares."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search as it was asked for."""

    queries: Float32 | SparseRows
    k: int
    filter: Any
    by_subject: bool
    fpir: float | None
    fpr: float | None
    confidence: float
    aggregation: str | None = None
    fnr: float | None = None


def parse_search(body: bytes | bytearray, settings: Settings) -> SearchRequest:
    """Read a JSON body.

    Raises
    ------
    InvalidInput, TooLarge
        Naming the field and what was expected.
    """
    try:
        given = SearchBody.model_validate_json(body)
    except ValidationError as error:
        _diagnose(body, error, "queries")
    if given.fpir is not None and given.fpr is not None:
        raise InvalidInput("fpir and fpr exclude one another; expected one of them", field="fpr")
    if given.fnr is not None and given.fpr is None:
        raise InvalidInput("fnr is of one comparison, as fpr is; expected fpr with it", field="fnr")
    if given.aggregation is not None:
        _check_whole_subjects(given)
    queries = side_of(given.queries, "queries")
    if len(queries) > settings.max_search_queries:
        raise TooLarge(
            f"the request has {len(queries)} queries; at most {settings.max_search_queries} are taken at a time",
            limit=settings.max_search_queries,
        )
    return SearchRequest(
        queries=queries,
        k=given.k,
        filter=given.filter,
        by_subject=given.group_by is not None,
        fpir=given.fpir,
        fpr=given.fpr,
        confidence=given.confidence,
        aggregation=given.aggregation,
        fnr=given.fnr,
    )


def _check_whole_subjects(given: SearchBody) -> None:
    if given.group_by is None:
        raise InvalidInput(
            "aggregation compares subjects as a whole; expected group_by: subject with it",
            field="aggregation",
        )
    if given.fpr is not None:
        raise InvalidInput(
            "fpr is the rate of one comparison, and its threshold depends on the number of items; use fpir, the rate "
            "of the whole search",
            field="fpr",
        )
    if given.filter is not None:
        raise InvalidInput(
            "filter selects single items, but subjects are compared by all their items; leave out filter or "
            "aggregation",
            field="filter",
        )


def parse_probe(body: bytes | bytearray, max_samples: int) -> Float32 | SparseRows:
    """Read the one vector of a verification, or the samples of its one subject."""
    try:
        given = VerifyBody.model_validate_json(body)
    except ValidationError as error:
        _diagnose(body, error, "probe")
    probe, counts = subjects_of(given.probe, "probe")
    if counts.size != 1:
        raise InvalidInput(
            f"probe has {counts.size} vectors; expected one, or one subject of several samples", field="probe"
        )
    if counts[0] > max_samples:
        raise InvalidInput(
            f"probe has {counts[0]} samples; expected at most {max_samples} (PAIRMARK_MAX_SUBJECT_SAMPLES)",
            field="probe.samples",
            limit=max_samples,
        )
    return probe


def _diagnose(body: bytes | bytearray, error: ValidationError, name: str) -> NoReturn:
    value = json_object(body)
    if name not in value:
        raise InvalidInput(
            f"{name} is missing; expected a vector or a list of vectors", field=name
        ) from error
    (check_side if name == "probe" else check_vectors)(value[name], name)
    raise_first_error(error)


class Searches:
    """Runs searches in the galleries' views."""

    def __init__(self, galleries: Galleries, thresholds: Thresholds, settings: Settings) -> None:
        self._galleries = galleries
        self._thresholds = thresholds
        self._settings = settings
        self.served_by: dict[str, str] = {}
        """The version that served each gallery last."""

    def search(
        self,
        state: State,
        served: Served,
        request: SearchRequest,
        decision: Decision | None,
        *,
        scores: bool = True,
    ) -> tuple[bytes, int]:
        """The answer's JSON, and how many items it returns (blocking).

        Parameters
        ----------
        state : the gallery as just read, so that the answer holds everything acknowledged by then.
        decision : the operating point at the request's ``fpr``, if it has one.
        scores : whether hits carry theirs.
        """
        queries = dense(request.queries, "queries", state.dimension)
        wanted = parse_filter(request.filter, state.fields) if state.items else ()
        deadline = time.monotonic() + self._settings.request_timeout_s
        live = self._galleries.views.live(state, served.estimator)
        point, above, warning = None, None, None
        how = None if request.aggregation is None else served.aggregation(request.aggregation)
        if request.fpir is None:
            view = live.view(state.seq)
        else:
            point, above, view = self._thresholds.at(
                state, served, request.fpir, request.confidence, deadline, aggregation=how
            )
        k = min(request.k, max(view.n_items, 1))
        if k * len(queries) > self._settings.max_search_results:
            raise TooLarge(
                f"{len(queries)} queries with k = {k} may return {k * len(queries)} items; at most "
                f"{self._settings.max_search_results} are returned at a time",
                limit=self._settings.max_search_results,
            )
        if decision is not None:
            point, above = decision.public, decision.lower
            if above is None:
                above = decision.threshold
            assert request.fpr is not None
            warning = (
                f"fpr is of one comparison: a search of {view.n_items} items with a person who is not enrolled is "
                f"expected to return up to about {request.fpr * view.n_items:.3g} strangers; ask for fpir, which is of "
                "the whole search"
            )
        if how is not None:
            found = live.subjects.at(view, how).search(queries, k, above)
            self._galleries.views.tidy_later(live)
            whole: dict[str, Any] = {
                "model": served.model,
                "results": [_reported_subjects(some, point, scores) for some in found],
                "aggregation": how,
                **({} if point is None else {"operating_point": point}),
            }
            return to_json(whole), sum(map(len, found))
        hits = view.search(
            queries,
            k,
            wanted=wanted,
            above=above,
            by_subject=request.by_subject,
            deadline=deadline,
            elsewhere=self._galleries.views.elsewhere(state, wanted, view.seq),
        )
        self._galleries.views.tidy_later(live)
        answer: dict[str, Any] = {
            "model": served.model,
            "results": [_hits_of(some, point, scores, decision) for some in hits],
        }
        if point is not None:
            answer["operating_point"] = point
        if warning is not None:
            answer["warning"] = warning
        return to_json(answer), sum(map(len, hits))

    def enrolled(self, state: State, subject: str) -> StoredRows:
        """A subject's items (blocking).

        Raises
        ------
        UnknownItem
            When the subject has no items.
        """
        with self._galleries.database.read() as session:
            items = item_repository.subject_rows(
                session, state, checked_id(subject, "subject"), MAX_TEMPLATES + 1
            )
        if items is None:
            raise UnknownItem(f"gallery {state.name!r} has no subject {subject[:100]!r}", field="subject")
        if len(items) > MAX_TEMPLATES:
            raise TooLarge(f"the subject has more than {MAX_TEMPLATES} items", limit=MAX_TEMPLATES)
        return items

    def verify(
        self,
        served: Served,
        subject: str,
        probe: Float32,
        items: StoredRows,
        decision: Decision,
        how: str | None,
        *,
        scores: bool = True,
    ) -> bytes:
        """The answer's JSON: the probe's score with the subject, and whether it matches.

        Parameters
        ----------
        probe : (p, d) its samples.
        how : the aggregation that ``decision`` is calibrated for; None: the best of single comparisons decides.
        """
        found = served.score(probe[:1], items.vectors)
        best = int(np.argmax(found))
        bound = decision.public["fpr_upper_bound"]
        if how is None:
            score = found[best : best + 1]
            bound = min(1.0, bound * len(items))
        else:
            k, p = (np.array([side.shape[0]], dtype=np.int64) for side in (items.vectors, probe))
            score = served.score_subjects(
                SampleSets.of_rows(items.vectors, k), SampleSets.of_rows(probe, p), how
            )
        answer = {
            "model": served.model,
            "subject": subject,
            "match": bool(decision.matches(score)[0]),
            **({} if decision.lower is None else {"decision": DECISIONS[int(decision.decided(score)[0])]}),
            **({"score": float(score[0])} if scores else {}),
            "id": items.ids[best],
            "items": len(items),
            **({} if how is None else {"aggregation": how}),
            "operating_point": decision.public,
            "fpr_upper_bound": bound,
        }
        if how is None and len(items) > 1:
            answer["warning"] = (
                f"the best of {len(items)} comparisons decides, each at fpr {decision.public['fpr']:g}: together they "
                f"match somebody else in at most {bound:.3g} of verifications"
            )
        return to_json(answer)


def dense(given: Float32 | SparseRows, name: str, dimension: int) -> Float32:
    """Rows of the gallery's width."""
    rows: Float32 = to_rows(given, name, dimension, accepts_sparse=False)
    return np.ascontiguousarray(rows, dtype=np.float32)


def _hits_of(
    hits: list[Hit], point: Any, scores: bool, decision: Decision | None = None
) -> list[dict[str, Any]]:
    if decision is not None and decision.lower is not None:
        found = np.array([hit.score for hit in hits], dtype=np.float32)
        return [
            {
                "id": hit.id,
                "subject": hit.subject,
                **({"score": hit.score} if scores else {}),
                "match": code == 1,
                "decision": DECISIONS[code],
            }
            for hit, code in zip(hits, decision.decided(found).tolist(), strict=True)
        ]
    more = {} if point is None else {"match": True}
    if not scores:
        return [{"id": hit.id, "subject": hit.subject, **more} for hit in hits]
    return [{"id": hit.id, "subject": hit.subject, "score": hit.score, **more} for hit in hits]


def _reported_subjects(hits: list[SubjectHit], point: Any, scores: bool) -> list[dict[str, Any]]:
    more = {} if point is None else {"match": True}
    return [
        {
            "id": hit.id,
            "subject": hit.subject,
            "items": hit.items,
            **({"score": hit.score} if scores else {}),
            **more,
        }
        for hit in hits
    ]
