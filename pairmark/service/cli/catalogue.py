"""Commands for datasets and models."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.schemas.datasets import DatasetRequest, ReadingRequest
from pairmark.schemas.models import AliasRequest
from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection, NewConnection
from pairmark.service.cli.options import Commands, Members, given
from pairmark.service.cli.points import ColumnTypes, PairsFile, RightFile, TableFile, column_types
from pairmark.service.cli.training import resolve, show_leaderboard, show_metrics, show_promise

if TYPE_CHECKING:
    from rich.console import Console

LABELS_SHOWN = 12
COLUMNS_SHOWN = 40
datasets = Commands(
    help="Datasets: labelled vectors. A dataset never changes after its upload.", no_args_is_help=True
)
models = Commands(help="Models, their versions and aliases.", no_args_is_help=True)
Ref = Annotated[str, typer.Argument(help="NAME, NAME@ALIAS or NAME:VERSION.", metavar="MODEL")]
DatasetRef = Annotated[
    str, typer.Argument(help="NAME (its newest version) or NAME:VERSION.", metavar="DATASET")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@datasets.command("add")
def add_dataset(
    client: NewConnection,
    name: Annotated[str, typer.Argument(help="Name of the dataset.")],
    file: TableFile,
    reading: Annotated[
        ReadingRequest,
        Members("identity classes label ranking group time id exclude header format"),
    ],
    contents: Annotated[DatasetRequest, Members("unlabelled")],
    pairs: PairsFile = None,
    column: ColumnTypes = None,
    right_file: RightFile = None,
) -> None:
    """Upload a dataset."""
    options = {**given(reading), "columns": column_types(column)}
    with output.progress_bar(f"uploading {file.name}") as progress:
        dataset = client.add_dataset(
            name, file, pairs=pairs, right_file=right_file, progress=progress, **options, **given(contents)
        )
    output.show(dataset, lambda to: _show_dataset(to, dataset.json))


@datasets.command("inspect")
def inspect_dataset(
    client: NewConnection,
    file: TableFile,
    reading: Annotated[
        ReadingRequest, Members("identity classes label ranking group time exclude header format")
    ],
    pairs: PairsFile = None,
    column: ColumnTypes = None,
    right_file: RightFile = None,
) -> None:
    """Show how a file would be read and which rate it supports, without storing it."""
    options = {**given(reading), "columns": column_types(column)}
    with output.progress_bar(f"reading {file.name}") as progress:
        inspection = client.inspect_dataset(
            file, pairs=pairs, right_file=right_file, progress=progress, **options
        )
    more_files = {"--right-file": right_file, "--pairs": pairs}
    output.show(inspection, lambda to: _show_inspection(to, file, inspection.json, more_files))
    if inspection["problem"]:
        raise typer.Exit(1)


@datasets.command("list")
def list_datasets(client: Connection, limit: output.Limit = None) -> None:
    """List datasets, newest first."""
    page = client.datasets(limit=limit)
    columns = ("name", "version", "rows", "features", "created_at")
    empty = "No datasets yet: pairmark datasets add NAME FILE --identity COLUMN"
    output.show({"items": page}, output.table(columns, page, empty=empty))


@datasets.command("show")
def show_dataset(client: Connection, ref: DatasetRef) -> None:
    """Show a dataset: columns, rows, labels and the smallest supported rate."""
    dataset = client.dataset(ref)
    output.show(dataset, lambda to: _show_dataset(to, dataset.json))


@datasets.command("delete")
def delete_dataset(client: Connection, ref: DatasetRef, yes: Yes = False) -> None:
    """Delete a dataset that no waiting or running job uses."""
    confirm(f"Delete dataset {ref}?", yes)
    client.delete_dataset(ref)
    output.show({"deleted": ref}, f"deleted {ref}")


@models.command("list")
def list_models(client: Connection, limit: output.Limit = None) -> None:
    """List models with their aliases."""
    page = client.models(limit=limit)
    rows = [
        (
            entry["name"],
            entry["versions"][0]["kind"] if entry["versions"] else None,
            entry["latest_version"],
            ", ".join(f"{alias['alias']} = {alias['version']}" for alias in entry["aliases"]),
        )
        for entry in page
    ]
    empty = "No models yet: pairmark train --dataset D --model M"
    output.show({"items": page}, output.table(("name", "kind", "newest", "aliases"), rows, empty=empty))


@models.command("show")
def show_model(client: Connection, ref: Ref) -> None:
    """Show a version: kind, parameters, metrics with intervals, lineage."""
    name, number = resolve(client, ref)
    version = client.version(name, number)

    def human(to: Console) -> None:
        keys = ("kind", "aliases", "capabilities", "params", "n_features", "calibration_id", "created_at")
        facts = {"model": f"{name}:{number}", **{key: version.get(key) for key in keys}}
        output.facts({**facts, "lineage": _flat(version.get("lineage") or {})})(to)
        show_metrics(to, version.get("metrics") or {})
        show_leaderboard(to, version.get("facts") or {})
        promotion = (version.get("facts") or {}).get("promotion")
        if promotion:
            became = "promoted" if promotion["promoted"] else "not promoted"
            to.print(f"\n{became}: {promotion['reason']}")
        suspects = (version.get("facts") or {}).get("suspects") or {}
        output.warn(to, [suspects["text"]] if suspects.get("text") else [])
        show_promise(to, version.json)

    output.show(version, human)


@models.command("promote")
def promote_model(
    client: Connection,
    ref: Annotated[
        str, typer.Argument(help="NAME:VERSION (or NAME@ALIAS to copy an alias).", metavar="MODEL")
    ],
    alias: Annotated[str, typer.Option(help="Alias to move.")] = "production",
    *,
    moving: Annotated[AliasRequest, Members("reason")],
) -> None:
    """Move an alias to a version. Running services switch by themselves."""
    name, number = resolve(client, ref)
    promotion = client.promote(name, number, alias, **given(moving))
    output.show(promotion, f"{name}@{alias} is now version {number}")


@models.command("export")
def export_model(
    client: Connection, ref: Ref, file: Annotated[Path, typer.Argument(help="File to write.", dir_okay=False)]
) -> None:
    """Write a version, with its calibration, to one file."""
    name, number = resolve(client, ref)
    client.export_version(name, number, file)
    facts = {"model": name, "version": number, "file": str(file), "bytes": file.stat().st_size}
    output.show(facts, f"wrote {name}:{number} to {file}")


@models.command("import")
def import_model(
    client: NewConnection,
    file: Annotated[Path, typer.Argument(help="A file written by export.", exists=True, dir_okay=False)],
    name: Annotated[
        str | None, typer.Option("--name", help="Name to register it under. Default: the exported name.")
    ] = None,
) -> None:
    """Register a version from an exported file. The file is checked and tried in a separate process first."""
    with output.progress_bar(f"importing {file.name}") as progress:
        version = client.import_version(file, name=name, progress=progress)
    output.show(version, f"registered {version['model']}:{version['version']}")


@models.command("delete")
def delete_model(
    client: Connection,
    ref: Annotated[str, typer.Argument(help="NAME:VERSION.", metavar="MODEL")],
    yes: Yes = False,
) -> None:
    """Delete a version that no alias points to."""
    if ":" not in ref:
        raise typer.BadParameter(f"{ref!r}: expected NAME:VERSION, so that no alias decides what is deleted")
    confirm(f"Delete {ref}?", yes)
    client.delete_version(*resolve(client, ref))
    output.show({"deleted": ref}, f"deleted {ref}")


def confirm(question: str, yes: bool) -> None:
    import sys

    if not yes and not output.wants_json() and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _show_dataset(to: Console, dataset: dict[str, Any]) -> None:
    keys = ("rows", "features", "sha256", "label", "label_role", "created_at")
    facts = {"dataset": f"{dataset['name']}:{dataset['version']}", **{key: dataset[key] for key in keys}}
    if dataset["label"] is None:
        del facts["label_role"]
    if dataset["ranking_labels"]:
        facts["ranked labels"] = dataset["ranking_labels"]
    counts = dataset["label_counts"]
    if counts:
        n_hidden = (dataset.get("n_labels") or len(counts)) - LABELS_SHOWN
        first = ", ".join(f"{key}: {value}" for key, value in list(counts.items())[:LABELS_SHOWN])
        facts["label_counts"] = first + (f", and {n_hidden:,} more" if n_hidden > 0 else "")
    if dataset["n_pairs"]:
        n_same = dataset["n_same_pairs"]
        facts["pairs"] = (
            f"{dataset['n_pairs']:,}: {n_same:,} the same, {dataset['n_pairs'] - n_same:,} different"
        )
    output.facts(facts)(to)
    if dataset["existing"]:
        to.print("the newest version has this content already: nothing was added")
    show_promise(to, dataset)
    if dataset["n_pairs"] and dataset["population"] is None:
        to.print(
            "promise: depends on how the list of pairs came about. Name it with `pairmark train --listing all`, "
            "`random-people` or `blocks`; of a list of unknown origin nothing is guaranteed"
        )
    output.warn(to, dataset.get("warnings") or [])


def _show_inspection(
    to: Console, file: Path, inspection: dict[str, Any], more_files: dict[str, Path | None]
) -> None:
    rows = [
        (
            column["name"],
            column["kind"],
            column["role"] + (" (inferred)" if column["inferred"] else ""),
            column["distinct"],
            ", ".join(column["examples"]),
        )
        for column in inspection["columns"][:COLUMNS_SHOWN]
    ]
    output.table(("column", "holds", "role", "distinct, about", "first values"), rows)(to)
    if len(inspection["columns"]) > COLUMNS_SHOWN:
        to.print(f"and {len(inspection['columns']) - COLUMNS_SHOWN} more columns")
    output.warn(to, inspection["warnings"])
    if inspection["problem"]:
        to.print(f"it would be refused: {inspection['problem']}", style="yellow")
        return
    ranked = inspection["ranking_labels"]
    labels = f"rankings of {', '.join(ranked)}"
    if not ranked:
        labels = f"{inspection['n_labels']:,} {_labels(inspection['columns'])}"
    to.print(f"{inspection['rows']:,} rows of {inspection['features']:,} features, {labels}")
    show_promise(to, inspection)
    words = [f"pairmark datasets add NAME {shlex.quote(str(file))}"]
    words += [f"{option} {shlex.quote(str(path))}" for option, path in more_files.items() if path is not None]
    request = dict(inspection["request"])
    columns = request.pop("columns", None)
    if columns is not None:
        words += [f"--column {shlex.quote(f'{name}:{kind}')}" for name, kind in columns.items()]
    for name, value in request.items():
        values = value if isinstance(value, list) else [value]
        words += [f"--{name}" if part is True else f"--{name} {shlex.quote(str(part))}" for part in values]
    to.print("keep it with: " + " ".join(words))


def _labels(columns: list[dict[str, Any]]) -> str:
    roles = {column["role"] for column in columns}
    return (
        "identities" if "identity" in roles else "classes" if "classes" in roles else "identities or classes"
    )


def _flat(lineage: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {value}" for key, value in lineage.items() if isinstance(value, (str, int, float))
    )
