"""The command that finds a table's duplicates, or links two tables."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairmark.service.cli import output
from pairmark.service.cli.options import ColumnTypes, column_types, rate

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.schemas.links import LinkSummary
    from pairmark.service.links.learned import Learned

_SHOWN = 10


def link(
    table: Annotated[str, typer.Argument(help="CSV or Parquet, a file or s3://bucket/key.")],
    other: Annotated[
        str | None,
        typer.Argument(
            help="A second table, to link the first one's records to. Without it: duplicates within the first.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that names the rows; row: their numbers. Default: what plainly does."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="CSV or Parquet that links are written to, a file or s3://bucket/key."
        ),
    ] = None,
    false_links: Annotated[
        float | None,
        typer.Option(
            parser=rate,
            metavar="RATE",
            help="Share of the links that may be false, by the model's own estimate. Default: a link is likelier a "
            "match than not.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A model of records, which scores candidates. Default: one fitted on the tables."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns that candidates have in common, such as phone or last,born (repeatable). Default: "
            "proposed from the data."
        ),
    ] = None,
    candidates_per_record: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000,
            help="Most candidates for each record: rules that would make more are left out. Default: 50.",
        ),
    ] = None,
    one_to_one: Annotated[
        bool, typer.Option("--one-to-one", help="Link a record to one other at most: the surest.")
    ] = False,
    column: ColumnTypes = None,
) -> None:
    """Find the duplicates of a table, or link two tables: no labels, no service.

    Writes left, right, score (the chance of a match), decision and entity: a record's entity is called by the id of its
    first record.
    """
    from pairmark.models.core.progress import listening
    from pairmark.schemas.links import CANDIDATES_PER_RECORD, LinksRequest
    from pairmark.service.cli.options import settings
    from pairmark.service.links.linking import COLUMNS, link_files
    from pairmark.service.links.result_files import read_rows

    learned = None if model is None else _learned(model)
    types = column_types(column) or {}
    if learned is not None:
        # Dates are written in the file's own way.
        types = {name: kind for name, kind in learned.columns.items() if kind != "date"} | types
    suffix = ".csv" if out is None else Path(out).suffix
    if suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(
            f"{out}: expected a name that ends in .csv or .parquet", param_hint="--output"
        )
    is_here = out is not None and not out.startswith("s3://")
    if out is not None and is_here and not Path(out).absolute().parent.is_dir():
        raise typer.BadParameter(f"{out}: there is no such folder", param_hint="--output")
    request = LinksRequest(
        left=Path(table).name[:200],
        false_links=false_links,
        rules=[[name.strip() for name in each.split(",")] for each in rule] if rule else None,
        candidates_per_record=candidates_per_record or CANDIDATES_PER_RECORD,
        one_to_one=one_to_one,
    )
    with tempfile.TemporaryDirectory(prefix="pairmark-links-") as folder:
        files = [_file(each, Path(folder)) for each in (table, other) if each is not None]
        path = Path(out) if out is not None and is_here else Path(folder) / f"links{suffix}"
        with output.progress_bar("linking") as progress, listening(progress):
            summary = link_files(
                files,
                Path(folder),
                settings(),
                request,
                out=path,
                id_column=id_column,
                columns=types,
                learned=learned,
            )
        first = [row[: len(COLUMNS)] for row in read_rows(path, "FROM kept LIMIT ?", _SHOWN)]
        if out is not None and not is_here:
            from pairmark.service.blobs.s3 import upload

            upload(path, out)
    output.show(summary.model_dump(mode="json"), lambda to: _show(to, summary, first, out))


def _file(table: str, folder: Path) -> Path:
    """A table as a file of this machine."""
    if table.startswith("s3://"):
        from pairmark.service.blobs.s3 import download

        path = folder / f"{len(list(folder.iterdir()))}-{Path(table).name}"
        download(table, path)
        return path
    if not Path(table).is_file():
        raise typer.BadParameter(f"there is no file {table!r}", param_hint="TABLE")
    return Path(table)


def _learned(model: str) -> Learned:
    from pairmark.service.blobs import open_blobs
    from pairmark.service.cli.options import prepare_database, settings
    from pairmark.service.db import open_database
    from pairmark.service.links.learned import Learned

    prepare_database(settings())
    return Learned(open_database(settings()), open_blobs(settings()), settings(), model)


def _show(to: Console, summary: LinkSummary, first: list[tuple[object, ...]], out: str | None) -> None:
    from pairmark.service.links.linking import COLUMNS

    for note in summary.notes:
        to.print(f"note: {note}")
    estimate = summary.false_links.estimate
    left_out = "; ".join(" and ".join(rule) for rule in summary.blocking.left_out)
    ids = ", ".join("row numbers" if name is None else name for name in summary.ids)
    output.facts(
        {
            "records": f"{summary.records:,} (named by {ids})",
            "candidates": f"{summary.candidates:,}, {summary.blocking.candidates_per_record:g} a record",
            "left out": f"rules of too many candidates: {left_out}" if left_out else None,
            "links": f"{summary.links:,}",
            "entities": f"{summary.entities:,} of two records or more",
            "false links": None
            if estimate is None
            else f"{100 * estimate:.2g} % as the model has it: an estimate, no bound",
            "cut": f"{summary.cut:,} pairs: another is surer, or they would join records that contradict each other"
            if summary.cut
            else None,
            "empty": f"{summary.empty:,} records have no cell" if summary.empty else None,
        }
    )(to)
    to.print("")
    output.table(COLUMNS, first, empty="no links: no pair is likelier a match than not")(to)
    if summary.links > len(first):
        where = f"in {out}" if out is not None else "by -o links.csv"
        to.print(f"all {summary.links:,} links {where}")
