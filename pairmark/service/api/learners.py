"""Learners: what can be trained, and with which parameters."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, field_validator

from pairmark.models.registry import LEARNERS
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.errors import UnknownLearner
from pairmark.wire.models import LearnerFields

router = APIRouter(tags=["learners"], route_class=GuardedRoute)


class LearnerOut(BaseModel, LearnerFields, from_attributes=True):
    """A kind of learner."""

    @field_validator("capabilities", mode="before")
    @classmethod
    def _in_order(cls, capabilities: Any) -> Any:
        return sorted(capabilities)

    @field_validator("params", mode="before")
    @classmethod
    def _as_schema(cls, params: type[BaseModel]) -> dict[str, Any]:
        return params.model_json_schema()


class LearnerPage(BaseModel):
    """Every kind of learner."""

    items: list[LearnerOut]
    next_cursor: None = None


@cache
def _listed() -> dict[str, LearnerOut]:
    return {spec.kind: LearnerOut.model_validate(spec) for spec in LEARNERS}


@router.get("/learners")
@needs("any")
async def list_learners() -> LearnerPage:
    """Every learner, with the JSON Schema of its parameters."""
    return LearnerPage(items=list(_listed().values()))


@router.get("/learners/{kind}")
@needs("any")
async def get_learner(kind: str) -> LearnerOut:
    """One learner, with the JSON Schema of its parameters."""
    listed = _listed()
    if kind not in listed:
        raise UnknownLearner(f"there is no learner {kind[:100]!r}; known: {', '.join(listed)}")
    return listed[kind]
