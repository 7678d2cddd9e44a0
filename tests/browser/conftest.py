"""One Chromium for all browser tests."""

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver


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
