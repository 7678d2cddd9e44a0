"""Requests are declared once, and answers are read as clients of other releases read them."""

import inspect
import json
import subprocess
import sys
from typing import get_args

import pytest
from pydantic import BaseModel

from pairmark.client import Client
from pairmark.models.calibration.operating_point import Guarantee
from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION
from pairmark.models.records.schema import RESERVED, FieldType
from pairmark.schemas import base, datasets, models
from pairmark.schemas.base import Answer, Moment
from pairmark.schemas.datasets import DatasetRequest, ReadingRequest
from pairmark.schemas.galleries import GalleryOut as Gallery
from pairmark.schemas.galleries import (
    SearchBody,
    VerifyParameters,
)
from pairmark.schemas.galleries import SearchHit as Hit
from pairmark.schemas.galleries import SearchOut as SearchResult
from pairmark.schemas.jobs import EvaluationRequest, JobRequest
from pairmark.schemas.jobs import JobOut as Job
from pairmark.schemas.models import AliasRequest, CalibrationRequest, MeasureRequest
from pairmark.schemas.models import CalibrationOut as Calibration
from pairmark.schemas.models import VersionOut as Version
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


def test_members_that_are_objects_are_answers_too() -> None:
    error = {"type": "/problems/job-timeout", "title": "Timeout", "detail": "took too long", "newer": 1}
    job = Job.from_json({"id": "a", "error": error, "attempts": [{"attempt": 1, "outcome": None}]})
    assert (job.error.detail, job.error["newer"], dict(job.error)) == ("took too long", 1, error)
    assert [(attempt.attempt, attempt.outcome) for attempt in job.attempts] == [(1, None)]
    version = Version.from_json(
        {"calibrations": [{"id": "c"}], "lineage": {"dataset": "x:1", "imported_from": "y:2"}}
    )
    assert isinstance(version.calibrations[0], Calibration)
    assert (version.lineage.dataset, version.lineage["imported_from"]) == ("x:1", "y:2")
    result = SearchResult.from_json({"model": {"name": "m", "version": 1}, "results": [[{"id": "a"}], []]})
    assert result.model.name == "m"
    assert result.results == [[Hit.from_json({"id": "a"})], []]


def test_a_member_that_an_answer_lacks_is_none_and_no_default_of_the_service() -> None:
    assert Version.from_json({}).reviews is None
    assert Job.from_json({"error": None}).error is None


def test_values_that_this_version_does_not_know_are_kept() -> None:
    job = Job.from_json({"id": "j", "state": "paused", "newer": [1]})
    assert (job.state, job["newer"], job.get("absent", 5), "newer" in job) == ("paused", [1], 5, True)
    assert dict(job) == job.json == {**job} == job
    with pytest.raises(ValueError, match="frozen"):
        job.state = "failed"
    with pytest.raises(TypeError, match="expected a JSON object"):
        Job.from_json([1])


def test_the_service_checks_what_it_makes_and_writes_times_as_text() -> None:
    class Made(Answer):
        at: Moment

    assert Made(at=0.0)["at"] == "1970-01-01T00:00:00.000Z"
    with pytest.raises(ValueError, match="dimension"):
        Gallery.model_validate({"name": "people"})


def test_the_light_client_imports_no_service_and_needs_no_numpy() -> None:
    code = """
import json, sys
sys.modules["numpy"] = None
import httpx
from pairmark.client import Client
answers = {
    "/similarity": {"scores": [0.5], "model": {"name": "m", "version": 1, "kind": "plda"}},
    "/match": {"matches": [{"score": 0.5, "match": True}], "operating_point": {"fpr": 0.1, "threshold": 0.25}},
    "/galleries/g/items": {"upserted": 1, "errors": [], "n_errors": 0},
}
there = httpx.MockTransport(lambda request: httpx.Response(200, json=answers[request.url.path]))
with Client("http://there", transport=there) as client:
    scores = client.similarity([1.0, 2.0], [3.0, 4.0])
    found = client.match([1.0, 2.0], [3.0, 4.0], fpr=0.1)
    enrolled = client.upsert("g", ids=["a"], vectors=[[1.0, 2.0]], subjects=["s"])
print(json.dumps([scores, found.matches, enrolled.upserted, sorted(sys.modules)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scores, matches, upserted, loaded = json.loads(done.stdout)
    assert (scores, matches, upserted) == ([0.5], [True], 1)
    assert not {"fastapi", "sqlalchemy", "numba", "sklearn", "pairmark.service", "pairmark.models"} & {
        *loaded
    }
