"""Learners: what can be trained, and with which parameters."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.registry import LEARNERS
from pairmark.schemas.models import LearnerOut, LearnerPage
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.errors import UnknownLearner

router = APIRouter(tags=["learners"], route_class=GuardedRoute)


@cache
def _listed() -> dict[str, LearnerOut]:
    return {spec.kind: learner_out(spec) for spec in LEARNERS}


def learner_out(spec: LearnerSpec) -> LearnerOut:
    """A learner with the JSON Schema of its parameters."""
    return LearnerOut(
        kind=spec.kind,
        title=spec.title,
        capabilities=sorted(spec.capabilities),
        needs=spec.needs,
        accepts_sparse=spec.accepts_sparse,
        takes_unlabelled=spec.takes_unlabelled,
        ignores_unknown=spec.ignores_unknown,
        params=spec.params.model_json_schema(),
    )


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
