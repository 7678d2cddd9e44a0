"""The command that classifies."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import output
from service.cli.connect import UrlOption, connected

if TYPE_CHECKING:
    from rich.console import Console

    from service.client import Client

ROWS_A_REQUEST = 5_000
SHOWN = 3
"""Labels that are told of a point, the most probable first."""


def classify(
    features: Annotated[
        list[str] | None,
        typer.Argument(
            help="One point: 5.1,3.5,1.4,0.2 in the model's order.", metavar="[NUMBERS]", show_default=False
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
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Name the label of one point, or of each line of a file."""
    if bool(features) == (file is not None):
        raise typer.BadParameter("expected either the features of one point or --file")
    names, points = ([], [_numbers(features, "features")]) if features else _points(file)
    with connected(url) as client:
        answers = []
        for start in range(0, len(points), ROWS_A_REQUEST):
            if not start and names:
                points = _in_order(client, model, names, points)
            answers.append(client.classify(points[start : start + ROWS_A_REQUEST], model=model))
    labels = [label for answer in answers for label in answer["labels"]]
    probabilities = [chances for answer in answers for chances in answer["probabilities"]]
    told = {"model": answers[0]["model"], "labels": labels, "probabilities": probabilities}
    output.show(told, lambda to: _show(to, probabilities))


def _points(file: Path | None) -> tuple[list[str], list[list[float]]]:
    assert file is not None
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    lines = [line for line in csv.reader(text.splitlines()) if line]
    if len(lines) < 2:
        raise typer.BadParameter(f"{file}: expected a line of names and a line for each point")
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(lines[0]):
            raise typer.BadParameter(f"{file}: row {number} has not as many fields as the first line")
    return lines[0], [
        _numbers(line, f"{file}: row {number}") for number, line in enumerate(lines[1:], start=1)
    ]


def _numbers(words: Sequence[str], where: str) -> list[float]:
    numbers = []
    for part in (part for word in words for part in word.split(",") if part):
        try:
            numbers.append(float(part))
        except ValueError:
            raise typer.BadParameter(f"{where}: {part!r} is not a number") from None
    return numbers


def _in_order(
    client: Client, model: str | None, names: list[str], points: list[list[float]]
) -> list[list[float]]:
    """Points with their columns in the model's order, where the model knows its features' names."""
    asked = client.classify(points[:1], model=model)["model"]
    known = client.get(f"/models/{asked['name']}/versions/{asked['version']}").get("feature_names")
    if not known or known == names:
        return points
    if sorted(known) != sorted(names):
        missing = sorted(set(known) - set(names)) or sorted(set(names) - set(known))
        raise typer.BadParameter(
            f"the file's first line does not hold the model's features: {', '.join(missing[:5])}"
        )
    order = [names.index(name) for name in known]
    return [[point[at] for at in order] for point in points]


def _show(to: Console, probabilities: list[dict[str, Any]]) -> None:
    for chances in probabilities:
        best = sorted(chances.items(), key=lambda entry: -entry[1])[:SHOWN]
        said = ", ".join(f"{label} {chance:.1%}" for label, chance in best)
        to.print(said, markup=False, highlight=False)
