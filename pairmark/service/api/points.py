"""`/embed`, `/classify` and `/rank-labels`: what a model says of single points. Plain routes, as `scoring.py`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Final

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from pairmark.schemas.scoring import (
    ClassesOut,
    FeaturesBody,
    NumberType,
    RankBody,
    RankingsOut,
    RankOptions,
    VectorsOut,
)
from pairmark.service.api.calls import JSON, OCTETS, Answer, Call, media, model_header
from pairmark.service.api.metrics import POINTS
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.api.query import QueryModel
from pairmark.service.api.routing import OCTETS_TYPE, VECTORS, PlainRoute, content, needs
from pairmark.service.api.scoring import BINARY_BODIES, BYTES_A_SECOND
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.places import RequestWork
from pairmark.service.runtime.binary import parse_npz_rows, parse_rows
from pairmark.service.runtime.parsing import parse_features
from pairmark.service.runtime.ranking import (
    Points,
    classes_json,
    classified,
    parse_points,
    points_by_text,
    rank,
)
from pairmark.service.runtime.vectors import Features
from pairmark.service.runtime.versions import LoadedVersion, embedded

router = APIRouter(tags=["scoring"], route_class=PlainRoute)
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
        features, version = await _read(call, request_work, capability, kind, body)
        _check_number(call, len(features))
        reply = await request_work.run(
            seconds(version, features), lambda: answer(call, version, features, raw)
        )
    return features, reply


async def _read(
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
