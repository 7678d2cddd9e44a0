"""The ledger: every version calibrated on a dataset version, in order, for good; and names that move no threshold."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from pairmark.service.runtime.operating_points import Rate
from pairmark.service.runtime.runtime import Runtime
from tests.service.conftest import Deployment, people

pytestmark = pytest.mark.each_database

COSINE = {"learner": "metric", "params": {"metric": "cosine"}, "promote": False}


def test_a_promise_for_whichever_is_chosen_counts_every_version(deployment: Deployment) -> None:
    trained = deployment.train(**COSINE)
    deployment.upload("strangers", *people(60, 3, seed=9, first=1_000))
    made = [deployment.store.calibrations.calibrate("faces", trained, "strangers") for at in range(3)]
    runtime = Runtime(deployment.store, deployment.db, deployment.settings)

    def asked(*, simultaneous: bool) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            served = await runtime.version_for(f"faces:{trained}", "similarity")
            chosen = made[2].id
            return (
                await runtime.operating_point(
                    served, Rate(0.6, "auto", 0.9, simultaneous, chosen), shows_scores=True
                )
            ).public

        return asyncio.run(ask())

    third, alone = asked(simultaneous=True), asked(simultaneous=False)
    assert (third["simultaneous"], third["candidate"], third["confidence"]) == (True, 3, 0.9)
    assert (alone["simultaneous"], alone["candidate"]) == (False, None)
    assert third["threshold"] >= alone["threshold"]
    # What was looked at stays, whatever becomes of the version, and its number is given to nobody else.
    deployment.store.delete("faces", trained)
    trained = deployment.train(**COSINE)
    fourth = deployment.store.calibrations.calibrate("faces", trained, "strangers")
    assert deployment.store.ledger_number(fourth.id) == 4
    # Jobs enter what they hold out of their own dataset.
    own = deployment.store.version("faces", trained).calibration_id
    assert deployment.store.ledger_number(own) == 2


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
    runtime = Runtime(deployment.store, deployment.db, deployment.settings)

    def asked(calibration: str) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            served = await runtime.version_for(f"faces:{trained}", "similarity")
            return (
                await runtime.operating_point(served, Rate(0.3, calibration=calibration), shows_scores=True)
            ).public

        return asyncio.run(ask())

    one, two = asked(first.id), asked(second.id)
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
