"""Requests are declared once: the client's keywords and options of commands have the same members."""

from __future__ import annotations

import inspect
from typing import Annotated, get_args

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from pairmark.client import Client
from pairmark.models.calibration.operating_point import Guarantee
from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION
from pairmark.models.records.cells import DateFormat
from pairmark.models.records.schema import RESERVED, FieldType
from pairmark.schemas import datasets, models, vectors
from pairmark.schemas.base import Rate
from pairmark.schemas.datasets import DatasetRequest, ReadingRequest
from pairmark.schemas.galleries import (
    GalleryCalibrationRequest,
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
from pairmark.service.cli.options import Members, given, with_options

# What binary bodies have by their own shape.
SHAPES = {"dim", "n_left", "pairs", "dtype", "left_samples", "right_samples"}
CALLS = [
    ("similarity", SimilarityParameters, SHAPES | {"detail"}),
    ("match", MatchParameters, SHAPES),
    ("rank_labels", RankBody, set()),
    ("search", SearchBody, set()),
    ("verify", VerifyParameters, set()),
    ("calibrate_gallery", GalleryCalibrationRequest, set()),
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
    assert get_args(datasets.DateFormat) == get_args(DateFormat)
    assert get_args(models.Guarantee) == get_args(Guarantee)
    assert vectors.RESERVED == RESERVED


class Request(BaseModel):
    rate: Rate = Field(description="A rate.")
    count: int | None = Field(3, ge=2, description="How many.")
    names: list[str] = Field([], description="Names.")
    header: bool = Field(True, description="No header.")
    strict: bool = Field(False, description="Strict.")


@pytest.fixture
def run():
    app = typer.Typer()
    seen = []

    @app.command()
    @with_options
    def command(file: str, request: Annotated[Request, Members("rate count names header strict")]) -> None:
        seen.append((file, given(request), request.count, request.header))

    def run(*words: str):
        outcome = CliRunner().invoke(app, list(words))
        return outcome.exit_code, outcome.output, seen.pop() if seen else None

    return run


def test_a_command_gets_what_was_given_and_defaults_beside_it(run) -> None:
    assert run("a", "--rate", "1%")[2] == ("a", {"rate": 0.01}, 3, True)
    given = {"rate": 0.5, "count": 3, "names": ["x", "y"], "header": False, "strict": True}
    words = ("--rate", "0.5", "--count", "3", "--names", "x", "--names", "y", "--no-header", "--strict")
    assert run("a", *words)[2] == ("a", given, 3, False)


@pytest.mark.parametrize("words", [(), ("--rate", "0"), ("--rate", "1"), ("--rate", ".1", "--count", "1")])
def test_what_is_missing_or_beyond_limits_is_a_usage_error(run, words) -> None:
    assert run("a", *words)[::2] == (2, None)
