"""Versions, aliases, their history and the ledger of calibrations; what may be deleted; what is never served."""

import asyncio
from typing import Any

import numpy as np
import pytest

from pairmark.service.errors import (
    CalibrationOverlap,
    Conflict,
    InvalidInput,
    PreconditionFailed,
    UnknownCalibration,
    UnknownDataset,
    UnknownModel,
)
from pairmark.service.runtime.operating_points import Rate
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.tables import ModelVersion
from tests.service.conftest import Deployment, people

pytestmark = pytest.mark.each_database


def uncalibrated(deployment, version=1):
    """Register a copy of a version without its calibration, as an import from elsewhere may be."""
    new = ModelVersion(**deployment.store.row("faces", version).values() | {"job_id": None})
    with deployment.db.write() as session:
        return deployment.store.register(session, "faces", new, None, promote=None, actor="test").version


def test_references_mean_what_they_say(deployment):
    deployment.train()
    deployment.train(promote="staging")
    assert deployment.store.resolve("faces") == deployment.store.resolve("faces@production") == ("faces", 1)
    assert deployment.store.resolve("faces@staging") == ("faces", 2)
    assert deployment.store.resolve("faces:2") == ("faces", 2)
    for ref, said in [
        ("nobody", "known: faces"),
        ("faces@canary", "production, staging"),
        ("faces:3", "it has: 2, 1"),
        (f"faces:{2**31 - 1}", "it has"),
    ]:
        with pytest.raises(UnknownModel, match=said):
            deployment.store.resolve(ref)
    for ref in (
        "",
        "faces:",
        "faces:0",
        "faces:x",
        "faces@",
        "faces@7",
        "a b",
        "faces:99999999999",
        "faces@\x00",
    ):
        with pytest.raises(InvalidInput):
            deployment.store.resolve(ref)


def test_an_alias_moves_with_its_history_and_its_etag(deployment):
    deployment.train()
    deployment.train(promote=False)
    at = deployment.store.alias("faces", "production")
    moved = deployment.store.promote(
        "faces", "production", 2, actor="key:1", if_match=frozenset({at.revision})
    )
    assert (moved.version, moved.revision) == (2, at.revision + 1)
    with pytest.raises(PreconditionFailed, match="version 2"):
        deployment.store.promote("faces", "production", 1, actor="key:2", if_match=frozenset({at.revision}))
    with pytest.raises(PreconditionFailed, match="does not exist"):
        deployment.store.promote("faces", "canary", 1, actor="key:2", if_match="*")
    deployment.store.promote(
        "faces", "production", 1, actor="key:2", if_match="*", reason="Version 2 misses twins."
    )
    assert deployment.store.promote("faces", "production", 1, actor="key:3").revision == moved.revision + 1
    history = deployment.store.history("faces", "production").items
    assert [(one.version, one.previous) for one in history] == [(1, 2), (2, 1), (1, None)]
    assert history[0].by == "key:2"
    assert [one.reason for one in history[:2]] == ["Version 2 misses twins.", None]
    assert history[-1].by.startswith("job:")
    page = deployment.store.history("faces", "production", limit=2)
    assert [
        one.version for one in deployment.store.history("faces", "production", cursor=page.next_cursor).items
    ] == [1]
    with pytest.raises(UnknownModel):
        deployment.store.history("faces", "canary")
    with pytest.raises(InvalidInput, match="neither a number"):
        deployment.store.promote("faces", "2", 1, actor="key:2")
    with pytest.raises(UnknownModel):
        deployment.store.promote("faces", "production", 9, actor="key:2")


def test_a_version_that_could_not_answer_match_is_not_promoted(deployment):
    deployment.train()
    version = uncalibrated(deployment)
    with pytest.raises(Conflict, match="calibrate it first"):
        deployment.store.promote("faces", "production", version, actor="x")
    assert deployment.store.resolve("faces") == ("faces", 1)
    deployment.upload("strangers", *people(40, 5, seed=9, first=1000))
    deployment.store.calibrations.calibrate("faces", version, "strangers")
    assert deployment.store.promote("faces", "production", version, actor="x").version == version


def test_only_versions_no_alias_holds_are_deleted_and_numbers_not_used_twice(deployment):
    deployment.train()
    deployment.train()
    before = {key for key, _ in deployment.blobs.ages()}
    with pytest.raises(Conflict, match="production"):
        deployment.store.delete("faces", 2)
    calibration = deployment.store.version("faces", 1).calibration_id
    deployment.store.delete("faces", 1)
    assert {key for key, _ in deployment.blobs.ages()} < before
    for gone in (lambda: deployment.store.version("faces", 1), lambda: deployment.store.delete("faces", 1)):
        with pytest.raises(UnknownModel):
            gone()
    with pytest.raises(UnknownCalibration):
        deployment.store.calibrations.load(calibration)
    assert deployment.train() == 3
    # Equal trainings share their blobs: deleting one version leaves the others whole.
    assert deployment.store.load("faces", 2).n_features_in_ == 6


def test_calibrating_on_what_was_trained_on_is_refused_with_a_count(deployment):
    deployment.train()
    with pytest.raises(CalibrationOverlap, match="rows that faces:1 was trained on") as refused:
        deployment.store.calibrations.calibrate("faces", 1, "people")
    trained = deployment.store.version("faces", 1).facts["parts"]["train_rows"]
    assert (refused.value.facts["rows"], len(refused.value.facts["first_rows"])) == (trained, 20)
    # The same people with new samples: fine for rows, not for an open-set promise.
    deployment.upload("again", *people(40, 5, seed=77))
    with pytest.raises(CalibrationOverlap, match="22 of the 40 identities") as people_seen:
        deployment.store.calibrations.calibrate("faces", 1, "again")
    named = people_seen.value.facts["first_identities"]
    assert len(named) == 20
    assert set(named) <= {str(one) for one in range(40)}
    made = deployment.store.calibrations.calibrate("faces", 1, "again", protocol="closed-set")
    assert made.protocol == "closed-set"


def test_a_new_calibration_becomes_the_default_only_when_asked(deployment):
    deployment.train()
    own = deployment.store.version("faces", 1).calibration_id
    deployment.upload("strangers", *people(50, 5, seed=9, first=1000))
    made = deployment.store.calibrations.calibrate("faces", 1, "strangers")
    assert (made.model, made.version, made.summary["dataset"]) == ("faces", 1, "strangers:1")
    assert deployment.store.version("faces", 1).calibration_id == own
    chosen = deployment.store.calibrations.calibrate("faces", 1, "strangers", default=True)
    version = deployment.store.version("faces", 1)
    assert version.calibration_id == chosen.id
    assert [one.id for one in version.calibrations] == [chosen.id, made.id, own]
    calibration, _ = deployment.store.calibrations.load(made.id)
    assert calibration.operating_point(0.3).n_units == 50
    with pytest.raises(UnknownDataset):
        deployment.store.calibrations.calibrate("faces", 1, "nobody")
    deployment.upload("wide", *people(40, 5, width=9))
    with pytest.raises(InvalidInput, match="has 9 features; faces:1 takes 6"):
        deployment.store.calibrations.calibrate("faces", 1, "wide")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scores": [1.0, float("nan"), 2.0]}, r"scores\[1\]"),
        ({"scores": [1.0, 1e39, 2.0]}, r"scores\[1\]"),
        ({"scores": [[1.0], [2.0], [3.0]]}, "scores"),
        ({"scores": ["a", "b", "c"]}, "scores"),
        ({"scores": []}, "scores"),
        ({"scores": [1e9 + 1, 1e9, 1e9 + 2]}, "scores: 3 different ones become 1 as float32"),
        ({"scores": [1.0, 1.0, 1.0]}, "equal"),
        ({"same": [1, 0]}, "same"),
        ({"same": [1, 1, 1]}, "different"),
        ({"same": [1, 0, 2]}, "0 and 1"),
        ({"left_unit": ["a", "b", "c"]}, "go together"),
        ({"left_unit": ["a", "b"], "right_unit": ["a", "b"]}, "left_unit"),
        (
            {"left_unit": ["a", "N/A", "c"], "right_unit": ["a", "N/A", "d"]},
            "left_unit.*name nobody.*'N/A' 2",
        ),
        ({"name": "a/b/c"}, "name"),
    ],
)
def test_bad_scores_are_refused_naming_the_field(deployment, given, said):
    asked = {"name": "x", "scores": [1.0, 2.0, 3.0], "same": [1, 0, 0], **given}
    with pytest.raises(InvalidInput, match=said):
        deployment.store.calibrations.add_scores(**asked)
    assert deployment.store.calibrations.page().items == []


def test_evaluating_tells_what_the_thresholds_did_and_what_overlapped(deployment):
    deployment.train()
    deployment.upload("strangers", *people(60, 5, seed=9, first=1000))
    report = deployment.store.reports.evaluate("faces", 1, "strangers", n_pairs=3_000)
    assert report.metrics["auc"]["value"] > 0.9
    assert (report.overlap.rows, report.overlap.identities, report.warnings) == (0, 0, [])
    ten_percent = report.operating_points[0]
    assert ten_percent.fpr == 0.1
    assert ten_percent.calibration_id == deployment.store.version("faces", 1).calibration_id
    assert ten_percent.refused or ten_percent.seen_fpr < 0.2
    again = deployment.store.reports.evaluate("faces", 1, "people", n_pairs=3_000)
    assert again.overlap.rows == deployment.store.version("faces", 1).facts["parts"]["train_rows"]
    assert "too good" in again.warnings[0]


COSINE = {"learner": "metric", "params": {"metric": "cosine"}, "promote": False}


def point_of(deployment: Deployment, version: int, rate: Rate) -> dict[str, Any]:
    """What is said of a version's threshold at a rate."""
    runtime = Runtime(deployment.store, deployment.db, deployment.settings)

    async def ask() -> dict[str, Any]:
        await runtime.catalogue.refreshed()
        served = await runtime.version_for(f"faces:{version}", "similarity")
        return (await runtime.operating_point(served, rate, shows_scores=True)).public

    return asyncio.run(ask())


def test_a_promise_for_whichever_is_chosen_counts_every_version(deployment: Deployment) -> None:
    trained = deployment.train(**COSINE)
    deployment.upload("strangers", *people(60, 3, seed=9, first=1_000))
    made = [deployment.store.calibrations.calibrate("faces", trained, "strangers") for at in range(3)]
    third, alone = (
        point_of(deployment, trained, Rate(0.6, "auto", 0.9, simultaneous, made[2].id))
        for simultaneous in (True, False)
    )
    assert (third["simultaneous"], third["candidate"], third["confidence"]) == (True, 3, 0.9)
    assert (alone["simultaneous"], alone["candidate"]) == (False, None)
    assert third["threshold"] >= alone["threshold"]
    # What was looked at stays, whatever becomes of the version, and its number is given to nobody else.
    deployment.store.delete("faces", trained)
    trained = deployment.train(**COSINE)
    fourth = deployment.store.calibrations.calibrate("faces", trained, "strangers")
    assert deployment.store.ledger_number(fourth.id) == 4
    # Jobs enter what they hold out of their own dataset.
    assert deployment.store.ledger_number(deployment.store.version("faces", trained).calibration_id) == 2


def outside(first: int, n: int) -> dict[str, Any]:
    """Scores made elsewhere of all pairs of people who are named by number."""
    rng = np.random.default_rng(0)
    left, right = np.triu_indices(n, 0)
    return {
        "scores": (rng.random(left.size) + (left == right)).tolist(),
        "same": (left == right).astype(int).tolist(),
        "left_unit": [f"p{first + one}" for one in left],
        "right_unit": [f"p{first + one}" for one in right],
    }


def test_a_pointwise_answer_says_that_it_is_not_the_first(deployment: Deployment) -> None:
    trained = deployment.train(**COSINE)
    deployment.upload("strangers", *people(60, 3, seed=9, first=1_000))
    first, second = (deployment.store.calibrations.calibrate("faces", trained, "strangers") for _ in range(2))
    one, two = (point_of(deployment, trained, Rate(0.3, calibration=made.id)) for made in (first, second))
    # Nothing is random: the same people give the same threshold to the bit.
    assert one["threshold"] == two["threshold"]
    assert (one["number"], two["number"]) == (1, 2)
    assert "calibration 2 on this dataset" in two["meaning"]
    assert "calibration 1" not in one["meaning"]


def test_names_of_people_move_no_threshold(deployment: Deployment) -> None:
    store, listed = deployment.store, outside(0, 40)
    numbered = {side: [int(name[1:]) for name in listed[side]] for side in ("left_unit", "right_unit")}
    written = {side: [str(name) for name in numbered[side]] for side in numbered}
    reversed_names = {side: [f"z{99 - one}" for one in numbered[side]] for side in numbered}
    made = [
        store.calibrations.add_scores("vendor", **{**listed, **units}).id
        for units in (
            {},
            numbered,
            written,
            reversed_names,
            {**numbered, "right_unit": written["right_unit"]},
        )
    ]
    points = [store.calibrations.load(one)[0].operating_point(0.2) for one in made]
    assert all(point == points[0] for point in points)
    assert [store.ledger_number(one) for one in made] == [None] * 5
