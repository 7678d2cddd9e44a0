"""What browser tests share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from selenium.webdriver.remote.webdriver import WebDriver

PATIENCE_S = 150.0


def until(what: str, holds: Callable[[], object]) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError(f"never saw {what}")


def complaints(browser: WebDriver) -> list[str]:
    """Errors and warnings of the browser's console since it was last looked at."""
    return [
        entry["message"]
        for entry in browser.get_log("browser")  # type: ignore[attr-defined]
        if entry["level"] in ("SEVERE", "WARNING")
    ]


def hosts(browser: WebDriver) -> set[str]:
    """Every host that was asked for anything since this was last looked at."""
    found = set()
    for entry in browser.get_log("performance"):  # type: ignore[attr-defined]
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked = urlsplit(message["params"]["request"]["url"])
            if asked.scheme in ("http", "https", "ws", "wss"):
                found.add(asked.netloc)
    return found
