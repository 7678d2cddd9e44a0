"""Pairs of a stored table's records to label, and the table with the answers."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta

from pairmark.schemas.datasets import (
    MAX_ANSWERS,
    DatasetOut,
    LabelledTableRequest,
    ProposalRequest,
    ProposedPairs,
)
from pairmark.service.api.datasets import Ref
from pairmark.service.api.routing import LONG_LISTS, GuardedRoute, needs
from pairmark.service.api.services import InServices, check_may
from pairmark.service.runtime.parsing import objects_of, parse_lists

router = APIRouter(tags=["datasets"], route_class=GuardedRoute)


class AnsweredPair(msgspec.Struct, forbid_unknown_fields=True):
    """`LabelledPairIn` as it is read: of many."""

    left: Annotated[str, Meta(max_length=512)]
    right: Annotated[str, Meta(max_length=512)]
    same: bool | None
    drawn_from: Annotated[int, Meta(ge=0, le=2**53)] = 0


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
