"""Searches and verifications: a parsed request and a view in, the answer's JSON out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from pairmark.models.calibration.inputs import RowRanges, are_records, cells_missing
from pairmark.models.calibration.operating_point import ROWS_MONITORED, assumptions, without_guarantee
from pairmark.models.core.scores import SampleSets
from pairmark.schemas.base import EXPECTED, EXPECTED_SIDE
from pairmark.schemas.galleries import SearchRequestFields, VerifyFields
from pairmark.service.errors import InvalidInput, TooLarge, UnknownItem
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import MAX_TEMPLATES, Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.rows import (
    Matrix,
    StoredRows,
    checked_id,
    form_of,
    parse_filter,
)
from pairmark.service.galleries.segments import (
    GalleryView,
    ItemHit,
    Likeness,
    Owner,
    Segment,
    owner_of,
    scores_candidates,
)
from pairmark.service.runtime.bodies import SideRows, read_rows, read_side, split_vectors, to_rows
from pairmark.service.runtime.inputs import UNLIKE
from pairmark.service.runtime.missing_columns import ComparedPairs
from pairmark.service.runtime.operating_points import ServedPoint, without_threshold
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings
from pairmark.service.tables import DECISIONS, DecisionCode, GalleryRow

FindThresholds = Callable[[ServedPoint, NDArray[np.bool_]], ComparedPairs]
"""The point of complete records, and what pairs are compared without -> their thresholds."""
INCOMPLETE = "the query or items lack columns, and the rate is that of complete records"
CHECKED_ROWS = 65_536
"""Enrolled rows that are looked at together."""


class SearchRequest(NamedTuple):
    """A search as it was asked for, and the rows of its queries."""

    body: SearchRequestFields
    queries: SideRows


class SeenDecision(NamedTuple):
    """A decision of a search or a verification; ``decision`` is a `DecisionCode`."""

    query: int
    id: str | None
    subject: str | None
    score: float
    decision: int
    threshold: float


def parse_search(body: bytes, settings: Settings) -> SearchRequest:
    parsed, texts = split_vectors(SearchRequestFields, body, {"queries": EXPECTED})
    if parsed.fpir is not None and parsed.fpr is not None:
        raise InvalidInput("fpir and fpr exclude one another; expected one of them", field="fpr")
    queries = read_rows(texts["queries"], "queries")
    if parsed.refs is not None and len(parsed.refs) != len(queries):
        raise InvalidInput(
            f"refs names {len(parsed.refs)} queries; expected one name for each of {len(queries)}",
            field="refs",
        )
    if len(queries) > settings.max_search_queries:
        raise TooLarge(
            f"the request has {len(queries)} queries; at most {settings.max_search_queries} are taken at a time",
            limit=settings.max_search_queries,
        )
    return SearchRequest(parsed, queries)


def parse_probe(body: bytes, max_samples: int) -> tuple[SideRows, list[str] | None]:
    """Read the one vector of a verification, or the samples of its one subject, and the caller's name of it."""
    parsed, texts = split_vectors(VerifyFields, body, {"probe": EXPECTED_SIDE})
    probe, counts = read_side(texts["probe"], "probe")
    n_probes = len(probe) if counts is None else counts.size
    if n_probes != 1:
        raise InvalidInput(
            f"probe has {n_probes} vectors; expected one, or one subject of several samples", field="probe"
        )
    if counts is not None and counts[0] > max_samples:
        raise InvalidInput(
            f"probe has {counts[0]} samples; expected at most {max_samples} (PAIRMARK_MAX_SUBJECT_SAMPLES)",
            field="probe.samples",
            limit=max_samples,
        )
    return probe, parsed.refs


class Searches:
    """Runs searches in the galleries' views."""

    def __init__(self, galleries: Galleries, thresholds: Thresholds, settings: Settings) -> None:
        self._galleries = galleries
        self._thresholds = thresholds
        self._settings = settings
        self._alike: WeakKeyDictionary[Segment, tuple[RowRanges, NDArray[np.bool_] | None]] = (
            WeakKeyDictionary()
        )

    def search(
        self,
        state: GalleryRow,
        version: LoadedVersion,
        request: SearchRequest,
        decision: ServedPoint | None,
        *,
        scores: bool = True,
        decisions: list[SeenDecision] | None = None,
        ranges: RowRanges | None = None,
        moved: dict[str, str] | None = None,
        looked_at: list[tuple[Matrix, NDArray[np.bool_] | None]] | None = None,
        patterns: FindThresholds | None = None,
    ) -> tuple[bytes, int]:
        """The answer's JSON, and how many items it returns (blocking).

        Parameters
        ----------
        state : the gallery as just read, so that the answer holds everything acknowledged by then.
        decision : the operating point at the request's ``fpr``, if it has one.
        scores : whether hits carry theirs.
        decisions : takes what was decided, where a rate was asked for.
        ranges : what rows of the calibration are like, where that is known: at a rate no other row matches.
        moved : the warning that inputs no longer are.
        looked_at : takes the queries that were held against ``ranges``, and which of them are unlike, if any.
        patterns : finds the thresholds of pairs of records that lack columns.
        """
        body = request.body
        queries = model_rows(request.queries, "queries", version)
        conditions = parse_filter(body.filter, state.fields) if state.items else ()
        deadline = time.monotonic() + self._settings.request_timeout_s
        # 1. A view of everything acknowledged by now. The threshold of fpir is exact for the one it comes with.
        live = self._galleries.views.live(state, version.estimator)
        point, above, warning = None, None, None
        if body.fpir is None:
            view = live.view(state.seq)
        else:
            point, above, view = self._thresholds.at(state, version, body.fpir, body.confidence, deadline)
        k = min(body.k, max(view.n_items, 1))
        if k * len(queries) > self._settings.max_search_results:
            raise TooLarge(
                f"{len(queries)} queries with k = {k} may return {k * len(queries)} items; at most "
                f"{self._settings.max_search_results} are returned at a time",
                limit=self._settings.max_search_results,
            )
        # 2. What is guaranteed at the rate that was asked for.
        if decision is not None:
            point = decision.public
            above = decision.threshold
            assert body.fpr is not None
            warning = (
                f"fpr is of one comparison: a search of {view.n_items} items with a person who is not enrolled is "
                f"expected to return up to about {body.fpr * view.n_items:.3g} strangers; ask for fpir, which is of "
                "the whole search"
            )
        if point is not None and moved is not None:
            point = without_guarantee(point, moved["detail"].rstrip("."))
        missing = cells_missing(queries) if are_records(queries) else None
        if point is not None and decision is None and missing is not None and _lacks(missing, view):
            point = without_guarantee(point, INCOMPLETE)
        by_pattern = None if decision is None or missing is None else patterns
        like, n_unlike_items = None, 0
        if point is not None and ranges is not None:
            like = partial(self._like, ranges)
            n_unlike_items = _n_unlike(view, like)
            if body.fpir is not None:
                point = {**point, "assumes": assumptions("drawn", monitored=ROWS_MONITORED)}
        # 3. The best items above the threshold: all of them match. Thresholds of records that lack columns are higher
        # than the one searched by, so that more items are asked for.
        n_candidates = scores_candidates(version.estimator)
        n_wanted = k if by_pattern is None else max(4 * k, n_candidates)
        hits = view.search(
            queries,
            min(n_wanted, max(view.n_items, 1)),
            conditions=conditions,
            above=above,
            by_subject=body.group_by is not None and by_pattern is None,
            deadline=deadline,
            like=like if n_unlike_items else None,
            other_search=self._galleries.views.cluster.searching(state, conditions, view.seq),
        )
        if live.needs_compaction():
            self._galleries.views.in_background(live, view.seq)
        # 4. At a rate, a query unlike the rows of the calibration matches nobody.
        unlike = np.empty(0, dtype=np.bool_) if like is None or ranges is None else ranges.unlike(queries)
        if like is not None and looked_at is not None:
            looked_at.append((queries, unlike if unlike.size else None))
        flags = unlike.tolist()
        if flags:
            hits = [[] if flag else row for row, flag in zip(hits, flags, strict=True)]
        warnings = [] if point is None or moved is None else [moved]
        if by_pattern is not None and decision is not None and missing is not None:
            by_subject = body.group_by is not None
            hits = [
                _by_pattern(row, lacks, decision, version, by_pattern, by_subject, warnings)[:k]
                for row, lacks in zip(hits, missing, strict=True)
            ]
        # 5. The answer, and what reviews may keep of it.
        if decisions is not None and above is not None:
            decisions += [
                SeenDecision(query, hit.id, hit.subject, hit.score, DecisionCode.MATCH, float(above))
                for query, row in enumerate(hits)
                for hit in row
            ]
        scores_some = n_candidates and view.n_items > version.estimator.max_scored
        facts = {
            "candidates": {"scored": max(n_candidates, k)} if scores_some else None,
            "operating_point": point if scores else without_threshold(point),
            "reasons": [UNLIKE if flag else None for flag in flags] or None,
            "unlike_items": n_unlike_items or None,
            "warning": warning,
            "warnings": warnings or None,
        }
        present_facts = {name: fact for name, fact in facts.items() if fact is not None}
        of_each: dict[str, Any] = {} if point is None else {"match": True}
        results = [
            [
                {"id": hit.id, "subject": hit.subject, **({"score": hit.score} if scores else {}), **of_each}
                for hit in row
            ]
            for row in hits
        ]
        return to_json({"model": version.public, "results": results, **present_facts}), sum(map(len, hits))

    def _like(self, ranges: RowRanges, segment: Segment) -> NDArray[np.bool_] | None:
        """Which rows of a segment are like those of the calibration; None: all. Looked at once a segment."""
        cached = self._alike.get(segment)
        if cached is None or cached[0] is not ranges:
            vectors: Any = getattr(segment.index, "vectors", ())
            alike = np.ones(len(segment), dtype=np.bool_)
            for at in range(0, len(vectors), CHECKED_ROWS):
                flags = ranges.unlike(np.array(vectors[at : at + CHECKED_ROWS], dtype=np.float32))
                alike[at : at + flags.size] = ~flags
            cached = ranges, None if alike.all() else alike
            self._alike[segment] = cached
        return cached[1]

    def enrolled(self, state: GalleryRow, version: LoadedVersion, subject: str) -> StoredRows:
        form = form_of(version.estimator, state.dimension)
        with self._galleries.database.read() as session:
            items = repository.subject_rows(
                session, state, form, checked_id(subject, "subject"), MAX_TEMPLATES + 1
            )
        if items is None:
            raise UnknownItem(f"gallery {state.name!r} has no subject {subject[:100]!r}", field="subject")
        if len(items) > MAX_TEMPLATES:
            raise TooLarge(f"the subject has more than {MAX_TEMPLATES} items", limit=MAX_TEMPLATES)
        return items

    def verify(
        self,
        version: LoadedVersion,
        subject: str,
        probe: Matrix,
        items: StoredRows,
        decision: ServedPoint,
        aggregation: str | None,
        *,
        patterns: FindThresholds | None = None,
        scores: bool = True,
        decisions: list[SeenDecision] | None = None,
    ) -> bytes:
        """The answer's JSON: the probe's score with the subject, and whether it matches.

        Parameters
        ----------
        probe : (p, d) its samples.
        aggregation : the aggregation that ``decision`` is calibrated for; None: the best of single comparisons decides.
        patterns : finds the thresholds of pairs of records that lack columns.
        """
        item_scores = version.score(probe[:1], items.vectors)
        best, compared = int(np.argmax(item_scores)), None
        if patterns is not None and are_records(probe):
            of_probe, of_items = (
                np.any(cells_missing(probe), axis=0, keepdims=True),
                cells_missing(items.vectors),
            )
            if aggregation is not None:
                of_items = np.any(of_items, axis=0, keepdims=True)
            compared = patterns(decision, version.estimator.patterns(of_probe, of_items))
            if aggregation is None:
                # Each item by the threshold of its own columns.
                matches = decision.decided(item_scores, None, compared.thresholds) == DecisionCode.MATCH
                best = int(np.lexsort((-np.arange(len(items)), item_scores, matches))[-1])
                compared = compared.of(best)
        bound = decision.public.get("fpr_upper_bound")
        if aggregation is None:
            score = item_scores[best : best + 1]
            bound = None if bound is None else min(1.0, bound * len(items))
        else:
            k, p = (np.array([side.shape[0]], dtype=np.int64) for side in (items.vectors, probe))
            score = version.score_subjects(
                SampleSets.of_rows(items.vectors, k), SampleSets.of_rows(probe, p), aggregation
            )
        unlike = _unlike_names(decision.inputs, probe, items)
        refused, thresholds = np.array([bool(unlike)], dtype=np.uint8), None
        if compared is not None:
            refused, thresholds = compared.codes, compared.thresholds
        code = int(decision.decided(score, refused, thresholds)[0])
        if decisions is not None:
            decisions.append(
                SeenDecision(0, items.ids[best], subject, float(score[0]), code, float(decision.threshold))
            )
        answer = {
            "model": version.public,
            "subject": subject,
            "match": code == DecisionCode.MATCH,
            **({"reason": UNLIKE, "unlike": unlike} if unlike else {}),
            **({} if compared is None else compared.told(0, version.columns, with_scores=scores)),
            **({} if decision.lower is None else {"decision": DECISIONS[code]}),
            **({"score": float(score[0])} if scores else {}),
            "id": items.ids[best],
            "items": len(items),
            **({} if aggregation is None else {"aggregation": aggregation}),
            "operating_point": decision.public if scores else without_threshold(decision.public),
            **({} if bound is None else {"fpr_upper_bound": bound}),
            **({"warnings": decision.warnings} if decision.warnings else {}),
        }
        if aggregation is None and len(items) > 1 and bound is not None:
            answer["warning"] = (
                f"the best of {len(items)} comparisons decides, each at fpr {decision.public['fpr']:g}: together they "
                f"match somebody else in at most {bound:.3g} of verifications"
            )
        return to_json(answer)


def complete(*sides: Matrix) -> bool:
    """Whether rows are vectors, or records that lack no column."""
    return not any(are_records(side) and cells_missing(side).any() for side in sides)


def _lacks(missing: NDArray[np.bool_], view: GalleryView) -> bool:
    """Whether a query lacks a column, or an enrolled record does."""
    # Of records an index keeps, for vectors, which cells are missing.
    return bool(missing.any()) or any(part.segment.index.vectors[part.rows()].any() for part in view.parts)


def _n_unlike(view: GalleryView, like: Likeness) -> int:
    """How many items of a gallery are unlike the rows of the calibration."""
    masks = [(part, like(part.segment)) for part in view.parts]
    return sum(int(np.count_nonzero(~mask[part.rows()])) for part, mask in masks if mask is not None)


def _unlike_names(ranges: RowRanges | None, probe: Matrix, items: StoredRows) -> list[str]:
    """The rows of a verification that are unlike those of the calibration."""
    flags = np.empty(0) if ranges is None else ranges.unlike(probe, items.vectors)
    names = [f"probe[{at}]" for at in range(len(probe))] + [f"item {id}" for id in items.ids]
    return [names[at] for at in np.flatnonzero(flags).tolist()]


def model_rows(rows: SideRows, name: str, version: LoadedVersion) -> Matrix:
    """Rows of a request as a version takes them: float32, or cells of records."""
    model_input = to_rows(rows, name, version.n_features, accepts_sparse=False, estimator=version.estimator)
    return model_input if model_input.dtype == object else np.ascontiguousarray(model_input, dtype=np.float32)


def _by_pattern(
    hits: Sequence[Any],
    missing: NDArray[np.bool_],
    decision: ServedPoint,
    version: LoadedVersion,
    patterns: FindThresholds,
    by_subject: bool,
    warnings: list[dict[str, str]],
) -> list[ItemHit]:
    """Of hits above the threshold of complete records, those above that of the columns that they and the query have;
    the best of each subject. ``warnings`` takes some more."""
    rows = [np.frombuffer(hit.missing, dtype=np.bool_) for hit in hits]
    lacked = np.array(rows, dtype=np.bool_).reshape(-1, missing.size)
    compared = patterns(decision, version.estimator.patterns(lacked, missing[None]))
    warnings += compared.warnings(version.columns)
    scores = np.array([hit.score for hit in hits], dtype=np.float32)
    matches = decision.decided(scores, compared.codes, compared.thresholds) == DecisionCode.MATCH
    matching = [hit for hit, matched in zip(hits, matches.tolist(), strict=True) if matched]
    if not by_subject:
        return matching
    best: dict[Owner, ItemHit] = {}
    for hit in matching:
        best.setdefault(owner_of(hit.subject, hit.id), hit)
    return list(best.values())
