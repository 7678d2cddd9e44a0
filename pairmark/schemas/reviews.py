"""Reviews of decisions, and outcomes from elsewhere."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    model_validator,
)

from pairmark.schemas.base import PRINTABLE, Answer, Moment, Number, Ref, RefPair, Request, StoredRef

Question = Literal["false-matches", "missed-matches", "label", "recall"]
MAX_LISTED = 200_000
"""Most pairs of a list, in JSON or in a file."""
MAX_HANDED = 100
"""Most pairs handed out at a time."""
MAX_JUDGED, MAX_OUTCOMES = 1_000, 10_000
"""Most judgements of a review, and most outcomes from elsewhere, in one request."""


class ReviewWindow(Request):
    """Decisions of a model or a gallery in a window."""

    model: str | None = Field(
        None, max_length=100, description="decisions of this model; with `refs`, the model they are about"
    )
    gallery: str | None = Field(
        None, max_length=200, description="matches that searches of this gallery returned"
    )
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="only decisions of this version")
    since: datetime | None = Field(None, description="from this hour on; default: all that is kept")
    until: datetime | None = Field(None, description="before this hour; default: until now")


class ReviewSource(ReviewWindow):
    """The decisions that are reviewed: those of a model or a gallery in a window, or a list made elsewhere."""

    refs: list[RefPair] | None = Field(
        None, max_length=MAX_LISTED, description="the pairs of a list, as your names of both sides"
    )
    scores: list[Number] | None = Field(None, description="with `refs`: their scores, shown beside the pairs")
    matches: list[bool] | None = Field(
        None, description="with `refs`: what was decided; needed for `missed-matches`, default: all match"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        return self.checked()

    def checked(self) -> Self:
        """The source; `ValueError` where it is none, or more than one."""
        if self.refs is None and (self.model is None) == (self.gallery is None):
            raise ValueError("expected exactly one of model, gallery and refs")
        if self.refs is not None and (self.gallery or self.version or self.since or self.until):
            raise ValueError("refs is a list of its own: leave out gallery, version, since and until")
        for at, (left, right) in enumerate(self.refs or []):
            if left == right:
                raise ValueError(f"refs[{at}] pairs {left!r} with itself; expected two sides")
        for name, value in (("scores", self.scores), ("matches", self.matches)):
            if value is not None and (self.refs is None or len(value) != len(self.refs)):
                raise ValueError(f"{name} has {len(value)} values; expected one for each of refs")
        return self


class ReviewOptions(Request):
    """What is asked about decisions."""

    name: str = Field("", max_length=200, description="its name")
    question: Question = Field(
        "false-matches",
        description="`false-matches`: the share of matches that are not the same; `missed-matches`: the share of same "
        "pairs that were decided to be different; `label`: nothing, the pairs are to be labeled: no bound, no alarm; "
        "`recall`: of records drawn at random, the share of their partners that no link has. Link jobs alone ask it",
        examples=["false-matches"],
    )
    at_most: float = Field(0.02, ge=1e-6, le=0.9, description="the share that you accept", examples=[0.02])
    confidence: float = Field(
        0.95, ge=0.5, le=0.9999, description="the confidence with which the bound holds"
    )


class ReviewRequest(ReviewOptions):
    """A question about all decisions of a window, to be answered by judging a few of them."""

    source: ReviewSource = Field(
        description="the decisions that are reviewed", examples=[{"model": "people"}]
    )


class ReviewOut(Answer):
    """A review and what it has shown so far. `bound` holds at every look."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    name: str = Field(description="its name", examples=["false matches of January"])
    model: str | None = Field(description="the model", examples=["people"])
    gallery: str | None = Field(description="name of the gallery")
    source: dict[str, Any] = Field(
        description="what was asked for; a list of pairs is summed up", examples=[{"model": "people"}]
    )
    question: Question = Field(description="what is asked about the decisions")
    at_most: float = Field(
        description="the share of wrong decisions that the review is to exclude", examples=[0.02]
    )
    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])
    population: int = Field(description="number of decisions that the bound is about", examples=[5120])
    judged: int = Field(
        description="judgements that count: all up to the first pair that is still with a reviewer",
        examples=[180],
    )
    waiting: int = Field(description="judgements that count once the pairs drawn before them are judged")
    held: int = Field(
        0,
        description="pairs drawn and not judged: what a reviewer leaves goes to the next one who asks. Where pairs "
        "drawn after them are judged, they count as wrong, if that makes the bound lower than waiting",
    )
    wrong: int = Field(
        description="wrong ones among `judged`, and what counts of `held`; `cannot tell` and erased pairs are wrong"
    )
    bound: float | None = Field(
        description="with the confidence, at most this share is wrong in the whole population, at all looks at once; "
        "null: the question is `label`",
        examples=[0.018],
    )
    enough: bool = Field(description="whether the bound is at most `at_most`", examples=[True])
    alarm: bool = Field(
        description="whether the judgements show, with the confidence, that more than `at_most` is",
        examples=[False],
    )
    expected_more: int | None = Field(
        description="about how many more judgements bring the bound down, if they go on like this; null: none may"
    )
    exhausted: bool = Field(description="whether no more pairs can be drawn")
    statement: str = Field(
        description="what the review has shown, in words",
        examples=["at most 1.8 % of 5,120 matches are false, 95 % confidence (2026-01-31)"],
    )
    created_at: Moment = Field(description="when it was created")
    enough_at: Moment | None = Field(
        description="when the bound first was at most `at_most`; null: not yet",
        examples=["2026-01-31T12:00:24.500Z"],
    )
    alarm_at: Moment | None = Field(description="when the alarm was first raised; null: never")


class ItemToJudge(Answer):
    """A pair to judge."""

    item: str = Field(description="id of the drawn pair", examples=["5d41402abc4b2a76b9719d91"])
    left: Any = Field(None, description="as it was sent, if the model's policy keeps sides")
    right: Any = Field(None, description="as it was sent, if the model's policy keeps sides")
    refs: tuple[str | None, str | None] = Field(
        description="your names of both sides", examples=[["visit-17", "visit-18"]]
    )
    score: float | None = Field(None, description="the similarity; higher is more similar", examples=[3.9])
    decision: Literal["match", "review", "different"] | None = Field(
        None, description="what the service decided; null: no decision was made", examples=["match"]
    )
    version: int | None = Field(None, description="number of the version")


class ItemsToJudge(Answer):
    """Pairs that are yours for a while. None: everything is drawn or with others."""

    items: list[ItemToJudge] = Field(description="the entries of this page")


class Outcome(Request):
    """What a reviewer says of a pair."""

    item: str = Field(max_length=32, description="id of the drawn pair")
    same: bool | None = Field(description="null: cannot tell, which counts as wrong")
    by: Annotated[str, Field(min_length=1, max_length=100, pattern=PRINTABLE)] | None = Field(
        None, description="the reviewer, as in `?by=`"
    )


class OutcomesRequest(Request):
    """Judgements of a review."""

    outcomes: list[Outcome] = Field(
        min_length=1,
        max_length=MAX_JUDGED,
        description="the judgements",
        examples=[[{"item": "5d41402abc4b2a76b9719d91", "same": True}]],
    )


class ElsewhereOutcome(Request):
    """What became of a pair, as learned elsewhere: a complaint, a charge-back."""

    left: Ref = Field(description="your name of the left side")
    right: Ref = Field(description="your name of the right side")
    same: bool = Field(description="whether the pair is the same")

    @model_validator(mode="after")
    def _two_sides(self) -> Self:
        if self.left == self.right:
            raise ValueError(f"{self.left!r} is paired with itself; expected two sides")
        return self


class ElsewhereRequest(Request):
    """Outcomes that nobody drew at random: they are kept and counted, and never bound anything."""

    model: str = Field(max_length=100, description="the model", examples=["people"])
    outcomes: list[ElsewhereOutcome] = Field(
        min_length=1,
        max_length=MAX_OUTCOMES,
        description="what became of pairs",
        examples=[[{"left": "visit-17", "right": "visit-18", "same": False}]],
    )


class ElsewhereOut(Answer):
    """What was kept."""

    model: str = Field(description="the model", examples=["people"])
    stored: int = Field(description="number of stored outcomes", examples=[1])
    contradicted: int = Field(
        description="how many of them contradict a decision that is kept under these refs", examples=[1]
    )


class RefsErasure(Request):
    """Names whose decisions are erased."""

    model: str = Field(max_length=100, description="the model", examples=["people"])
    refs: list[StoredRef] = Field(
        min_length=1, max_length=1_000, description="your names of the sides", examples=[["visit-17"]]
    )


class RefsErased(Answer):
    """What was erased."""

    decisions: int = Field(description="number of erased decisions", examples=[2])
    items: int = Field(
        description="pairs of reviews: they stay in the population, and count as wrong if drawn"
    )
    outcomes: int = Field(description="number of erased outcomes", examples=[1])


class JudgedDatasetRequest(Request):
    """What judged pairs are to become."""

    name: str = Field(max_length=200, description="name of the dataset", examples=["judged"])


class OutcomesDatasetRequest(Request):
    """The model whose outcomes from elsewhere are to become a dataset, to train with."""

    model: str = Field(max_length=100, description="the model", examples=["people"])
    name: str = Field(max_length=200, description="name of the dataset", examples=["outcomes"])
