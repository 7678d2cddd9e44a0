"""What is wrong with a request is named by the field that was sent."""

from __future__ import annotations

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from pairmark.service.api.calibrations import ScoresRequest
from pairmark.service.api.problems import invalid_request


def test_an_alternative_is_no_part_of_a_field() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(ScoresRequest).validate_python(
            {"name": "vendor", "scores": [0.5, "high"], "same": [1, 0]}
        )
    errors = [{**error, "loc": ("body", *error["loc"])} for error in refused.value.errors()]
    problem = invalid_request(RequestValidationError(errors))
    assert problem.facts["field"] == "scores[1]"
    assert str(problem.detail).startswith("scores[1]: ")


def test_labels_in_words_are_told_what_was_expected() -> None:
    scores = {"name": "vendor", "scores": [0.9, 0.1]}
    with pytest.raises(
        ValidationError, match=r"'different' says neither; expected 1 \(same\) or 0 \(different\)"
    ):
        ScoresRequest.model_validate({**scores, "same": [1, "different"]})
    assert ScoresRequest.model_validate({**scores, "same": ["1", 0]}).same == [1, 0]
