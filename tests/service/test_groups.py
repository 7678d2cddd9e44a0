"""Rates by group of people: stated for each, and none left out."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.api.models import report_page
from pairmark.service.errors import InvalidInput
from tests.service.conftest import Deployment, people

METRIC = {"learner": "metric", "params": {"metric": "euclidean"}, "model": "apart", "dataset": "populations"}


@pytest.fixture
def populations(deployment: Deployment) -> Deployment:
    """400 people in two populations, of which one is far more alike."""
    X, y = people(400, 2, seed=4)
    X[y >= 200] *= 0.35
    file = deployment.folder / "populations.npz"
    np.savez(file, X=X, y=y, origin=np.where(y < 200, "north", "south"))
    deployment.datasets.add(file, DatasetRequest(name="populations", group="origin"))
    return deployment


def test_rates_of_each_group_are_told_with_a_warning_where_one_breaks_the_promise(
    populations: Deployment,
) -> None:
    deployment = populations
    evaluation = {"n_pairs": 20_000, "groups": "compare", "calibration_fraction": 0.4, "test_fraction": 0.4}
    version = deployment.train(**METRIC, evaluation=evaluation)
    reported = deployment.store.reports.roc("apart", version).groups
    assert reported is not None
    ten_percent = reported["at"][0]
    assert ten_percent["fpr"] == 0.1
    north, south = ten_percent["groups"]
    assert (north["group"], south["group"]) == ("north", "south")
    low, high = south["fpr"]["interval"]
    assert low <= south["fpr"]["value"] <= high
    assert south["fpr"]["value"] > 0.1 > north["fpr"]["value"]
    told_apart = {one["rate"]: one for one in ten_percent["differentials"]}
    overall = told_apart["fpr"]["max_over_geomean"]
    assert overall["low"] > 1 or north["fpr"]["joint_interval"][1] > south["fpr"]["joint_interval"][0]
    assert told_apart["fpr"]["worst"] == "south"
    assert told_apart["fnr"]["worst"] == "north"
    page, _ = report_page(deployment.store.reports.report(deployment.store.version("apart", version)))
    assert "geometric mean" in page
    assert any("'south'" in warning and "promised 0.1" in warning for warning in reported["warnings"])
    assert deployment.store.version("apart", version).metrics["groups"] == reported
    again = deployment.store.evaluations.evaluate(
        "apart", version, "populations", n_pairs=20_000, groups="compare"
    )
    assert again.roc.groups is not None
    assert any("'south'" in warning for warning in again.warnings)
    # As units that belong together, two groups are too few to split.
    with pytest.raises(InvalidInput):
        deployment.train(**METRIC)
    assert deployment.store.evaluations.evaluate("apart", version, "people", n_pairs=2_000).roc.groups is None
    with pytest.raises(InvalidInput, match="has 0 groups"):
        deployment.queue.submit(deployment.request(dataset="people", evaluation={"groups": "compare"}))
    with pytest.raises(InvalidInput, match="no groups to compare"):
        deployment.store.evaluations.evaluate("apart", version, "people", groups="compare")
