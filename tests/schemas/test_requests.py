"""Requests are declared once: the client's keywords and options of commands have the same members."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest
from pydantic import BaseModel

from pairmark.client import Client
from pairmark.models.calibration.operating_point import Guarantee
from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION
from pairmark.models.records.schema import RESERVED, FieldType
from pairmark.schemas import base, datasets, models
from pairmark.schemas.datasets import DatasetRequest, ReadingRequest
from pairmark.schemas.galleries import (
    SearchBody,
    VerifyParameters,
)
from pairmark.schemas.jobs import EvaluationRequest, JobRequest
from pairmark.schemas.models import AliasRequest, CalibrationRequest, MeasureRequest
from pairmark.schemas.reviews import ReviewRequest, ReviewSource
from pairmark.schemas.scoring import (
    MatchParameters,
    RankBody,
    SimilarityParameters,
)

# What binary bodies have by their own shape.
SHAPES = {"dim", "n_left", "pairs", "dtype"}
CALLS = [
    ("similarity", SimilarityParameters, SHAPES | {"detail"}),
    ("match", MatchParameters, SHAPES),
    ("rank_labels", RankBody, set()),
    ("search", SearchBody, set()),
    ("verify", VerifyParameters, set()),
    ("add_dataset", DatasetRequest, set()),
    ("add_dataset inspect_dataset", ReadingRequest, set()),
    ("train", JobRequest, set()),
    ("promote", AliasRequest, set()),
    ("evaluate", MeasureRequest, set()),
    ("calibrate", CalibrationRequest, set()),
    ("create_review", ReviewSource, set()),
    ("create_review", ReviewRequest, {"source"}),
]


@pytest.mark.parametrize(
    ("methods", "request_kind", "left_out"), CALLS, ids=[call[1].__name__ for call in CALLS]
)
def test_the_client_takes_what_requests_hold(
    methods: str, request_kind: type[BaseModel], left_out: set[str]
) -> None:
    calls = [getattr(Client, name) for name in methods.split()]
    keywords = {
        name: value for call in reversed(calls) for name, value in inspect.signature(call).parameters.items()
    }
    told = " ".join(call.__doc__ for call in calls)
    takes_any = any(value.kind is value.VAR_KEYWORD for value in keywords.values())
    missing = request_kind.model_fields.keys() - left_out - keywords.keys()
    assert not missing or takes_any
    assert {name for name in missing if f"``{name}``" not in told} == set()
    for name in request_kind.model_fields.keys() & keywords.keys():
        # None and empty are not sent, so that the service's default holds.
        nothing = (None, (), False, keywords[name].empty)
        assert keywords[name].default in (*nothing, request_kind.model_fields[name].default)


def test_what_the_library_fixes_is_the_same_here() -> None:
    assert EvaluationRequest().calibration_fraction == CALIBRATION_FRACTION
    assert EvaluationRequest().test_fraction == TEST_FRACTION
    assert get_args(datasets.FieldType) == get_args(FieldType)
    assert get_args(models.Guarantee) == get_args(Guarantee)
    assert base.RESERVED == RESERVED
