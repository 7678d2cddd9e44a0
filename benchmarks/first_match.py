"""How long a new user takes: from the demo's command to a match on an own CSV at a chosen rate, by the console.

A script does in Chromium what the pages suggest: open Train, upload a CSV of people, train with the defaults, pick
10 % on the model's page, and send the request that is shown there. Run it in the development environment
(``.venv/bin/python -m benchmarks first_match``): it needs selenium, chromium and chromedriver. Making ``.venv`` is not
counted.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._chromium import chromium, until
from benchmarks.common import Claim, Preset, Result

ROOT = Path(__file__).parent.parent
LEFT, RIGHT = "[0.27, -0.15, 0.41, -0.05]", "[-0.07, -0.18, 0.83, 0.18]"
GOAL_S = 300.0


def run(preset: Preset) -> Result:
    """Follow the pages once, by the clock."""
    rows: list[dict[str, Any]] = []
    with chromium() as browser, tempfile.TemporaryDirectory() as place:
        home = Path(place)
        begun = time.monotonic()

        def reached(what: str, holds: Callable[[], object]) -> None:
            until(holds)
            rows.append({"step": what, "seconds since make demo": round(time.monotonic() - begun, 1)})

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PAIRMARK_")}
        with (home / "demo.log").open("wb") as log:
            demo = subprocess.Popen(
                [sys.executable, "-m", "pairmark.service.demo", "--port", str(port)],
                cwd=ROOT,
                env={**kept, "PAIRMARK_HOME": str(home / "var")},
                stdout=log,
                stderr=log,
            )
        try:
            reached("the demo is served", lambda: "Ctrl-C" in (home / "demo.log").read_text())
            _follow(browser, f"http://127.0.0.1:{port}", home, reached)
        finally:
            demo.terminate()
            demo.wait(60)
    total = float(rows[-1]["seconds since make demo"])
    claim = Claim(
        what="seconds from the demo's command to a served match on an own CSV",
        goal=f"below {GOAL_S:.0f}",
        measured=total,
        holds=total < GOAL_S,
    )
    return Result(rows=rows, claims=[claim], facts={"load_average": os.getloadavg()[0]})


def _follow(browser: Any, url: str, home: Path, reached: Callable[[str, Callable[[], object]], None]) -> None:
    def words(selector: str) -> str:
        return str(
            browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        )

    def press(label: str) -> None:
        browser.execute_script(
            "[...document.querySelectorAll('main button, main a.button')]"
            ".find((one) => one.innerText.trim().startsWith(arguments[0])).click()",
            label,
        )

    folder = os.getcwd()
    os.chdir(home)
    try:
        runpy.run_path(str(ROOT / "docs" / "examples" / "people.py"))
    finally:
        os.chdir(folder)
    browser.get(f"{url}/console/train")
    browser.find_element("css selector", "#file").send_keys(str(home / "people.csv"))
    reached("the CSV is previewed", lambda: "400 identities" in words("#preview"))
    press("Upload")
    reached("it is uploaded", lambda: "Stored as" in words("#dataset-said"))
    press("Train")
    reached("the default learner is trained and in production", lambda: "Open people:1" in words("main"))
    press("Open people:1")
    until(lambda: "/match?fpr=" in words("#snippet"))
    browser.execute_script(
        "const field = document.querySelector('#rate-number'); field.value = '10';"
        "field.dispatchEvent(new Event('change'))"
    )
    reached("10 % is chosen", lambda: "fpr=0.1&" in words("#snippet"))
    request = words("#snippet").split("\n#")[0]
    request = request.replace('"left": LEFT', f'"left": {LEFT}').replace(
        '"right": RIGHT', f'"right": {RIGHT}'
    )
    answers: list[Any] = []

    def served() -> bool:
        done = subprocess.run(["sh", "-c", request], capture_output=True, text=True, check=True)
        answers.append(json.loads(done.stdout))
        return bool(answers[-1]["matches"][0]["match"])

    reached("the request that is shown answers: match", served)
