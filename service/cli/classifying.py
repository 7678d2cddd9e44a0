"""The command that classifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import UrlOption, connected
from pairmark.service.cli.points import (
    ROWS_A_REQUEST,
    ModelOption,
    PointsOption,
    either,
    numbers,
    read_points,
    spread,
)

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.client import Classes, Client

SHOWN = 3
"""Labels shown for a point, the most probable first."""


def classify(
    features: Annotated[
        list[str] | None,
        typer.Argument(help="One point: 5.1,3.5,1.4,0.2 in the model's order.", metavar="[NUMBERS]"),
    ] = None,
    file: PointsOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Classify one point, or each line of a file."""
    either(features, file)
    names: list[str] = []
    if file is not None:
        names, points = read_points(file)
    else:
        points = [numbers(spread(features or ()), "features")]
    with connected(url) as client:
        answers = _classified(client, model, names, points)
    labels = [label for answer in answers for label in answer["labels"]]
    probabilities = [chances for answer in answers for chances in answer["probabilities"]]
    shown = {"model": answers[0]["model"], "labels": labels, "probabilities": probabilities}
    output.show(shown, lambda to: _show(to, probabilities))


def _classified(
    client: Client, model: str | None, names: list[str], points: list[list[float]]
) -> list[Classes]:
    """The answers to all points, asked for in parts; the first one says which version has to know the ``names``."""
    first = client.classify(points[:ROWS_A_REQUEST], model=model)
    if names:
        ordered = _in_order(client, first["model"], names, points)
        if ordered is not points:
            points = ordered
            first = client.classify(points[:ROWS_A_REQUEST], model=model)
    later = range(ROWS_A_REQUEST, len(points), ROWS_A_REQUEST)
    return [first, *(client.classify(points[start : start + ROWS_A_REQUEST], model=model) for start in later)]


def _in_order(
    client: Client, version: dict[str, Any], names: list[str], points: list[list[float]]
) -> list[list[float]]:
    """Points with their columns in the version's order: as they are where they have it, or it knows no names."""
    known = client.version(version["name"], version["version"]).get("feature_names")
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
