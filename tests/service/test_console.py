"""The first page over HTTP: what it says, and what it never lets through."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from serving import RunningServer, Serve

HTML = {"Accept": "text/html"}


def test_it_shows_models_with_their_promise(digits_house: RunningServer) -> None:
    page = digits_house.http.get("/", headers=HTML)
    assert page.status_code == 200
    text = re.sub(r"<[^>]+>|\s+", " ", page.text)
    point = digits_house.http.post(
        "/match?fpr=0.01", json={"model": "digits", "left": [0.0] * 64, "right": [0.0] * 64}
    ).json()
    if "operating_point" in point:
        assert f"{100 * point['operating_point']['tpr']:.4g} %" in text
    else:
        assert "No promise at a false positive rate of 1 %" in text
    assert 'src="/models/digits/versions/1/roc.svg"' in page.text
    assert "digits:1" in text
    assert "similarity-forest" in text


def test_nothing_comes_from_elsewhere_and_nothing_is_inline(digits_house: RunningServer) -> None:
    page = digits_house.http.get("/", headers=HTML)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"(src|href|action)=\"(https?:)?//", page.text)
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page.text)
    for path in set(re.findall(r'(?:src|href)="(/[^"]*)"', page.text)):
        assert digits_house.http.get(path).status_code == 200, path


def test_empty_states_name_the_next_command(serve: Serve) -> None:
    page = serve().http.get("/", headers=HTML).text
    assert "pairmark datasets add NAME FILE --label COLUMN" in page
    assert "pairmark train --learner" in page


def test_with_keys_it_asks_to_sign_in_and_the_cookie_only_reads(serve: Serve) -> None:
    house = serve()
    http = house.http
    assert http.get("/login").headers["location"] == "/"
    made = json.loads(house.cli("keys", "create", "--scope", "admin", "--json").stdout)
    asked = http.get("/", headers=HTML)
    assert (asked.status_code, asked.headers.get("location")) == (303, "/login")
    assert http.get("/").status_code == 401
    assert http.get("/login").status_code == 200
    assert http.get("/static/console.css").status_code == 200
    assert http.post("/login", data={"key": "pm_wrong"}).status_code == 403
    assert http.post("/login", data={"key": "\u00e9"}).status_code == 403
    for body in (
        b"\xff\xfe=&&&&&",
        b"&".join(b"a=%d" % n for n in range(1000)),
        b"key=%ff%0d%0a",
        b"key=" + b"x" * 99999,
    ):
        assert http.post("/login", content=body).status_code == 403
    signed = http.post("/login", data={"key": made["key"]})
    assert (signed.status_code, signed.headers["location"]) == (303, "/")
    cookie = signed.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert http.get("/", headers=HTML).status_code == 200
    assert http.get("/models").status_code == 200
    # Another site's form could at most send the cookie along: it must not act.
    assert http.post("/jobs", json={}).status_code == 401
    assert http.delete("/datasets/x").status_code == 401
    http.post("/logout")
    assert http.get("/", headers=HTML).status_code == 303


def test_galleries_are_shown_to_keys_that_may_read_them(serve: Serve) -> None:
    house = serve("--with-worker")
    rng = np.random.default_rng(0)
    house.upload("d", rng.normal(size=(80, 4)).astype(np.float32), np.repeat(np.arange(40), 2))
    job = house.train(learner="metric", dataset="d", model="m", params={"metric": "euclidean"})
    assert job["state"] == "succeeded", job
    assert house.http.put("/galleries/secret-guests", json={"model": "m"}).status_code == 201
    assert "secret-guests" in house.http.get("/", headers=HTML).text
    items = [{"id": f"i{at}", "vector": [at, 0.0, 0.0, 1.0]} for at in range(3)]
    assert house.http.put("/galleries/secret-guests/items", json={"items": items}).status_code == 200
    measured = house.http.post("/galleries/secret-guests/evaluations?background=true", json={"dataset": "d"})
    assert measured.status_code == 202, measured.text
    number = measured.json()["id"]
    house.finished(number)
    keys = {
        scope: json.loads(house.cli("keys", "create", "--scope", scope, "--json").stdout)["key"]
        for scope in ("admin", "gallery", "train", "score")
    }
    for scope, key in keys.items():
        page = house.http.get("/", headers={**HTML, "X-API-Key": key})
        assert page.status_code == 200
        seen = scope in ("admin", "gallery")
        assert ("secret-guests" in page.text) == seen, scope
        # Nor are they told by the jobs that measured them.
        shown = {"X-API-Key": key}
        assert ("secret-guests" in house.http.get("/jobs", headers=shown).text) == seen, scope
        for path in (f"/jobs/{number}", f"/jobs/{number}/events"):
            assert house.http.get(path, headers=shown).status_code == (200 if seen else 403), (scope, path)
        cancelled = house.http.post(f"/jobs/{number}/cancel", headers=shown).status_code
        assert cancelled == (202 if seen else 403), scope
        cancelled = house.http.post(f"/jobs/{job['id']}/cancel", headers=shown).status_code
        assert cancelled == (202 if scope in ("admin", "train") else 403), scope


def test_names_cannot_smuggle_markup(serve: Serve) -> None:
    house = serve()
    text = "a,b,who\n" + "".join(f"{row},{row % 3},<script>alert({row % 2})</script>\n" for row in range(8))
    answer = house.http.post(
        "/datasets", data={"name": "plain", "label": "who"}, files={"file": ("x.csv", text.encode())}
    )
    assert answer.status_code == 201
    body = {"learner": "similarity-forest", "dataset": "plain", "model": "<script>alert(1)</script>"}
    assert house.http.post("/jobs", json=body).status_code == 422
    assert "<script>alert" not in house.http.get("/", headers=HTML).text


@pytest.mark.parametrize("path", ["/static/nothing.js", "/static/../pages.py", "/static/%2e%2e/pages.py"])
def test_only_static_files_are_served(digits_house: RunningServer, path: str) -> None:
    assert digits_house.http.get(path).status_code == 404
