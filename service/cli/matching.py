"""The commands that score and decide pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import UrlOption, connected
from pairmark.service.cli.points import ModelOption, numbers, read_points, read_subjects

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20

Side = Annotated[
    str,
    typer.Argument(
        help="A CSV of points whose first line names the features (-: standard input), or one point: 5.1,3.5,1.4.",
        show_default=False,
    ),
]


SubjectOption = Annotated[
    str | None,
    typer.Option(
        help="A column of the files that says whose each point is: points of one subject are its samples.",
        show_default=False,
    ),
]
AggregationOption = Annotated[
    str | None,
    typer.Option(
        help="How subjects of several samples are compared: auto, mean, plda, best or median.",
        show_default=False,
    ),
]


def similarity(
    left: Side,
    right: Side,
    subject: SubjectOption = None,
    aggregation: AggregationOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Score pairs: the first of one side with the first of the other, and so on; or one with many."""
    sides = _side(left, subject), _side(right, subject)
    with connected(url) as client:
        scores = client.similarity(*sides, model=model, aggregation=aggregation).tolist()
    rows = [(at, f"{score:.6g}") for at, score in enumerate(scores[:SHOWN])]
    output.show({"scores": scores}, output.table(("pair", "score"), rows, empty="no pairs"))


def match(
    left: Side,
    right: Side,
    fpr: Annotated[float, typer.Option(help="The false positive rate you allow.", min=0.0, max=1.0)],
    fnr: Annotated[
        float | None,
        typer.Option(help="A false negative rate too: pairs in between are for review.", min=0.0, max=1.0),
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the promise is to hold.")] = 0.95,
    method: Annotated[str, typer.Option(help="auto, finite-sample, bootstrap or estimate.")] = "auto",
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="A promise for all rates at once.")
    ] = False,
    subject: SubjectOption = None,
    aggregation: AggregationOption = None,
    model: ModelOption = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Decide pairs: the same, or different, at the rate you allow."""
    sides = _side(left, subject), _side(right, subject)
    with connected(url) as client:
        found = client.match(
            *sides,
            fpr=fpr,
            fnr=fnr,
            confidence=confidence,
            method=method,
            simultaneous=simultaneous,
            aggregation=aggregation,
            model=model,
        )
    said = found.decisions or ["match" if one else "different" for one in found.matches.tolist()]
    point = found.operating_point.json
    pairs = [
        {"score": score, "decision": decision}
        for score, decision in zip(found.scores.tolist(), said, strict=True)
    ]

    def human(to: Console) -> None:
        rows = [(at, f"{one['score']:.6g}", one["decision"]) for at, one in enumerate(pairs[:SHOWN])]
        output.table(("pair", "score", "decision"), rows, empty="no pairs")(to)
        if len(pairs) > SHOWN:
            to.print(f"... and {len(pairs) - SHOWN:,} more (--json gives all)")
        to.print(_promise(point), markup=False)

    output.show({"model": found.model, "pairs": pairs, "operating_point": point}, human)


def _promise(point: dict[str, Any]) -> str:
    """One line on what the decisions are worth."""
    if point["guarantee"] == "none":
        return (
            f"An estimate: nothing is promised of {point['fpr']:g}. With confidence {point['confidence']:g} the false "
            f"positive rate is at most {point['fpr_upper_bound']:.3g}."
        )
    kind = "any distribution" if point["guarantee"] == "finite-sample" else "asymptotic"
    text = (
        f"With confidence {point['confidence']:g} ({kind}) the false positive rate is at most "
        f"{point['fpr_upper_bound']:.3g}"
    )
    if point.get("fnr") is not None:
        text += f" and the false negative rate at most {point['fnr_upper_bound']:.3g}"
    if point.get("samples"):
        enrolled, probes = point["samples"]
        text += f" for subjects of {enrolled} and {probes} samples ({point['aggregation']})"
    return f"{text}, from {point['n_units']:,} units."


def _side(given: str, subject: str | None) -> list[Any]:
    """A point, or the points (or subjects) of a file. What is made of numbers is a point: it may be too long for a
    file's name."""

    def read(file: Path) -> list[Any]:
        return read_points(file)[1] if subject is None else read_subjects(file, subject)

    if given == "-":
        return read(Path(given))
    try:
        return [numbers(given.split(","), "point")]
    except typer.BadParameter as error:
        file = Path(given[:4096])
        try:
            found = file.is_file()
        except OSError:
            found = False
        if found:
            return read(file)
        shown = given if len(given) <= 60 else f"{given[:60]}..."
        raise typer.BadParameter(f"{shown!r} is neither a file nor a point such as 5.1,3.5,1.4") from error
