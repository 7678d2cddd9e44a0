"""What data can promise is said at upload, at submission and by the version, before anybody is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.service.cli import app
from pairmark.service.datasets.guarantees import promise_of, shares_for, ways_from
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
    assert version.promise == reported
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
    assert "cannot be guaranteed" not in job.message
    assert f"10 % takes {reported.more_units} more people" in reported.text


def test_a_target_out_of_reach_is_said_when_the_job_is_queued(deployment):
    job = deployment.queue.submit(deployment.request(evaluation={"target_fpr": 0.001}))
    assert "The target rate 0.1 % cannot be guaranteed from this dataset" in job.message


def test_few_people_hear_what_they_can_have_instead_of_their_target(deployment):
    deployment.upload("dozen", *people(12, 10))
    job = deployment.queue.submit(
        deployment.request(dataset="dozen", evaluation={"protocol": "open-set", "target_fpr": 0.01})
    )
    _, _, ways = job.message.partition("The target rate 1 % cannot be guaranteed from this dataset. What can")
    own, closed, more = (
        ways.index(words) for words in ("from these data", "closed-set", "people in the dataset")
    )
    assert own < closed < more
    assert "1,184 more than it has" in ways
    # Two of them would have been tested: folds test the nine who train.
    assert (job.evaluation.test_fraction, job.evaluation.calibration_fraction) == (0, 0.5)


def test_a_refusal_says_what_is_to_be_had_and_what_the_rate_takes() -> None:
    promise = promise_of(400, 0.25, protocol="open-set")
    ways = ways_from(0.001, promise.smallest_fpr, 5990, "people")
    assert [(way["fpr"], way["command"], way["text"]) for way in ways] == [
        (0.059, "fpr=0.059", "5.9 %: retry with this rate"),
        (0.001, None, "0.1 %: calibrate on 5,990 people"),
    ]


@pytest.mark.parametrize(("people_there", "tested"), [(400, 30), (330, 4), (300, 60)])
def test_a_target_leaves_thirty_people_to_test_on_where_it_can(people_there: int, tested: int) -> None:
    shares = shares_for(
        people_there,
        0.02,
        test_fraction=0.2,
        different_share=1.0,
        fewest=4,
        learns=True,
        fixed_test=False,
    )
    assert round(people_there * shares[1]) == tested


@pytest.mark.parametrize("share", [0.25, 0.4983])
def test_plan_and_dataset_name_one_number_of_people(share: float) -> None:
    planned = CliRunner().invoke(app, ["plan", "--fpr", "0.001", "--json"])
    plan = json.loads(planned.output)
    promise = promise_of(2_400, share, protocol="open-set", calibration_units=598)
    total = plan["needs"][0]["dataset_people"]
    assert total == 2_400 + promise.more_units == 11_980
    assert plan["text"].startswith(
        "0.1 %: 11,980 people in the dataset; with the target rate 0.1 % half of them, 5,990"
    )


def listed(kind: str) -> str:
    """A file of pairs of 120 rows, 60 people with two rows each."""
    rng = np.random.default_rng(0)
    same = [(2 * who, 2 * who + 1) for who in range(60)]
    if kind == "all":
        different = [(2 * a, 2 * b) for b in range(60) for a in range(b)]
    else:
        drawn = rng.integers(0, 120, (1_200, 2))
        different = [(a, b) for a, b in dict.fromkeys(map(tuple, drawn.tolist())) if a // 2 != b // 2]
    named = kind != "guessed"
    lines = ["left,right,same" + (",left_unit,right_unit" if named else "")]
    for pairs, is_same in ((same, 1), (different, 0)):
        lines += [f"{a},{b},{is_same}" + (f",p{a // 2},p{b // 2}" if named else "") for a, b in pairs]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("kind", "listing", "guarantee"),
    [
        ("identities", None, "finite-sample"),
        ("guessed", None, "none"),
        ("guessed", "random-people", "none"),
        ("named", None, "none"),
        ("named", "random-rows", "none"),
        ("named", "random-people", "finite-sample"),
        ("all", None, "finite-sample"),
    ],
)
def test_upload_job_version_report_and_decision_tell_one_promise(
    deployment, kind: str, listing: str | None, guarantee: str
) -> None:
    X, y = people(60, 2)
    added = deployment.upload(
        "told",
        X,
        *((y,) if kind == "identities" else ()),
        **({} if kind == "identities" else {"pairs": listed(kind)}),
    )
    evaluation = {"listing": listing} if listing else {}
    queued = deployment.queue.submit(
        deployment.request(dataset="told", model="queued", evaluation={"n_pairs": 20_000, **evaluation})
    )
    deployment.queue.cancel(queued.id)
    deployment.train(dataset="told", model="told", evaluation={"n_pairs": 20_000, **evaluation})
    version = deployment.store.version("told", 1)
    ended = deployment.queue.get(version.lineage.job).message
    card = " ".join(deployment.store.reports.report(version).limits)
    point = deployment.store.calibrations.load(version.calibration_id)[0].operating_point(0.5)
    assert point.guarantee == guarantee
    # What was said at upload is said when the job is queued, unless the job declared how the list came about.
    if listing is None:
        assert added.promise.text in queued.message
        assert (added.promise.confidence is None) == (guarantee == "none")
    for words in (ended, card, *([queued.message] if listing != "random-people" else [])):
        assert ("Nothing is guaranteed" in words) == (guarantee == "none"), words
    assert ("supports false positive rates" in ended) == (guarantee != "none")
    assert "supports" not in card or guarantee != "none"
    if guarantee == "none":
        assert version.promise.text in ended
        assert version.promise.text in point.meaning
        assert (point.method, point.confidence, point.fpr_upper_bound) == (None, None, None)
        assert (version.promise.confidence, version.promise.smallest_fpr) == (None, None)
    else:
        assert point.confidence == 0.95
