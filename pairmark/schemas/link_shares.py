"""What shares of links are false, missed or found."""

from typing import Literal, Self

from pydantic import Field, model_validator

from pairmark.schemas.base import Answer


def absent(value: object) -> bool:
    """Whether a member is left out of an answer."""
    return value is None


class FalseLinks(Answer):
    """How many of the links are false: exactly one of `bound`, `estimate` and `unknown`."""

    estimate: float | None = Field(
        None,
        exclude_if=absent,
        description="the share as the fitted model has it: an estimate, no bound",
        examples=[0.015],
    )
    expected: float | None = Field(
        None,
        exclude_if=absent,
        description="beside it, with `expected_false_links`: the share is at most this on average over tables like "
        "these, if what `notes` say holds; no bound",
        examples=[0.02],
    )
    check: Literal["agrees", "doubtful"] | None = Field(
        None,
        exclude_if=absent,
        description="with `estimate`: `agrees` where columns that were held out say the same of the links, `doubtful` "
        "where they do not, or too few can tell",
        examples=["agrees"],
    )
    unknown: Literal[True] | None = Field(
        None, exclude_if=absent, description="true where nothing can be said before links are judged"
    )
    judge: int | None = Field(
        None, exclude_if=absent, description="with `unknown`: about how many links to judge", examples=[150]
    )
    bound: float | None = Field(
        None,
        exclude_if=absent,
        description="with the confidence, at most this share of the links is false, at every look; absent until some "
        "are judged. After changes by hand it is the worst case: all of the judged population that may be false is "
        "still linked, and all links that were added are false",
        examples=[0.018],
    )
    bound_of: int | None = Field(
        None,
        exclude_if=absent,
        description="how many links there were when the judged ones were drawn",
        examples=[440],
    )
    by_hand: int = Field(0, description="links that were added by hand since", examples=[0])
    confidence: float = Field(0.95, description="with which the bound holds")
    judged: int = Field(0, description="judgements that count", examples=[180])
    enough: bool = Field(False, description="whether the bound is as low as was asked for")
    expected_more: int | None = Field(
        None, description="about how many more judgements bring the bound down; null: not known"
    )

    @model_validator(mode="after")
    def _one_statement(self) -> Self:
        if sum(each is not None for each in (self.bound, self.estimate, self.unknown)) != 1:
            raise ValueError("expected exactly one of bound, estimate and unknown")
        return self


class MissedLinks(Answer):
    """How many of the true links among candidates are missed; those that are no candidates are not counted."""

    bound: float | None = Field(
        description="with the confidence, at most this share is missed, at every look; null: nothing is judged",
        examples=[0.04],
    )
    judged: int = Field(description="judgements that count", examples=[420])
    enough: bool = Field(description="whether the bound is as low as was asked for")
    review: str = Field(description="the review whose judgements bound it", examples=["5d41402abc4b2a76b971"])


class LinkRecall(Answer):
    """How many of the true links were found, as judged records show it: what is no candidate is missed, too."""

    judged: int = Field(description="records that count", examples=[190])
    recall: float | None = Field(
        description="the share of the partners of these that they are linked with, on average; null: none has any",
        examples=[0.99],
    )
    bound: float = Field(
        description="with the confidence, at least this share of the true links is found, at every look, of those that "
        "are found or among the nearest; as the job found them, before changes by hand",
        examples=[0.95],
    )
    confidence: float = Field(description="with which the bound holds", examples=[0.95])
    enough: bool = Field(description="whether the bound is as high as was asked for")
    expected_more: int | None = Field(
        description="about how many more records bring the bound up; null: not known"
    )
    review: str | None = Field(
        None, description="the review whose judgements bound it", examples=["5d41402abc4b2a76b971"]
    )
