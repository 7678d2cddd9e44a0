"""The ledger of a dataset version: every calibration of a version on it, in order, for good."""

from __future__ import annotations

import asyncio
from typing import Any

from pairmark.service.runtime.runtime import Runtime
from tests.service.conftest import Deployment, people

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
            return (await runtime.decide(served, 0.6, 0.9, "auto", chosen, simultaneous=simultaneous)).public

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
