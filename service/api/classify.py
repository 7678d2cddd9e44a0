"""`/classify`: the label of a point. Called by the edge itself, as the scoring routes are."""

from __future__ import annotations

import json
from typing import Final

from pydantic import BaseModel, Field
from starlette.types import Receive, Scope

from pairmark.service.api.embed import read_points
from pairmark.service.api.hot import (
    JSON,
    OCTETS,
    SMALL_BATCH,
    SMALL_BODY,
    Answer,
    _media,
    _model_header,
    read_body,
)
from pairmark.service.api.metrics import POINTS
from pairmark.service.api.problems import NotAcceptable
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.classifying import classes_json, classified
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.scoring import Served
from pairmark.service.runtime.vectors import Features, parse_features
from pairmark.service.settings import Settings

CAPABILITY: Final = "classify"
ON_THE_LOOP_S: Final = 0.002
"""Longest a request may hold the event loop; a thread costs more than work below it."""
LABELS_IN_A_HEADER: Final = 4_096
"""Bytes; with more of them probabilities are given as JSON only."""


class ModelClassified(BaseModel):
    """The version that classified."""

    name: str
    version: int
    kind: str


class ClassesOut(BaseModel):
    """Labels, one a point, in order."""

    model: ModelClassified
    labels: list[str] = Field(description="the most probable label of each point, as the dataset names it")
    probabilities: list[dict[str, float]] = Field(description="of every label, for each point; they sum to 1")


class ClassifyRoute:
    """The endpoint on one runtime."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._points = POINTS.labels("/classify")

    async def classify(self, scope: Scope, receive: Receive) -> Answer:
        """POST /classify."""
        kind, raw = _media(scope)
        query = scope["query_string"]
        body = await read_body(scope, receive, self._settings.max_body_bytes)
        if kind == JSON and len(body) <= SMALL_BODY:
            if query:
                raise InvalidInput(
                    "a JSON body to classify names its model itself; expected no query", field="query"
                )
            features = parse_features(body)
            self._check_size(features)
            served = await self._runtime.version_for(features.model, CAPABILITY)
            if len(features) <= SMALL_BATCH and served.seconds_a_point * len(features) <= ON_THE_LOOP_S:
                return self._counted(_answer(served, features, raw), features)
            async with self._runtime.batch_place() as place:
                return self._counted(await place.run(lambda: _answer(served, features, raw)), features)
        async with self._runtime.batch_place() as place:
            features, served = await read_points(
                self._runtime, self._settings, place, CAPABILITY, kind, query, body
            )
            self._check_size(features)
            answer = await place.run(lambda: _answer(served, features, raw))
        return self._counted(answer, features)

    def _check_size(self, features: Features) -> None:
        limit = self._settings.max_batch_pairs
        if len(features) > limit:
            raise TooLarge(
                f"the request has {len(features)} points; at most {limit} are taken at a time", limit=limit
            )

    def _counted(self, answer: Answer, features: Features) -> Answer:
        self._points.inc(len(features))
        return answer


def _answer(served: Served, features: Features, raw: bool) -> Answer:
    if not raw:
        return classes_json(served, features), JSON, ()
    # A header holds ASCII; the standard library escapes other letters.
    names = json.dumps(served.class_names).encode()
    if len(names) > LABELS_IN_A_HEADER:
        raise NotAcceptable(
            f"the names of the {len(served.class_names or ())} labels do not fit a header: ask for application/json"
        )
    _, probabilities = classified(served, features)
    headers = (
        _model_header(served.model_json),
        (b"x-pairmark-dimension", b"%d" % probabilities.shape[1]),
        (b"x-pairmark-labels", names),
    )
    return probabilities.tobytes(), OCTETS, headers
