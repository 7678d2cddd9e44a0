"""`/rank-labels`: labels of a point, best first. Called by the edge itself, as the scoring routes are."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.api.calls import JSON, Answer, Call, media
from pairmark.service.api.metrics import POINTS
from pairmark.service.api.problems import NotAcceptable, UnsupportedMediaType
from pairmark.service.api.query import Query
from pairmark.service.api.scoring import BYTES_A_SECOND
from pairmark.service.errors import TooLarge
from pairmark.service.places import RequestWork
from pairmark.service.runtime.ranking import Points, parse_points, points_by_text, rank
from pairmark.wire.scoring import RankingFields, RankingsFields, RankParameters

DETAIL_COSTS: Final = 3
"""How much longer a ranking takes with its confidences."""
_RANKED = POINTS.labels("/rank-labels")
_PREFIX: Final = "x."


class RankQuery(Query, RankParameters):
    """A point, and what is asked of it. Instead of `features`, each feature can be given by its name: `x.NAME`."""

    model_config = ConfigDict(extra="allow")

    model: str | None = Field(None, description="the model; optional if only one model ranks labels")
    features: str | None = Field(
        None,
        description="numbers in the model's order, separated by commas; or `x.NAME=number` for each feature",
        examples=["5.1,3.5,1.4,0.2"],
    )


class RankingOut(BaseModel, RankingFields, title="Ranking"):
    """The ranking of one point, best label first."""


class RankingsOut(BaseModel, RankingsFields):
    """Rankings, one per point, in order."""


async def rank_point(call: Call) -> Answer:
    """Rank a model's labels for one point.

    Labels are listed best first, `positions` are 0-based, and a higher score is better. `detail` adds the calibrated
    confidence of the ranking and of each pair of labels. `abstain` keeps only preferences with at least that
    confidence; labels without a clear order share a place. Unknown or missing features are refused with 422 and
    `expected_features`. Instead of `features`, you can give each feature by its name: `?x.NAME=5.1`.
    """
    _check_media(call)
    # There is no body to wait for: a slow answer is then not blamed on the client.
    call.scope["pairmark.body_read"] = True
    query: RankQuery = call.query
    values = {name.removeprefix(_PREFIX): text for name, text in (query.model_extra or {}).items()}
    rows = points_by_text(query.features, values)
    points = Points(query.model, rows, True, query.top, query.detail, query.abstain)
    with call.services.runtime.request_work() as request_work:
        return await _ranked(call, request_work, points)


async def rank_points(call: Call) -> Answer:
    """Rank labels for one or many points."""
    if _check_media(call) != JSON:
        raise UnsupportedMediaType("rankings are asked for with Content-Type: application/json")
    body = await call.body()
    with call.services.runtime.request_work() as request_work:
        points = await request_work.run(len(body) / BYTES_A_SECOND[JSON], lambda: parse_points(body))
        return await _ranked(call, request_work, points)


async def _ranked(call: Call, request_work: RequestWork, points: Points) -> Answer:
    n, limit = len(points), call.services.settings.max_batch_pairs
    if n > limit:
        raise TooLarge(f"the request has {n} points; at most {limit} are taken at a time", limit=limit)
    version = await call.services.runtime.version_for(points.model, "rank-labels", call.models)
    names = version.label_names
    assert names is not None
    seconds = version.seconds_a_point * n * (DETAIL_COSTS if points.detail else 1)
    answer = await request_work.run(seconds, lambda: rank(version, names, points))
    _RANKED.inc(n)
    return answer, JSON, ()


def _check_media(call: Call) -> bytes:
    kind, raw = media(call)
    if raw:
        raise NotAcceptable("rankings are given as application/json")
    return kind
