"""The documentation site, served beside the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pairmark.service.api import guide
from pairmark.service.app import create_app
from pairmark.service.inprocess import InProcessTransport
from pairmark.service.settings import Settings

NewDatabase = Callable[..., str]


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_database: NewDatabase
) -> Iterator[httpx.Client]:
    monkeypatch.setattr(guide, "FOLDER", tmp_path / "guide")
    guide._files.cache_clear()
    settings = Settings(home=tmp_path, database_url=new_database("sqlite"))
    transport = InProcessTransport(create_app(settings, warm=False))
    with httpx.Client(transport=transport, base_url="http://127.0.0.1", follow_redirects=True) as opened:
        yield opened
    guide._files.cache_clear()


def test_it_says_how_to_build_a_guide_that_is_not_there(client: httpx.Client) -> None:
    answer = client.get("/guide/")
    assert answer.status_code == 404
    assert "make docs" in answer.json()["detail"]


def test_a_browser_reads_a_page_where_the_guide_is_not_there(client: httpx.Client) -> None:
    answer = client.get("/guide", headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "make docs" in answer.text
    for address in ("/docs", "/problems", "/"):
        assert f'href="{address}"' in answer.text


def test_pages_are_served_and_nothing_beside_them(client: httpx.Client, tmp_path: Path) -> None:
    folder = tmp_path / "guide"
    (folder / "how-to").mkdir(parents=True)
    (folder / "index.html").write_text("<p>first</p>")
    (folder / "how-to" / "keys.html").write_text("<p>keys</p>")
    (tmp_path / "secret").write_text("secret")
    assert client.get("/guide").text == "<p>first</p>"
    page = client.get("/guide/how-to/keys.html")
    assert page.text == "<p>keys</p>"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "same-origin"
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in ("/guide/../secret", "/guide/..%2fsecret", "/guide/%2e%2e/secret"):
        assert client.get(path).status_code == 404


def test_its_own_links_are_answered(client: httpx.Client, tmp_path: Path) -> None:
    # A page asks for its styles by their version, and the search form sends what to look for.
    folder = tmp_path / "guide"
    (folder / "_static").mkdir(parents=True)
    (folder / "index.html").write_text("<p>first</p>")
    (folder / "search.html").write_text("<p>found</p>")
    (folder / "_static" / "furo.css").write_text("p {}")
    style = client.get("/guide/_static/furo.css?v=7bdb33bb")
    assert (style.status_code, style.headers["content-type"].split(";")[0]) == (200, "text/css")
    assert client.get("/guide/search.html?q=keys&check_keywords=yes&area=default").text == "<p>found</p>"
    assert client.get("/guide/?who=me").status_code == 422
