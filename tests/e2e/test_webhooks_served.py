"""Webhooks of a running service, and pictures for reviewers."""

import json
import time
from collections.abc import Callable

import numpy as np
import pytest

from tests.service.test_webhooks import Listener, listener  # noqa: F401
from tests.serving import answered, serving


def test_a_running_service_tells_of_an_ended_job_and_of_a_promotion(
    new_database: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
    listener: Listener,  # noqa: F811
) -> None:
    home = tmp_path_factory.mktemp("webhooks")
    environment = {
        "PAIRMARK_WEBHOOK_HOSTS": listener.host,
        "PAIRMARK_REVIEW_IMAGES": "https://pictures.test/{ref}.jpg",
    }
    with serving(home, new_database("sqlite"), **environment) as server:
        http = server.http
        for wrong, field in (
            ({"url": "http://127.0.0.1:9/", "events": ["job.end"]}, "url"),
            ({}, "url"),
            ({"url": listener.url, "events": ["all"]}, "events[0]"),
            ({"url": listener.url, "events": []}, "events"),
        ):
            refused = http.post("/webhooks", json=wrong)
            assert (refused.status_code, refused.json()["field"]) == (422, field), wrong
        webhook = answered(http.post("/webhooks", json={"url": listener.url}), 201).json()
        assert webhook["secret"] not in http.get("/webhooks").text
        y = np.repeat(np.arange(40), 3)
        X = (np.random.default_rng(0).normal(size=(40, 3))[y]).astype(np.float32)
        server.upload("people", X + 0.1, y)
        job = server.train(learner="metric", dataset="people", model="people", params={"metric": "euclidean"})
        for _ in range(200):
            told = {json.loads(body)["type"]: json.loads(body)["data"] for _, body in listener.messages}
            if {"job.end", "alias.move"} <= told.keys():
                break
            time.sleep(0.1)
        assert (told["job.end"]["resource"], told["job.end"]["state"]) == (f"job:{job['id']}", "succeeded")
        assert told["alias.move"]["resource"] == "model:people@production"
        path = f"/webhooks/{webhook['id']}"
        other = http.post("/webhooks", json={"url": listener.url, "events": ["review.alarm"]}).json()
        assert (other["events"], other["secret"][:6]) == (["review.alarm"], "whsec_")
        assert http.delete(f"/webhooks/{other['id']}").status_code == 204
        assert ["secret" in remaining for remaining in http.get("/webhooks").json()["items"]] == [False]
        assert http.delete(path).status_code == 204
        assert http.delete(path).status_code == 404
        # Pictures come from the host of the setting, which the page's policy names, and from no other.
        review = http.post("/reviews", json={"source": {"refs": [["../x y", "b"]]}}).json()["id"]
        page = http.get(f"/console/reviews/{review}", headers={"accept": "text/html"})
        assert 'data-images="https://pictures.test/{ref}.jpg"' in page.text
        assert "img-src 'self' https://pictures.test;" in page.headers["content-security-policy"]
        plain_page = http.get("/console/reviews", headers={"accept": "text/html"})
        assert "img-src 'self';" in plain_page.headers["content-security-policy"]
