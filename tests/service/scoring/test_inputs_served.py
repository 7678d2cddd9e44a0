"""What one answer says of its own rows, and of those that came before it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest

from pairmark.service.app import create_app
from tests.service.conftest import Deployment, people

Ask = Callable[[np.ndarray], Awaitable[Any]]
"""Asks whether the first half of rows matches the second."""


def served(deployment: Deployment, scenario: Callable[[Ask], Awaitable[None]]) -> None:
    """Run what asks a model of 300 people, all by one client."""
    deployment.upload("many", *people(300, 3))
    deployment.train(learner="plda", dataset="many", params={"random_state": 0})

    async def run() -> None:
        app = create_app(deployment.settings, warm=False)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

                async def ask(rows: np.ndarray) -> Any:
                    half = len(rows) // 2
                    sides = {"left": rows[:half].tolist(), "right": rows[half:].tolist()}
                    answer = await http.post("/match?fpr=0.1", json={"model": "faces", **sides})
                    assert answer.status_code == 200, answer.text
                    return answer.json()

                await scenario(ask)

    asyncio.run(run())


def test_a_request_in_another_unit_says_so_and_one_client_says_it_for_itself(deployment: Deployment) -> None:
    async def scenario(ask: Ask) -> None:
        new = people(1_200, 1, seed=1)[0]
        like = await ask(new)
        assert like["operating_point"]["guarantee"] == "finite-sample"
        assert "warnings" not in like
        said = await ask(0.5 * new)
        assert said["operating_point"]["guarantee"] == "none"
        assert [warning["code"] for warning in said["warnings"]] == ["inputs-moved"]
        assert "this request" in said["warnings"][0]["detail"]
        # It is said of that request alone.
        assert (await ask(new))["operating_point"]["guarantee"] == "finite-sample"

    served(deployment, scenario)


def sizes_kept(rows: np.ndarray, directions: int) -> np.ndarray:
    """Rows on their first directions, as far from their middle as ever: no row by itself says it."""
    apart = rows - rows.mean(axis=0)
    axes = np.linalg.svd(apart, full_matrices=False)[2][:directions]
    flat = apart @ axes.T @ axes
    return rows.mean(axis=0) + flat * np.linalg.norm(apart, axis=1, keepdims=True) / np.linalg.norm(
        flat, axis=1, keepdims=True
    )


@pytest.mark.parametrize("directions", [1, 2])
def test_people_who_return_keep_the_guarantee_and_an_embedder_that_collapses_loses_it(
    deployment: Deployment, directions: int
) -> None:
    random = np.random.default_rng(3)

    async def scenario(ask: Ask) -> None:
        half_is_one = np.where(random.random(400) < 0.5, 0, np.arange(400))
        most_is_one = np.where(random.random(400) < 0.6, 0, np.arange(400))
        senders = np.arange(400), random.integers(0, 50, 400), random.zipf(1.5, 400), half_is_one, most_is_one
        for traffic, sender in enumerate(senders):
            who = np.unique(sender, return_inverse=True)[1]
            rows = people(who.max() + 1, 1, seed=20 + traffic)[0][who] + 0.5 * random.normal(size=(400, 6))
            for start in range(0, 400, 8):
                answer = await ask(rows[start : start + 8])
                assert answer["operating_point"]["guarantee"] == "finite-sample", f"traffic {traffic}"
        collapsed = sizes_kept(people(20_000, 1, seed=30)[0], directions)
        deadline, start = time.monotonic() + 60, 0
        # How many rows it takes is the monitor's; where requests come faster than it looks, it looks at some.
        while answer["operating_point"]["guarantee"] != "none" and time.monotonic() < deadline:
            answer = await ask(collapsed[start : start + 8])
            start += 8
        assert answer["operating_point"]["guarantee"] == "none"
        assert [warning["code"] for warning in answer["warnings"]] == ["inputs-moved"]
        # Of people like those who calibrated nothing is guaranteed any more, either.
        assert (await ask(people(8, 1, seed=1)[0]))["operating_point"]["guarantee"] == "none"

    served(deployment, scenario)
