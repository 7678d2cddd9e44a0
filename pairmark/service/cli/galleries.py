"""Commands for galleries: enrol, search, erase, calibrate, evaluate."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.catalogue import Yes, confirm
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.options import Commands, Members
from pairmark.service.cli.points import RequiredModel
from pairmark.wire.galleries import GalleryEvaluationParameters, ImportParameters, SearchParameters

if TYPE_CHECKING:
    from rich.console import Console

galleries = Commands(help="Galleries: enrolled vectors or records, searched.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the gallery.", metavar="GALLERY")]
Dataset = Annotated[
    str, typer.Argument(help="Probes: a dataset whose labels are subjects.", metavar="DATASET")
]
COLUMNS = ("name", "model", "items", "dimension", "updated_at")


@galleries.command("create")
def create(client: Connection, name: Name, model: RequiredModel) -> None:
    """Create a gallery for a model, or move it to another version. Indexing runs in the background."""
    gallery = client.put_gallery(name, model)
    output.show(gallery, output.facts(_flat(gallery.json)))


@galleries.command("list")
def list_galleries(client: Connection, limit: output.Limit = None) -> None:
    """List galleries by name."""
    page = client.galleries(limit=limit)
    empty = "No galleries yet: pairmark galleries create NAME --model M"
    table = output.table(COLUMNS, [_flat(entry.json) for entry in page], empty=empty)
    output.show({"items": page}, table)


@galleries.command("show")
def show(client: Connection, name: Name) -> None:
    """Show a gallery: its version, items and metadata fields."""
    gallery = client.gallery(name)
    output.show(gallery, output.facts(_flat(gallery.json)))


@galleries.command("add")
def add(
    client: Connection,
    name: Name,
    file: Annotated[Path, typer.Argument(help="CSV, Parquet or npz file.", exists=True, dir_okay=False)],
    columns: Annotated[ImportParameters, Members("id subject")],
    metadata: Annotated[
        list[str] | None, typer.Option(help="Column to keep as metadata (repeatable).")
    ] = None,
) -> None:
    """Enrol the rows of a file. Items with the same id are replaced."""
    with output.progress_bar(f"enrolling {file.name}") as progress:
        answer = client.upsert_file(
            name, file, metadata=",".join(metadata) if metadata else None, progress=progress, **vars(columns)
        )

    def human(to: Console) -> None:
        to.print(f"enrolled {answer['upserted']} items")
        for error in answer["errors"][:20]:
            to.print(f"row {error['row']}: {error['detail']}", style="yellow")
        if answer["n_errors"] > 20:
            to.print(f"and {answer['n_errors'] - 20} more rows were refused", style="yellow")

    output.show(answer, human)


@galleries.command("search")
def search(
    client: Connection,
    name: Name,
    query: Annotated[
        str,
        typer.Argument(
            help="Numbers separated by commas, a JSON record, or @FILE with a vector, a record or a list."
        ),
    ],
    limits: Annotated[SearchParameters, Members("k")],
    where: Annotated[str | None, typer.Option("--filter", help="Filter on metadata, as JSON.")] = None,
    by_subject: Annotated[
        bool, typer.Option("--by-subject", help="Return only the best item of each subject.")
    ] = False,
    *,
    point: Annotated[SearchParameters, Members("fpir fpr fnr")],
) -> None:
    """Find the most similar items. With --fpir or --fpr, return only matches."""
    options = vars(limits) | vars(point)
    if where:
        options["filter"] = _json(where, "--filter")
    if by_subject:
        options["group_by"] = "subject"
    answer = client.search(name, _query(query), **options)
    fnr = point.fnr
    rows = [
        (number, hit["id"], hit["subject"], hit["score"], *([hit["decision"]] if fnr else []))
        for number, hits in enumerate(answer["results"])
        for hit in hits
    ]

    def human(to: Console) -> None:
        columns = ("query", "id", "subject", "score", *(["decision"] if fnr else []))
        output.table(columns, rows, empty="unknown: nothing matches")(to)
        output.warn(to, [answer["warning"]] if answer.get("warning") else [])

    output.show(answer, human)


@galleries.command("erase")
def erase(
    client: Connection,
    name: Name,
    id: Annotated[str | None, typer.Option("--id", help="One item.")] = None,
    subject: Annotated[str | None, typer.Option(help="All items of a subject.")] = None,
    yes: Yes = False,
) -> None:
    """Erase an item or a subject from the database, the index and all files, and print a receipt."""
    if (id is None) == (subject is None):
        raise typer.BadParameter("expected either --id or --subject")
    confirm(f"Erase {id or subject} from {name}?", yes)
    receipt = client.erase(name, id=id, subject=subject)
    output.show(receipt, output.facts(receipt.json))


@galleries.command("calibrate")
def calibrate(client: Connection, name: Name, dataset: Dataset) -> None:
    """Calibrate a gallery for --fpir, with people who are not enrolled."""
    calibration = client.calibrate_gallery(name, dataset)
    output.show(calibration, output.facts(_flat(calibration.json)))


@galleries.command("evaluate")
def evaluate(
    client: Connection,
    name: Name,
    dataset: Dataset,
    measures: Annotated[GalleryEvaluationParameters, Members("max_rank leave_one_out")],
) -> None:
    """Measure searches: rank-1 rate, CMC, and FNIR at each FPIR."""
    evaluation = client.evaluate_gallery(name, dataset, **vars(measures))

    def human(to: Console) -> None:
        keys = ("id", "gallery_size", "n_mated", "n_strangers", "rank_1")
        output.facts({key: evaluation[key] for key in keys})(to)
        output.table(("fpir", "threshold", "fnir", "refused"), evaluation["identification"])(to)
        output.warn(to, evaluation["warnings"])

    output.show(evaluation, human)


@galleries.command("delete")
def delete(client: Connection, name: Name, yes: Yes = False) -> None:
    """Delete a gallery with everything in it."""
    confirm(f"Delete gallery {name} with all its items?", yes)
    client.delete_gallery(name)
    output.show({"deleted": name}, f"deleted {name}")


def _flat(entry: dict[str, Any]) -> dict[str, Any]:
    """With models as people write them, and without what is empty."""
    facts = {key: value for key, value in entry.items() if value not in (None, [])}
    for key in ("model", "moving_to"):
        if isinstance(facts.get(key), dict):
            facts[key] = f"{facts[key]['name']}:{facts[key]['version']}"
    return facts


def _query(text: str) -> Any:
    if text.startswith("@"):
        return _json(Path(text[1:]).read_text(), text)
    if text.lstrip().startswith("{"):
        return _json(text, "QUERY")
    try:
        return [float(number) for number in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"{text[:50]!r}: expected numbers with commas, a JSON record, or @FILE"
        ) from error


def _json(text: str, what: str) -> Any:
    try:
        return json_module.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{what}: expected JSON: {error}") from error
