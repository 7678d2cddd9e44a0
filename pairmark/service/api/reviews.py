"""Reviews of decisions, and outcomes from elsewhere."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from pairmark.schemas.base import PRINTABLE, Page, QueryModel, RefPair
from pairmark.schemas.datasets import DatasetOut
from pairmark.schemas.reviews import (
    MAX_HANDED,
    MAX_JUDGED,
    MAX_LISTED,
    MAX_OUTCOMES,
    ElsewhereOut,
    ElsewhereRequest,
    ItemsToJudge,
    JudgedDatasetRequest,
    OutcomesDatasetRequest,
    OutcomesRequest,
    RefsErased,
    RefsErasure,
    ReviewOptions,
    ReviewOut,
    ReviewRequest,
    ReviewSource,
    ReviewWindow,
)
from pairmark.service.api.access import BULK, TABLE
from pairmark.service.api.routing import JSON, Call, GuardedRoute, Paging, PlainRoute, needs
from pairmark.service.api.services import Caller, InServices, Services, check_may, may, names_of
from pairmark.service.datasets.lists import TableForm
from pairmark.service.errors import Forbidden, InvalidInput, TooLarge, UnknownGallery
from pairmark.service.names import check_prefix
from pairmark.service.reviews.reviews import unknown_review
from pairmark.service.scoring.requests import list_of, parse_lists, read_scores

router = APIRouter(tags=["reviews"], route_class=GuardedRoute)
lists = APIRouter(tags=["reviews"], route_class=PlainRoute)


ReviewId = Annotated[str, Path(max_length=32, description="the review's id")]


class NextQuery(QueryModel):
    """How many pairs, and for whom."""

    n: int = Field(1, ge=1, le=MAX_HANDED, description="largest number of pairs in the answer")
    by: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        pattern=PRINTABLE,
        description="the reviewer; default: the key. Send the same `by` with the outcomes",
    )


def _check_may_review(http: Request, model: str | None) -> None:
    """Refuse a key that may not train the model a review is about; a list that names none takes the right to all."""
    if model is not None:
        check_may(http, "train", model)
    elif not may(http, "train", "*", level="all"):
        raise Forbidden("a review of a list takes a key that may train every model", scope="train")


async def _visible(http: Request, services: Services, review_id: str) -> ReviewOut:
    review = await asyncio.to_thread(services.reviews.get, review_id)
    if review.model is not None and review.model not in names_of(http).visible:
        raise unknown_review(review_id)
    _check_may_review(http, review.model)
    return review


_LISTS = {
    "refs": list_of(RefPair, of_lists=True),
    "scores": lambda text, name: read_scores(text, name).tolist(),
    "matches": list_of(bool),
}


def _source(text: bytes, name: str) -> ReviewSource:
    source = parse_lists(ReviewSource, text, _LISTS, ReviewWindow, f"{name}.")
    if source.refs is not None and len(source.refs) > MAX_LISTED:
        raise TooLarge(
            f"{name}.refs has {len(source.refs)} pairs; at most {MAX_LISTED} are taken", limit=MAX_LISTED
        )
    try:
        return source.checked()
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}", field=name) from None


@lists.post("/reviews", status_code=201, response_model=ReviewOut)
@needs(
    "train",
    limits=TABLE,
    body=ReviewRequest,
    table=TableForm(
        columns={"left": "left", "right": "right", "score": "scores", "match": "matches"},
        optional=("score", "match"),
        parent="source",
        most=MAX_LISTED,
    ),
)
async def create_review(call: Call) -> Response:
    """Ask how many decisions of a window, a gallery or a list are wrong, to be answered by judging a few.

    A random sample of the population is drawn now, and handed out pair by pair. `bound` holds for the whole
    population, whatever the model, the people and the dependence among pairs, and at every look: stop when it is low
    enough. It is about these decisions, as reviewers judge them, and about no others.

    A list made elsewhere, of at most 200,000 pairs, can be a CSV or Parquet file in a form, in place of `source`.
    """
    reviews = call.services.reviews
    request = await call.parsed(
        lambda body: parse_lists(ReviewRequest, body, {"source": _source}, ReviewOptions)
    )
    if request.source.gallery is not None:
        check_prefix(request.source.gallery, call.grants.visible, UnknownGallery)
    model = await asyncio.to_thread(reviews.model_of, request)
    _check_may_review(call, model)
    review = await asyncio.to_thread(reviews.create, request)
    headers = {"Location": f"/reviews/{review.id}"}
    return Response(review.model_dump_json(), 201, headers, media_type=JSON)


@router.get("/reviews")
@needs("train")
def list_reviews(http: Request, services: InServices, query: Paging) -> Page[ReviewOut]:
    """Reviews of models that the key may train, newest first."""
    return services.reviews.page(query.limit, query.cursor, names_of(http).resources("train"))


@router.get("/reviews/{review_id}")
@needs("train")
async def get_review(http: Request, services: InServices, review_id: ReviewId) -> ReviewOut:
    """A review and what its judgements show so far."""
    return await _visible(http, services, review_id)


@router.get("/reviews/{review_id}/next", summary="Take pairs to judge")
@needs("train")
async def next_of_review(
    http: Request,
    services: InServices,
    caller: Caller,
    response: Response,
    review_id: ReviewId,
    query: Annotated[NextQuery, Query()],
) -> ItemsToJudge:
    """Pairs to judge. They are this reviewer's for ten minutes; asked again, the answer begins with the same ones.

    What a reviewer leaves goes to the next one who asks.
    """
    await _visible(http, services, review_id)
    response.headers["Cache-Control"] = "no-store"
    return await asyncio.to_thread(services.reviews.next, review_id, query.by or caller, query.n)


@router.post("/reviews/{review_id}/outcomes", summary="Judge pairs")
@needs(
    "train",
    limits=TABLE,
    body=OutcomesRequest,
    table=TableForm(
        columns={name: name for name in ("item", "same", "by")},
        optional=("by",),
        objects="outcomes",
        most=MAX_JUDGED,
    ),
)
async def judge(
    http: Request, services: InServices, caller: Caller, review_id: ReviewId, request: OutcomesRequest
) -> ReviewOut:
    """Say of pairs whether they are the same; `null` (cannot tell; an empty cell of a file) counts as wrong.

    A second judgement by the same reviewer replaces the first. Judgements count in the order in which pairs were
    drawn, so one waits (`waiting`) while an earlier pair is still with somebody.
    """
    await _visible(http, services, review_id)
    return await asyncio.to_thread(services.reviews.judge, review_id, request.outcomes, caller)


@router.delete("/reviews/{review_id}", status_code=204)
@needs("train")
async def delete_review(http: Request, services: InServices, review_id: ReviewId) -> None:
    """Delete a review with its pairs and judgements."""
    await _visible(http, services, review_id)
    await asyncio.to_thread(services.reviews.delete, review_id)


@router.post("/reviews/{review_id}/dataset", status_code=201, summary="Make a dataset of judged pairs")
@needs("train")
async def dataset_of_review(
    http: Request, services: InServices, review_id: ReviewId, request: JudgedDatasetRequest
) -> DatasetOut:
    """Make a dataset of the judged pairs whose sides are kept; what nobody could tell is left out."""
    await _visible(http, services, review_id)
    check_may(http, "train", request.name)
    return await asyncio.to_thread(services.judged_pairs.of_review, review_id, request)


@router.post("/outcomes/dataset", status_code=201, summary="Make a dataset of outcomes")
@needs("train", limits=BULK)
async def dataset_of_outcomes(
    http: Request, services: InServices, request: OutcomesDatasetRequest
) -> DatasetOut:
    """Make a dataset of outcomes from elsewhere, of pairs whose sides are kept under the same refs.

    It may train. Nobody drew its pairs at random, so calibrations refuse it.
    """
    _check_may_review(http, request.model)
    check_may(http, "train", request.name)
    return await asyncio.to_thread(services.judged_pairs.of_outcomes, request)


@router.post("/reviews/erase", summary="Erase refs")
@needs("train")
async def erase_refs(http: Request, services: InServices, request: RefsErasure) -> RefsErased:
    """Erase names, sides and subjects of kept decisions, reviews and outcomes that carry one of these names.

    The decisions stay counted: erased ones cannot be judged, and count as wrong if they are drawn.
    """
    _check_may_review(http, request.model)
    return await asyncio.to_thread(services.reviews.erase, request.model, request.refs)


@router.post("/outcomes", summary="Add outcomes from elsewhere")
@needs(
    "train",
    limits=TABLE,
    body=ElsewhereRequest,
    table=TableForm(
        columns={name: name for name in ("left", "right", "same")}, objects="outcomes", most=MAX_OUTCOMES
    ),
)
async def add_outcomes(
    http: Request, services: InServices, caller: Caller, request: ElsewhereRequest
) -> ElsewhereOut:
    """Tell what became of pairs: complaints, charge-backs, corrections. They are kept and counted in metrics.

    Nobody drew them at random, so they never bound anything.
    """
    _check_may_review(http, request.model)
    return await asyncio.to_thread(services.reviews.report_outcomes, request, caller)
