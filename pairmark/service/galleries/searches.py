"""Searches and verifications: a parsed request and a view in, the answer's JSON out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.calibration.operating_point import ROWS_MONITORED, assumptions, without_guarantee
from pairmark.models.calibration.records import are_records, cells_missing
from pairmark.models.core.arrays import Float32
from pairmark.schemas.base import EXPECTED, EXPECTED_SIDE
from pairmark.schemas.galleries import SearchRequestFields, VerifyFields
from pairmark.service.errors import InvalidInput, TooLarge, UnknownItem
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import MAX_TEMPLATES, Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.metadata import parse_filter
from pairmark.service.galleries.rows import Matrix, StoredRows, checked_id, form_of
from pairmark.service.galleries.segments import Segment
from pairmark.service.galleries.view import GalleryView, ItemHit, Likeness, best_of_subjects
from pairmark.service.runtime.missing_columns import ComparedPairs
from pairmark.service.runtime.operating_points import ServedPoint
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scoring.json import SideRows, read_rows, read_side
from pairmark.service.scoring.requests import check_count, split_vectors
from pairmark.service.scoring.score import UNLIKE, Resolved, Scored, decide, score, score_without, to_rows
from pairmark.service.settings import Settings
from pairmark.service.tables import DecisionCode, GalleryRow

FindThresholds = Callable[..., ComparedPairs]
"""The point of complete records, what pairs are compared without, perhaps what scores them anew -> what decides."""
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


class Found(NamedTuple):
    """The answer to a search or a verification, and what was looked at for it.

    Attributes
    ----------
    answer : JSON. n : items in it. decisions : made at a rate.
    queries : those that were held against rows of the calibration; none where no rate was asked for. unlike : which of
        them are unlike these; None: none is.
    """

    answer: bytes
    n: int
    decisions: list[SeenDecision]
    queries: Matrix | None = None
    unlike: NDArray[np.bool_] | None = None


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
    check_count(len(queries), "queries", settings.max_search_queries)
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
        point: ServedPoint | None,
        *,
        shows_scores: bool = True,
        ranges: RowRanges | None = None,
        moved: dict[str, str] | None = None,
        patterns: FindThresholds | None = None,
    ) -> Found:
        """Search, and decide where a rate was asked for (blocking).

        Parameters
        ----------
        state : the gallery as just read, so that the answer holds everything acknowledged by then.
        point : the operating point at the request's ``fpr``, if it has one.
        shows_scores : whether hits carry theirs.
        ranges : what rows of the calibration are like, where that is known: at a rate no other row matches.
        moved : the warning that inputs no longer are.
        patterns : finds the thresholds of pairs of records that lack columns.
        """
        body = request.body
        queries = model_vectors(request.queries, "queries", version)
        conditions = parse_filter(body.filter, state.fields) if state.items else ()
        deadline = time.monotonic() + self._settings.request_timeout_s
        # 1. A view of everything acknowledged by now. The threshold of fpir is exact for the one it comes with.
        live = self._galleries.views.live(state, version.estimator)
        if body.fpir is None:
            view = live.view(state.seq)
        else:
            point, view = self._thresholds.for_rate(state, version, body.fpir, body.confidence, deadline)
        k = min(body.k, max(view.n_items, 1))
        if k * len(queries) > self._settings.max_search_results:
            raise TooLarge(
                f"{len(queries)} queries with k = {k} may return {k * len(queries)} items; at most "
                f"{self._settings.max_search_results} are returned at a time",
                limit=self._settings.max_search_results,
            )
        # 2. What is guaranteed at the rate that was asked for.
        missing = cells_missing(queries) if are_records(queries) else None
        if body.fpir is not None and point is not None:
            facts = point.public
            if ranges is not None:
                facts = facts | {"assumes": assumptions("drawn", monitored=ROWS_MONITORED)}
            # Of records an index keeps, for vectors, which cells are missing.
            if missing is not None and (
                missing.any()
                or any(part.n_alive and part.segment.index.vectors[part.rows()].any() for part in view.parts)
            ):
                facts = without_guarantee(facts, INCOMPLETE)
            point = replace(point, public=facts)
            point = point if moved is None else point.moved(moved)
        like = None if point is None or ranges is None else partial(self._like, ranges)
        n_unlike_items = 0 if like is None else _n_unlike(view, like)
        # 3. The best items above the threshold: all of them match. Thresholds of records that lack columns are higher
        # than the one searched by, so that more items are asked for.
        by_pattern = None if body.fpr is None or missing is None else patterns
        n_candidates = version.estimator.n_candidates or 0
        n_wanted = k if by_pattern is None else max(4 * k, n_candidates)
        hits: list[list[Any]] = view.search(
            queries,
            min(n_wanted, max(view.n_items, 1)),
            conditions=conditions,
            above=None if point is None else point.threshold,
            by_subject=body.group_by is not None and by_pattern is None,
            deadline=deadline,
            like=like if n_unlike_items else None,
            other_search=self._galleries.views.cluster.searching(state, conditions, view.seq),
        )
        if live.needs_compaction():
            self._galleries.views.in_background(live, view.seq)
        # 4. At a rate, a query unlike the rows of the calibration matches nobody.
        unlike = np.empty(0, dtype=np.bool_) if like is None or ranges is None else ranges.unlike(queries)
        flags = unlike.tolist()
        if flags:
            hits = [[] if flag else row for row, flag in zip(hits, flags, strict=True)]
        warnings = [] if point is None else list(point.warnings)
        if by_pattern is not None and point is not None and missing is not None:
            vectors = partial(self._vectors, state, version)
            matching, limits = _matching_hits(hits, queries, missing, point, version, by_pattern, vectors)
            warnings += limits
            hits = [(row if body.group_by is None else best_of_subjects(row))[:k] for row in matching]
        # 5. The answer, and what reviews may keep of it.
        n_hits = sum(map(len, hits))
        facts = {
            "candidates": (
                {"scored": max(n_candidates, k)}
                if n_candidates and view.n_items > version.estimator.max_scored
                else None
            ),
            "operating_point": point and (point.public if shows_scores else point.hidden),
            "reasons": [UNLIKE if flag else None for flag in flags] or None,
            "unlike_items": n_unlike_items or None,
            "warning": None
            if body.fpr is None
            else (
                f"fpr is of one comparison: a search of {view.n_items} items with a person who is not enrolled is "
                f"expected to return up to about {body.fpr * view.n_items:.3g} strangers; ask for fpir, which is of "
                "the whole search"
            ),
            "warnings": warnings or None,
        }
        match: dict[str, Any] = {} if point is None else {"match": True}
        results = [
            [
                {
                    "id": hit.id,
                    "subject": hit.subject,
                    **({"score": hit.score} if shows_scores else {}),
                    **match,
                }
                for hit in row
            ]
            for row in hits
        ]
        present_facts = {name: fact for name, fact in facts.items() if fact is not None}
        answer = to_json({"model": version.public, "results": results, **present_facts})
        if point is None:
            return Found(answer, n_hits, [])
        decisions = [
            SeenDecision(query, hit.id, hit.subject, hit.score, DecisionCode.MATCH, float(point.threshold))
            for query, row in enumerate(hits)
            for hit in row
        ]
        return Found(answer, n_hits, decisions, None if like is None else queries, unlike if flags else None)

    def _like(self, ranges: RowRanges, segment: Segment) -> NDArray[np.bool_] | None:
        """Which rows of a segment are like those of the calibration; None: all. Looked at once a segment."""
        cached = self._alike.get(segment)
        if cached is None or cached[0] is not ranges:
            vectors: Any = () if segment.index is None else segment.index.vectors
            alike = np.ones(len(segment), dtype=np.bool_)
            for at in range(0, len(vectors), CHECKED_ROWS):
                flags = ranges.unlike(np.array(vectors[at : at + CHECKED_ROWS], dtype=np.float32))
                alike[at : at + flags.size] = ~flags
            cached = ranges, None if alike.all() else alike
            self._alike[segment] = cached
        return cached[1]

    def _vectors(self, state: GalleryRow, version: LoadedVersion, ids: Sequence[str]) -> dict[str, Any]:
        form = form_of(version.estimator, state.dimension)
        with self._galleries.database.read() as session:
            return repository.vectors_of(session, state, form, ids)

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
        point: ServedPoint,
        aggregation: str | None,
        *,
        patterns: FindThresholds | None = None,
        shows_scores: bool = True,
    ) -> Found:
        """The probe's score with the subject, and whether it matches.

        Parameters
        ----------
        probe : (p, d) its samples.
        aggregation : the aggregation that ``point`` is calibrated for; None: the best of single comparisons decides.
        patterns : finds the thresholds of pairs of records that lack columns.
        """
        singles = Resolved(version, probe[:1], items.vectors)
        item_scores = score(singles)
        best = int(np.argmax(item_scores.scores))
        if aggregation is None and patterns is not None and item_scores.lacked is not None:
            # Each item by the threshold of its own columns.
            each_compared = patterns(point, item_scores.lacked, partial(score_without, singles))
            codes = decide(
                item_scores._replace(resolved=None), point, shows_scores=True, compared=each_compared
            ).codes
            best = int(
                np.lexsort((-np.arange(len(items)), item_scores.scores, codes == DecisionCode.MATCH))[-1]
            )
        counts = tuple(np.array([len(side)], dtype=np.int64) for side in (probe, items.vectors))
        whole = Resolved(version, probe, items.vectors, (counts[0], counts[1]), aggregation or "best")
        if aggregation is not None:
            scored = score(whole)
        else:
            lacked = None if item_scores.lacked is None else item_scores.lacked[best : best + 1]
            scored = Scored(item_scores.scores[best : best + 1], version.json, whole, lacked)
        compared = None
        if patterns is not None and scored.lacked is not None:
            one = Resolved(version, probe[:1], items.vectors[best : best + 1])
            compared = patterns(point, scored.lacked, None if aggregation else partial(score_without, one))
        decided = decide(scored, point, shows_scores=shows_scores, compared=compared)
        (match,) = decided.matches()
        if decided.unlike is not None:
            names = [f"probe[{row}]" for row in range(len(probe))] + [f"item {id}" for id in items.ids]
            match["unlike"] = [names[row] for row in np.flatnonzero(decided.unlike.flags).tolist()]
        bound = point.public.get("fpr_upper_bound")
        if aggregation is None and bound is not None:
            bound = min(1.0, bound * len(items))
        answer = {
            "model": version.public,
            "subject": subject,
            **match,
            "id": items.ids[best],
            "items": len(items),
            **({} if aggregation is None else {"aggregation": aggregation}),
            "operating_point": point.public if shows_scores else point.hidden,
            **({} if bound is None else {"fpr_upper_bound": bound}),
            **({"warnings": point.warnings} if point.warnings else {}),
        }
        if aggregation is None and len(items) > 1 and bound is not None:
            answer["warning"] = (
                f"the best of {len(items)} comparisons decides, each at fpr {point.public['fpr']:g}: together they "
                f"match somebody else in at most {bound:.3g} of verifications"
            )
        seen = float(scored.scores[0]), int(decided.codes[0]), float(point.threshold)
        return Found(to_json(answer), 1, [SeenDecision(0, items.ids[best], subject, *seen)])


def complete(*sides: Matrix) -> bool:
    """Whether rows are vectors, or records that lack no column."""
    return not any(are_records(side) and cells_missing(side).any() for side in sides)


def _n_unlike(view: GalleryView, like: Likeness) -> int:
    """How many items of a gallery are unlike the rows of the calibration."""
    masks = [(part, like(part.segment)) for part in view.parts]
    return sum(int(np.count_nonzero(~mask[part.rows()])) for part, mask in masks if mask is not None)


def model_vectors(rows: SideRows, name: str, version: LoadedVersion) -> Matrix:
    """Rows of a request as a version's searches take them: float32, or cells of records."""
    model_input = to_rows(version, rows, name, dense=True)
    return model_input if model_input.dtype == object else np.ascontiguousarray(model_input, dtype=np.float32)


def _matching_hits(
    hits: Sequence[Sequence[Any]],
    queries: Matrix,
    missing: NDArray[np.bool_],
    point: ServedPoint,
    version: LoadedVersion,
    patterns: FindThresholds,
    vectors: Callable[[Sequence[str]], dict[str, Any]],
) -> tuple[list[list[ItemHit]], tuple[dict[str, str], ...]]:
    """Of the hits of each query above the threshold of complete records, those above that of the columns that they and
    the query have; and what limits the answer. ``vectors`` : the cells of items by id, of those that are still there.
    """
    every = [hit for row in hits for hit in row]
    query = np.repeat(np.arange(len(hits)), [len(row) for row in hits])
    rows = [np.frombuffer(hit.missing, dtype=np.bool_) for hit in every]
    items = np.array(rows, dtype=np.bool_).reshape(-1, missing.shape[1])
    lacked = version.estimator.patterns(items, missing[query])
    scored = Scored(np.array([hit.score for hit in every], dtype=np.float32), version.json, None, lacked)

    def rescore(pairs: NDArray[np.intp], without: NDArray[np.bool_]) -> Float32:
        cells = vectors(list({every[pair].id for pair in pairs}))
        # An item that was erased meanwhile matches nobody.
        scores = np.full(len(pairs), -np.inf, dtype=np.float32)
        there = np.flatnonzero([every[pair].id in cells for pair in pairs])
        if there.size:
            items = np.stack([cells[every[pair].id] for pair in pairs[there]])
            sides = Resolved(version, items, queries[query[pairs[there]]])
            scores[there] = score_without(sides, np.arange(there.size), without[there])
        return scores

    compared = patterns(point, lacked, rescore)
    decided = decide(scored, point, shows_scores=True, compared=compared)
    matching: list[list[ItemHit]] = [[] for _ in hits]
    for place in np.flatnonzero(decided.codes == DecisionCode.MATCH).tolist():
        matching[query[place]].append(every[place])
    return matching, compared.warnings(version.columns)
