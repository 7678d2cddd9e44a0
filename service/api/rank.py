"""`/rank-labels`: labels of a point, best first. Called by the edge itself, as the scoring routes are."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field
from starlette.types import Receive, Scope

from pairmark.service.api.hot import JSON, SMALL_BATCH, SMALL_BODY, Answer, _media, read_body
from pairmark.service.api.metrics import POINTS
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.ranking import Points, parse_points, parse_query, rank
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.scoring import Served
from pairmark.service.settings import Settings

CAPABILITY: Final = "rank-labels"
ON_THE_LOOP_S: Final = 0.002
"""Longest a request may hold the event loop; a thread costs more than work below it."""


class ModelRanked(BaseModel):
    """The version that ranked."""

    name: str
    version: int
    kind: str


class Ranking(BaseModel):
    """Labels of one point, best first."""

    labels: list[str]
    positions: dict[str, float] = Field(
        description="0-based places; with `abstain`, labels that are not told apart share the middle of theirs"
    )
    scores: dict[str, float] = Field(description="higher is better")
    confidence: float | None = Field(
        None, description="with `detail`: expected share of pairs of labels in the right order"
    )
    pairwise: dict[str, dict[str, float]] | None = Field(
        None, description="with `detail`: chance that the outer label goes before the inner one"
    )


class RankingsOut(BaseModel):
    """Rankings, one a point, in order."""

    model: ModelRanked
    rankings: list[Ranking]


class RankRoute:
    """The endpoint on one runtime."""

    def __init__(self, runtime: Runtime, settings: Settings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._points = POINTS.labels("/rank-labels")

    async def rank(self, scope: Scope, receive: Receive) -> Answer:
        """GET or POST /rank-labels."""
        kind, raw = _media(scope)
        if raw:
            raise NotAcceptable("rankings are given as application/json")
        if scope["method"] in ("GET", "HEAD"):
            # There is none to wait for: a slow answer is then not blamed on the client.
            scope["pairmark.body_read"] = True
            points = parse_query(scope["query_string"])
        else:
            if kind != JSON:
                raise UnsupportedMediaType("rankings are asked for with Content-Type: application/json")
            if scope["query_string"]:
                raise InvalidInput(
                    "POST /rank-labels takes model, features, top, detail and abstain in its body; expected no query",
                    field="query",
                )
            body = await read_body(scope, receive, self._settings.max_body_bytes)
            if len(body) > SMALL_BODY:
                async with self._runtime.batch_place() as place:
                    points = await place.run(lambda: parse_points(body))
                    served = await self._served(points)
                    answer = await place.run(lambda: self._answer(served, points))
                return self._counted(answer, points)
            points = parse_points(body)
        served = await self._served(points)
        if len(points) > SMALL_BATCH:
            async with self._runtime.batch_place() as place:
                answer = await place.run(lambda: self._answer(served, points))
        elif served.seconds_a_point * len(points) * (3 if points.detail else 1) > ON_THE_LOOP_S:
            answer = await self._runtime.in_thread(lambda: self._answer(served, points))
        else:
            answer = self._answer(served, points)
        return self._counted(answer, points)

    async def _served(self, points: Points) -> Served:
        limit = self._settings.max_batch_pairs
        if len(points) > limit:
            raise TooLarge(
                f"the request has {len(points)} points; at most {limit} are taken at a time", limit=limit
            )
        return await self._runtime.version_for(points.model, CAPABILITY)

    def _answer(self, served: Served, points: Points) -> bytes:
        names = served.label_names
        assert names is not None
        return rank(served, names, points)

    def _counted(self, answer: bytes, points: Points) -> Answer:
        self._points.inc(len(points))
        return answer, JSON, ()
