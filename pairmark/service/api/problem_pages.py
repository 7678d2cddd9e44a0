"""The pages that the ``type`` of a problem points to."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from pairmark.service.api.problems import PAGES, UnknownAddress, html_page
from pairmark.service.api.routing import GuardedRoute, needs

router = APIRouter(tags=["problems"], route_class=GuardedRoute)


@router.get("/problems", response_class=HTMLResponse)
@needs("open")
async def list_problems() -> HTMLResponse:
    """A page that lists every problem type of this service."""
    rows = "".join(
        f'<tr><th scope="row"><a href="/problems/{slug}">{slug}</a></th><td class="number">{page.status}</td>'
        f"<td>{escape(page.error.title)}</td></tr>"
        for slug, page in sorted(PAGES.items())
    )
    return html_page(
        "Problems",
        '<div class="head"><div><h1>Problems</h1><p>Errors are <code>application/problem+json</code>. '
        "Their <code>type</code> is one of these pages.</p></div></div>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Problems"><table><thead><tr><th scope="col">Problem'
        '</th><th scope="col" class="number">Status</th><th scope="col">Meaning</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
    )


@router.get("/problems/{slug}", response_class=HTMLResponse)
@needs("open")
async def show_problem(slug: str) -> HTMLResponse:
    """A page that explains the problem and how to fix it."""
    page = PAGES.get(slug)
    if page is None:
        raise UnknownAddress(f"there is no problem called {slug[:100]!r}; GET /problems lists them")
    parts = escape(page.fix).split("`")
    fix = "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    return html_page(
        page.error.title,
        f'<p class="crumbs"><a href="/problems">Problems</a> / {slug}</p>'
        f'<div class="head"><div><h1>{escape(page.error.title)}</h1><p>Status {page.status}</p></div></div>'
        f'<div class="card"><div class="title"><h2>How to fix it</h2></div><p>{fix}</p></div>',
    )
