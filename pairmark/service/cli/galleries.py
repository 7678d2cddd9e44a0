"""Commands for galleries: enrol, search, erase, calibrate, evaluate."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.catalogue import Yes, confirm
from pairmark.service.cli.connect import UrlOption, connected
from pairmark.service.cli.options import Members, with_options
from pairmark.wire.galleries import GalleryEvaluationParameters, ImportParameters, SearchParameters

if TYPE_CHECKING:
    from rich.console import Console

galleries = typer.Typer(help="Galleries: enrolled vectors or records, searched.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="Name of the gallery.", metavar="GALLERY")]
Dataset = Annotated[
    str, typer.Argument(help="Probes: a dataset whose labels are subjects.", metavar="DATASET")
]
COLUMNS = ("name", "model", "items", "dimension", "updated_at")


@galleries.command("create")
def create(
    name: Name,
    model: Annotated[str, typer.Option(help="NAME, NAME@ALIAS or NAME:VERSION.")],
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Create a gallery for a model, or move it to another version. Indexing runs in the background."""
    with connected(url) as client:
        gallery = client.put_gallery(name, model)
    output.show(gallery, output.facts(_flat(gallery.json)))


@galleries.command("list")
def list_galleries(
    limit: Annotated[int | None, typer.Option(help="Maximum number to list.", min=1)] = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """List galleries by name."""
    with connected(url) as client:
        page = client.galleries(limit=limit)
    rows = [[_flat(entry.json).get(column) for column in COLUMNS] for entry in page]
    empty = "No galleries yet: pairmark galleries create NAME --model M"
    output.show({"items": page}, output.table(COLUMNS, rows, empty=empty))


@galleries.command("show")
def show(name: Name, url: UrlOption = None, json: output.JsonOption = False) -> None:
    """Show a gallery: its version, items and metadata fields."""
    with connected(url) as client:
        gallery = client.gallery(name)
    output.show(gallery, output.facts(_flat(gallery.json)))


@galleries.command("add")
@with_options
def add(
    name: Name,
    file: Annotated[Path, typer.Argument(help="CSV, Parquet or npz file.", exists=True, dir_okay=False)],
    columns: Annotated[ImportParameters, Members("id subject")],
    metadata: Annotated[
        list[str] | None, typer.Option(help="Column to keep as metadata (repeatable).")
    ] = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Enrol the rows of a file. Items with the same id are replaced."""
    with connected(url) as client, output.progress_bar(f"enrolling {file.name}") as progress:
        answer = client.upsert_file(
            name, file, metadata=",".join(metadata) if metadata else None, progress=progress, **vars(columns)
        )

    def human(to: Console) -> None:
        to.print(f"enrolled {answer['upserted']} items", markup=False)
        for error in answer["errors"][:20]:
            to.print(f"row {error['row']}: {error['detail']}", style="yellow", markup=False)
        if answer["n_errors"] > 20:
            to.print(f"and {answer['n_errors'] - 20} more rows were refused", style="yellow", markup=False)

    output.show(answer, human)


@galleries.command("search")
@with_options
def search(
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
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Find the most similar items. With --fpir or --fpr, return only matches."""
    options = vars(limits) | vars(point)
    if where:
        options["filter"] = _json(where, "--filter")
    if by_subject:
        options["group_by"] = "subject"
    with connected(url) as client:
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
        if answer.get("warning"):
            to.print(f"warning: {answer['warning']}", style="yellow", markup=False)

    output.show(answer, human)


@galleries.command("erase")
def erase(
    name: Name,
    id: Annotated[str | None, typer.Option("--id", help="One item.")] = None,
    subject: Annotated[str | None, typer.Option(help="All items of a subject.")] = None,
    yes: Yes = False,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Erase an item or a subject from the database, the index and all files, and print a receipt."""
    if (id is None) == (subject is None):
        raise typer.BadParameter("expected either --id or --subject")
    confirm(f"Erase {id or subject} from {name}?", yes)
    with connected(url) as client:
        receipt = client.erase(name, id=id, subject=subject)
    output.show(receipt, output.facts(receipt.json))


@galleries.command("calibrate")
def calibrate(name: Name, dataset: Dataset, url: UrlOption = None, json: output.JsonOption = False) -> None:
    """Calibrate a gallery for --fpir, with people who are not enrolled."""
    with connected(url) as client:
        calibration = client.calibrate_gallery(name, dataset)
    output.show(calibration, output.facts(_flat(calibration.json)))


@galleries.command("evaluate")
@with_options
def evaluate(
    name: Name,
    dataset: Dataset,
    measures: Annotated[GalleryEvaluationParameters, Members("max_rank leave_one_out")],
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Measure searches: rank-1 rate, CMC, and FNIR at each FPIR."""
    with connected(url) as client:
        evaluation = client.evaluate_gallery(name, dataset, **vars(measures))

    def human(to: Console) -> None:
        keys = ("id", "gallery_size", "n_mated", "n_strangers", "rank_1")
        output.facts({key: evaluation[key] for key in keys})(to)
        columns = ("fpir", "threshold", "fnir", "refused")
        rows = [[point.get(column) for column in columns] for point in evaluation["identification"]]
        output.table(columns, rows, empty="")(to)
        for warning in evaluation["warnings"]:
            to.print(f"warning: {warning}", style="yellow", markup=False)

    output.show(evaluation, human)


@galleries.command("delete")
def delete(name: Name, yes: Yes = False, url: UrlOption = None, json: output.JsonOption = False) -> None:
    """Delete a gallery with everything in it."""
    confirm(f"Delete gallery {name} with all its items?", yes)
    with connected(url) as client:
        client.delete_gallery(name)
    output.show({"deleted": name}, lambda to: to.print(f"deleted {name}", markup=False))


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
