"""Answers about reviews."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Declaration, Moment, Text

Question = Literal["false-matches", "missed-matches", "uncertain"]


class AgreementFields(Declaration):
    pairs: int
    agreed: int


class JudgedPartFields(Declaration):
    of: str
    judged: int
    wrong: int


class ReviewFields(Declaration):
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
