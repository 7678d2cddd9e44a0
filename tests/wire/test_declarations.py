"""Answers are declared once: the service's models and the client's records have the same members."""

from __future__ import annotations

import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields

import pytest
from pydantic import BaseModel

import pairmark.client
import pairmark.service.app
import pairmark.wire
from pairmark.client import Answer, Calibration, Hit, Job, ModelUsed, SearchResult, Version
from pairmark.wire.base import Fields

MODULES = [f"pairmark.wire.{module.name}" for module in pkgutil.iter_modules(pairmark.wire.__path__)]
DECLARATIONS = [
    kind
    for name in MODULES
    for kind in vars(importlib.import_module(name)).values()
    if isinstance(kind, type) and issubclass(kind, Fields) and kind.__module__ == name and kind is not Fields
]
RECORDS = [
    record
    for record in (getattr(pairmark.client, name) for name in pairmark.client.__all__)
    if isinstance(record, type) and issubclass(record, Answer) and record is not Answer
]


def models_of(declaration: type[Fields]) -> Iterator[type[BaseModel]]:
    return (kind for kind in declaration.__subclasses__() if issubclass(kind, BaseModel))


@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_the_service_has_one_model_of_each_declaration(declaration: type[Fields]) -> None:
    (model,) = models_of(declaration)
    assert {*model.model_fields} >= {*declaration.__annotations__}


@pytest.mark.parametrize("record", RECORDS)
def test_the_client_has_every_member_of_the_services_answer(record: type[Answer]) -> None:
    (declaration,) = (base for base in record.__bases__ if issubclass(base, Fields))
    (model,) = models_of(declaration)
    assert [member.name for member in fields(record)] == ["json", *model.model_fields]


def test_members_that_are_objects_are_records_too() -> None:
    error = {"type": "/problems/job-timeout", "title": "Timeout", "detail": "took too long", "newer": 1}
    job = Job.of({"id": "a", "error": error, "attempts": [{"attempt": 1, "outcome": None}]})
    assert (job.error.detail, job.error["newer"], dict(job.error)) == ("took too long", 1, error)
    assert [(attempt.attempt, attempt.outcome) for attempt in job.attempts] == [(1, None)]
    version = Version.of(
        {"calibrations": [{"id": "c"}], "lineage": {"dataset": "x:1", "imported_from": "y:2"}}
    )
    assert isinstance(version.calibrations[0], Calibration)
    assert (version.lineage.dataset, version.lineage["imported_from"]) == ("x:1", "y:2")
    result = SearchResult.of({"model": {"name": "m", "version": 1}, "results": [[{"id": "a"}], []]})
    assert isinstance(result.model, ModelUsed)
    assert result.results == [[Hit.of({"id": "a"})], []]


def test_a_member_that_an_answer_lacks_is_none_and_no_default_of_the_service() -> None:
    assert Version.of({}).reviews is None
    assert Job.of({"error": None}).error is None


def test_declarations_need_nothing_but_python() -> None:
    code = f"import {', '.join(MODULES)}, json, sys; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not {"pydantic", "pydantic_core", "numpy", "httpx", "fastapi"} & {*loaded}
