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
    table: Annotated[Path, typer.Argument(help="CSV or Parquet.", exists=True, dir_okay=False)],
    other: Annotated[
        Path | None,
        typer.Argument(
            help="A second table, to link the first one's records to. Without it: duplicates within the first.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column that names the rows; row: their numbers. Default: what plainly does."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV or Parquet file that links are written to.")
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
    column: ColumnTypes = None,
) -> None:
    """Find the duplicates of a table, or link two tables: no labels, no service.

    Writes left, right, score (the chance of a match), decision and entity: a record's entity is called by the id of its
    first record.
    """
    from pairmark.models.core.progress import listening
    from pairmark.service.cli.options import settings
    from pairmark.service.links.kept import read_rows
    from pairmark.service.links.linking import COLUMNS, link_files

    learned = None if model is None else _learned(model)
    types = column_types(column) or {}
    if learned is not None:
        # Dates are written in the file's own way.
        types = {name: kind for name, kind in learned.columns.items() if kind != "date"} | types
    files = [path for path in (table, other) if path is not None]
    if out is not None and out.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(
            f"{out}: expected a name that ends in .csv or .parquet", param_hint="--output"
        )
    with tempfile.TemporaryDirectory(prefix="pairmark-links-") as folder:
        path = Path(folder) / "links.csv" if out is None else out
        with output.progress_bar("linking") as progress, listening(progress):
            summary = link_files(
                files,
                Path(folder),
                settings(),
                out=path,
                id_column=id_column,
                columns=types,
                false_links=false_links,
                learned=learned,
            )
        first = [row[: len(COLUMNS)] for row in read_rows(path, "FROM kept LIMIT ?", _SHOWN)]
    output.show(summary.model_dump(mode="json"), lambda to: _show(to, summary, first, out))


def _learned(model: str) -> Learned:
    from pairmark.service.blobs import open_blobs
    from pairmark.service.cli.options import settings
    from pairmark.service.db import open_database
    from pairmark.service.links.learned import Learned

    return Learned(open_database(settings()), open_blobs(settings()), settings(), model)


def _show(to: Console, summary: LinkSummary, first: list[tuple[object, ...]], out: Path | None) -> None:
    from pairmark.service.links.linking import COLUMNS

    for note in summary.notes:
        to.print(f"note: {note}")
    estimate = summary.false_links.estimate
    ids = ", ".join("row numbers" if name is None else name for name in summary.ids)
    output.facts(
        {
            "records": f"{summary.records:,} (named by {ids})",
            "candidates": f"{summary.candidates:,}, {summary.blocking.candidates_per_record:g} a record",
            "links": f"{summary.links:,}",
            "entities": f"{summary.entities:,} of two records or more",
            "false links": None
            if estimate is None
            else f"{100 * estimate:.2g} % as the model has it: an estimate, no bound",
            "cut": f"{summary.cut:,} pairs, which would join records that contradict each other"
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
