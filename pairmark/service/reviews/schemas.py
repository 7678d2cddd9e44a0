"""Requests and answers about reviews."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, model_validator

from pairmark.service.pagination import Page
from pairmark.service.runtime.json_forms import JsonRequest, Number, Ref, RefPair, StoredRef
from pairmark.wire.reviews import (
    AgreementFields,
    JudgedPartFields,
    ReviewFields,
    ReviewParameters,
    ReviewSourceParameters,
)

MAX_LISTED = 200_000
"""Most pairs of a list."""
MAX_HANDED = 100
"""Most pairs handed out at a time."""


class ReviewSource(JsonRequest, ReviewSourceParameters):
    """The decisions that are reviewed: those of a model or a gallery in a window, or a list made elsewhere."""

    version: int | None = Field(None, ge=1, le=2**31 - 1, description="only decisions of this version")
    since: datetime | None = Field(None, description="from this hour on; default: all that is kept")
    until: datetime | None = Field(None, description="before this hour; default: until now")
    refs: list[RefPair] | None = Field(
        None, max_length=MAX_LISTED, description="the pairs of a list, as your names of both sides"
    )
    scores: list[Number] | None = Field(
        None, description="with `refs`: their scores, by which draws are shared out"
    )
    matches: list[bool] | None = Field(
        None, description="with `refs`: what was decided; needed for `missed-matches`, default: all match"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.refs is None and (self.model is None) == (self.gallery is None):
            raise ValueError("expected exactly one of model, gallery and refs")
        if self.refs is not None and (self.gallery or self.version or self.since or self.until):
            raise ValueError("refs is a list of its own: leave out gallery, version, since and until")
        for name, value in (("scores", self.scores), ("matches", self.matches)):
            if value is not None and (self.refs is None or len(value) != len(self.refs)):
                raise ValueError(f"{name} has {len(value)} values; expected one for each of refs")
        return self


class ReviewRequest(JsonRequest, ReviewParameters):
    """A question about all decisions of a window, to be answered by judging a few of them."""

    source: ReviewSource


class Agreement(BaseModel, AgreementFields):
    """How often two reviewers of one pair say the same."""


class JudgedPart(BaseModel, JudgedPartFields):
    """What was judged of one part: chosen by looking, so no bound is of it."""


class ReviewOut(BaseModel, ReviewFields):
    """A review and what it has shown so far. `bound` holds at every look."""


class ReviewPage(Page[ReviewOut]):
    """Reviews, newest first."""


class ItemToJudge(BaseModel):
    """A pair to judge."""

    item: str
    left: Any = Field(None, description="as it was sent, if the model's policy keeps sides")
    right: Any = None
    refs: tuple[str | None, str | None]
    score: float | None = None
    decision: Literal["match", "review", "different"] | None = None
    version: int | None = None


class ItemsToJudge(BaseModel):
    """Pairs that are yours for a while. None: everything is drawn or with others."""

    items: list[ItemToJudge]


class Outcome(JsonRequest):
    """What a reviewer says of a pair."""

    item: str = Field(max_length=32)
    same: bool | None = Field(description="null: cannot tell, which counts as wrong")
    by: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = Field(
        None, description="the reviewer, as in `?by=`"
    )


class OutcomesRequest(JsonRequest):
    """Judgements of a review."""

    outcomes: list[Outcome] = Field(min_length=1, max_length=1_000)


class ElsewhereOutcome(JsonRequest):
    """What became of a pair, as learned elsewhere: a complaint, a charge-back."""

    left: Ref
    right: Ref
    same: bool


class ElsewhereRequest(JsonRequest):
    """Outcomes that nobody drew at random: they are kept and counted, and never bound anything."""

    model: str = Field(max_length=100)
    outcomes: list[ElsewhereOutcome] = Field(min_length=1, max_length=10_000)


class ElsewhereOut(BaseModel):
    """What was kept."""

    model: str
    stored: int
    contradicted: int = Field(
        description="how many of them contradict a decision that is kept under these refs"
    )


class RefsErasure(JsonRequest):
    """Names whose decisions are erased."""

    model: str = Field(max_length=100)
    # Those that would be refused today are stored all the same.
    refs: list[StoredRef] = Field(min_length=1, max_length=1_000)


class RefsErased(BaseModel):
    """What was erased."""

    decisions: int
    items: int = Field(
        description="pairs of reviews: they stay in the population, and count as wrong if drawn"
    )
    outcomes: int
