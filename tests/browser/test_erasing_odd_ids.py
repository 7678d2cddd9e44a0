"""Erasing in the console takes what it names and nothing else, whatever the item is called."""

from collections.abc import Callable, Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from tests.browser.conftest import until
from tests.e2e.test_odd_ids import ODD, guarded, insert, stored
from tests.serving import RunningServer

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def server(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with guarded(tmp_path_factory.mktemp("odd-ids"), new_database("sqlite")) as running:
        yield running


def sign_in(browser: WebDriver, server: RunningServer) -> None:
    browser.get(f"{server.url}/login")
    browser.find_element(By.ID, "key").send_keys(server.facts["key"], Keys.ENTER)
    until("a page", lambda: "/login" not in browser.current_url)


def attacks(server: RunningServer) -> tuple[str, ...]:
    return (*ODD, f"../../../keys/{server.facts['victim']}", "../../bob", "../../../galleries/bob")


def test_items_and_subjects_are_erased_alone(browser: WebDriver, server: RunningServer) -> None:
    sign_in(browser, server)
    before = stored(server)
    for name in attacks(server):
        for form in (True, False):
            insert(server, name)
            browser.get(f"{server.url}/console/galleries/alice")
            if form:
                browser.find_element(By.CSS_SELECTOR, "#erase input").send_keys(name)
                button = browser.find_element(By.CSS_SELECTOR, "#erase button")
            else:
                found = browser.find_elements(By.CSS_SELECTOR, "[data-erase-item]")
                (button,) = [one for one in found if one.get_attribute("data-erase-item") == name]
            browser.execute_script(
                "arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", button
            )
            browser.switch_to.alert.accept()
            receipt = browser.find_element(By.ID, "receipt")
            until("the receipt", lambda place=receipt, name=name: f"Receipt for {name}" in place.text)
            assert stored(server) == before, name
