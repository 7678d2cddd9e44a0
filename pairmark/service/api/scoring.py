"""Scores, decisions, explanations, embeddings, classes and rankings.

Plain routes, because a framework's handling of one body costs more than scoring a pair. Every request goes the same
way: parse, resolve, score, decide, answer. `RequestWork` decides which of it runs on the event loop.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field
from pydantic_core import to_json

from pairmark.schemas.base import QueryModel
from pairmark.schemas.scoring import (
    ClassesOut,
    Decision,
    ExplanationOut,
    FeaturesBody,
    MatchesOut,
    MatchParameters,
    PairsBody,
    PairsParameters,
    PointsParameters,
    RankBody,
    RankingsOut,
    RankOptions,
    ScoresBody,
    ScoresOut,
    SimilarityParameters,
    ThreeWayParameters,
    VectorsOut,
)
from pairmark.service.api.access import VECTORS
from pairmark.service.api.metrics import PAIRS, POINTS
from pairmark.service.api.problems import NotAcceptable
from pairmark.service.api.routing import JSON, NPZ, OCTETS, Call, JsonAnswer, PlainRoute, content, needs
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.reviews.repository import Deciding
from pairmark.service.runtime.operating_points import Rate, plain
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scoring.ranking import Points, classes_json, parse_points, point_of_query, rank
from pairmark.service.scoring.requests import (
    PAIR_SIDES,
    Features,
    PairRequest,
    check_count,
    holds_scores,
    parse_features,
    parse_npz,
    parse_octets,
    parse_pairs,
    parse_scores,
)
from pairmark.service.scoring.score import (
    Answer,
    Decided,
    Scored,
    answer_decisions,
    answer_scores,
    decide,
    model_header,
    resolve,
    score,
    score_without,
    shows_scores,
)
from pairmark.service.scoring.score import embed as embed_points
from pairmark.service.scoring.score import explain as explain_pair
from pairmark.service.tables import DecisionCode

Read = TypeVar("Read", PairRequest, Features)
router = APIRouter(tags=["scoring"], route_class=PlainRoute)
BINARY_BODIES: Final = (OCTETS, NPZ)
WRITING_S: Final = 4e-7
"""What one score takes to be written as JSON."""
_SCORED, _MATCHED, _EXPLAINED = (PAIRS.labels(path) for path in ("/similarity", "/match", "/explain"))


@router.post("/similarity", summary="Score pairs", response_model=ScoresOut, responses=content(OCTETS))
@needs(
    "score",
    limits=VECTORS,
    reading=True,
    query=SimilarityParameters,
    body=PairsBody,
    bodies=BINARY_BODIES,
    raw=True,
)
async def similarity(call: Call) -> Response:
    """The similarity of each pair of a left and a right side.

    Bulk bodies: `application/octet-stream` is little-endian float32, row-major: all left rows, then all right rows
    (`dim` defaults to the model's, `n_left` to half of the rows). `application/x-npz` contains the arrays `left` and
    `right`. Subjects of several samples are sent as JSON. With `Accept: application/octet-stream` the answer is raw
    too: float32 scores.
    """
    raw, detail = call.raw, call.query.detail
    if raw and detail:
        raise NotAcceptable("detail is given as application/json: leave it out, or accept that")
    request, version = await _read_pairs(call, "similarity")
    ranges = await call.services.runtime.row_ranges(version) if detail else None

    def work() -> Answer:
        scored = score(resolve(request, version, call.query.aggregation))
        return answer_scores(scored, raw=raw, detail=detail, ranges=ranges)

    n = request.n_pairs
    answer = await call.work.run(version.seconds(request.n_scored) + n * WRITING_S, work)
    _SCORED.inc(n)
    return _response(answer)


@router.post(
    "/match",
    summary="Decide pairs at a false positive rate",
    response_model=MatchesOut,
    responses=content(OCTETS),
)
@needs(
    "decide",
    limits=VECTORS,
    reading=True,
    query=MatchParameters,
    body=PairsBody | ScoresBody,
    bodies=BINARY_BODIES,
    raw=True,
)
async def match(call: Call) -> Response:
    """Decide for each pair whether it is the same, at a false positive rate or, of records, where F1 is best.

    If the calibration data cannot support the rate, the answer is 422 `insufficient-calibration-data` with
    `smallest_fpr` and `required_units` for each method. Its `alternatives` state what the other methods would answer.
    To decide scores of another system, send `{"scores": [..]}` and `calibration=`.

    Bulk bodies: as for `POST /similarity`. With `Accept: application/octet-stream` the answer is raw too: one uint8 per
    pair (1 = match, with `fnr` 2 = review), and the threshold and calibration in headers.
    """
    query, runtime = call.query, call.services.runtime
    rate = _cut_of(query)
    if query.calibration is not None:
        await runtime.check_calibration(query.calibration, call.grants.usable)
    request = version = subjects = compared = None
    if call.kind == JSON and holds_scores(await call.read_body()):
        scored = await _given_scores(call)
    else:
        request, version = await _read_pairs(call, "match")
        resolving = partial(resolve, request, version, call.query.aggregation)
        scored = await call.work.run(version.seconds(request.n_scored), lambda: score(resolving()))
        subjects = None if scored.resolved is None else scored.resolved.subjects()
    shown = shows_scores(runtime, version, rate, call.grants)
    if not shown:
        limit, n = call.services.settings.decide_limit, len(scored.scores)
        call.services.rates.draw_minute(call.scope, "decisions", limit, "pairs", count=n)
    if isinstance(rate, Rate):
        point = await runtime.operating_point(version, rate, subjects, shows_scores=shown)
    else:
        assert version is not None, "given scores need a calibration, which a decision does not take"
        if subjects is not None:
            raise InvalidInput(
                f"decision={rate} decides single records; expected one on each side of a pair, or fpr",
                field="decision",
            )
        point = await runtime.best_f1(version)
    if version is not None and scored.lacked is not None:
        assert scored.resolved is not None
        compared = await runtime.compared(
            version, point, scored.lacked, partial(score_without, scored.resolved)
        )

    def work() -> tuple[Decided, Answer]:
        decided = decide(scored, point, shows_scores=shown, compared=compared)
        return decided, answer_decisions(decided, raw=call.raw)

    decided, answer = await call.work.run(len(scored.scores) * WRITING_S, work)
    if request is not None and version is not None:
        _MATCHED.inc(len(scored.scores))
        _note(call, decided, request, version)
    return _response(answer)


@router.post("/explain", summary="Explain one pair's score", response_model=ExplanationOut)
@needs(
    "score",
    limits=VECTORS,
    reading=True,
    query=PairsParameters,
    body=PairsBody,
    bodies=BINARY_BODIES,
)
async def explain(call: Call) -> Response:
    """What each feature contributes to the score of one pair. Bulk bodies: as for `POST /similarity`."""
    pairs, version = await _read_pairs(call, "similarity")

    def work() -> bytes:
        scored, explanation = explain_pair(pairs, version, call.query.aggregation)
        answer = {
            "model": version.public,
            "score": float(scored.scores[0]),
            "explanation": plain(explanation),
        }
        if scored.lacked is not None:
            absent = scored.lacked[0].any(axis=0).tolist()
            answer["compared"] = [
                name for name, lacks in zip(version.columns, absent, strict=True) if not lacks
            ]
        return to_json(answer)

    answer = await call.work.run(math.inf, work)
    _EXPLAINED.inc()
    return JsonAnswer(answer)


async def _read(
    call: Call,
    capability: str,
    form: Callable[..., Read],
    names: tuple[str, ...],
    parse: Callable[[bytes], Read],
) -> tuple[Read, LoadedVersion]:
    """The vectors of a body, and the version that they are for: JSON may name it, other bodies are read for it, as
    arrays of these names."""
    settings, query, model = call.services.settings, call.query, call.query.model
    limits = settings.max_batch_pairs, settings.max_subject_samples
    if call.kind == JSON:
        if form is Features and call.scope["query_string"]:
            raise InvalidInput(
                f"a JSON body to {capability} names its model itself; expected no query", field="query"
            )
        read = await call.parsed(parse)
        read.check_sizes(*limits)
        if read.model is not None and model not in (None, read.model):
            raise InvalidInput("the body and the query name different models; expected one", field="model")
        model = model if read.model is None else read.model
        return read, await call.services.runtime.version_for(model, capability, call.grants.usable)
    version = await call.services.runtime.version_for(model, capability, call.grants.usable)
    if call.kind == NPZ:
        arrays = partial(parse_npz, names=names, max_bytes=settings.max_body_bytes)
    else:
        shape = query.model_dump(include={"dtype", "n_left", "pairs"})
        arrays = partial(parse_octets, names=names, dim=query.dim or version.n_features, **shape)
    read = form(*await call.parsed(arrays))
    read.check_sizes(*limits)
    return read, version


_read_pairs = partial(_read, form=PairRequest, names=PAIR_SIDES, parse=parse_pairs)
_read_points = partial(_read, form=Features, names=("features",), parse=parse_features)


def _cut_of(query: MatchParameters) -> Rate | Decision:
    """At which rate, or by which other cut, a request decides."""
    if query.decision is None:
        if query.fpr is None:
            raise InvalidInput(
                "fpr is missing; expected a rate or, of a model of records, decision=best-f1", field="fpr"
            )
        return Rate(
            query.fpr, query.method, query.confidence, query.simultaneous, query.calibration, query.fnr
        )
    given = sorted(query.model_fields_set & ThreeWayParameters.model_fields.keys())
    if given:
        raise InvalidInput(
            f"{given[0]} is given beside decision={query.decision}, which decides at no rate; expected one of them",
            field=given[0],
        )
    return query.decision


async def _given_scores(call: Call) -> Scored:
    """Scores made elsewhere: no model scores anything, and a calibration must be named."""
    calibration, runtime = call.query.calibration, call.services.runtime
    limit = call.services.settings.max_batch_pairs
    if calibration is None:
        raise InvalidInput(
            "scores need calibration=ID; create a calibration with POST /calibrations", field="calibration"
        )
    scores = await call.parsed(parse_scores)
    check_count(len(scores), "scores", limit)
    model = await runtime.model_of_calibration(calibration)
    return Scored(scores, to_json(model))


def _note(call: Call, decided: Decided, request: PairRequest, version: LoadedVersion) -> None:
    """Count what was decided, hold its rows against those of the calibration, and keep some decisions for reviews,
    where the model's policy says so."""
    resolved, unlike = decided.scored.resolved, decided.unlike
    assert resolved is not None
    # Of subjects too it is the version's own calibration that is watched.
    call.services.runtime.inputs.note(
        version,
        decided.point.inputs,
        [] if resolved.counts is not None else resolved.left,
        None if unlike is None else unlike.flags,
        call.asker,
        n_rows=resolved.n_rows,
    )
    policy = call.services.runtime.review_policy(version.entry.name)
    if policy is None:
        return
    call.services.recorder.record(
        Deciding(*version.key),
        policy,
        [int((decided.codes == code).sum()) for code in DecisionCode],
        lambda: decided.codes,
        decided.scored.scores,
        float(decided.point.threshold),
        sides=request.as_sent,
        refs=request.refs,
    )


def _response(answer: Answer) -> Response:
    if answer.raw:
        return Response(answer.body, media_type=OCTETS, headers=answer.headers)
    return JsonAnswer(answer.body)


ranking = APIRouter(tags=["ranking"], route_class=PlainRoute)


_EMBEDDED, _CLASSIFIED, _RANKED = (POINTS.labels(path) for path in ("/embed", "/classify", "/rank-labels"))


@router.post("/embed", summary="Embed points", response_model=VectorsOut, responses=content(OCTETS))
@needs(
    "score",
    limits=VECTORS,
    reading=True,
    query=PointsParameters,
    body=FeaturesBody,
    bodies=BINARY_BODIES,
    raw=True,
)
async def embed(call: Call) -> Response:
    """Map points to the vectors that the model compares.

    Bulk bodies: `application/octet-stream` is little-endian float32, row-major; `application/x-npz` contains one array
    `features`. With `Accept: application/octet-stream` the answer is raw float32 too, its width in
    `X-Pairmark-Dimension`.
    """
    features, version = await _read_points(call, "embed")
    answer = await call.work.run(math.inf, lambda: _embedded_answer(call, version, features))
    _EMBEDDED.inc(len(features))
    return answer


@router.post("/classify", summary="Classify points", response_model=ClassesOut)
@needs(
    "score",
    limits=VECTORS,
    reading=True,
    query=PointsParameters,
    body=FeaturesBody,
    bodies=BINARY_BODIES,
)
async def classify(call: Call) -> Response:
    """The most probable label of each point, named as the training dataset names it, and all probabilities.

    Bulk bodies: `application/octet-stream` is little-endian float32, row-major; `application/x-npz` contains one array
    `features`.
    """
    features, version = await _read_points(call, "classify")
    seconds = version.seconds_a_point * len(features)
    answer = await call.work.run(seconds, lambda: JsonAnswer(classes_json(version, features)))
    _CLASSIFIED.inc(len(features))
    return answer


def _embedded_answer(call: Call, version: LoadedVersion, features: Features) -> Response:
    limit, size = call.services.settings.max_body_bytes, 4 * len(features) * version.n_features
    if size > limit:
        raise TooLarge(
            f"the answer to {len(features)} points would have {size} bytes of float32; at most {limit} bytes are "
            "given at a time",
            limit=limit,
        )
    vectors = embed_points(version, features)
    if call.raw:
        headers = model_header(version.json) | {"x-pairmark-dimension": str(vectors.shape[1])}
        return Response(vectors.tobytes(), media_type=OCTETS, headers=headers)
    rows = b",".join(str(row.tolist()).encode() for row in vectors)
    return JsonAnswer(b'{"model":%b,"vectors":[%b]}' % (version.json, rows))


class RankQuery(QueryModel, RankOptions):
    """A point, and what is asked of it. Instead of `features`, each feature can be given by its name: `x.NAME`."""

    model_config = ConfigDict(extra="allow")

    model: str | None = Field(None, description="the model; optional if only one model ranks labels")
    features: str | None = Field(
        None,
        description="numbers in the model's order, separated by commas; or `x.NAME=number` for each feature",
        examples=["5.1,3.5,1.4,0.2"],
    )


@ranking.get("/rank-labels", summary="Rank labels of one point", response_model=RankingsOut)
@needs("score", query=RankQuery)
async def rank_point(call: Call) -> Response:
    """Rank a model's labels for one point.

    Labels are listed best first, `positions` are 0-based, and a higher score is better. Unknown or missing features are
    refused with 422 and `expected_features`. Instead of `features`, you can give each feature by its name,
    `?x.NAME=5.1`, and each column of a model of records.
    """
    query: RankQuery = call.query
    extra = query.model_extra or {}
    for name in extra:
        if not name.startswith("x."):
            raise InvalidInput(f"{name[:100]!r} is not a query parameter here", field=name[:100])
    by_name = {name.removeprefix("x."): text for name, text in extra.items()}
    return await _rank_points(call, point_of_query(query.model, query.features, by_name, query.top))


@ranking.post("/rank-labels", summary="Rank labels", response_model=RankingsOut)
@needs("score", limits=VECTORS, reading=True, body=RankBody)
async def rank_points(call: Call) -> Response:
    """Rank labels for one or many points."""
    return await _rank_points(call, await call.parsed(parse_points))


async def _rank_points(call: Call, points: Points) -> Response:
    points.check_sizes(call.services.settings.max_batch_pairs)
    version = await call.services.runtime.version_for(points.model, "rank-labels", call.grants.usable)
    names = version.label_names
    assert names is not None
    seconds = version.seconds_a_point * len(points)
    answer = await call.work.run(seconds, lambda: rank(version, names, points))
    _RANKED.inc(len(points))
    return JsonAnswer(answer)
