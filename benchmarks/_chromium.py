"""A headless Chromium for benchmarks of the console."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.common import Skip

PATIENCE_S = 600.0


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; `Skip` where there is none."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError as error:
        raise Skip("it needs selenium: run it with .venv/bin/python") from error
    paths = [shutil.which("chromium"), shutil.which("chromedriver")]
    if not all(paths):
        raise Skip("it needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0] or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=Service(paths[1]))
    try:
        yield browser
    finally:
        browser.quit()


def until(holds: Callable[[], object]) -> None:
    """Wait for something to become true; `TimeoutError` after ten minutes."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the service or the page did not come so far in time")
        time.sleep(0.05)
