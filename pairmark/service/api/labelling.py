"""Pairs of a stored table's records to label, and the table with the answers."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, StrictBool

from pairmark.service.api.datasets import Ref
from pairmark.service.api.routing import LONG_LISTS, GuardedRoute, needs
from pairmark.service.api.services import InServices, check_may
from pairmark.service.datasets.schemas import DatasetOut
from pairmark.service.runtime.parsing import objects_of, parse_lists

router = APIRouter(tags=["datasets"], route_class=GuardedRoute)


MAX_ANSWERS = 100_000


class AnsweredPair(msgspec.Struct, forbid_unknown_fields=True):
    """`LabelledPairIn` as it is read: of many."""

    left: Annotated[str, Meta(max_length=512)]
    right: Annotated[str, Meta(max_length=512)]
    same: bool | None
    drawn_from: Annotated[int, Meta(ge=0, le=2**53)] = 0


class LabelledPairIn(BaseModel):
    """What was said of a pair."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    left: str = Field(max_length=512, description="id of the left row; without ids its 0-based number")
    right: str = Field(max_length=512)
    same: StrictBool | None = Field(description="null: cannot tell. A drawn pair then counts as different")
    drawn_from: int = Field(0, ge=0, le=2**53, description="as it was proposed; 0: the pair was chosen")


class AnswersBody(BaseModel):
    """All answers so far: the service keeps none."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    answers: list[LabelledPairIn] = Field(
        default_factory=list, max_length=MAX_ANSWERS, description="every pair that was asked, in that order"
    )


class ProposalRequest(AnswersBody):
    """How many pairs to choose, and what the drawn ones are to support."""

    choose: int = Field(200, ge=0, le=MAX_ANSWERS, description="pairs to choose, which train")
    fpr: float = Field(
        0.05, gt=0, lt=1, description="false positive rate that the drawn pairs are to support"
    )
    confidence: float = Field(0.95, gt=0, lt=1)
    n: int = Field(10, ge=1, le=100, description="largest number of pairs in the answer")


class LabelledTableRequest(AnswersBody):
    """The name of the dataset that the table and the answers become."""

    name: str = Field(max_length=200)


class ProposedPair(BaseModel):
    """A pair to label."""

    left: dict[str, Any]
    right: dict[str, Any]
    refs: tuple[str, str] = Field(description="ids of both rows")
    drawn_from: int = Field(description="how many pairs it was drawn from; 0: it was chosen")


class ChosenCount(BaseModel):
    """Chosen pairs."""

    labelled: int = Field(description="pairs that were answered")
    same: int
    wanted: int = Field(description="pairs to choose in all")


class DrawnCount(BaseModel):
    """Drawn pairs."""

    labelled: int = Field(description="pairs that were answered")
    same: int
    different_wanted: int = Field(description="different ones that the rate takes")


class ProposedPairs(BaseModel):
    """Pairs to label, in this order; none: all is asked."""

    items: list[ProposedPair]
    candidates: int = Field(description="pairs of the list that is chosen and drawn from")
    chosen: ChosenCount = Field(description="answers on pairs that were chosen")
    drawn: DrawnCount = Field(description="answers on pairs that were drawn at random")
    stale: int = Field(description="answers that were drawn from another list: they train")


_LISTS = {"answers": objects_of(AnsweredPair, MAX_ANSWERS)}


@router.post("/datasets/{ref:name}/proposals")
@needs(
    "train", limits=LONG_LISTS, decode=partial(parse_lists, ProposalRequest, readers=_LISTS), errors=(429,)
)
async def propose_pairs(services: InServices, ref: Ref, request: ProposalRequest) -> ProposedPairs:
    """Propose which pairs of a table to label next: first those that tell most, then a random draw to calibrate on.

    Send all answers so far each time, in the order in which they were given. `pairmark label` does the same with files.
    """
    proposed = await services.runtime.batch_place.run(
        lambda: services.pair_queue.propose(ref, request.answers, **request.model_dump(exclude={"answers"}))
    )
    return ProposedPairs.model_validate(proposed)


@router.post("/datasets/{ref:name}/pairs", status_code=201)
@needs(
    "train",
    limits=LONG_LISTS,
    decode=partial(parse_lists, LabelledTableRequest, readers=_LISTS),
    errors=(409, 429, 507),
)
async def add_labelled_pairs(
    http: Request, services: InServices, response: Response, ref: Ref, request: LabelledTableRequest
) -> DatasetOut:
    """Store a table, or the two, with the answers as its pairs, as the next version of a name."""
    check_may(http, "train", request.name)
    dataset = await services.runtime.batch_place.run(
        lambda: services.pair_queue.add(ref, request.name, request.answers)
    )
    response.headers["Location"] = f"/datasets/{dataset.name}:{dataset.version}"
    return dataset
