"""``pairmark plan`` is believed: a dataset of the size that it asks for is drawn, split and calibrated on."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.pairs.splits import held_out_pairs, split_data
from pairmark.service.cli import app
from pairmark.service.heldout.schemas import EvaluationRequest


def planned(fpr: float, method: str, *words: str) -> dict[str, Any]:
    """A row of the command's answer."""
    result = CliRunner().invoke(app, ["plan", "--fpr", str(fpr), *words, "--json"])
    assert result.exit_code == 0, result.output
    needs = json.loads(result.output)["needs"]
    return next(need for need in needs if need["method"] == method)


def answered(y: np.ndarray, protocol: str, fpr: float, method: str, seed: int) -> bool:
    """Whether a job's calibration on rows with these labels answers the rate."""
    rng = np.random.default_rng(seed)
    asked = EvaluationRequest()
    parts = split_data(
        y,
        protocol=protocol,
        calibration_fraction=0.5,
        test_fraction=asked.test_fraction,
        random_state=rng,
    )
    pairs = held_out_pairs(y[parts.calibration], protocol=protocol, n_pairs=asked.n_pairs, random_state=rng)
    scores = rng.standard_normal(len(pairs)) + 3.0 * pairs.same
    made = Calibration.fit(scores, pairs.same, pairs.units, protocol=protocol, n_replicates=1_000)
    try:
        point = made.operating_point(fpr, method=method)
    except InsufficientCalibrationData:
        return False
    assert point.method == method
    return True


@pytest.mark.parametrize("fpr", [0.1, 0.03])
def test_people_that_the_plan_asks_for_are_enough_and_fewer_are_not(fpr: float) -> None:
    need = planned(fpr, "finite-sample")
    people = need["dataset_people"]
    assert need["dataset_samples"] == 2 * people
    for seed in range(3):
        assert answered(np.repeat(np.arange(people), 2), "open-set", fpr, "finite-sample", seed)
    fewer = people - 8
    assert not answered(np.repeat(np.arange(fewer), 2), "open-set", fpr, "finite-sample", 0)
