"""Requests are declared once: models, the client's keywords and options of commands have the same members."""

from __future__ import annotations

import importlib
import inspect
from typing import Annotated, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from pairmark.client import Client
from pairmark.models.calibration.likelihood_ratios import DEFAULT_METHOD
from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION
from pairmark.service.cli.options import Members, with_options
from pairmark.wire.base import Limits, Parameters, Rate, Text
from pairmark.wire.datasets import DatasetParameters, ReadingParameters
from pairmark.wire.galleries import (
    GalleryCalibrationParameters,
    GalleryEvaluationParameters,
    ImportParameters,
    SearchParameters,
    VerifyParameters,
)
from pairmark.wire.jobs import EvaluationParameters, JobParameters
from pairmark.wire.models import AliasParameters, MeasureParameters, VersionCalibrationParameters
from pairmark.wire.reviews import ReviewParameters, ReviewSourceParameters
from pairmark.wire.scoring import (
    CandidatesParameters,
    EvidenceParameters,
    MatchParameters,
    RankParameters,
    SimilarityParameters,
)

# What binary bodies have by their own shape.
SHAPES = {"dim", "n_left", "pairs", "dtype", "left_samples", "right_samples"}
CALLS = [
    ("similarity log_lr", SimilarityParameters, SHAPES | {"log_lr", "lr_method", "detail"}),
    ("match decide", MatchParameters, SHAPES | {"detail"}),
    ("rank_labels", RankParameters, set()),
    ("search", SearchParameters, set()),
    ("verify", VerifyParameters, set()),
    ("upsert_file", ImportParameters, {"prefix", "first"}),
    ("calibrate_gallery", GalleryCalibrationParameters, set()),
    ("evaluate_gallery", GalleryEvaluationParameters, set()),
    ("add_dataset", DatasetParameters, set()),
    ("inspect_dataset", ReadingParameters, set()),
    ("train", JobParameters, set()),
    ("promote", AliasParameters, set()),
    ("evaluate", MeasureParameters, set()),
    ("calibrate", VersionCalibrationParameters, set()),
    ("score_candidates", CandidatesParameters, set()),
    ("create_review", ReviewSourceParameters, set()),
    ("create_review", ReviewParameters, {"source"}),
]


def members(request: type[Parameters]) -> set[str]:
    return {*get_type_hints(request)}


@pytest.mark.parametrize(
    ("methods", "request_kind", "left_out"), CALLS, ids=[call[1].__name__ for call in CALLS]
)
def test_the_client_takes_what_requests_hold(
    methods: str, request_kind: type[Parameters], left_out: set[str]
) -> None:
    calls = [getattr(Client, name) for name in methods.split()]
    keywords = {
        name: value for call in reversed(calls) for name, value in inspect.signature(call).parameters.items()
    }
    told = " ".join(call.__doc__ for call in calls)
    takes_any = any(value.kind is value.VAR_KEYWORD for value in keywords.values())
    missing = members(request_kind) - left_out - keywords.keys()
    assert not missing or takes_any
    assert {name for name in missing if f"``{name}``" not in told} == set()
    for name in members(request_kind) & keywords.keys():
        # None and empty are not sent, so that the service's default holds.
        nothing = (None, (), False, keywords[name].empty)
        declared = getattr(request_kind, name, None)
        # `cost_ratio` goes with `prior` alone, which `decide` always sends.
        assert keywords[name].default in (*nothing, declared) or name == "cost_ratio"


def test_every_request_is_read_by_a_model_of_the_service() -> None:
    def kinds(parent: type[Parameters]) -> set[type]:
        return {kind for child in parent.__subclasses__() for kind in (child, *kinds(child))}

    importlib.import_module("pairmark.service.app")
    requests = kinds(Parameters)
    for request in requests:
        if request.__module__.startswith("pairmark.wire"):
            assert any(issubclass(kind, request) and hasattr(kind, "model_fields") for kind in requests)


def test_defaults_are_the_librarys() -> None:
    assert EvaluationParameters.calibration_fraction == CALIBRATION_FRACTION
    assert EvaluationParameters.test_fraction == TEST_FRACTION
    assert EvidenceParameters.lr_method == DEFAULT_METHOD


class Request(Parameters):
    rate: Annotated[Rate, Text("", help="A rate.")]
    count: Annotated[int | None, Limits(minimum=2), Text("", help="How many.")] = 3
    names: Annotated[list[str], Text("", help="Names.")] = []  # noqa: RUF012
    header: Annotated[bool, Text("", help="No header.")] = True
    strict: Annotated[bool, Text("", help="Strict.")] = False


@pytest.fixture
def run():
    app = typer.Typer()
    seen = []

    @app.command()
    @with_options
    def command(file: str, given: Annotated[Request, Members("rate count names header strict")]) -> None:
        seen.append((file, vars(given), given.count, given.header))

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
