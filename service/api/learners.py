"""Learners: what can be trained, and with which parameters."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from models.registry import LEARNERS
from service.api.problems import responses
from service.errors import UnknownLearner

router = APIRouter(tags=["learners"])


class LearnerOut(BaseModel):
    """A kind of learner."""

    kind: str
    title: str
    capabilities: list[str] = Field(description="of similarity, match, search, embed, classify, rank-labels")
    needs: str = Field(description="what a dataset must bring: identities or rankings")
    accepts_sparse: bool
    params: dict[str, Any] = Field(description="JSON Schema of `params` in POST /jobs")


class LearnerPage(BaseModel):
    """Every kind of learner."""

    items: list[LearnerOut]
    next_cursor: None = None


_LISTED = {
    spec.kind: LearnerOut(
        kind=spec.kind,
        title=spec.title,
        capabilities=sorted(spec.capabilities),
        needs=spec.needs,
        accepts_sparse=spec.accepts_sparse,
        params=spec.params.model_json_schema(),
    )
    for spec in LEARNERS
}


@router.get("/learners", response_model=LearnerPage)
async def list_learners() -> LearnerPage:
    """Every kind that can be trained, with the JSON Schema of its parameters."""
    return LearnerPage(items=list(_LISTED.values()))


@router.get("/learners/{kind}", response_model=LearnerOut, responses=responses(404))
async def get_learner(kind: str) -> LearnerOut:
    """One kind."""
    if kind not in _LISTED:
        raise UnknownLearner(f"there is no learner {kind[:100]!r}; known: {', '.join(_LISTED)}")
    return _LISTED[kind]
