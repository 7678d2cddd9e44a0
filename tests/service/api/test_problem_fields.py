"""What is wrong with a request is named by the field that was sent."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from pairmark.schemas.links import LinksRequest
from pairmark.schemas.models import CompareQuery, ScoresOptions, ScoresRequest
from pairmark.service.api.calibrations import SCORES_LISTS
from pairmark.service.api.datasets import RowsQuery
from pairmark.service.api.reviews import NextQuery
from pairmark.service.errors import InvalidInput, invalid_field
from pairmark.service.scoring.lists import parse_lists


def test_an_alternative_is_no_part_of_a_field() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(ScoresRequest).validate_python(
            {"name": "vendor", "scores": [0.5, "high"], "same": [1, 0]}
        )
    errors = [{**error, "loc": ("body", *error["loc"])} for error in refused.value.errors()]
    problem = invalid_field(errors)
    assert problem.facts["field"] == "scores[1]"
    assert str(problem.detail).startswith("scores[1]: ")


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (CompareQuery, {"versions": "1"}, "versions: expected two version numbers, such as 1,2"),
        (
            RowsQuery,
            {"rows": "a"},
            "rows: expected 0-based rows separated by commas, at most 100, such as 0,17",
        ),
        (NextQuery, {"by": "a\n"}, "by: expected text without control characters"),
        (LinksRequest, {"tables": []}, "tables: expected at least 1 item, not 0"),
        (LinksRequest, {"left": "a", "confidence": 2}, "confidence: expected less than or equal to 0.9999"),
    ],
)
def test_a_refusal_says_what_was_expected(kind: type[BaseModel], body: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate(body)
    assert invalid_field(refused.value.errors()).detail == words


def test_labels_in_words_are_told_what_was_expected() -> None:
    def read(same: str) -> list[int]:
        body = b'{"name": "vendor", "scores": [0.9, 0.1], "same": %b}' % same.encode()
        return parse_lists(ScoresRequest, body, SCORES_LISTS, ScoresOptions).same

    with pytest.raises(InvalidInput, match=r"'different'; expected 1 \(same\) or 0 \(different\)") as refused:
        read('[1, "different"]')
    assert refused.value.facts["field"] == "same[1]"
    assert read('["1", 0]') == [1, 0]
