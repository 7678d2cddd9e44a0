"""Single sign-on with a real OpenID provider: who is let in, as whom, for how long, and every way that is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from tests.serving import PATIENCE_S, ROOT, RunningServer, serving

LIES = ("nonce", "issuer", "audience", "expired", "signature", "none")
GROUPS = {"research": ["train", "score"], "staff": ["gallery:people:read"], "operations": ["admin"]}


@pytest.fixture(scope="module")
def provider_url() -> Iterator[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.openid_provider"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(
    provider_url: str, new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    settings = {
        "PAIRMARK_OIDC_ISSUER": provider_url,
        "PAIRMARK_OIDC_CLIENT_ID": "pairmark",
        "PAIRMARK_OIDC_CLIENT_SECRET": "a secret of the client",
        "PAIRMARK_OIDC_PUBLIC_URL": "http://127.0.0.1:{port}",
        "PAIRMARK_OIDC_GROUPS": json.dumps(GROUPS),
        "PAIRMARK_OIDC_SESSION_S": "60",
    }
    with serving(tmp_path_factory.mktemp("oidc"), new_database("sqlite"), **settings) as running:
        key = json.loads(running.cli("keys", "create", "--scope", "admin", "--json").stdout)
        running.facts.update(key=key["key"])
        yield running


@dataclass
class Browser:
    """A person's browser, as far as sign-in needs one."""

    server: RunningServer
    http: httpx.Client

    def begin(self, next: str | None = None) -> httpx.Response:
        """Follow the button; the answer leads to the provider."""
        return self.http.get(f"{self.server.url}/login/oidc", params={"next": next} if next else {})

    def at_provider(self, address: str, sub: str | None) -> str:
        """Sign in there as somebody (None: refuse); returns where it sends the browser."""
        form = {"sub": sub} if sub else {"action": "deny"}
        answer = self.http.post(address, data=form)
        assert answer.status_code in (302, 303), answer.text
        return answer.headers["location"]

    def sign_in(self, sub: str, next: str | None = None) -> httpx.Response:
        began = self.begin(next)
        assert began.status_code == 303, began.text
        return self.http.get(self.at_provider(began.headers["location"], sub))


@pytest.fixture
def browser(server: RunningServer) -> Iterator[Browser]:
    with httpx.Client(timeout=60, trust_env=False) as http:
        yield Browser(server, http)


def cookie(answer: httpx.Response, name: str) -> str:
    """The attributes of a cookie that an answer sets."""
    return next(one for one in answer.headers.get_list("set-cookie") if one.startswith(f"{name}="))


def keys(server: RunningServer) -> list[dict]:
    answer = server.http.get("/keys?limit=500", headers={"X-API-Key": server.facts["key"]})
    return answer.json()["items"]


def test_the_login_page_offers_it_where_it_is_set_up(browser: Browser) -> None:
    text = browser.http.get(f"{browser.server.url}/login?next=/console/models").text
    assert 'href="/login/oidc?next=%2Fconsole%2Fmodels"' in text
    assert 'name="key"' in text


def test_a_person_is_let_in_with_the_scopes_of_their_groups(browser: Browser) -> None:
    server = browser.server
    began = browser.begin("/console/models?limit=2")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(began.headers["location"]).query).items()}
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{server.url}/login/oidc/callback"
    assert len(asked["state"]) >= 20
    assert len(asked["nonce"]) >= 20
    assert len(asked["code_challenge"]) == 43
    kept = cookie(began, "pairmark_sign_on")
    assert "HttpOnly" in kept
    assert "SameSite=lax" in kept
    back = browser.http.get(browser.at_provider(began.headers["location"], "ada"))
    assert back.status_code == 200, back.text
    assert 'content="0; url=/console/models?limit=2"' in back.text
    session = cookie(back, "pairmark_session")
    assert "HttpOnly" in session
    assert "SameSite=strict" in session
    assert "Max-Age=60" in session
    page = browser.http.get(f"{server.url}/console/models")
    assert page.status_code == 200, page.text
    assert browser.http.get(f"{server.url}/console/train").status_code == 200
    # What the groups do not carry is refused, and no change goes without the session's own token.
    assert browser.http.get(f"{server.url}/keys").status_code == 403
    assert browser.http.post(f"{server.url}/jobs", json={}).status_code == 403
    mine = [one for one in keys(server) if "Ada Lovelace (ada)" in one["name"]][-1]
    assert mine["scopes"] == ["train", "score", "gallery:people:read"]
    assert mine["expires_at"] is not None
    # An administrator ends it like any key.
    server.http.delete(f"/keys/{mine['id']}", headers={"X-API-Key": server.facts["key"]})
    ended = browser.http.get(f"{server.url}/console/models", headers={"accept": "text/html"})
    assert ended.headers["location"].startswith("/login")


def test_who_has_no_group_is_refused(browser: Browser) -> None:
    before = len(keys(browser.server))
    answer = browser.sign_in("bob")
    assert answer.status_code == 403
    assert "none of your groups" in answer.text
    assert "pairmark_session" not in browser.http.cookies
    assert len(keys(browser.server)) == before


@pytest.mark.parametrize("how", LIES)
def test_an_id_token_that_is_not_ours_is_refused(browser: Browser, provider_url: str, how: str) -> None:
    httpx.post(f"{provider_url}/lie?how={how}", trust_env=False, timeout=PATIENCE_S)
    try:
        answer = browser.sign_in("ada")
        assert answer.status_code == 403, answer.text
        assert "pairmark_session" not in browser.http.cookies
    finally:
        httpx.post(f"{provider_url}/lie?how=", trust_env=False, timeout=PATIENCE_S)
    assert browser.sign_in("ada").status_code == 200


def asked_for_tokens(provider_url: str) -> int:
    return httpx.get(f"{provider_url}/tokens", trust_env=False, timeout=PATIENCE_S).json()["asked"]


def test_a_way_back_that_this_browser_did_not_begin_is_refused(browser: Browser, provider_url: str) -> None:
    server = browser.server
    theirs = browser.at_provider(browser.begin().headers["location"], "eve")
    before = asked_for_tokens(provider_url)
    with httpx.Client(timeout=60, trust_env=False) as http:
        victim = Browser(server, http)
        assert http.get(theirs).status_code == 403
        victim.begin()
        assert http.get(theirs).status_code == 403
        for packed in ("", "x", "e30=", "bnVsbA==", "A" * 5000):
            answer = http.get(theirs, headers={"cookie": f"pairmark_sign_on={packed}"})
            assert answer.status_code == 403, packed
        assert "pairmark_session" not in http.cookies
    # None of these was worth a request to the provider.
    assert asked_for_tokens(provider_url) == before
    address = urlsplit(theirs)
    changed = {
        **{name: values[0] for name, values in parse_qs(address.query).items()},
        "iss": "https://evil.example",
    }
    assert browser.http.get(f"{server.url}{address.path}?{urlencode(changed)}").status_code == 403


def test_a_code_works_once(browser: Browser) -> None:
    began = browser.begin()
    kept = SimpleCookie(cookie(began, "pairmark_sign_on"))["pairmark_sign_on"].value
    back = browser.at_provider(began.headers["location"], "ada")
    assert browser.http.get(back).status_code == 200
    with httpx.Client(timeout=60, trust_env=False, headers={"cookie": f"pairmark_sign_on={kept}"}) as http:
        assert http.get(back).status_code == 403


@pytest.mark.parametrize(
    "next", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\tx"]
)
def test_it_leads_to_pages_of_this_service_only(browser: Browser, next: str) -> None:
    answer = browser.sign_in("ada", next)
    assert answer.status_code == 200
    assert 'content="0; url=/"' in answer.text


def test_no_host_that_a_caller_names_is_asked_or_sent_to(browser: Browser) -> None:
    answer = browser.http.get(
        f"{browser.server.url}/login/oidc",
        headers={
            "host": "evil.example",
            "x-forwarded-host": "evil.example",
            "forwarded": "host=evil.example",
        },
    )
    asked = parse_qs(urlsplit(answer.headers["location"]).query)
    assert asked["redirect_uri"] == [f"{browser.server.url}/login/oidc/callback"]
