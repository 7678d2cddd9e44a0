"""The documentation site, served beside the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pairmark.service.api import docs
from pairmark.service.app import create_app, embedded_transport
from pairmark.service.settings import Settings
from tests.serving import PATIENCE_S

NewDatabase = Callable[..., str]


@pytest.fixture
def client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_database: NewDatabase
) -> Iterator[httpx.Client]:
    folder = tmp_path / "guide"
    (folder / "how-to").mkdir(parents=True)
    (folder / "index.html").write_text("<p>first</p>")
    (folder / "how-to" / "keys.html").write_text("<p>keys</p>")
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setattr(docs, "GUIDE", folder)
    settings = Settings(home=tmp_path, database_url=new_database("sqlite"))
    with (
        embedded_transport(create_app(settings, warm=False)) as transport,
        httpx.Client(
            transport=transport, base_url="http://127.0.0.1", follow_redirects=True, timeout=PATIENCE_S
        ) as opened,
    ):
        yield opened


def test_pages_are_served_and_nothing_beside_them(client: httpx.Client) -> None:
    assert client.get("/guide").text == "<p>first</p>"
    assert client.get("/guide/?q=keys").text == "<p>first</p>"
    page = client.get("/guide/how-to/keys.html")
    assert (page.text, page.headers["referrer-policy"]) == ("<p>keys</p>", "same-origin")
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in ("/guide/../secret", "/guide/..%2fsecret", "/guide/%2e%2e/secret"):
        assert client.get(path).status_code == 404


def test_the_problem_of_too_few_people_leads_to_their_page(client: httpx.Client) -> None:
    assert (
        'href="/guide/how-to/few-people.html"' in client.get("/problems/insufficient-calibration-data").text
    )
    assert "/guide/" not in client.get("/problems/conflict").text
