"""`/guide`: the documentation site of this very version, where the installation holds it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import Field

from pairmark.service.api.problems import UnknownAddress, html_page
from pairmark.service.api.query import QueryModel
from pairmark.service.api.routing import GuardedRoute, needs

router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


FOLDER: Final = Path(__file__).parent.parent / "guide"
# The theme sets light or dark with a line of script in each page. Nothing here is made from what a client sent.
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ABSENT: Final = (
    '<div class="head"><div><h1>The guide is not built yet</h1><p>This installation came without it.</p></div></div>'
    '<div class="card"><div class="title"><h2>Where to read</h2></div><p>In a checkout, <code>make docs</code> builds '
    "the guide; this address then shows it at once. Its pages are Markdown files in <code>docs/</code>, and "
    '<code>README.md</code> leads to them.</p><p>Here are the <a href="/docs">HTTP reference</a>, the <a '
    'href="/problems">problems</a> and the <a href="/">console</a>; <code>pairmark --help</code> explains the commands.'
    "</p></div>"
)


class GuideQuery(QueryModel):
    """What the site's own links ask with: all of it is for the browser, none of it changes the answer."""

    v: str | None = Field(None, max_length=64, description="the version of a style or script")
    q: str | None = Field(None, max_length=400, description="what the site's search looks for")
    highlight: str | None = Field(None, max_length=400, description="words to mark on the page")
    check_keywords: str | None = Field(None, max_length=16, description="sent by the site's search form")
    area: str | None = Field(None, max_length=32, description="sent by the site's search form")


@router.get("/guide/{file:path}", response_class=HTMLResponse)
@needs("open")
async def show_guide(request: Request, file: str, query: Annotated[GuideQuery, Query()]) -> Response:
    """A page of the documentation, or what it is made with."""
    del query
    if not (FOLDER / "index.html").exists():
        if "text/html" in request.headers.get("accept", ""):
            return html_page("Guide", _ABSENT, status=404)
        raise UnknownAddress("this installation holds no guide: in a checkout, `make docs` builds it")
    answer = await _files().get_response(file or "index.html", request.scope)
    answer.headers["content-security-policy"] = _POLICY
    return answer


@router.get("/guide", response_class=HTMLResponse)
@needs("open")
async def guide() -> Response:
    """The first page, whose links are relative to the folder."""
    return RedirectResponse("/guide/", status_code=308)


@cache
def _files() -> StaticFiles:
    return StaticFiles(directory=FOLDER, html=True)
