"""The console in a real browser: what people do on each page, by pointer and by keyboard."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select
from sqlalchemy import make_url

from tests.browser.conftest import complaints, hosts, one, people, press, text, until
from tests.browser.crowd import crowd
from tests.serving import RunningServer, Serve, answered, serving

pytestmark = pytest.mark.nightly
AXE = Path(__file__).parent / "axe-core" / "axe.min.js"
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
BYTES = """
const parts = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
return parts.filter((one) => !one.name.endsWith("/events")).reduce((sum, one) => sum + one.decodedBodySize, 0)
"""
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def deployment(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with a worker, a model of two versions, a ranker, and a gallery with names made of markup."""
    with serving(tmp_path_factory.mktemp("console"), new_database("sqlite"), job_thread=True) as server:
        X, y = people(400, 3)
        server.upload("people", X, y)
        for metric in ("euclidean", "cosine"):
            server.train(
                learner="metric", dataset="people", model="faces", params={"metric": metric}, promote=True
            )
        rows = ["a,b,order", *(f"{at},{at % 7},{'x>y' if at % 2 else 'y>x'}" for at in range(60))]
        answered(
            server.http.post(
                "/datasets",
                data={"name": "tastes", "ranking": "order"},
                files={"file": ("t.csv", "\n".join(rows).encode())},
            ),
            201,
        )
        server.train(learner="label-ranking-tree", dataset="tastes", model="tastes")
        server.enroll("staff", "faces", X[:24:3])
        item = {"id": MARKUP, "subject": MARKUP, "vector": X[30].tolist(), "metadata": {"k": MARKUP}}
        answered(server.http.put("/galleries/staff/items", json={"items": [item]}))
        server.facts.update(X=X, y=y)
        yield server


def agree(browser: WebDriver) -> None:
    """Say yes to the question that the page asks."""
    browser.switch_to.alert.accept()


def write(browser: WebDriver, field: str, *keys: str) -> None:
    """In place of what a field holds."""
    one(browser, field).clear()
    one(browser, field).send_keys(*keys)


def show_on(browser: WebDriver, width: int) -> None:
    """A screen so wide, below 600 a phone's."""
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)


def test_a_table_with_text_and_pairs_are_uploaded(
    browser: WebDriver, deployment: RunningServer, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    lines = [f"p{at // 2},{at % 7},{'Oslo' if at % 2 else ''},2024-01-{at + 1:02d}" for at in range(20)]
    table.write_text("\n".join(["who,age,home town,taken", *lines]))
    browser.get(f"{deployment.url}/console/train")
    one(browser, "#file").send_keys(str(table))
    until("the preview", lambda: "home town" in text(browser, "#preview"))
    assert Select(one(browser, "#time")).first_selected_option.text == "taken"
    press(browser, "Upload")
    until("the dataset", lambda: "Stored as table:1" in text(browser, "#dataset-said"))
    columns = {
        each["name"]: each["type"] for each in deployment.http.get("/datasets/table").json()["columns"]
    }
    assert columns["who"] == "identity"
    rows, pairs = tmp_path / "points.csv", tmp_path / "pairs.csv"
    rows.write_text("a,b\n" + "".join(f"{at},{at % 3}\n" for at in range(6)))
    pairs.write_text("left,right,same\n0,1,1\n1,2,1\n3,4,0\n")
    browser.get(f"{deployment.url}/console/train")
    one(browser, "#file").send_keys(str(rows))
    until("the preview", lambda: "Check the roles below" in text(browser, "#preview"))
    one(browser, "#pairs").send_keys(str(pairs))
    press(browser, "Upload")
    until("the dataset", lambda: "Stored as points:1" in text(browser, "#dataset-said"))
    stored = deployment.http.get("/datasets/points").json()
    assert (stored["n_pairs"], stored["n_same_pairs"]) == (3, 2)


def test_the_operating_point_follows_the_slider(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/models/faces")
    until("the curve", lambda: browser.find_elements(By.CSS_SELECTOR, "#curve path.curve"))
    until(
        "the point",
        lambda: "Stays below" in text(browser, "#said") and "/match?fpr=" in text(browser, "#snippet"),
    )
    slider = one(browser, "#rate")
    before = text(browser, "#facts")
    for _ in range(20):
        slider.send_keys(Keys.ARROW_RIGHT)
    until("another threshold", lambda: text(browser, "#facts") not in ("", before))
    rate = one(browser, "#rate-number").get_attribute("value")
    until("its words", lambda: f"Stays below {rate} % false matches" in text(browser, "#said"))
    point = deployment.http.get(f"/models/faces/versions/2/operating-point?fpr={float(rate) / 100:g}").json()
    assert f"{100 * point['tpr']:.3g} %" in text(browser, "#said")
    assert f"fpr={float(rate) / 100:g}" in text(browser, "#snippet")
    # What cannot be guaranteed is drawn, and said with the number of people that it takes.
    assert one(browser, "#curve rect.unsupported").size["width"] > 20
    write(browser, "#rate-number", "0.01", Keys.TAB)
    until("the refusal", lambda: "cannot guarantee 0.01 %" in text(browser, "#said"))
    for way in deployment.http.get("/models/faces/versions/2/operating-point?fpr=0.0001").json()["ways"]:
        assert way["text"] in text(browser, "#short")
    # What cannot be guaranteed is neither marked as guaranteed nor copied.
    assert browser.find_elements(By.CSS_SELECTOR, "#curve .cut") == []
    assert not one(browser, ".legend .cutline").is_displayed()
    assert not one(browser, "[data-copies=snippet]").is_enabled()
    assert "/match" not in text(browser, "#snippet")
    press(browser, "DET")
    until("the other curve", lambda: "DET" in one(browser, "#curve svg").get_attribute("aria-label"))
    Select(one(browser, "#other")).select_by_value("1")
    until("two versions", lambda: browser.find_elements(By.CSS_SELECTOR, "#curve path.curve.other"))
    # A browser notes every refusal that a script asked for; there is nothing else.
    assert [entry for entry in complaints(browser) if "status of 422" not in entry] == []


def test_doubtful_pairs_go_to_review(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/models/faces/2")
    until("the point", lambda: "/match?fpr=" in text(browser, "#snippet"))
    write(browser, "#rate-number", "10", Keys.TAB)
    until("the rate", lambda: "Stays below 10 %" in text(browser, "#said"))
    one(browser, "#three-way").click()
    until("three answers", lambda: "To review" in text(browser, "#said"))
    point = deployment.http.get("/models/faces/versions/2/operating-point?fpr=0.1&fnr=0.1").json()
    assert f"review: {100 * point['review_same']:.3g} % of same" in text(browser, "#said")
    # Of scores this far apart both thresholds are one: what is said changes with the rate.
    before = text(browser, "#said")
    for _ in range(30):
        one(browser, "#miss").send_keys(Keys.ARROW_RIGHT)
    until("another rate", lambda: text(browser, "#said") not in ("", before))
    assert "fnr=" in text(browser, "#snippet")
    one(browser, "#three-way").click()
    until("two answers", lambda: "To review" not in text(browser, "#said"))
    assert [entry for entry in complaints(browser) if "status of 422" not in entry] == []


def test_rolling_back_and_promoting(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/models/faces/2")
    press(browser, "Roll back to version 1")
    one(browser, "dialog[open] [name=reason]").send_keys("Version 2 misses twins", Keys.ENTER)
    until("the roll-back", lambda: "not in production" in text(browser, ".head"))
    assert deployment.http.get("/models/faces/aliases/production").json()["version"] == 1
    assert "Version 2 misses twins" in text(browser, "section:has(#history-title)")
    assert "Version 2 misses twins" in deployment.http.get("/audit?action=alias.move&limit=1").text
    press(browser, "Promote to production")
    one(browser, "dialog[open] [name=reason]").send_keys("Twins are in the training data now")
    press(browser, "Promote version 2", "dialog[open]")
    until("the promotion", lambda: "Roll back to version 1" in text(browser, ".head"))
    assert deployment.http.get("/models/faces/aliases/production").json()["version"] == 2
    # Somebody else moves it while this page is open: nothing is overwritten unseen.
    assert deployment.http.put("/models/faces/aliases/production", json={"version": 1}).status_code == 200
    press(browser, "Roll back to version 1")
    one(browser, "dialog[open] [name=reason]").send_keys("too late")
    press(browser, "Roll back to version 1", "dialog[open]")
    until("the refusal", lambda: "look again" in text(browser, "dialog[open] [data-problem]"))
    assert deployment.http.put("/models/faces/aliases/production", json={"version": 2}).status_code == 200


def test_a_subject_is_verified_and_a_gallery_deleted(browser: WebDriver, deployment: RunningServer) -> None:
    assert deployment.http.put("/galleries/visitors", json={"model": "faces"}).status_code == 201
    items = [{"id": f"v{at}", "subject": "p0", "vector": deployment.facts["X"][at].tolist()} for at in (0, 1)]
    assert deployment.http.put("/galleries/visitors/items", json={"items": items}).status_code == 200
    browser.get(f"{deployment.url}/console/galleries/visitors")
    one(browser, "#claimed").send_keys("p0")
    one(browser, "#probe").send_keys("v1")
    write(browser, "#verify-fpr", "20")
    press(browser, "Verify", "#verify")
    until("the decision", lambda: "items compared" in text(browser, "#verified"))
    assert text(browser, "#verified").startswith("match score")
    assert "the person as a whole (mean)" in text(browser, "#verified")
    press(browser, "Delete gallery")
    agree(browser)
    until("the list", lambda: browser.current_url.endswith("/console/galleries"))
    assert "visitors" not in text(browser)


def test_a_job_is_cancelled(browser: WebDriver, deployment: RunningServer) -> None:
    job = deployment.http.post(
        "/jobs",
        json={
            "learner": "similarity-forest",
            "dataset": "people",
            "model": "long",
            "params": {"n_estimators": 3000, "n_pairs": 200_000},
        },
    ).json()["id"]
    browser.get(f"{deployment.url}/console/jobs/{job}")
    press(browser, "Cancel")
    until("its end", lambda: "cancelled" in text(browser, "#job-state"))
    assert deployment.finished(job)["state"] == "cancelled"
    until("what to do next", lambda: "Train again" in text(browser))


def test_people_are_compared_by_several_samples(browser: WebDriver, deployment: RunningServer) -> None:
    X = deployment.facts["X"]
    browser.get(f"{deployment.url}/console/try?model=faces:2")
    until("the rows", lambda: "row 1" in text(browser, "#right-said"))
    for side, rows in (("left", X[:2]), ("right", X[2:3])):
        browser.execute_script(
            "document.getElementById(arguments[0]).value = arguments[1]",
            side,
            "\n".join(", ".join(str(value) for value in row) for row in rows),
        )
    write(browser, "#fpr", "20")
    press(browser, "Compare")
    until("the decision", lambda: "score" in text(browser, "#answer"))
    score = deployment.http.post(
        "/similarity", json={"model": "faces:2", "left": {"samples": X[:2].tolist()}, "right": X[2].tolist()}
    ).json()["scores"][0]
    assert f"{score:.6g}"[:5] in text(browser, "#answer")
    assert complaints(browser) == []


def test_labels_are_ranked_from_a_form(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/try?model=tastes:1")
    assert [label.text for label in browser.find_elements(By.CSS_SELECTOR, "#rank label")] == ["a", "b"]
    press(browser, "Rank")
    until("the ranking", lambda: "1." in text(browser, "#ranked"))
    assert {"x", "y"} <= set(text(browser, "#ranked").split())


PAGES = (
    "/",
    "/console/models",
    "/console/models/faces",
    "/console/models/tastes",
    "/console/try",
    "/console/try?model=tastes:1",
    "/console/train",
    "/console/jobs",
    "/console/datasets",
    "/console/datasets/people:1",
    "/console/galleries",
    "/console/galleries/staff",
    "/console/reviews",
    "/console/audit",
    "/console/keys",
    "/docs",
)
OTHER_PAGES = (
    "/login",
    "/console/models/faces/1",
    "/console/models/nobody",
    "/problems",
    "/problems/insufficient-calibration-data",
    "/models/faces/versions/2/report",
)


def serious(browser: WebDriver, scheme: str) -> list[list[object]]:
    """What axe-core calls serious or critical on the page as it is."""
    # Colours are what differs in the dark; everything else is looked at once.
    options = "{resultTypes: ['violations']" + (", runOnly: ['color-contrast']}" if scheme == "dark" else "}")
    browser.execute_script(AXE.read_text())
    result = browser.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run(document, " + options + ")"
        ".then((result) => done(result.violations.map((one) => [one.impact, one.id, one.nodes.map((node) => "
        "node.target + ' ' + (node.failureSummary || ''))])), (error) => done([['critical', String(error), []]]))"
    )
    return [entry for entry in result if entry[0] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_quiet_from_here_and_fit_the_screen(
    browser: WebDriver, deployment: RunningServer, scheme: str
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    job = deployment.http.get("/jobs?limit=1").json()["items"][0]["id"]
    found = {}
    review = reviewed(deployment)
    for path in (*PAGES, *OTHER_PAGES, f"/console/jobs/{job}", f"/console/reviews/{review}"):
        browser.get(deployment.url + path)
        until("the page", lambda: browser.execute_script("return document.readyState") == "complete")
        if bad := serious(browser, scheme):
            found[path] = bad
        assert "`" not in text(browser, "body"), path
        for width in (360, 1280) if scheme == "light" else ():
            show_on(browser, width)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (
                path,
                width,
            )
    for path, opener in (
        ("/console/models/faces/1", "promote"),
        ("/console/galleries", "new-gallery"),
        ("/console/keys", "new-key"),
    ):
        browser.get(deployment.url + path)
        one(browser, f"[data-opens={opener}]").click()
        until("the dialog", lambda: browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
        if bad := serious(browser, scheme):
            found[f"{path}, {opener}"] = bad
    assert not found, json.dumps(found, indent=1)[:6000]
    # A page that is not there is noted by the browser, and nothing else.
    assert [entry for entry in complaints(browser) if "status of 404" not in entry] == []
    assert hosts(browser) == {deployment.url.removeprefix("http://")}


def reviewed(deployment: RunningServer) -> str:
    """A review of 60 pairs, some with names made of markup."""
    refs = [[f"a{at}", MARKUP if at % 2 else f"b{at}"] for at in range(60)]
    return str(deployment.http.post("/reviews", json={"source": {"refs": refs}, "name": MARKUP}).json()["id"])


@pytest.mark.parametrize("path", ["/console/jobs", "/console/models"])
def test_a_table_is_read_whole_on_a_phone(browser: WebDriver, deployment: RunningServer, path: str) -> None:
    show_on(browser, 390)
    browser.get(deployment.url + path)
    tables = "[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    assert max(browser.execute_script(f"return {tables}")) <= 1


def test_pairs_are_judged_by_key_on_a_phone_too(browser: WebDriver, deployment: RunningServer) -> None:
    review = reviewed(deployment)
    for width in (390, 1280):
        show_on(browser, width)
        browser.get(f"{deployment.url}/console/reviews/{review}")
        until("a pair", lambda: browser.find_elements(By.CSS_SELECTOR, "#sides .ref"))
        before = {
            name: int(one(browser, f"[data-fact={name}]").text.replace(",", ""))
            for name in ("judged", "wrong")
        }

        def shown(name: str, expected: int) -> None:
            until(name, lambda: one(browser, f"[data-fact={name}]").text == str(expected))

        first = one(browser, "#sides .ref").text
        page = one(browser, "body")
        page.send_keys("s")
        shown("judged", before["judged"] + 1)
        until("another pair", lambda first=first: one(browser, "#sides .ref").text != first)
        second = one(browser, "#sides .ref").text
        page.send_keys("d")
        shown("wrong", before["wrong"] + 1)
        until("the next pair", lambda second=second: one(browser, "#sides .ref").text != second)
        page.send_keys("u")
        until("undo", lambda second=second: one(browser, "#sides .ref").text == second)
        until("the button", lambda: one(browser, "[data-says=same]").is_enabled())
        page.send_keys("s")
        shown("wrong", before["wrong"])
        shown("judged", before["judged"] + 2)
        one(browser, "[data-says=unsure]").click()
        shown("wrong", before["wrong"] + 1)
    assert "of 60 matches are false" in one(browser, "#statement").text
    assert deployment.http.get(f"/reviews/{review}").json()["judged"] == 6
    assert complaints(browser) == []


def test_names_made_of_markup_are_only_names(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/galleries/staff")
    assert MARKUP in one(browser, "main").text
    one(browser, "#query").send_keys(MARKUP)
    press(browser, "Search", "#search")
    until("the hits", lambda: browser.find_elements(By.CSS_SELECTOR, "#found tbody tr"))
    assert one(browser, "#found tbody tr").text.startswith(MARKUP)
    assert browser.find_elements(By.CSS_SELECTOR, "main img") == []
    assert complaints(browser) == []


def test_pages_read_without_scripts(browser: WebDriver, deployment: RunningServer) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    for path, words in (
        ("/", "Stays below"),
        ("/console/models", "faces"),
        ("/console/models/faces", "Stays below"),
        ("/console/jobs", "succeeded"),
        ("/console/datasets", "people:1"),
        ("/console/galleries/staff", "Items"),
        ("/console/train", "1. Data"),
    ):
        browser.get(deployment.url + path)
        assert words in text(browser), path
        assert "can be read without JavaScript" in text(browser)


def focused(browser: WebDriver) -> WebElement:
    """What the keyboard is on."""
    return browser.switch_to.active_element


def tab_to(browser: WebDriver, what: str, selector: str) -> WebElement:
    """Press Tab until the keyboard is on a visible element that fits."""
    for _ in range(120):
        # To the page as a whole: a field for files would take the key for a path.
        ActionChains(browser).send_keys(Keys.TAB).perform()
        if browser.execute_script("return document.activeElement.matches(arguments[0])", selector):
            return focused(browser)
    raise AssertionError(f"no {what} by tabbing")


def test_the_keyboard_is_shown_and_leaves_dialogs(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/models/faces/1")
    until("the point", lambda: "Stays below" in text(browser, "#said"))
    one(browser, "body").send_keys(Keys.TAB)
    assert focused(browser).text == "Skip to content"
    assert focused(browser).location["x"] >= 0
    tab_to(browser, "promotion", "[data-opens=promote]").send_keys(Keys.ENTER)
    until("the dialog", lambda: browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    focused(browser).send_keys(Keys.ESCAPE)
    until("it closed", lambda: not browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    assert focused(browser).text == "Promote to production"
    tab_to(browser, "slider", "#rate")
    assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_from_an_upload_to_an_erasure_by_keyboard_alone(
    browser: WebDriver, deployment: RunningServer, tmp_path: Path
) -> None:
    def to(what: str, selector: str, *keys: str) -> None:
        tab_to(browser, what, selector).send_keys(*keys)

    # Upload. The browser's own dialog for files is beyond a test: a focused field takes the path.
    X, y = people(300, 3, seed=2, d=4)
    file, enrolled = tmp_path / "typed.npz", tmp_path / "enrolled.npz"
    np.savez(file, X=X, y=y)
    np.savez(
        enrolled,
        ids=np.array([f"v{at}" for at in range(6)]),
        vectors=X[[0, 1, 3, 4, 6, 7]],
        subjects=np.array([f"p{at // 2}" for at in range(6)]),
    )
    browser.get(deployment.url)
    to("the first action", "main a.button[href='/console/train']", Keys.ENTER)
    until("the page", lambda: browser.find_elements(By.ID, "drop"))
    to("the file", "#file", str(file))
    until("the preview", lambda: "300 identities" in text(browser, "#preview"))
    to("the upload", "#upload button[type=submit]", Keys.ENTER)
    until("the dataset", lambda: "Stored as typed:1" in text(browser, "#dataset-said"))
    # Train, without putting it into production.
    to("the learner", "#learner", "metric")
    to("the promotion", "#promote", "not now")
    to("training", "#job button[type=submit]", Keys.ENTER)
    until("its end", lambda: "Open typed:1" in text(browser))
    to("the version", "main a.button[href='/console/models/typed/1']", Keys.ENTER)
    until("the point", lambda: "/match?fpr=" in text(browser, "#snippet"))
    # Choose a rate, promote.
    to("the slider", "#rate", Keys.END)
    to("the number", "#rate-number", Keys.BACK_SPACE * 8, "10", Keys.TAB)
    until("the rate", lambda: "Stays below 10 %" in text(browser, "#said"))
    browser.execute_script("document.activeElement.blur()")
    to("the promotion", "[data-opens=promote]", Keys.ENTER)
    until("the dialog", lambda: browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    if not browser.execute_script("return document.activeElement.matches('[name=reason]')"):
        tab_to(browser, "the reason", "[name=reason]")
    focused(browser).send_keys("typed by hand", Keys.ENTER)
    until("the promotion", lambda: "not in production" not in text(browser, ".head"))
    # Try it.
    to("trying", "main a.button[href^='/console/try']", Keys.ENTER)
    until("the rows", lambda: "label 0" in text(browser, "#right-said"))
    to("the rate", "#fpr", Keys.BACK_SPACE * 4, "10")
    to("comparing", "#pair button[type=submit]", Keys.ENTER)
    until("the decision", lambda: text(browser, "#answer").startswith("match score"))
    # Enrol, search, erase.
    browser.execute_script("document.activeElement.blur(); scrollTo(0, 0)")
    to("the galleries", "nav a[href='/console/galleries']", Keys.ENTER)
    until("the page", lambda: browser.find_elements(By.CSS_SELECTOR, "[data-opens=new-gallery]"))
    to("a new gallery", "[data-opens=new-gallery]", Keys.ENTER)
    until("the dialog", lambda: browser.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    focused(browser).send_keys("typed-people", Keys.TAB)
    focused(browser).send_keys(Keys.CONTROL + "a", Keys.NULL, "typed", Keys.ENTER)
    until("the gallery", lambda: "Nobody is enrolled yet" in text(browser))
    to("the import", "#import input", str(enrolled))
    until("the import", lambda: "6 items enrolled" in text(browser, "#import-progress"))
    browser.get(browser.current_url)
    to("the query", "#query", ", ".join(map(str, X[0])))
    to("searching", "#search button[type=submit]", Keys.ENTER)
    until("the hits", lambda: browser.find_elements(By.CSS_SELECTOR, "#found tbody tr"))
    assert one(browser, "#found tbody tr").text.startswith("v0 p0")
    to("erasing", "#erase input", "p0", Keys.ENTER)
    agree(browser)
    until("the receipt", lambda: "Receipt for p0" in text(browser, "#receipt"))
    assert deployment.http.get("/galleries/typed-people").json()["items"] == 4
    assert deployment.http.delete("/galleries/typed-people").status_code == 204
    assert [entry for entry in complaints(browser) if "status of 422" not in entry] == []


def test_a_request_is_tried_in_the_reference(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/docs")
    until("the requests", lambda: browser.find_elements(By.CSS_SELECTOR, "#get_operating_point"))
    one(browser, "#find input").send_keys("operating-point")
    entry = one(browser, "#get_operating_point")
    assert not one(browser, "#similarity").is_displayed()
    entry.find_element(By.TAG_NAME, "summary").click()
    until("the form", lambda: browser.find_elements(By.CSS_SELECTOR, "#get_operating_point form"))
    for name, value in (("name", "faces"), ("version", "2"), ("fpr", "0.2")):
        one(browser, f"#get_operating_point [data-name={name}]").send_keys(value)
    press(browser, "Send", "#get_operating_point")
    until("the answer", lambda: '"threshold"' in text(browser, "#get_operating_point [data-answer]"))
    assert text(browser, "#get_operating_point [data-answer]").startswith("200")
    browser.get(f"{deployment.url}/docs#search_gallery")
    browser.refresh()
    until("the body", lambda: browser.find_elements(By.CSS_SELECTOR, "#search_gallery [data-body]"))
    body = one(browser, "#search_gallery [data-body]").get_property("value")
    assert '"queries": [ 0.27, -0.15, 0.41, -0.05 ]' in body
    assert complaints(browser) == []


def test_a_curve_of_100_000_points_is_drawn_with_few(browser: WebDriver, deployment: RunningServer) -> None:
    browser.get(f"{deployment.url}/console/models/faces")
    drawn = browser.execute_async_script(
        """
        const done = arguments[arguments.length - 1];
        import("/static/chart.js").then(({ Chart }) => {
          const place = document.createElement("div");
          place.id = "large";
          document.querySelector("main").prepend(place);
          const points = Array.from({ length: 100000 }, (_, at) => [(at + 1) / 100000, Math.sqrt((at + 1) / 100000)]);
          const chart = new Chart(place, { x: { scale: "log", min: 1e-5, max: 1, label: "x" },
            y: { scale: "linear", min: 0, max: 1, label: "y" }, words: "large" });
          chart.set([{ kind: "line", points }]);
          done(place.querySelector("path.curve").getAttribute("d").length);
        });
        """
    )
    assert drawn < 60_000


def test_200_models_and_1000_jobs_stay_usable(browser: WebDriver, deployment: RunningServer) -> None:
    path = make_url(deployment.environment["PAIRMARK_DATABASE_URL"]).database
    crowd(Path(path or ""), model="faces", n_models=200, n_jobs=1000)
    until("them", lambda: deployment.http.get("/models?contains=many-199").json()["items"])
    for path in (*PAGES, "/login"):
        browser.get(deployment.url + path)
        until("a paint", lambda: browser.execute_script(PAINT) is not None)
        assert browser.execute_script(BYTES) < 200_000, path
    browser.get(f"{deployment.url}/console/models")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 25
    browser.find_element(By.LINK_TEXT, "Next page").click()
    assert "many-0" in text(browser)
    one(browser, "input[name=contains]").send_keys("199", Keys.ENTER)
    until("the model", lambda: "many-199" in text(browser) and "many-000" not in text(browser))


def test_a_session_that_ended_says_so(browser: WebDriver, serve: Serve) -> None:
    own = serve()
    made = own.key("admin")
    until("the lock", lambda: own.http.get("/models").status_code == 401)
    browser.get(f"{own.url}/console/jobs")
    assert "/login" in browser.current_url
    one(browser, "#key").send_keys(made["key"], Keys.ENTER)
    until("a page", lambda: "Pairmark" in browser.title and "/login" not in browser.current_url)
    browser.get(f"{own.url}/console/train")
    own.cli("keys", "revoke", made["id"])
    until("the end", lambda: own.http.get("/models", headers={"X-API-Key": made["key"]}).status_code == 401)
    Select(one(browser, "#learner")).select_by_value("metric")
    until("the notice", lambda: "Your session has ended" in text(browser))
    browser.find_element(By.LINK_TEXT, "Sign in again").click()
    until("the sign-in page", lambda: "/login" in browser.current_url)
