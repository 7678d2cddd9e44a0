"""One walk through the console in a real browser: sign in, watch a job, upload a file, train, decide."""

from pathlib import Path

import numpy as np
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.ui import Select

from pairmark.service.jobs.queue import JobQueue
from pairmark.service.training.trainer import Trainer
from tests.browser.conftest import complaints, one, people, press, text, until
from tests.serving import Serve


def test_a_job_moves_and_its_model_appears_without_a_reload(browser: WebDriver, serve: Serve) -> None:
    deployment = serve()
    rng = np.random.default_rng(0)
    X = (np.repeat(rng.normal(size=(12, 8)), 40, axis=0) + 0.5 * rng.normal(size=(480, 8))).astype(np.float32)
    deployment.upload("blobs", X, np.repeat(np.arange(12), 40))
    browser.get(deployment.url)
    browser.execute_script("window.untouched = true")

    assert "No model yet" in text(browser)
    request = {"learner": "metric", "dataset": "blobs", "model": "seen"}
    assert deployment.http.post("/jobs", json=request).status_code == 202
    until("the job", lambda: browser.find_elements(By.CSS_SELECTOR, "tr[data-job]"))

    def bars() -> list[float]:
        script = "return [...document.querySelectorAll('progress')].map((bar) => bar.value)"
        return browser.execute_script(script)

    with deployment.storage() as (database, blobs, settings):
        queue = JobQueue(database, settings)
        claim = queue.leases.claim("tests")
        assert claim is not None
        for fraction in (0.25, 0.5):
            queue.leases.progress(claim, fraction=fraction, stage="fitting", message="", event=True)
            until("the job's progress", lambda fraction=fraction: bars() == [fraction])
        Trainer(database, blobs, settings).run(claim)
    until("the job's end", lambda: not bars())
    until("the model's promise", lambda: "Stays below" in text(browser))
    assert "seen" in text(browser)
    assert "registered seen:1" in text(browser)
    assert browser.execute_script("return window.untouched") is True
    assert complaints(browser) == []


def test_from_an_upload_to_a_served_match(browser: WebDriver, serve: Serve, tmp_path: Path) -> None:
    deployment = serve(job_thread=True)
    X, y = people(60, 4, seed=1, d=4)
    file = tmp_path / "guests.csv"
    lines = [
        ",".join([*(f"{value:.5f}" for value in row), f"guest {who}"]) for row, who in zip(X, y, strict=True)
    ]
    file.write_text("\n".join(["w,x,y,z,person", *lines]))
    browser.get(f"{deployment.url}/console/train")
    one(browser, "#file").send_keys(str(file))
    until("the preview", lambda: "240 rows; 4 features; 60 identities" in text(browser, "#preview"))
    assert "calibrate. At 95 % confidence" in text(browser, "#preview")
    assert Select(one(browser, "#label")).first_selected_option.text == "person"
    assert one(browser, "#name").get_attribute("value") == "guests"
    press(browser, "Upload")
    until("the dataset", lambda: "Stored as guests:1" in text(browser, "#dataset-said"))
    assert "60 identities" in text(browser, "#dataset-said")
    Select(one(browser, "#learner")).select_by_value("metric")
    until("the parameters", lambda: browser.find_elements(By.ID, "p-metric"))
    one(browser, "#params-box summary").click()
    Select(one(browser, "#p-metric")).select_by_visible_text("euclidean")
    assert one(browser, "#model").get_attribute("value") == "guests"
    press(browser, "Train")
    until("the job", lambda: "/console/jobs/" in browser.current_url)
    until("its end", lambda: "Open guests:1" in text(browser))
    press(browser, "Open guests:1")
    until("the promise", lambda: "false matches" in text(browser) or "cannot guarantee" in text(browser))
    assert "production" in text(browser, ".head")
    press(browser, "Try it")
    until("the rows", lambda: "guest 0" in text(browser, "#right-said"))
    one(browser, "#fpr").clear()
    one(browser, "#fpr").send_keys("40")
    press(browser, "Compare")
    until("the decision", lambda: "score" in text(browser, "#answer"))
    assert text(browser, "#answer").startswith("match score"), text(browser, "#answer")
    assert complaints(browser) == []


def test_dark_follows_the_system(browser: WebDriver, digits_deployment) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        feature = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
        browser.get(digits_deployment.url)
        shades[scheme] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert shades["light"] != shades["dark"]


def test_signing_in(browser: WebDriver, serve: Serve) -> None:
    deployment = serve()
    key = deployment.key("score")["key"]
    until("the lock", lambda: deployment.http.get("/models").status_code == 401)
    browser.get(deployment.url)
    assert browser.current_url.endswith("/login")
    field = browser.find_element(By.NAME, "key")
    field.send_keys("pm_wrong")
    field.submit()
    assert "This key is unknown" in browser.find_element(By.TAG_NAME, "main").text
    field = browser.find_element(By.NAME, "key")
    field.send_keys(key)
    field.submit()
    until("the first page", lambda: "Overview" in browser.find_element(By.TAG_NAME, "main").text)
    browser.find_element(By.CSS_SELECTOR, ".who button").click()
    until("the sign-in page", lambda: browser.current_url.endswith("/login"))
