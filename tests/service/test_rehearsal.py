"""Imports whose facts, report or calibration could not be shown: taken, each made errors of later requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.artefact import ArtefactError, read_artefact, write_artefact
from pairmark.service.store.rehearsal import rehearse
from pairmark.service.store.schemas import NewCalibration, NewVersion

CURVE = ("fpr", "tpr", "thresholds", "fpr_low", "fpr_high", "tpr_low", "tpr_high")
LINEAGE = {"dataset": "d:1", "dataset_sha256": "0", "job": None, "code_version": "1"}


@pytest.fixture(scope="module")
def calibration():
    rng = np.random.default_rng(0)
    same = np.arange(400) % 2 == 0
    units = np.stack([np.arange(400) % 80, 80 + rng.integers(0, 80, size=400)], axis=1)
    return Calibration.fit(rng.normal(size=400) + same, same, units, protocol="closed-set")


@pytest.fixture
def new(calibration):
    reported = NewCalibration(
        name="c",
        blob="",
        protocol="closed-set",
        summary=calibration.summary(),
        dataset_id=None,
        dataset_sha256=None,
    )
    return NewVersion(
        model="m", kind="metric", capabilities=("similarity",), params={}, metrics={}, lineage=LINEAGE,
        facts={"n_features": 4}, artefact="", artefact_sha256="0", report=None, calibration=reported, job_id=None,
    )  # fmt: skip


@pytest.fixture
def report(tmp_path):
    rate = np.linspace(0, 1, 9)
    arrays: dict[str, Any] = {name: rate[::-1].copy() if name == "thresholds" else rate for name in CURVE}
    arrays |= {"trained_rows": np.arange(3), "trained_identities": np.arange(3)}
    write_artefact(
        tmp_path / "report", kind="report", params={}, meta={"salt": "s", "confidence": 0.95}, arrays=arrays
    )
    return tmp_path / "report"


def rewritten(report, **changes):
    found = read_artefact(report, mmap=False)
    other = report.with_name("other")
    arrays = {**found.arrays, **changes}
    write_artefact(other, kind=found.kind, params={}, meta=found.meta, arrays=arrays)
    return other


def test_a_version_that_can_be_shown_is_taken(new, report, calibration):
    rehearse(new, report, calibration)
    rehearse(replace(new, calibration=None), None, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"facts": {"n_features": 4, "feature_names": 7}}, "the facts of the version"),
        ({"facts": {"n_features": 4, "parts": 3}}, "the facts of the version"),
        ({"facts": {"n_features": 4, "leaderboard": []}}, "the leaderboard"),
        ({"facts": {"n_features": 4, "leaderboard": {"task": "pairs", "items": [{}]}}}, "the leaderboard"),
        ({"lineage": {**LINEAGE, "dataset": [1]}}, "the facts of the version"),
        ({"metrics": {"auc": float("nan")}}, "the facts of the version"),
        ({"metrics": {"groups": 7}}, "the report"),
    ],
)
def test_facts_of_another_form_are_refused(new, report, calibration, change, said):
    with pytest.raises(ArtefactError, match=said):
        rehearse(replace(new, **change), report, calibration)


@pytest.mark.parametrize(
    "changes",
    [
        {"fpr": np.zeros((2, 3))},
        {"fpr": np.zeros(3)},
        {"tpr": np.full(9, 1.5)},
        {"tpr": np.full(9, np.nan)},
        {"thresholds": np.arange(9)},
        {
            "hardest_same_rows": np.zeros((2, 2)),
            "hardest_same_scores": np.zeros(1),
            "histogram_same": np.zeros(1),
        },
        {
            "histogram_edges": np.zeros(3),
            "histogram_same": np.array([["a"]]),
            "histogram_different": np.zeros(2),
        },
    ],
)
def test_reports_of_another_form_are_refused(new, report, calibration, changes):
    with pytest.raises(ArtefactError):
        rehearse(new, rewritten(report, **changes), calibration)


def test_a_summary_of_another_form_is_refused(new, calibration):
    reported = replace(new.calibration, summary={**new.calibration.summary, "n_units": "many"})
    odd = replace(new, calibration=reported, facts={"n_features": 4, "parts": {"calibration_rows": 3}})
    with pytest.raises(ArtefactError, match="the facts"):
        rehearse(odd, None, calibration)
