"""The first page over HTTP: what it says, and what it never lets through."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest

from tests.serving import RunningServer, Serve

HTML = {"Accept": "text/html"}


PAGES = (
    "/",
    "/console/models",
    "/console/models?contains=dig",
    "/console/models/digits",
    "/console/models/digits/1",
)


def words(page: str) -> str:
    """The text of a page as people read it."""
    return re.sub(r"(?:<[^>]+>|\s|\u00a0)+", " ", page)


def test_it_shows_models_with_their_promise(digits_deployment: RunningServer) -> None:
    point = digits_deployment.http.get("/models/digits/versions/1/operating-point?fpr=0.01")
    for path in ("/", "/console/models/digits"):
        page = digits_deployment.http.get(path, headers=HTML)
        assert page.status_code == 200
        text = words(page.text)
        if point.status_code == 200:
            assert "Stays below 1 % false matches with 95 % confidence" in text
            assert f"recognizes {100 * point.json()['tpr']:.3g} %" in text
        else:
            assert "its calibration supports" in text or point.json()["detail"] in text
    assert "similarity-forest" in text


@pytest.mark.parametrize("path", PAGES)
def test_nothing_comes_from_elsewhere_and_nothing_is_inline(
    digits_deployment: RunningServer, path: str
) -> None:
    page = digits_deployment.http.get(path, headers=HTML)
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(page.content) < 200_000
    assert not re.search(r"(src|href|action)=\"(https?:)?//", page.text)
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page.text)
    for link in set(re.findall(r'(?:src|href)="(/[^"]*)"', page.text)):
        assert digits_deployment.http.get(html.unescape(link)).status_code == 200, link


def test_rows_of_hardest_pairs_are_read_by_number(digits_deployment: RunningServer) -> None:
    http = digits_deployment.http
    found = http.get("/models/digits/versions/1/errors?kind=false-match&limit=8").json()
    numbers = [found["items"][0][side] for side in ("right", "left")]
    answer = http.get(f"/datasets/{found['dataset']}/rows?rows={numbers[0]},{numbers[1]},999999999")
    assert [row["row"] for row in answer.json()["items"]] == numbers
    assert http.get("/datasets/digits/rows?rows=1,x").status_code == 422


def test_an_operating_point_is_the_one_that_match_uses(digits_deployment: RunningServer) -> None:
    http = digits_deployment.http
    pair = {"model": "digits", "left": [0.0] * 64, "right": [0.0] * 64}
    for query in (
        "fpr=0.2",
        "fpr=0.2&fnr=0.3&confidence=0.9",
        "fpr=0.1&confidence=0.9",
        "fpr=0.2&method=finite-sample",
        "fpr=0.0000001",
    ):
        asked = http.get(f"/models/digits/versions/1/operating-point?{query}")
        matched = http.post(f"/match?{query}", json=pair)
        assert asked.status_code == matched.status_code, query
        if asked.status_code == 200:
            assert asked.json() == matched.json()["operating_point"]
        else:
            assert asked.json()["smallest_fpr"] == matched.json()["smallest_fpr"]
    for query in ("fpr=2", "fpr=0.1&method=magic", "fpr=nan", ""):
        assert http.get(f"/models/digits/versions/1/operating-point?{query}").status_code == 422, query
    assert http.get("/models/digits/versions/1/operating-point?fpr=0.1&calibration=x").status_code == 404
    assert http.get("/models/nobody/versions/1/operating-point?fpr=0.1").status_code == 404


def test_with_keys_it_asks_to_sign_in_and_the_cookie_is_a_session(serve: Serve) -> None:
    deployment = serve()
    http = deployment.http
    assert http.get("/login").headers["location"] == "/"
    made = json.loads(deployment.cli("keys", "create", "--scope", "admin", "--json").stdout)
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
    word = signed.cookies["pairmark_session"]
    assert made["key"] not in cookie
    assert "max-age=43200" in cookie
    # Another site's form could at most send the cookie along: it must not act.
    assert http.post("/jobs", json={}).status_code == 403
    assert http.delete("/datasets/x").status_code == 403
    token = re.search(r'<meta name="csrf-token" content="([^"]+)">', http.get("/", headers=HTML).text)
    assert token is not None
    ours = {"x-csrf-token": token[1]}
    assert http.post("/jobs", json={}, headers=ours).status_code == 422
    assert http.delete("/datasets/x", headers=ours).status_code == 404
    assert http.delete("/datasets/x", headers={**ours, "origin": "http://evil.example"}).status_code == 403
    assert http.post("/logout", headers={"origin": "http://evil.example"}).status_code == 403
    http.post("/logout")
    assert http.get("/", headers=HTML).status_code == 303
    # The session has ended, not only its cookie here.
    assert http.get("/models", headers={"cookie": f"pairmark_session={word}"}).status_code == 401
    there = http.post("/login?next=/console/models", data={"key": made["key"]})
    assert there.headers["location"] == "/console/models"
    for elsewhere in ("//evil.example", "https://evil.example", "/\\evil.example"):
        signed = http.post("/login", params={"next": elsewhere}, data={"key": made["key"]})
        assert signed.headers["location"] == "/", elsewhere
    assert http.get("/models").status_code == 200
    deployment.cli("keys", "revoke", made["id"])
    assert http.get("/models").status_code == 401


def test_galleries_are_shown_to_keys_that_may_read_them(serve: Serve) -> None:
    deployment = serve()
    rng = np.random.default_rng(0)
    deployment.upload("d", rng.normal(size=(80, 4)).astype(np.float32), np.repeat(np.arange(40), 2))
    job = deployment.train(learner="metric", dataset="d", model="m", params={"metric": "euclidean"})
    assert job["state"] == "succeeded", job
    assert deployment.http.put("/galleries/secret-guests", json={"model": "m"}).status_code == 201
    assert "secret-guests" in deployment.http.get("/console/galleries", headers=HTML).text
    items = [{"id": f"i{at}", "vector": [at, 0.0, 0.0, 1.0]} for at in range(3)]
    assert deployment.http.put("/galleries/secret-guests/items", json={"items": items}).status_code == 200
    keys = {
        scope: json.loads(deployment.cli("keys", "create", "--scope", scope, "--json").stdout)["key"]
        for scope in ("admin", "gallery", "train", "score")
    }
    for scope, key in keys.items():
        page = deployment.http.get("/", headers={**HTML, "X-API-Key": key})
        assert page.status_code == 200
        seen = scope in ("admin", "gallery")
        assert ('href="/console/galleries"' in page.text) == seen, scope
        for path in ("/console/galleries", "/console/galleries/secret-guests"):
            page = deployment.http.get(path, headers={**HTML, "X-API-Key": key})
            assert page.status_code == (200 if seen else 403), (scope, path)
            assert ("secret-guests" in page.text) == seen, (scope, path)
        shown = {"X-API-Key": key}
        cancelled = deployment.http.post(f"/jobs/{job['id']}/cancel", headers=shown).status_code
        assert cancelled == (202 if scope in ("admin", "train") else 403), scope
