"""The command that ranks labels."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import output
from service.cli.connect import UrlOption, connected

if TYPE_CHECKING:
    from rich.console import Console

ROWS_A_REQUEST = 5_000


def rank_labels(
    features: Annotated[
        list[str] | None,
        typer.Argument(
            help="One point: 5.1,3.5,1.4,0.2 in the model's order, or NAME=VALUE for each feature.",
            metavar="[NUMBERS | NAME=VALUE...]",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="A CSV of points; its first line holds the features' names. '-': standard input.",
            allow_dash=True,
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="NAME, NAME@ALIAS or NAME:VERSION.", show_default=False)
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Only the first so many labels.", min=1, show_default=False)
    ] = None,
    detail: Annotated[bool, typer.Option("--detail", help="Also how sure each ranking is.")] = False,
    abstain: Annotated[
        float | None,
        typer.Option(
            help="Keep only order that is at least this sure; other labels share a place.",
            min=0.5,
            max=1.0,
            show_default=False,
        ),
    ] = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Rank labels for one point, or for each line of a file."""
    if bool(features) == (file is not None):
        raise typer.BadParameter("expected either the features of one point or --file")
    points: list[Any] = [_point(features)] if features else _points(file)
    with connected(url) as client:
        answers = [
            client.rank_labels(
                points[start : start + ROWS_A_REQUEST], model=model, top=top, detail=detail, abstain=abstain
            )
            for start in range(0, len(points), ROWS_A_REQUEST)
        ]
    rankings = [ranking for answer in answers for ranking in answer["rankings"]]
    output.show({"model": answers[0]["model"], "rankings": rankings}, lambda to: _show(to, rankings))


def _point(words: list[str]) -> list[float] | dict[str, float]:
    if not any("=" in word for word in words):
        return [_number(part) for word in words for part in word.split(",") if part]
    point: dict[str, float] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals or not name or name in point:
            raise typer.BadParameter(f"{word!r}: expected NAME=VALUE, each name once")
        point[name] = _number(value)
    return point


def _points(file: Path | None) -> list[dict[str, float]]:
    assert file is not None
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    points: list[dict[str, float]] = []
    for line in csv.DictReader(text.splitlines()):
        if None in line or None in line.values():
            raise typer.BadParameter(
                f"{file}: row {len(points) + 1} has not as many fields as the first line"
            )
        points.append({name: _number(value) for name, value in line.items()})
    if not points:
        raise typer.BadParameter(f"{file}: expected a line of names and a line for each point")
    return points


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def _show(to: Console, rankings: list[dict[str, Any]]) -> None:
    for ranking in rankings:
        said = ""
        places = ranking["positions"]
        for before, label in zip([None, *ranking["labels"]], ranking["labels"], strict=False):
            tied = before is not None and places[before] == places[label]
            said += label if before is None else f"{'=' if tied else '>'}{label}"
        sure = ranking.get("confidence")
        to.print(said if sure is None else f"{said}  ({sure:.0%} of pairs)", markup=False, highlight=False)
