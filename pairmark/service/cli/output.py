"""What commands print: tables for people, JSON for machines; problems go to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.client import Answer

Part = str | Callable[["Console"], None] | None
"""A sentence, a printer, or nothing."""

TABLE_ROWS = 40
CELL_ENTRIES = 12
SENTENCE = 60
WORDS = {
    "ample": "comfortable",
    "blobs": "artefacts",
    "estimand": "how rates count",
    "mean_tpr": "mean TPR",
    "n_labels": "people, things or classes",
    "n_negative_pairs": "negative pairs",
    "n_same_pairs": "positive pairs",
    "n_units": "people or samples counted",
    "promises": "guarantees",
}
"""What members of answers are called where people read them."""


def _title(name: str) -> str:
    return WORDS.get(name, name).replace("_", " ")


class _Format:
    json = False


def _choose(value: bool) -> bool:
    _Format.json = _Format.json or value
    return value


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for machines.", callback=_choose, is_eager=True)
]


Limit = Annotated[int | None, typer.Option(help="Maximum number to list.", min=1)]


def reset() -> None:
    """Back to tables; called before each command line is read."""
    _Format.json = False


def wants_json() -> bool:
    """Whether ``--json`` was given."""
    return _Format.json


def console(*, stderr: bool = False) -> Console:
    """Where people read."""
    from rich.console import Console

    terminal = Console(soft_wrap=True, stderr=stderr, highlight=False, markup=False, emoji=False)
    if not terminal.is_terminal:
        # In a pipe nothing is cut or folded to a terminal's width.
        terminal.width = 10_000
    return terminal


def show(value: Any, *parts: Part) -> None:
    """Print ``value``, which may hold a client's answers, as JSON, or its parts for people."""
    if wants_json():
        text = json.dumps(value, indent=2, allow_nan=False, default=lambda answer: answer.json)
        sys.stdout.write(text + "\n")
        return
    terminal = console()
    for part in parts:
        if isinstance(part, str):
            terminal.print(part)
        elif part is not None:
            part(terminal)


def warnings(texts: Iterable[str]) -> Callable[[Console], None]:
    """A printer of warnings."""

    def render(console: Console) -> None:
        for text in texts:
            console.print(f"warning: {text}", style="yellow")

    return render


def say(text: str) -> None:
    """A line for people, on stderr so that it never mixes with the answer."""
    if not wants_json():
        sys.stderr.write(text + "\n")


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any] | Mapping[str, Any] | Answer],
    *,
    empty: str = "",
    most: int | None = None,
) -> Callable[[Console], None]:
    """A printer of a table.

    Parameters
    ----------
    rows : the cells of each, or answers and other mappings from columns to cells.
    empty : what to say (the next command to give) when there are no rows.
    most : rows to show; how many more there are is said.
    """

    def render(console: Console) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if not rows:
            console.print(Text(empty))
            return
        grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in columns:
            grid.add_column(_title(column))
        for row in rows[:most]:
            values = row if isinstance(row, Sequence) else [row.get(column) for column in columns]
            grid.add_row(*(Text(cell(value)) for value in values))
        console.print(grid)
        if most is not None and len(rows) > most:
            console.print(f"... and {len(rows) - most:,} more (--json gives all)")

    return render


def facts(entries: Mapping[str, Any]) -> Callable[[Console], None]:
    """A printer of names and values."""

    def render(console: Console) -> None:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        for name, value in entries.items():
            if value is not None:
                grid.add_row(Text(_title(name), style="bold"), Text(cell(value), overflow="fold"))
        console.print(grid)

    return render


def details(entries: Mapping[str, Any]) -> Callable[[Console], None]:
    """A printer of an answer: its plain members as names and values, those of its groups too, and each list of records
    as a table."""

    def render(console: Console) -> None:
        plain, tables = _told_apart(entries)
        facts(plain)(console)
        for title, rows in tables.items():
            console.print(f"\n{title}", style="bold")
            columns = [name for name in rows[0] if any(row.get(name) is not None for row in rows)]
            table(columns, rows, most=TABLE_ROWS)(console)

    return render


def _told_apart(entries: Mapping[str, Any], above: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    plain: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for key, value in entries.items():
        name = f"{above}{_title(key)}"
        if isinstance(value, Mapping) and any(isinstance(entry, Mapping) for entry in value.values()):
            more_plain, more_tables = _told_apart(value, f"{name} ")
            plain |= more_plain
            tables |= more_tables
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables[name] = value
        elif isinstance(value, Mapping) and "resolved" in value:
            resolved = {member: value[member] for member in value if member != "resolved"}
            plain[name] = resolved if value["resolved"] else "too few different pairs to say"
        elif value not in ([], {}):
            plain[name] = value
    return plain, tables


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple, dict)):
        entries = (
            [f"{name}: {cell(value[name])}" for name in value]
            if isinstance(value, dict)
            else map(cell, value)
        )
        first = list(islice(entries, CELL_ENTRIES))
        more = [f"and {len(value) - CELL_ENTRIES:,} more"] if len(value) > CELL_ENTRIES else []
        # Sentences have a line each.
        return (", " if all(len(entry) < SENTENCE for entry in first) else "\n").join(first + more) or "-"
    return str(value)


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, str], None]]:
    """A bar on stderr for people at a terminal, plain lines in a log, nothing for machines."""
    if wants_json():
        yield lambda fraction, stage: None
        return
    if not sys.stderr.isatty():
        last = ("", 0)

        def line(fraction: float, stage: str) -> None:
            nonlocal last
            if (stage, int(fraction * 4)) != last:
                last = (stage, int(fraction * 4))
                sys.stderr.write(f"{what}: {100 * fraction:.0f} % {stage}\n")
                sys.stderr.flush()

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[stage]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0, stage="")
        yield lambda fraction, stage: bar.update(task, completed=fraction, stage=stage)


def complain(detail: str, *, problem: Mapping[str, Any] | None = None) -> None:
    """Say on stderr what went wrong, with what a person needs to fix it."""
    if wants_json():
        sys.stderr.write(json.dumps({"error": dict(problem) if problem else {"detail": detail}}) + "\n")
        return
    sys.stderr.write(f"error: {detail}\n")
    hidden = {"type", "title", "status", "detail", "instance", "errors", "request_id", "ways"}
    ways = (problem or {}).get("ways") or []
    if ways:
        # These say in words what the other members say for machines.
        commands = [(way["command"] or "").replace("fpr=", "--fpr ") for way in ways]
        lines = (way["text"] + (f" ({do})" if do else "") for way, do in zip(ways, commands, strict=True))
        sys.stderr.write("ways out:\n" + "".join(f"  {line}\n" for line in lines))
        hidden |= {"smallest_fpr", "required_units", "alternatives"}
    for name, value in (problem or {}).items():
        if name not in hidden:
            sys.stderr.write(f"  {name}: {cell(value)}\n")
