"""The ledger: every calibration on people in common, in order, for good; and what is drawn for these people."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select

from pairmark.service.errors import DamagedRow, InvalidInput
from pairmark.service.operations.doctor import Doctor
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.store.schemas import FprBandOut
from pairmark.service.store.secret import service_secret
from pairmark.service.tables import CalibrationRow, ServiceSecret
from tests.service.conftest import Deployment, people

pytestmark = pytest.mark.each_database

COSINE = {"learner": "metric", "params": {"metric": "cosine"}, "promote": False}


def test_a_promise_for_whichever_is_chosen_counts_every_version(deployment: Deployment) -> None:
    trained = deployment.train(**COSINE)
    others = deployment.upload("strangers", *people(60, 3, seed=9, first=1_000))
    made = [
        deployment.store.calibrations.calibrate("faces", trained, "strangers", random_state=at)
        for at in range(3)
    ]
    runtime = Runtime(deployment.store, deployment.db, deployment.settings)

    def asked(*, simultaneous: bool) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            served = await runtime.version_for(f"faces:{trained}", "similarity")
            chosen = made[2].id
            return (
                await runtime.operating_point(served, 0.6, 0.9, "auto", chosen, simultaneous=simultaneous)
            ).public

        return asyncio.run(ask())

    third, alone = asked(simultaneous=True), asked(simultaneous=False)
    assert (third["promise"], third["candidate"], third["confidence"]) == ("simultaneous", 3, 0.9)
    assert (alone["promise"], alone["candidate"]) == ("pointwise", None)
    assert third["threshold"] >= alone["threshold"]
    # What was looked at stays, whatever becomes of the version, and its number is given to nobody else.
    deployment.store.delete("faces", trained)
    trained = deployment.train(**COSINE)
    deployment.store.calibrations.calibrate("faces", trained, "strangers")
    ledger = deployment.store.ledger("strangers:1", others.sha256)
    assert [(one.number, one.version) for one in ledger.versions] == [(1, 1), (2, 1), (3, 1), (4, 2)]
    assert [one.rates for one in ledger.versions] == [[], [], [0.6], []]
    assert ledger.candidates == 4
    # Jobs enter what they hold out of their own dataset.
    own = deployment.store.ledger("people:1", deployment.datasets.get("people").sha256)
    assert [(one.number, one.version) for one in own.versions] == [(1, 1), (2, 2)]


def outside(first: int, n: int) -> dict[str, Any]:
    """Scores made elsewhere of all pairs of people who are named by number."""
    rng = np.random.default_rng(first)
    left, right = np.triu_indices(n, 0)
    return {
        "scores": (rng.random(left.size) + (left == right)).tolist(),
        "same": (left == right).astype(int).tolist(),
        "left_unit": [f"p{first + one}" for one in left],
        "right_unit": [f"p{first + one}" for one in right],
    }


def test_people_are_counted_whatever_file_names_them(deployment: Deployment) -> None:
    store = deployment.store
    numbers = [
        store.ledger_number(store.calibrations.add_scores(f"vendor-{first}", **outside(first, 40)).id)
        for first in (0, 100, 20, 60, 200, 0)
    ]
    # The third shares people with the first, the fourth has met the second through nobody, and the sixth knows all.
    assert numbers == [1, 1, 2, 1, 1, 3]
    joined = store.calibrations.add_scores("both", **outside(30, 100))
    assert store.ledger_number(joined.id) == 6
    unnamed = store.calibrations.add_scores(
        "vendor", scores=[0.1, 0.9, 0.2], same=[0, 1, 0], independent=True
    )
    assert store.ledger_number(unnamed.id) is None

    # A pointwise answer says that it is not the first on these people.
    runtime = Runtime(store, deployment.db, deployment.settings)
    asked = runtime.operating_point(None, 0.3, 0.95, "finite-sample", joined.id)
    point = asyncio.run(asked).public
    assert (point["number"], point["guarantee"]) == (6, "finite-sample")
    assert "calibration 6 on these people" in point["meaning"]


def test_who_is_given_another_name_is_recognised(deployment: Deployment) -> None:
    """Other names draw another U; that they are for the same rows, or the same scores, is counted and said."""
    store = deployment.store
    listed = outside(0, 40)
    renamed = {side: [f"x{name}" for name in listed[side]] for side in ("left_unit", "right_unit")}
    order = np.random.default_rng(0).permutation(len(listed["same"]))
    shuffled = {field: [values[at] for at in order] for field, values in {**listed, **renamed}.items()}
    made = [store.calibrations.add_scores("vendor", **one).id for one in (listed, shuffled, outside(7, 40))]
    assert [store.ledger_number(one) for one in made] == [1, 2, 3]

    trained = deployment.train(**COSINE)
    rows, names = people(60, 3, seed=9, first=1_000)
    deployment.upload("strangers", rows, names)
    deployment.upload("renamed", rows[60:], names[60:] + 5_000)
    numbers = [
        store.ledger_number(store.calibrations.calibrate("faces", trained, dataset).id)
        for dataset in ("strangers", "renamed")
    ]
    assert numbers == [1, 2]


def test_the_type_of_names_is_no_seed(deployment: Deployment) -> None:
    store = deployment.store
    listed = outside(0, 40)
    numbered = {side: [int(name[1:]) for name in listed[side]] for side in ("left_unit", "right_unit")}
    written = {side: [str(name) for name in numbered[side]] for side in numbered}
    made = [
        store.calibrations.add_scores("vendor", **{**listed, **units}).id for units in (numbered, written)
    ]
    first, second = (store.calibrations.load(one)[0].operating_point(0.2) for one in made)
    assert first == second
    assert [store.ledger_number(one) for one in made] == [1, 2]
    with pytest.raises(InvalidInput, match="'0' as a number and as text"):
        store.calibrations.add_scores("vendor", **{**listed, **numbered, "right_unit": written["right_unit"]})


def test_no_seed_of_a_caller_moves_a_threshold(deployment: Deployment) -> None:
    store = deployment.store
    trained = deployment.train(**COSINE)
    deployment.upload("strangers", *people(60, 3, seed=9, first=1_000))
    points = [
        store.calibrations.load(
            store.calibrations.calibrate("faces", trained, "strangers", random_state=seed).id
        )[0].operating_point(0.1)
        for seed in range(3)
    ]
    assert points[0] == points[1] == points[2]
    # The secret is made once, and every process reads the same.
    secret = service_secret(deployment.db)
    assert (len(secret), service_secret(deployment.db)) == (32, secret)
    scores = [store.calibrations.add_scores("vendor", **outside(500, 40)).id for _ in range(2)]
    first, second = (store.calibrations.load(one)[0].operating_point(0.2) for one in scores)
    assert first == second


def test_a_band_promises_what_its_calibration_does(deployment: Deployment) -> None:
    """A sample of a fixed list is about that list, at all thresholds at once too."""
    rng = np.random.default_rng(0)
    same = np.arange(400) < 100
    made = deployment.store.calibrations.add_scores(
        "linked", scores=(rng.random(400) + same).tolist(), same=same.astype(int).tolist(), population=5_000
    )
    band = Runtime(deployment.store, deployment.db, deployment.settings).points.band(made.id)
    assert band is not None
    assert FprBandOut(**band).guarantee == "finite-population"


def test_a_lost_secret_is_never_made_again(deployment: Deployment) -> None:
    """A new one would draw the thresholds of the same people again."""
    store = deployment.store
    store.calibrations.add_scores("vendor", **outside(500, 40))
    with deployment.db.write() as session:
        session.execute(delete(ServiceSecret))
    with pytest.raises(DamagedRow, match="secret is missing"):
        store.calibrations.add_scores("vendor", **outside(500, 40))
    with deployment.db.read() as session:
        assert len(session.scalars(select(CalibrationRow)).all()) == 1
    doctor = Doctor(deployment.db, deployment.blobs, deployment.settings, quick=True)
    (said,) = [finding for finding in doctor.examine() if finding.check == "calibrations"]
    assert said.status == "failure"
    assert "secret is missing" in said.detail
