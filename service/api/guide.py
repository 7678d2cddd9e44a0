"""`/guide`: the documentation site of this very version, where the installation holds it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from pairmark.service.api.problems import NotFound

FOLDER: Final = Path(__file__).parent.parent / "guide"
# The theme sets light or dark with a line of script in each page. Nothing here is made from what a client sent.
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


async def show_guide(request: Request, file: str) -> Response:
    """A page of the documentation, or what it is made with."""
    if not (FOLDER / "index.html").exists():
        raise NotFound("this installation holds no guide: in a checkout, `make docs` builds it")
    answer = await _files().get_response(file or "index.html", request.scope)
    answer.headers["content-security-policy"] = _POLICY
    return answer


async def guide() -> Response:
    """The first page, whose links are relative to the folder."""
    return RedirectResponse("/guide/", status_code=308)


@cache
def _files() -> StaticFiles:
    return StaticFiles(directory=FOLDER, html=True)
