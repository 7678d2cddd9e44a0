"""Requests and answers about reviews."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Limits, Moment, Parameters, Text

Question = Literal["false-matches", "missed-matches", "uncertain"]


class AgreementFields(Fields):
    pairs: int
    agreed: int


class JudgedPartFields(Fields):
    of: str
    judged: int
    wrong: int


class ReviewFields(Fields):
    id: str
    name: str
    model: str | None
    gallery: str | None
    source: Annotated[dict[str, Any], Text("what was asked for; a list of pairs is summed up")]
    question: Question
    chosen: Annotated[bool, Text("whether the pairs were chosen by their score: no bound follows from them")]
    at_most: float
    confidence: float
    population: Annotated[int, Text("number of decisions that the bound is about")]
    judged: Annotated[
        int, Text("judgements that count: all up to the first pair that is still with a reviewer")
    ]
    waiting: Annotated[int, Text("judgements that count once the pairs drawn before them are judged")]
    wrong: Annotated[int, Text("wrong ones among `judged`; `cannot tell` and erased pairs are wrong")]
    bound: Annotated[
        float,
        Text(
            "with the confidence, at most this share is wrong in the whole population, at all looks at once"
        ),
    ]
    enough: Annotated[bool, Text("whether the bound is at most `at_most`")]
    alarm: Annotated[
        bool, Text("whether the judgements show, with the confidence, that more than `at_most` is")
    ]
    expected_more: Annotated[
        int | None,
        Text("about how many more judgements bring the bound down, if they go on like this; null: none may"),
    ]
    exhausted: Annotated[bool, Text("whether no more pairs can be drawn")]
    agreement: AgreementFields
    curve: Annotated[list[tuple[int, float]], Text("judgements and the bound after them")]
    by_score: Annotated[
        list[JudgedPartFields], Text("wrong ones by fifths of the drawn scores; absent in lists")
    ] = []
    by_version: Annotated[list[JudgedPartFields], Text("wrong ones by version; absent in lists")] = []
    by_gallery: Annotated[
        list[JudgedPartFields], Text("wrong ones by gallery; those of `/match` have none")
    ] = []
    by_group: Annotated[
        list[JudgedPartFields],
        Text("wrong ones by the field that `group_by` names; `a / b` where the two records differ"),
    ] = []
    statement: str
    created_at: Moment
    enough_at: Moment | None
    alarm_at: Moment | None


class ReviewSourceParameters(Parameters):
    model: Annotated[
        str | None,
        Limits(longest=100),
        Text(
            "decisions of this model; with `refs`, the model they are about",
            help="Make a review of this model's kept decisions.",
        ),
    ] = None
    gallery: Annotated[
        str | None,
        Limits(longest=200),
        Text(
            "matches that searches of this gallery returned", help="Make a review of this gallery's matches."
        ),
    ] = None


class ReviewParameters(Parameters):
    name: Annotated[str, Limits(longest=200)] = ""
    source: Any
    question: Annotated[
        Question,
        Text(
            "`false-matches`: the share of matches that are not the same; `missed-matches`: the share of same "
            "pairs that were decided to be different; `uncertain`: a queue of pairs between two thresholds (`fnr`), "
            "which are chosen by their score, so that they may train and bound nothing",
            help="false-matches or missed-matches.",
        ),
    ] = "false-matches"
    at_most: Annotated[
        float,
        Limits(minimum=1e-6, maximum=0.9),
        Text("the share that you accept", help="The share of wrong decisions that you accept."),
    ] = 0.02
    confidence: Annotated[
        float,
        Limits(minimum=0.5, maximum=0.9999),
        Text("", help="The confidence with which the bound holds."),
    ] = 0.95
    judged_twice: Annotated[
        float,
        Limits(minimum=0, maximum=1),
        Text("share of pairs that a second reviewer gets too, to measure agreement"),
    ] = 0.05
