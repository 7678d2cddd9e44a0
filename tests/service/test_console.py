"""The first page over HTTP: what it says, and what it never lets through."""

import html
import re

import numpy as np
import pytest

from tests.serving import RunningServer, Serve, answered

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
    http, path = digits_deployment.http, "/models/digits/versions/1/operating-point"
    refused = answered(http.get(f"{path}?fpr=0.01"), 422).json()
    rate = refused["ways"][0]["fpr"]
    point = answered(http.get(f"{path}?fpr={rate:g}")).json()
    overview, model = (
        words(answered(http.get(page, headers=HTML)).text) for page in ("/", "/console/models/digits")
    )
    assert f"digits:1 cannot guarantee 1 %: its calibration supports {100 * rate:.3g} % and above" in overview
    assert refused["detail"] in model
    for text in (overview, model):
        assert f"Stays below {100 * rate:.3g} % false matches with 95 % confidence" in text
        assert f"recognizes {100 * point['tpr']:.3g} %" in text
        assert "similarity-forest" in text


def test_it_shows_a_model_at_the_rate_that_it_was_trained_for(digits_deployment: RunningServer) -> None:
    evaluation = {"n_pairs": 20_000, "target_fpr": 0.3}
    digits_deployment.train(
        learner="metric", dataset="digits", model="for-30", evaluation=evaluation, promote=False
    )
    page = answered(digits_deployment.http.get("/console/models/for-30", headers=HTML))
    assert "Stays below 30 % false matches" in words(page.text)


@pytest.mark.parametrize("path", PAGES)
def test_nothing_comes_from_elsewhere_and_nothing_is_inline(
    digits_deployment: RunningServer, path: str
) -> None:
    page = answered(digits_deployment.http.get(path, headers=HTML))
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
    made = deployment.key("admin")
    asked = http.get("/", headers=HTML)
    assert (asked.status_code, asked.headers.get("location")) == (303, "/login")
    for path, status in (("/", 401), ("/login", 200), ("/static/console.css", 200)):
        assert http.get(path).status_code == status, path
    for body in (
        b"key=pm_wrong",
        b"key=%c3%a9",
        b"\xff\xfe=&&&&&",
        b"&".join(b"a=%d" % n for n in range(1000)),
        b"key=%ff%0d%0a",
        b"key=" + b"x" * 99999,
    ):
        assert http.post("/login", content=body).status_code == 403
    signed = http.post("/login", data={"key": made["key"]})
    assert (signed.status_code, signed.headers["location"]) == (303, "/")
    cookie = signed.headers["set-cookie"].lower().split("; ")
    assert {"httponly", "samesite=strict", "max-age=43200"} <= set(cookie)
    assert made["key"] not in signed.headers["set-cookie"]
    assert [http.get(path, headers=HTML).status_code for path in ("/", "/models")] == [200, 200]
    word = signed.cookies["pairmark_session"]
    # Another site's form could at most send the cookie along: it must not act.
    token = re.search(r'<meta name="csrf-token" content="([^"]+)">', http.get("/", headers=HTML).text)
    ours, evil = {"x-csrf-token": token[1]}, {"origin": "http://evil.example"}
    for method, path, headers, status in (
        ("POST", "/jobs", {}, 403),
        ("DELETE", "/datasets/x", {}, 403),
        ("POST", "/jobs", ours, 422),
        ("DELETE", "/datasets/x", ours, 404),
        ("DELETE", "/datasets/x", ours | evil, 403),
        ("POST", "/logout", evil, 403),
    ):
        sent = {} if method == "POST" and path == "/jobs" else None
        assert http.request(method, path, headers=headers, json=sent).status_code == status, (path, headers)
    http.post("/logout")
    assert http.get("/", headers=HTML).status_code == 303
    # The session has ended, not only its cookie here.
    assert http.get("/models", headers={"cookie": f"pairmark_session={word}"}).status_code == 401
    for asked_for, shown in (
        ("/console/models", "/console/models"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
    ):
        signed = http.post("/login", params={"next": asked_for}, data={"key": made["key"]})
        assert signed.headers["location"] == shown, asked_for
    assert http.get("/models").status_code == 200
    deployment.cli("keys", "revoke", made["id"])
    assert http.get("/models").status_code == 401


def test_galleries_are_shown_to_keys_that_may_read_them(serve: Serve) -> None:
    deployment = serve()
    rng = np.random.default_rng(0)
    deployment.upload("d", rng.normal(size=(80, 4)).astype(np.float32), np.repeat(np.arange(40), 2))
    job = deployment.train(learner="metric", dataset="d", model="m", params={"metric": "euclidean"})
    deployment.enroll("secret-guests", "m", [[at, 0.0, 0.0, 1.0] for at in range(3)])
    assert "secret-guests" in deployment.http.get("/console/galleries", headers=HTML).text
    for scope, key in {
        scope: deployment.key(scope)["key"] for scope in ("admin", "gallery", "train", "score")
    }.items():
        page = answered(deployment.http.get("/", headers={**HTML, "X-API-Key": key}))
        seen = scope in ("admin", "gallery")
        assert ('href="/console/galleries"' in page.text) == seen, scope
        for path in ("/console/galleries", "/console/galleries/secret-guests"):
            page = deployment.http.get(path, headers={**HTML, "X-API-Key": key})
            assert page.status_code == (200 if seen else 403), (scope, path)
            assert ("secret-guests" in page.text) == seen, (scope, path)
        cancelled = deployment.http.post(f"/jobs/{job['id']}/cancel", headers={"X-API-Key": key}).status_code
        assert cancelled == (202 if scope in ("admin", "train") else 403), scope
