"""Learners: what can be trained, and with which parameters."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from pairmark.models.registry import LEARNERS
from pairmark.service.errors import UnknownLearner


def _schema(params: type[BaseModel]) -> dict[str, Any]:
    return params.model_json_schema()


class LearnerOut(BaseModel):
    """A kind of learner."""

    model_config = ConfigDict(from_attributes=True)

    kind: str
    title: str
    capabilities: Annotated[list[str], BeforeValidator(sorted)] = Field(
        description="some of `similarity`, `match`, `search`, `embed`, `classify`, `rank-labels`"
    )
    needs: str = Field(description="what the dataset must contain: identities or rankings")
    accepts_sparse: bool
    takes_unlabelled: bool = Field(description="whether a job may name a dataset in `unlabelled`")
    ignores_unknown: bool = Field(
        description="whether sparse vectors may have columns that training did not have. They are ignored and "
        "counted in `pairmark_unknown_columns_total` at `/metrics`; other kinds refuse them"
    )
    params: Annotated[dict[str, Any], BeforeValidator(_schema)] = Field(
        description="JSON Schema of `params` in POST /jobs"
    )


class LearnerPage(BaseModel):
    """Every kind of learner."""

    items: list[LearnerOut]
    next_cursor: None = None


_LISTED = {spec.kind: LearnerOut.model_validate(spec) for spec in LEARNERS}


async def list_learners() -> LearnerPage:
    """Every learner, with the JSON Schema of its parameters."""
    return LearnerPage(items=list(_LISTED.values()))


async def get_learner(kind: str) -> LearnerOut:
    """One learner, with the JSON Schema of its parameters."""
    if kind not in _LISTED:
        raise UnknownLearner(f"there is no learner {kind[:100]!r}; known: {', '.join(_LISTED)}")
    return _LISTED[kind]
