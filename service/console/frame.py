"""What all pages share: templates, headers, navigation, and the controls that the caller may use."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse

from pairmark.service.api.guide import FOLDER as GUIDE
from pairmark.service.api.services import may
from pairmark.service.console.ask import Answer
from pairmark.service.keys.schemas import Scope
from pairmark.version import VERSION

HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A place in the navigation.

    Attributes
    ----------
    scope : without which the page is of no use; None: any key may read it.
    asks : the route of the API that it shows; the page is left out where the service has none.
    """

    href: str
    words: str
    scope: Scope | None = None
    asks: str | None = None


NAVIGATION = (
    Entry(href="/", words="Overview"),
    Entry(href="/console/models", words="Models"),
    Entry(href="/console/try", words="Try it", scope="score"),
    Entry(href="/console/train", words="Train", scope="train"),
    Entry(href="/console/jobs", words="Jobs"),
    Entry(href="/console/datasets", words="Datasets"),
    Entry(href="/console/galleries", words="Galleries", scope="gallery"),
    Entry(href="/console/keys", words="Keys", scope="admin", asks="/keys"),
    Entry(href="/console/audit", words="Audit", scope="admin", asks="/audit"),
    Entry(href="/console/settings", words="Settings", scope="admin", asks="/settings"),
)


def page(
    request: Request, template: str, *, status: int = 200, at: str = "", **values: object
) -> HTMLResponse:
    """A page in the console's frame.

    Parameters
    ----------
    at : the address of the navigation entry that the page belongs to.
    """
    rights = {scope: may(request, scope) for scope in get_args(Scope)}
    key = request.scope.get("pairmark.key")
    # What a session's changes must bring back, as the header x-csrf-token or the form field csrf.
    csrf = request.scope.get("pairmark.csrf")
    table = request.app.table
    links = [
        (entry.href, entry.words)
        for entry in NAVIGATION
        if (entry.scope is None or rights[entry.scope])
        and (entry.asks is None or table.find("GET", entry.asks) is not None)
    ]
    body = (
        _templates()
        .get_template(template)
        .render(
            rights=rights,
            key=key,
            csrf=csrf,
            guide=GUIDE.is_dir(),
            links=links,
            pages={href for href, _ in links},
            at=at,
            version_of_service=VERSION,
            **values,
        )
    )
    return HTMLResponse(body, status_code=status, headers=HEADERS)


def refused(request: Request, answer: Answer, at: str = "") -> HTMLResponse:
    """The page for what the API refused: what was wrong, and how to fix it."""
    problem = answer.data if isinstance(answer.data, dict) else {}
    return page(request, "refused.html", status=answer.status, at=at, problem=problem)


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["percent"] = percent
    templates.filters["moment"] = lambda iso: str(iso)[:16].replace("T", " ") if iso else "–"
    templates.filters["count"] = lambda number: f"{number:,}"
    templates.filters["size"] = size
    templates.filters["path"] = lambda text: quote(str(text), safe="")
    templates.filters["brief"] = brief
    templates.filters["pretty"] = lambda value: json.dumps(value, ensure_ascii=False)
    return templates


def percent(rate: float, digits: int = 3) -> str:
    """A share in words: 0.001 is ``0.1 %``."""
    return f"{100 * rate:.{digits}g}".replace("e-05", "e-5") + "\u00a0%"


def brief(text: str) -> str:
    """Text whose ids of 32 digits or more are cut to 8, so that a table fits the screen."""
    return re.sub(r"[0-9a-f]{32,}", lambda found: f"{found[0][:8]}\u2026", str(text))


def size(n_bytes: float) -> str:
    """Bytes in words."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.3g}\u00a0{unit}"
