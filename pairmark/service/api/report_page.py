"""A version's report as one self-contained HTML page."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from pairmark.models.calibration.promises import askable
from pairmark.models.evaluation.drawing import draw_roc
from pairmark.schemas.models import ReportOut
from pairmark.service.api.docs import with_code
from pairmark.version import code_version

_FOLDER: Final = Path(__file__).parent / "templates"


def report_page(report: ReportOut) -> tuple[str, str]:
    """The page, which is a whole file of its own, and its content security policy."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    roc = None if report.roc is None else base64.b64encode(draw_roc(report.roc.model_dump(), "svg")).decode()
    metrics = report.version.metrics
    page = _template().render(
        report=report,
        version=report.version,
        card=report.card,
        metrics=metrics,
        groups=metrics.get("groups"),
        evidence=report.evidence,
        roc=roc,
        contents=_contents(report),
        style=style,
        policy=policy,
        made_by=code_version(),
    )
    return page, policy


def _contents(report: ReportOut) -> list[tuple[str, str]]:
    with_evidence = report.evidence is not None
    sections = [
        ("version", "What this version is", True),
        ("data", "The data behind it", True),
        ("promise", "The promise", bool(report.promises)),
        ("errors", "Error rates", report.roc is not None or "pair_disagreement" in report.version.metrics),
        ("leaderboard", "Against simple alternatives", bool(report.leaderboard and report.leaderboard.items)),
        ("groups", "Groups of people", True),
        ("evidence", "Likelihood ratios", with_evidence),
        ("identification", "Searching among enrolled people", with_evidence),
        ("times", "By time between samples", with_evidence),
        ("limits", "Limits", True),
    ]
    return [(at, words) for at, words, there in sections if there]


@cache
def _style() -> str:
    return (_FOLDER / "report.css").read_text()


@cache
def _template() -> Any:
    # Imported here: most processes never make a page.
    import jinja2
    from markupsafe import Markup

    # The style stands in the page as it is: escaped, it would not have the digest that the policy names.
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True)
    environment.filters["raw"] = Markup
    environment.filters["askable"] = askable
    environment.filters["code"] = with_code
    return environment.get_template("report.html")
