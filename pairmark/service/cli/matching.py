"""The commands that score and decide pairs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.options import Members
from pairmark.service.cli.points import RequiredModel, numbers, read_points, read_records, read_subjects
from pairmark.service.cli.training import resolve
from pairmark.wire.scoring import CandidatesParameters, MatchParameters, SimilarityParameters

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.client import Client

SHOWN = 20

SideSource = tuple[str | None, Path | None]
LeftFile = Annotated[
    Path | None, typer.Option("--left", help="A file instead of LEFT.", exists=True, dir_okay=False)
]
RightFile = Annotated[
    Path | None, typer.Option("--right", help="A file instead of RIGHT.", exists=True, dir_okay=False)
]
Side = Annotated[
    str | None,
    typer.Argument(
        help="A CSV of points whose first line names the features (-: standard input), one point: 5.1,3.5,1.4, or "
        "a JSON file of a record or a list of records."
    ),
]


SubjectOption = Annotated[
    str | None,
    typer.Option(help="Column of the files that names the subject. Rows of one subject are its samples."),
]


def similarity(
    client: Connection,
    left: Side = None,
    right: Side = None,
    left_file: LeftFile = None,
    right_file: RightFile = None,
    subject: SubjectOption = None,
    *,
    scoring: Annotated[SimilarityParameters, Members("aggregation log_lr lr_method model")],
) -> None:
    """Score pairs row by row, or one point against many."""
    sides = _sides((left, left_file), (right, right_file), subject)
    of = {name: value for name, value in vars(scoring).items() if name in ("model", "aggregation")}
    scores = client.similarity(*sides, **of).tolist()
    worth = None
    if scoring.log_lr:
        worth = client.log_lr(*sides, method=scoring.lr_method, **of).tolist()
    reported = {"scores": scores, **({} if worth is None else {"log_lr": worth})}
    rows = [(at, *(f"{values[at]:.6g}" for values in reported.values())) for at in range(len(scores))]
    names = ("pair", "score", *(["log LR"] if scoring.log_lr else []))
    output.show(reported, output.table(names, rows, empty="no pairs", most=SHOWN))


def match(
    client: Connection,
    left: Side = None,
    right: Side = None,
    left_file: LeftFile = None,
    right_file: RightFile = None,
    subject: SubjectOption = None,
    *,
    deciding: Annotated[
        MatchParameters,
        Members("fpr fnr prior cost_ratio log_lr lr_method confidence method simultaneous aggregation model"),
    ],
) -> None:
    """Decide which pairs match, at a false positive rate you choose (or, with --prior, at the lowest cost)."""
    options = vars(deciding)
    if (deciding.fpr is None) == (deciding.prior is None):
        raise typer.BadParameter("expected --fpr, or --prior to decide by costs, and not both")
    if deciding.prior is not None:
        for name in ("fnr", "confidence", "method", "log_lr", "simultaneous"):
            if name in options:
                raise typer.BadParameter(
                    f"--{name.replace('_', '-')} does not go with --prior, which promises no error rate"
                )
        _decide(client, _sides((left, left_file), (right, right_file), subject), options)
        return
    if deciding.cost_ratio is not None:
        raise typer.BadParameter("--cost-ratio goes with --prior")
    sides = _sides((left, left_file), (right, right_file), subject)
    log_lr = deciding.log_lr
    answer = client.match(*sides, **options)
    decisions = answer.decisions or [
        "match" if is_match else "different" for is_match in answer.matches.tolist()
    ]
    point = answer.operating_point.json
    pairs = _rows(score=answer.scores, decision=decisions, log_lr=answer.log_lr)

    def human(to: Console) -> None:
        rows = [
            (at, f"{pair['score']:.6g}", pair["decision"], *([f"{pair['log_lr']:.4g}"] if log_lr else []))
            for at, pair in enumerate(pairs)
        ]
        names = ("pair", "score", "decision", *(["log LR"] if log_lr else []))
        output.table(names, rows, empty="no pairs", most=SHOWN)(to)
        to.print(_promise(point))

    output.show({"model": answer.model, "pairs": pairs, "operating_point": point}, human)


def candidates(
    client: Connection,
    pairs: Annotated[
        Path,
        typer.Argument(
            help="CSV with columns left and right: the ids of both rows of each pair.",
            exists=True,
            dir_okay=False,
        ),
    ],
    model: RequiredModel,
    *,
    scoring: Annotated[CandidatesParameters, Members("dataset fpr confidence")],
) -> None:
    """Score candidate pairs of a stored table, or of two, each among its rivals; with --fpr decide too."""
    with pairs.open(newline="", encoding="utf-8-sig") as stream:
        lines = csv.DictReader(stream)
        if not {"left", "right"} <= set(lines.fieldnames or ()):
            raise typer.BadParameter(f"{pairs.name}: expected the columns left and right")
        ends = [(line["left"] or "", line["right"] or "") for line in lines]
    if not ends:
        raise typer.BadParameter(f"{pairs.name}: no pairs")
    options = vars(scoring)
    answer = client.score_candidates(*resolve(client, model), options.pop("dataset"), ends, **options)
    left, right = zip(*ends, strict=True)
    scored = _rows(left=left, right=right, score=answer.scores, match=answer.matches)
    point = None if answer.operating_point is None else answer.operating_point.json

    def human(to: Console) -> None:
        cells = [{**pair, "score": f"{pair['score']:.6g}"} for pair in scored]
        output.table(list(scored[0]), cells, most=SHOWN)(to)
        if point is not None:
            to.print(point["meaning"])

    output.show({"model": answer.model.json, "pairs": scored, "operating_point": point}, human)


def _decide(client: Client, sides: tuple[Any, Any], options: dict[str, Any]) -> None:
    """Decide by prior and costs, and print it."""
    options = {"method" if name == "lr_method" else name: value for name, value in options.items()}
    answer = client.decide(*sides, **options)
    words = ["same" if is_same else "different" for is_same in answer.same.tolist()]
    pairs = _rows(decision=words, score=answer.scores, log_lr=answer.log_lr, posterior=answer.posterior)

    def human(to: Console) -> None:
        names = list(pairs[0]) if pairs else ["decision"]
        rows = [(at, *pair.values()) for at, pair in enumerate(pairs)]
        output.table(("pair", *names), rows, empty="no pairs", most=SHOWN)(to)
        to.print(
            f"A pair is the same if its log likelihood ratio is above {answer.bayes['log_lr_threshold']:.4g}: the "
            f"lowest cost at prior {options['prior']:g}. No error rate is guaranteed; use --fpr for that."
        )

    output.show({"model": answer.model, "pairs": pairs, "bayes": answer.bayes}, human)


def _rows(**columns: Any) -> list[dict[str, Any]]:
    """A row for each pair, of lists or arrays; columns that are None are left out."""
    given_columns = {
        name: list(values) if isinstance(values, (list, tuple)) else values.tolist()
        for name, values in columns.items()
        if values is not None
    }
    return [dict(zip(given_columns, row, strict=True)) for row in zip(*given_columns.values(), strict=True)]


def _promise(point: dict[str, Any]) -> str:
    """One line on what the decisions are worth."""
    text = str(point["meaning"])
    counted = "people" if point["protocol"] == "open-set" else "samples"
    if point["origin"] == "blocks" or point["n_units"] == point["n_independent"]:
        counted = "blocks" if point["origin"] == "blocks" else "pairs"
    if point["method"] == "estimate" and point["origin"] != "imported":
        text += (
            f" With confidence {point['confidence']:g} the false positive rate is at most "
            f"{point['fpr_upper_bound']:.3g}."
        )
    if point.get("fnr") is not None:
        text += f" The false negative rate is at most {point['fnr_upper_bound']:.3g}; both hold together."
    if point.get("samples"):
        enrolled, probes = point["samples"]
        text += f" It is for subjects of {enrolled} and {probes} samples ({point['aggregation']})."
    price = point.get("price")
    if price and price["low"] < price["high"]:
        text += (
            f" So near the fewest {counted} that this rate takes, the TPR lies between {100 * price['low']:.0f} % and "
            f"{100 * price['high']:.0f} % by chance; {price['steady_units']:,} that calibrate would narrow that range."
        )
    return f"{text} {point['n_units']:,} {counted} calibrate."


def _sides(left: SideSource, right: SideSource, subject: str | None) -> tuple[list[Any], list[Any]]:
    """Both sides, each as an argument or a file."""
    for name, (argument, file) in (("LEFT", left), ("RIGHT", right)):
        if (argument is None) == (file is None):
            raise typer.BadParameter(f"expected {name} or --{name.lower()}, and not both")
    a, b = (_side(argument or str(file), subject) for argument, file in (left, right))
    return a, b


def _side(argument: str, subject: str | None) -> list[Any]:
    """A point, or the points (or subjects) of a file. What is made of numbers is a point: it may be too long for a
    file's name."""

    def read(file: Path) -> list[Any]:
        return read_points(file)[1] if subject is None else read_subjects(file, subject)

    if argument == "-":
        return read(Path(argument))
    if argument.lstrip().startswith("{") or argument.endswith(".json"):
        return read_records(argument)
    try:
        return [numbers(argument.split(","), "point")]
    except typer.BadParameter as error:
        file = Path(argument[:4096])
        try:
            is_file = file.is_file()
        except OSError:
            is_file = False
        if is_file:
            return read(file)
        excerpt = argument if len(argument) <= 60 else f"{argument[:60]}..."
        raise typer.BadParameter(f"{excerpt!r} is neither a file nor a point such as 5.1,3.5,1.4") from error
