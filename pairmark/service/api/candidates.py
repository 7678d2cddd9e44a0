"""Candidate pairs of a stored table, scored and decided among their rivals."""

from __future__ import annotations

import asyncio
from functools import partial

from fastapi import APIRouter, Request

from pairmark.schemas.scoring import (
    CandidateScoresOut,
    CandidatesOptions,
    CandidatesRequest,
)
from pairmark.service.api.models import Name, Number
from pairmark.service.api.routing import LONG_LISTS, GuardedRoute, needs
from pairmark.service.api.services import InServices, check_may
from pairmark.service.errors import InvalidInput, UnknownDataset
from pairmark.service.runtime.parsing import objects_of, parse_lists
from pairmark.service.store.calibrations import CANDIDATES
from pairmark.service.store.refs import name_of

router = APIRouter(tags=["models"], route_class=GuardedRoute)


_LISTS = {"pairs": objects_of(tuple[str, str], 1_000_000)}


@router.post("/models/{name:name}/versions/{version}/candidates", summary="Score candidate pairs")
@needs(
    "train",
    limits=LONG_LISTS,
    decode=partial(parse_lists, CandidatesRequest, readers=_LISTS, options=CandidatesOptions),
    errors=(409, 429),
)
async def score_candidates(
    http: Request, services: InServices, name: Name, version: Number, request: CandidatesRequest
) -> CandidateScoresOut:
    """Score candidate pairs of a stored table, or of two, each among its rivals: the other pairs that either record
    could be in.

    Scores depend on the tables, not on which pairs are sent. `fpr` decides by the pairs of the version's own dataset
    that were drawn at random from one list (`drawn_from`); the guarantee is about that list. A pair that stands alone
    is scored by `/similarity` and decided by `/match`.
    """
    runtime = services.runtime
    check_may(http, "train", name_of(request.dataset), unknown=UnknownDataset)
    loaded = await runtime.version(name, version)
    scores, dataset_id = await runtime.batch_place.run(
        lambda: services.store.candidates.score(
            name, version, request.dataset, request.pairs, loaded.estimator
        )
    )
    answer = {"model": loaded.public, "scores": scores.tolist()}
    if request.fpr is None:
        return CandidateScoresOut.model_validate(answer)
    point = await runtime.operating_point(
        loaded, request.fpr, request.confidence, "auto", None, subjects=CANDIDATES
    )
    calibration_id = point.public["calibration_id"]
    if not await asyncio.to_thread(services.store.candidates.is_calibrated_on, calibration_id, dataset_id):
        raise InvalidInput(
            f"the version is calibrated on pairs of another dataset than {request.dataset}, and scores depend on the "
            "tables: leave fpr out, or train on this dataset",
            field="dataset",
        )
    matches = point.match_list(answer["scores"])
    return CandidateScoresOut.model_validate(
        {
            **answer,
            "matches": [
                {"score": score, "match": match}
                for score, match in zip(answer["scores"], matches, strict=True)
            ],
            "operating_point": point.public,
        }
    )
