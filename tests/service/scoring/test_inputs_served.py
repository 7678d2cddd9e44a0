"""What one answer says of its own rows, and of those that came before it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from pairmark.service.app import create_app
from tests.service.conftest import Deployment, people


def test_a_request_in_another_unit_says_so_and_one_client_says_it_for_itself(deployment: Deployment) -> None:
    deployment.upload("many", *people(300, 3))
    deployment.train(learner="plda", dataset="many", params={"random_state": 0})

    async def scenario() -> None:
        app = create_app(deployment.settings, warm=False)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

                async def ask(rows: Any) -> Any:
                    half = len(rows) // 2
                    sides = {"left": rows[:half].tolist(), "right": rows[half:].tolist()}
                    answer = await http.post("/match?fpr=0.1", json={"model": "faces", **sides})
                    assert answer.status_code == 200, answer.text
                    return answer.json()

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

    asyncio.run(scenario())
