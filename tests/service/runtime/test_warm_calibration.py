"""Kernels of calibrations are compiled before a process reports that it is ready."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

# A process of its own: any other test may have compiled these kernels in this one.
SCRIPT = """
import asyncio, json, sys

import httpx
import numpy as np

from pairmark.models.calibration.warmup import is_warm
from pairmark.service.app import create_app
from pairmark.service.db import Database
from pairmark.service.settings import Settings


QUERIES = ("fpr=0.1", "fpr=0.1&method=bootstrap", "fpr=0.1&method=estimate", "fpr=0.2&simultaneous=1")


def compiled():
    return sorted(
        f"{name}.{key} {signature}"
        for name, module in list(sys.modules.items())
        if name.startswith(("pairmark.models.calibration.kernels.", "pairmark.models.evaluation.kernels."))
        for key, value in vars(module).items()
        if type(value).__name__ == "CPUDispatcher"
        for signature in value.signatures
    )


def bodies():
    rng = np.random.default_rng(1)
    left, right = np.triu_indices(200, 1)
    for kind in ("all pairs", "a list", "rows"):
        kept = rng.random(left.size) < (1.0 if kind == "all pairs" else 0.2)
        a = np.concatenate([left[kept], np.arange(200)])
        b = np.concatenate([right[kept], np.arange(200)])
        body = {"name": "scores", "scores": rng.normal(size=a.size).tolist(), "same": (a == b).astype(int).tolist()}
        if kind != "rows":
            body |= {"left_unit": a.tolist(), "right_unit": b.tolist()}
        yield body


async def main():
    app = create_app(Settings(home=sys.argv[1]))
    warm_before = is_warm()
    async with app.router.lifespan_context(app):
        while not app.state.services.runtime.warm:
            await asyncio.sleep(0.01)
        before = compiled()
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60) as client:
            answers = []
            for body in bodies():
                made = await client.post("/calibrations", json=body)
                for query in QUERIES:
                    answer = await client.post(
                        f"/match?{query}&calibration={made.json()['id']}", json={"scores": [1.0]}
                    )
                    answers.append([made.status_code, query, answer.status_code])
        after = compiled()
    print(json.dumps({"before": before, "new": sorted(set(after) - set(before)), "answers": answers,
                      "warm": [warm_before, is_warm()]}))


database = Database(Settings(home=sys.argv[1]).resolved_database_url)
database.upgrade()
database.dispose()
asyncio.run(main())
"""


def test_the_first_calibration_of_a_process_compiles_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(tmp_path / "home")],
        # Nothing was compiled before; what is there already is not compiled again, so that starts stay short.
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert {(made, answered) for made, _, answered in found["answers"]} == {(201, 200)}, found["answers"]
    assert found["before"]
    assert found["new"] == []
    assert found["warm"] == [False, True]
