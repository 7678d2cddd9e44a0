"""The scoring routes: `/similarity`, `/match`, `/explain`.

Plain routes, because a framework's handling of one body costs more than scoring a pair. Every request goes the same
way: parse, resolve, score, decide, answer. `RequestWork` decides which of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from pydantic_core import to_json

from pairmark.schemas.scoring import (
    ExplanationOut,
    MatchesOut,
    MatchParameters,
    PairsBody,
    PairsParameters,
    ScoresBody,
    ScoresOut,
    SimilarityParameters,
)
from pairmark.service.api.calls import JSON, NPZ, OCTETS, Answer, Call, media, model_header
from pairmark.service.api.problems import NotAcceptable
from pairmark.service.api.query import QueryModel
from pairmark.service.api.routing import OCTETS_TYPE, VECTORS, PlainRoute, content, needs
from pairmark.service.decision_codes import DECISIONS, DecisionCode
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.places import RequestWork
from pairmark.service.reviews.repository import Deciding
from pairmark.service.runtime.binary import parse_npz, parse_octets
from pairmark.service.runtime.inputs import UnlikePairs
from pairmark.service.runtime.metrics import PAIRS
from pairmark.service.runtime.parsing import holds_scores, parse_pairs, parse_scores
from pairmark.service.runtime.points import ServedPoint, plain, without_threshold
from pairmark.service.runtime.vectors import VectorPairs
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.store.calibrations import SubjectClass

router = APIRouter(tags=["scoring"], route_class=PlainRoute)
BINARY_BODIES: Final = ("application/octet-stream", "application/x-npz")
BYTES_A_SECOND: Final = {JSON: 64 * 1024 * 1000.0, OCTETS: 2 * 1024 * 1024 * 1000.0, NPZ: 1.0}
"""How fast each kind of body is read; an npz may hold far more than its bytes."""
WRITING_S: Final = 4e-7
"""What one score takes to be written as JSON."""
CONFIDENCE: Final = MatchParameters.model_fields["confidence"].default
_SCORED, _MATCHED, _EXPLAINED = (PAIRS.labels(path) for path in ("/similarity", "/match", "/explain"))


class PairsQuery(QueryModel, PairsParameters):
    """Which model scores, how subjects of several samples are compared, and the shape of a binary body."""


class SimilarityQuery(QueryModel, SimilarityParameters):
    """Which model scores."""


class MatchQuery(QueryModel, MatchParameters):
    """Which model scores, and how it decides."""


@dataclass(slots=True)
class ScoredPairs:
    """Scores, and the version that made them (None: they were made elsewhere)."""

    scores: Any
    model_json: bytes
    version: LoadedVersion | None = None
    pairs: VectorPairs | None = None
    unlike: UnlikePairs | None = None
    """Pairs that are decided without their score."""
    subjects: SubjectClass | None = None
    """The class of subjects that a decision is about; None for plain vectors."""
    aggregation: str | None = None
    """How subjects were compared; None for plain vectors."""

    def codes(self, point: ServedPoint, *, raw: bool = False) -> Any:
        """What was decided of each pair, an array; see `ServedPoint.decided`."""
        return point.decided(self.scores, None if self.unlike is None else self.unlike.codes, raw=raw)


@router.post("/similarity", summary="Score pairs", response_model=ScoresOut, responses=content(OCTETS_TYPE))
@needs(
    "score",
    limits=VECTORS,
    query=SimilarityQuery,
    body=PairsBody,
    bodies=BINARY_BODIES,
)
async def similarity(call: Call) -> Answer:
    """The similarity of each pair of a left and a right side.

    Bulk bodies: `application/octet-stream` is little-endian float32, row-major: all left rows, then all right rows
    (`dim` defaults to the model's, `n_left` to half of the rows). `application/x-npz` contains the arrays `left` and
    `right`. For subjects of several samples, send the rows subject by subject. `left_samples` and `right_samples` give
    the number of rows per subject; in npz, the arrays `left_counts` and `right_counts` do. With `Accept:
    application/octet-stream` the answer is raw too: float32 scores.
    """
    kind, raw = media(call)
    query: SimilarityQuery = call.query
    if raw and query.detail:
        raise NotAcceptable("detail is given as application/json: leave it out, or accept that")
    body = await call.read_body()
    with call.services.runtime.request_work() as request_work:
        scored = await _score(call, request_work, kind, body, "similarity")
        if query.detail:
            ranges = await call.services.runtime.row_ranges(scored.version, None)
            scored.unlike = UnlikePairs.of(ranges, scored.pairs)
        answer = await request_work.run(_writing(scored, raw), lambda: _scores_answer(call, scored, raw))
    _SCORED.inc(len(scored.scores))
    return answer


@router.post(
    "/match",
    summary="Decide pairs at a false positive rate",
    response_model=MatchesOut,
    responses=content(OCTETS_TYPE),
)
@needs(
    "decide",
    limits=VECTORS,
    decides=True,
    query=MatchQuery,
    body=PairsBody | ScoresBody,
    bodies=BINARY_BODIES,
)
async def match(call: Call) -> Answer:
    """Decide for each pair whether it is the same, at a false positive rate.

    If the calibration data cannot support the rate, the answer is 422 `insufficient-calibration-data` with
    `smallest_fpr` and `required_units` for each method. Its `alternatives` state what the other methods would answer.
    To decide scores of another system, send `{"scores": [..]}` and `calibration=`.

    Bulk bodies: as for `POST /similarity`. With `Accept: application/octet-stream` the answer is raw too: one uint8 per
    pair (1 = match, with `fnr` 2 = review), and the threshold and calibration in headers.
    """
    query: MatchQuery = call.query
    kind, raw = media(call)
    await call.services.runtime.check_calibration(query.calibration, call.models)
    body = await call.read_body()
    with call.services.runtime.request_work() as request_work:
        if kind == JSON and holds_scores(body):
            scored = await _given_scores(call, request_work, body)
        else:
            scored = await _score(call, request_work, kind, body, "match")
        with_scores = call.shows_scores(scored.version)
        if not with_scores:
            call.check_listed(
                scored.version,
                query.fpr,
                query.fnr,
                method=query.method == "auto",
                confidence=query.confidence == CONFIDENCE,
                simultaneous=not query.simultaneous,
                calibration=query.calibration is None,
            )
        point = await call.services.runtime.operating_point(
            scored.version,
            query.fpr,
            query.confidence,
            query.method,
            query.calibration,
            fnr=query.fnr,
            simultaneous=query.simultaneous,
            subjects=scored.subjects,
        )
        n_matched, answer = await request_work.run(
            _writing(scored, raw), lambda: _match_answer(scored, point, raw, with_scores)
        )
    if scored.version is not None:
        _MATCHED.inc(len(scored.scores))
        _watch(call, scored, point, n_matched)
        _keep(call, scored, point, n_matched)
    return answer


@router.post("/explain", summary="Explain one pair's score", response_model=ExplanationOut)
@needs(
    "score",
    limits=VECTORS,
    query=PairsQuery,
    body=PairsBody,
    bodies=BINARY_BODIES,
)
async def explain(call: Call) -> Answer:
    """What each feature contributes to the score of one pair. Bulk bodies: as for `POST /similarity`."""
    kind, raw = media(call)
    if raw:
        raise NotAcceptable("explanations are given as application/json")
    body = await call.read_body()
    with call.services.runtime.request_work() as request_work:
        pairs, version = await _read(call, request_work, kind, body, "similarity")

        def work() -> bytes:
            score, explanation = version.explain(pairs, call.query.aggregation)
            return to_json({"model": version.public, "score": score, "explanation": plain(explanation)})

        answer = await request_work.run(math.inf, work)
    _EXPLAINED.inc()
    return answer, JSON, ()


# ---------------------------------------------------------------- parse and resolve


async def _read(
    call: Call, request_work: RequestWork, kind: bytes, body: bytes | bytearray, capability: str
) -> tuple[VectorPairs, LoadedVersion]:
    """The pairs of a body, and the version that they are for."""
    runtime, settings, query = call.services.runtime, call.services.settings, call.query
    reading = len(body) / BYTES_A_SECOND[kind]
    if kind == JSON:
        pairs = await request_work.run(reading, lambda: parse_pairs(body))
        pairs.check_sizes(settings.max_batch_pairs, settings.max_subject_samples)
        version = await runtime.version_for(_model(pairs, query), capability, call.models)
        return pairs, version
    version = await runtime.version_for(query.model, capability, call.models)
    if kind == OCTETS:
        dim, n_left = query.dim or version.n_features, query.n_left
        samples = (query.left_samples, query.right_samples)
        pairs = await request_work.run(
            reading,
            lambda: parse_octets(
                body, dim=dim, n_left=n_left, samples=samples, pairs=query.pairs, dtype=query.dtype
            ),
        )
    else:
        limit = settings.max_body_bytes
        pairs = await request_work.run(reading, lambda: parse_npz(body, max_bytes=limit))
    pairs.check_sizes(settings.max_batch_pairs, settings.max_subject_samples)
    return pairs, version


def _model(pairs: VectorPairs, query: PairsQuery) -> str | None:
    """The model that a JSON request names, in its body or its query."""
    if pairs.model is None or query.model is None:
        return query.model if pairs.model is None else pairs.model
    if pairs.model != query.model:
        raise InvalidInput("the body and the query name different models; expected one", field="model")
    return pairs.model


# ---------------------------------------------------------------- score


async def _score(
    call: Call, request_work: RequestWork, kind: bytes, body: bytes | bytearray, capability: str
) -> ScoredPairs:
    pairs, version = await _read(call, request_work, kind, body, capability)
    how = call.query.aggregation
    if pairs.counts is not None:
        how = version.aggregation(how, pairs.common_samples)
    scores = await request_work.run(version.seconds(pairs.n_scored), lambda: version.score_pairs(pairs, how))
    if pairs.counts is None:
        return ScoredPairs(scores, version.json, version, pairs)
    of = pairs.sample_class() if capability == "match" else None
    subjects = None if of is None else SubjectClass(*of, how)
    return ScoredPairs(scores, version.json, version, pairs, subjects=subjects, aggregation=how)


async def _given_scores(call: Call, request_work: RequestWork, body: bytes | bytearray) -> ScoredPairs:
    """Scores made elsewhere: no model scores anything, and a calibration must be named."""
    calibration, limit = call.query.calibration, call.services.settings.max_batch_pairs
    if calibration is None:
        raise InvalidInput(
            "scores need calibration=ID; create a calibration with POST /calibrations", field="calibration"
        )
    scores = await request_work.run(len(body) / BYTES_A_SECOND[JSON], lambda: parse_scores(body))
    if len(scores) > limit:
        raise TooLarge(f"the request has {len(scores)} scores; at most {limit} are taken", limit=limit)
    await call.services.runtime.check_calibration(calibration, call.models)
    model = await call.services.runtime.model_of_calibration(calibration)
    combined = await asyncio.to_thread(call.services.runtime.points.combined, calibration, scores)
    return ScoredPairs(combined, to_json(model))


def _watch(call: Call, scored: ScoredPairs, point: ServedPoint, n_matched: int) -> None:
    """Count what was decided, and hold its rows against those of the calibration."""
    version, pairs, checks = scored.version, scored.pairs, call.services.runtime.inputs
    assert version is not None
    assert pairs is not None
    calibration = version.calibration_id
    # Of subjects too it is the version's own calibration that is watched.
    watch = None if calibration is None else checks.watch(version, calibration, point.inputs)
    if watch is None or calibration is None:
        return
    watch.decide(point.rate, len(scored.scores), n_matched)
    left, unlike = pairs.left if pairs.rows is None else pairs.rows[0], scored.unlike
    watch.count(len(pairs.left) + len(pairs.right), 0 if unlike is None else unlike.rows)
    if pairs.counts is None:
        checks.look(calibration, watch, left, None if unlike is None else unlike.flags, call.asker)


def _keep(call: Call, scored: ScoredPairs, point: ServedPoint, n_matched: int) -> None:
    """Count decisions, and keep some for reviews, where the model's policy says so."""
    version, pairs = scored.version, scored.pairs
    assert version is not None
    assert pairs is not None
    policy = call.services.runtime.review_policy(version.entry.name)
    if policy is None:
        return
    n = len(scored.scores)
    doubtful = 0 if point.lower is None else int((scored.codes(point) == DecisionCode.REVIEW).sum())
    call.services.recorder.record(
        Deciding(version.entry.model_id, version.entry.version),
        policy,
        (n - n_matched - doubtful, n_matched, doubtful),
        lambda: scored.codes(point),
        scored.scores,
        float(point.threshold),
        pairs=pairs,
        refs=pairs.refs,
    )


# ---------------------------------------------------------------- answer


def _writing(scored: ScoredPairs, raw: bool) -> float:
    return 0.0 if raw else len(scored.scores) * WRITING_S


def _scores_answer(call: Call, scored: ScoredPairs, raw: bool) -> Answer:
    if raw:
        return scored.scores.tobytes(), OCTETS, (model_header(scored.model_json),)
    body = b'{"model":%b,"scores":%b' % (scored.model_json, to_json(scored.scores.tolist()))
    if scored.aggregation is not None:
        body += b',"aggregation":"%b"' % scored.aggregation.encode()
    if call.query.detail:
        unlike = scored.unlike
        places = [] if unlike is None else [{"pair": at, "rows": unlike.names(at)} for at in unlike.places]
        body += b',"unlike":%b' % to_json(places)
    return body + b"}", JSON, ()


def _match_answer(
    scored: ScoredPairs, point: ServedPoint, raw: bool, with_scores: bool
) -> tuple[int, Answer]:
    """How many match, and the answer."""
    unlike = scored.unlike = UnlikePairs.of(point.inputs, scored.pairs, point.lacked)
    if raw:
        codes = scored.codes(point, raw=True).tobytes()
        return codes.count(1), (codes, OCTETS, _point_headers(scored.model_json, point, with_scores))
    scores: list[float] = scored.scores.tolist()
    decided = point.match_list(scores) if unlike is None else (scored.codes(point) == 1).tolist()
    if point.lower is not None or not with_scores or unlike is not None:
        entries: list[dict[str, Any]] = [
            {"score": score, "match": match} if with_scores else {"match": match}
            for score, match in zip(scores, decided, strict=True)
        ]
        if point.lower is not None:
            for entry, code in zip(entries, scored.codes(point).tolist(), strict=True):
                entry["decision"] = DECISIONS[code]
        if unlike is not None:
            assert scored.version is not None
            for pair in unlike.places:
                entries[pair] |= unlike.told(pair, scored.version.columns)
        matches = to_json(entries)
    else:
        matches = (
            b"[%b]"
            % ",".join(
                [
                    f'{{"score":{score!r},"match":true}}' if match else f'{{"score":{score!r},"match":false}}'
                    for score, match in zip(scores, decided, strict=True)
                ]
            ).encode()
        )
    body = b'{"model":%b,"matches":%b,"operating_point":%b%b}' % (
        scored.model_json,
        matches,
        point.json if with_scores else to_json(without_threshold(point.public)),
        b',"warnings":%b' % to_json(point.warnings) if point.warnings else b"",
    )
    return sum(decided), (body, JSON, ())


def _point_headers(model: bytes, point: ServedPoint, with_scores: bool) -> tuple[tuple[bytes, bytes], ...]:
    facts = point.public
    threshold = ((b"x-pairmark-threshold", repr(float(point.threshold)).encode()),) if with_scores else ()
    return (
        model_header(model),
        *threshold,
        (b"x-pairmark-calibration-id", str(facts["calibration_id"]).encode()),
        (b"x-pairmark-guarantee", str(facts["guarantee"]).encode()),
        *(
            (b"x-pairmark-" + name.replace("_", "-").encode(), str(facts[name]).encode())
            for name in ("method", "fpr_upper_bound")
            if name in facts
        ),
    )
