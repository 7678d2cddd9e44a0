"""Scores, decisions, explanations, embeddings, classes and rankings.

Plain routes, because a framework's handling of one body costs more than scoring a pair. Every request goes the same
way: parse, resolve, score, decide, answer. `RequestWork` decides which of it runs on the event loop.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from pydantic_core import to_json

from pairmark.schemas.scoring import (
    ClassesOut,
    ExplanationOut,
    FeaturesBody,
    MatchesOut,
    MatchParameters,
    NumberType,
    PairsBody,
    PairsParameters,
    RankBody,
    RankingsOut,
    RankOptions,
    ScoresBody,
    ScoresOut,
    SimilarityParameters,
    VectorsOut,
)
from pairmark.service.api.metrics import PAIRS, POINTS
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.api.routing import (
    JSON,
    NPZ,
    OCTETS,
    OCTETS_TYPE,
    VECTORS,
    Answer,
    Call,
    PlainRoute,
    QueryModel,
    content,
    media,
    model_header,
    needs,
)
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.places import RequestWork
from pairmark.service.reviews.repository import Deciding
from pairmark.service.runtime.bodies import (
    Features,
    VectorPairs,
    holds_scores,
    parse_features,
    parse_npz,
    parse_npz_rows,
    parse_octets,
    parse_pairs,
    parse_rows,
    parse_scores,
)
from pairmark.service.runtime.inputs import UnlikePairs
from pairmark.service.runtime.patterns import ComparedPairs
from pairmark.service.runtime.points import ServedPoint, plain, without_threshold
from pairmark.service.runtime.ranking import (
    Points,
    classes_json,
    classified,
    parse_points,
    points_by_text,
    rank,
)
from pairmark.service.runtime.versions import LoadedVersion, embedded
from pairmark.service.store.calibrations import SubjectClass
from pairmark.service.tables import DECISIONS, DecisionCode

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
    compared: ComparedPairs | None = None
    """Pairs of records of which some lack columns."""
    subjects: SubjectClass | None = None
    """The class of subjects that a decision is about; None for plain vectors."""
    aggregation: str | None = None
    """How subjects were compared; None for plain vectors."""

    def codes(self, point: ServedPoint, *, raw: bool = False) -> Any:
        """What was decided of each pair, an array; see `ServedPoint.decided`."""
        odd = self.unlike or self.compared
        thresholds = None if self.compared is None else self.compared.thresholds
        return point.decided(self.scores, None if odd is None else odd.codes, thresholds, raw=raw)


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
        scored.compared = await call.services.runtime.compared(
            scored.version, point, scored.pairs, call.asker
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
    return ScoredPairs(scores, to_json(model))


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
    unlike, compared = UnlikePairs.of(point.inputs, scored.pairs), scored.compared
    scored.unlike = unlike
    if raw:
        codes = scored.codes(point, raw=True).tobytes()
        return codes.count(1), (codes, OCTETS, _point_headers(scored.model_json, point, with_scores))
    scores: list[float] = scored.scores.tolist()
    odd, warnings = unlike or compared, point.warnings
    decided = point.match_list(scores) if odd is None else (scored.codes(point) == 1).tolist()
    if point.lower is not None or not with_scores or odd is not None:
        entries: list[dict[str, Any]] = [
            {"score": score, "match": match} if with_scores else {"match": match}
            for score, match in zip(scores, decided, strict=True)
        ]
        if point.lower is not None:
            for entry, code in zip(entries, scored.codes(point).tolist(), strict=True):
                entry["decision"] = DECISIONS[code]
        if unlike is not None:
            for pair in unlike.places:
                entries[pair] |= unlike.told(pair)
        if compared is not None:
            assert scored.version is not None
            columns = scored.version.columns
            warnings += compared.warnings(columns)
            for pair in compared.places:
                entries[pair] |= compared.told(pair, columns, with_scores=with_scores)
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
        b',"warnings":%b' % to_json(warnings) if warnings else b"",
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


ranking = APIRouter(tags=["ranking"], route_class=PlainRoute)


LABELS_IN_A_HEADER: Final = 4_096
"""Bytes; with more of them probabilities are given as JSON only."""
_EMBEDDED, _CLASSIFIED, _RANKED = (POINTS.labels(path) for path in ("/embed", "/classify", "/rank-labels"))


class PointsQuery(QueryModel):
    """Which model is asked, and the width of a binary body."""

    model: str | None = Field(None, description="the model; in JSON, name it in the body instead")
    dim: int | None = Field(
        None, ge=1, le=2**31 - 1, description="octet-stream: length of a vector; default: the model's"
    )
    dtype: NumberType = Field("float32", description="octet-stream: type of the numbers, little-endian")


@router.post("/embed", summary="Embed points", response_model=VectorsOut, responses=content(OCTETS_TYPE))
@needs(
    "score",
    limits=VECTORS,
    query=PointsQuery,
    body=FeaturesBody,
    bodies=BINARY_BODIES,
)
async def embed(call: Call) -> Answer:
    """Map points to the vectors that the model compares.

    Bulk bodies: `application/octet-stream` is little-endian float32, row-major; `application/x-npz` contains one array
    `features`. With `Accept: application/octet-stream` the answer is raw float32 too, its width in
    `X-Pairmark-Dimension`.
    """
    features, answer = await _answered(call, "embed", lambda model, features: math.inf, _embedded_answer)
    _EMBEDDED.inc(len(features))
    return answer


@router.post(
    "/classify", summary="Classify points", response_model=ClassesOut, responses=content(OCTETS_TYPE)
)
@needs(
    "score",
    limits=VECTORS,
    query=PointsQuery,
    body=FeaturesBody,
    bodies=BINARY_BODIES,
)
async def classify(call: Call) -> Answer:
    """The most probable label of each point, named as the training dataset names it, and all probabilities.

    Bulk bodies: `application/octet-stream` is little-endian float32, row-major; `application/x-npz` contains one array
    `features`. With `Accept: application/octet-stream` the answer is raw float32 too, its width in
    `X-Pairmark-Dimension`, one column per label, their names in `X-Pairmark-Labels` (406 when they do not fit).
    """
    features, answer = await _answered(
        call, "classify", lambda model, features: model.seconds_a_point * len(features), _classified_answer
    )
    _CLASSIFIED.inc(len(features))
    return answer


async def _answered(
    call: Call,
    capability: str,
    seconds: Callable[[LoadedVersion, Features], float],
    answer: Callable[[Call, LoadedVersion, Features, bool], Answer],
) -> tuple[Features, Answer]:
    kind, raw = media(call)
    body = await call.read_body()
    with call.services.runtime.request_work() as request_work:
        features, version = await _read_points(call, request_work, capability, kind, body)
        _check_number(call, len(features))
        reply = await request_work.run(
            seconds(version, features), lambda: answer(call, version, features, raw)
        )
    return features, reply


async def _read_points(
    call: Call, request_work: RequestWork, capability: str, kind: bytes, body: bytes | bytearray
) -> tuple[Features, LoadedVersion]:
    """The points of a body, and the version that they are for."""
    runtime, query = call.services.runtime, call.query
    reading = len(body) / BYTES_A_SECOND[kind]
    if kind == JSON:
        if call.scope["query_string"]:
            raise InvalidInput(
                f"a JSON body to {capability} names its model itself; expected no query", field="query"
            )
        features = await request_work.run(reading, lambda: parse_features(body))
        return features, await runtime.version_for(features.model, capability, call.models)
    version = await runtime.version_for(query.model, capability, call.models)
    if kind == OCTETS:
        width = query.dim or version.n_features
        return await request_work.run(
            reading, lambda: parse_rows(body, dim=width, dtype=query.dtype)
        ), version
    limit = call.services.settings.max_body_bytes
    return await request_work.run(reading, lambda: parse_npz_rows(body, max_bytes=limit)), version


def _embedded_answer(call: Call, version: LoadedVersion, features: Features, raw: bool) -> Answer:
    size, limit = 4 * len(features) * version.n_features, call.services.settings.max_body_bytes
    if size > limit:
        raise TooLarge(
            f"the answer to {len(features)} points would have {size} bytes of float32; at most {limit} bytes are "
            "given at a time",
            limit=limit,
        )
    vectors = embedded(version, features)
    if raw:
        shape = (b"x-pairmark-dimension", b"%d" % vectors.shape[1])
        return vectors.tobytes(), OCTETS, (model_header(version.json), shape)
    rows = b",".join(str(row.tolist()).encode() for row in vectors)
    return b'{"model":%b,"vectors":[%b]}' % (version.json, rows), JSON, ()


def _classified_answer(call: Call, version: LoadedVersion, features: Features, raw: bool) -> Answer:
    if not raw:
        return classes_json(version, features), JSON, ()
    # A header holds ASCII; the standard library escapes other letters.
    names = json.dumps(version.class_names).encode()
    if len(names) > LABELS_IN_A_HEADER:
        raise NotAcceptable(
            f"the names of the {len(version.class_names or ())} labels do not fit a header: ask for application/json"
        )
    _, probabilities = classified(version, features)
    headers = (
        model_header(version.json),
        (b"x-pairmark-dimension", b"%d" % probabilities.shape[1]),
        (b"x-pairmark-labels", names),
    )
    return probabilities.tobytes(), OCTETS, headers


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
async def rank_point(call: Call) -> Answer:
    """Rank a model's labels for one point.

    Labels are listed best first, `positions` are 0-based, and a higher score is better. Unknown or missing features are
    refused with 422 and `expected_features`. Instead of `features`, you can give each feature by its name:
    `?x.NAME=5.1`.
    """
    _check_media(call)
    query: RankQuery = call.query
    extra = query.model_extra or {}
    for name in extra:
        if not name.startswith("x."):
            raise InvalidInput(f"{name[:100]!r} is not a query parameter here", field=name[:100])
    values = {name.removeprefix("x."): text for name, text in extra.items()}
    rows = points_by_text(query.features, values)
    points = Points(query.model, rows, True, query.top)
    with call.services.runtime.request_work() as request_work:
        return await _ranked(call, request_work, points)


@ranking.post("/rank-labels", summary="Rank labels", response_model=RankingsOut)
@needs("score", limits=VECTORS, body=RankBody)
async def rank_points(call: Call) -> Answer:
    """Rank labels for one or many points."""
    if _check_media(call) != JSON:
        raise UnsupportedMediaType("rankings are asked for with Content-Type: application/json")
    body = await call.read_body()
    with call.services.runtime.request_work() as request_work:
        points = await request_work.run(len(body) / BYTES_A_SECOND[JSON], lambda: parse_points(body))
        return await _ranked(call, request_work, points)


async def _ranked(call: Call, request_work: RequestWork, points: Points) -> Answer:
    _check_number(call, len(points))
    version = await call.services.runtime.version_for(points.model, "rank-labels", call.models)
    names = version.label_names
    assert names is not None
    seconds = version.seconds_a_point * len(points)
    answer = await request_work.run(seconds, lambda: rank(version, names, points))
    _RANKED.inc(len(points))
    return answer, JSON, ()


def _check_media(call: Call) -> bytes:
    kind, raw = media(call)
    if raw:
        raise NotAcceptable("rankings are given as application/json")
    return kind


def _check_number(call: Call, n: int) -> None:
    limit = call.services.settings.max_batch_pairs
    if n > limit:
        raise TooLarge(f"the request has {n} points; at most {limit} are taken at a time", limit=limit)
