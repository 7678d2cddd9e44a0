"""One Chromium for all browser tests, and what they share."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement


@pytest.fixture(scope="session")
def chromium() -> Iterator[WebDriver]:
    """Headless Chromium, started once."""
    paths = [shutil.which("chromium"), shutil.which("chromedriver")]
    assert all(paths), "this test needs chromium and chromedriver: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0] or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(paths[1]))
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: WebDriver) -> WebDriver:
    """Chromium as a new visitor has it: no cookies, a desktop window, no emulation, an empty log."""
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    chromium.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chromium.set_window_size(1280, 1000)
    chromium.get("about:blank")
    for kind in ("browser", "performance"):
        chromium.get_log(kind)  # type: ignore[attr-defined]
    return chromium


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


def people(n: int, samples: int, seed: int = 0, d: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of n people, and whose each is."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(rng.normal(size=(n, d)), samples, axis=0)
    return (centres + 0.3 * rng.normal(size=centres.shape)).astype(np.float32), np.repeat(
        np.arange(n), samples
    )


def one(browser: WebDriver, selector: str) -> WebElement:
    """The element."""
    return browser.find_element(By.CSS_SELECTOR, selector)


def text(browser: WebDriver, selector: str = "main") -> str:
    """What an element says, blanks made plain."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return " ".join(one(browser, selector).text.replace("\u00a0", " ").split())
        except WebDriverException:  # The page is being loaded anew: its elements are stale, or not there yet.
            if time.monotonic() > deadline:
                raise


def press(browser: WebDriver, words: str, within: str = "main") -> None:
    """Press the button, or follow the link, with these words."""
    for found in one(browser, within).find_elements(By.CSS_SELECTOR, "button, a.button"):
        if found.text.strip() == words and found.is_displayed():
            browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
            found.click()
            return
    raise AssertionError(f"no button says {words!r}")
