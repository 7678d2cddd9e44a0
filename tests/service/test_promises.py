"""What data can promise is said at upload, at submission and by the version, before anybody is refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.service.cli import app
from pairmark.service.datasets.promises import FEWEST, promise_of, ways_from
from tests.service.conftest import people


def test_what_is_promised_at_upload_is_what_the_version_keeps(deployment):
    added = deployment.upload("some", *people(200, 3))
    reported = added.promise
    assert (reported.protocol, reported.units, reported.calibration_units) == ("open-set", 200, 50)
    job = deployment.queue.submit(
        deployment.request(dataset="some", model="some", params={}, learner="similarity-forest")
    )
    assert reported.text in job.message
    deployment.queue.cancel(job.id)
    deployment.train(dataset="some", model="some")
    version = deployment.store.version("some", 1)
    # A version has its split; other ways to split are the dataset's to offer.
    assert version.promise == reported.model_copy(update={"ways": []})
    calibration = deployment.store.calibrations.load(version.calibration_id)[0]
    at_least = reported.smallest_fpr
    assert (
        calibration.operating_point(at_least * 1.001, method="finite-sample").fpr_upper_bound
        <= at_least * 1.001
    )
    with pytest.raises(InsufficientCalibrationData):
        calibration.operating_point(at_least * 0.98, method="finite-sample")


def test_the_people_that_the_next_rate_takes_are_enough(deployment):
    reported = deployment.upload("few", *people(60, 2)).promise
    assert reported.next_fpr == 0.1
    deployment.upload("enough", *people(reported.units + reported.more_units, 2))
    job = deployment.queue.submit(
        deployment.request(dataset="enough", evaluation={"target_fpr": reported.next_fpr})
    )
    assert "58 of 116 people calibrate" in job.message
    assert "cannot be promised" not in job.message
    assert f"10 % takes {reported.more_units} more people" in reported.text


def test_a_target_out_of_reach_is_said_when_the_job_is_queued(deployment):
    job = deployment.queue.submit(deployment.request(evaluation={"target_fpr": 0.001}))
    assert "The target rate 0.1 % cannot be promised from this dataset" in job.message


def test_ways_out_are_ranked_and_each_gives_a_smaller_rate() -> None:
    promise = promise_of(400, 0.25, protocol="open-set", fewest=FEWEST)
    ways = ways_from(0.001, promise.smallest_fpr, 5990, "people", promise, "people")
    assert [way["command"] for way in ways[:2]] == [
        "fpr=0.059",
        "pairmark train --dataset DATASET --model people --target-fpr 0.016",
    ]
    assert ways[-1]["text"] == (
        "0.1 %: 11,980 people in the dataset, 11,580 more than it has; with the target rate 0.1 % half of them, 5,990, "
        "calibrate. 5,998 are enough if few are left to learn from, 5,994 with the learner metric"
    )
    rates = [way["fpr"] for way in ways]
    assert rates == sorted(rates, reverse=True)
    # What training again would support already needs no more people.
    supported = ways_from(0.02, promise.smallest_fpr, 299, "people", promise, "people")
    assert [way["fpr"] for way in supported] == [0.059, 0.016]
    # Scores of another system: no dataset to train on again.
    assert [way["text"] for way in ways_from(0.001, 0.02, 2995, "pairs", None)] == [
        "2 %: ask for this rate",
        "0.1 %: calibrate on 2,995 pairs",
    ]


@pytest.mark.parametrize("share", [0.25, 0.4983])
def test_plan_dataset_and_refusal_name_one_number_of_people(share: float) -> None:
    planned = CliRunner().invoke(app, ["plan", "--fpr", "0.001", "--json"])
    plan = json.loads(planned.output)
    promise = promise_of(2_400, share, protocol="open-set", fewest=FEWEST, calibration_units=598)
    way = ways_from(0.001, promise.smallest_fpr, 5_990, "people", promise)[-1]
    total = plan["needs"][0]["dataset_people"]
    assert way["units"] == total == 2_400 + promise.more_units == 11_980
    assert way["text"].replace(", 9,580 more than it has", "") == plan["text"]
