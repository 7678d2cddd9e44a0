"""The commands that answer for single points: rank labels, classify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.options import Members
from pairmark.service.cli.points import (
    ROWS_A_REQUEST,
    ModelOption,
    PointsOption,
    numbers,
    read_points,
    require_one_input,
    split_words,
)
from pairmark.wire.scoring import RankParameters

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.client import Classes, Client

SHOWN = 3
"""Classes shown for a point, the most probable first."""


def rank_labels(
    client: Connection,
    features: Annotated[
        list[str] | None,
        typer.Argument(
            help="One point: 5.1,3.5,1.4,0.2 in the model's order, or NAME=VALUE for each feature.",
            metavar="[NUMBERS | NAME=VALUE...]",
        ),
    ] = None,
    file: PointsOption = None,
    model: ModelOption = None,
    *,
    ranking: Annotated[RankParameters, Members("top detail abstain")],
) -> None:
    """Rank labels for one point, or for each line of a file."""
    require_one_input(features, file)
    points: list[Any]
    if file is not None:
        names, rows = read_points(file)
        points = [dict(zip(names, row, strict=True)) for row in rows]
    else:
        points = [_point(features or [])]
    answers = [
        client.rank_labels(points[start : start + ROWS_A_REQUEST], model=model, **vars(ranking))
        for start in range(0, len(points), ROWS_A_REQUEST)
    ]
    rankings = [ranking for answer in answers for ranking in answer["rankings"]]
    output.show({"model": answers[0]["model"], "rankings": rankings}, lambda to: _show_rankings(to, rankings))


def _point(words: list[str]) -> list[float] | dict[str, float]:
    if not any("=" in word for word in words):
        return numbers(split_words(words), "features")
    point: dict[str, float] = {}
    for word in words:
        name, equals, value = word.rpartition("=")
        if not equals or not name or name in point:
            raise typer.BadParameter(f"{word!r}: expected NAME=VALUE, each name once")
        [point[name]] = numbers([value], name)
    return point


def _show_rankings(to: Console, rankings: list[dict[str, Any]]) -> None:
    for ranking in rankings:
        line = ""
        places = ranking["positions"]
        for before, label in zip([None, *ranking["labels"]], ranking["labels"], strict=False):
            tied = before is not None and places[before] == places[label]
            line += label if before is None else f"{'=' if tied else '>'}{label}"
        sure = ranking.get("confidence")
        to.print(line if sure is None else f"{line}  ({100 * sure:.0f} % of pairs)")


def classify(
    client: Connection,
    features: Annotated[
        list[str] | None,
        typer.Argument(help="One point: 5.1,3.5,1.4,0.2 in the model's order.", metavar="[NUMBERS]"),
    ] = None,
    file: PointsOption = None,
    model: ModelOption = None,
) -> None:
    """Classify one point, or each line of a file."""
    require_one_input(features, file)
    names: list[str] = []
    if file is not None:
        names, points = read_points(file)
    else:
        points = [numbers(split_words(features or ()), "features")]
    answers = _classified(client, model, names, points)
    labels = [label for answer in answers for label in answer["labels"]]
    probabilities = [chances for answer in answers for chances in answer["probabilities"]]
    result = {"model": answers[0]["model"], "labels": labels, "probabilities": probabilities}
    output.show(result, lambda to: _show_classes(to, probabilities))


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
    feature_names = client.version(version["name"], version["version"]).get("feature_names")
    if not feature_names or feature_names == names:
        return points
    if sorted(feature_names) != sorted(names):
        missing = sorted(set(feature_names) - set(names)) or sorted(set(names) - set(feature_names))
        raise typer.BadParameter(
            f"the file's first line does not hold the model's features: {', '.join(missing[:5])}"
        )
    order = [names.index(name) for name in feature_names]
    return [[point[at] for at in order] for point in points]


def _show_classes(to: Console, probabilities: list[dict[str, Any]]) -> None:
    for chances in probabilities:
        best = sorted(chances.items(), key=lambda entry: -entry[1])[:SHOWN]
        line = ", ".join(f"{label} {100 * chance:.1f} %" for label, chance in best)
        to.print(line)
