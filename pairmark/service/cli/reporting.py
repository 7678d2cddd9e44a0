"""Commands for a version's report."""

from __future__ import annotations

import json as encoder
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.catalogue import Ref
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.training import resolve, show_metrics

if TYPE_CHECKING:
    from rich.console import Console


def report(
    client: Connection,
    ref: Ref,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the whole report to this file: .html for a page, .json for the numbers.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Show a version's report: guarantee, error rates, groups, likelihood ratios and limits."""
    ending = None if file is None else file.suffix.lower()
    if ending not in (None, ".html", ".json"):
        raise typer.BadParameter(
            f"{file}: expected a file that ends in .html or .json", param_hint="--output"
        )
    name, number = resolve(client, ref)
    if file is None:
        answer = client.report(name, number)
        output.show(answer, lambda to: _summary(to, answer.json))
        return
    if ending == ".html":
        text = client.report_page(name, number)
    else:
        text = encoder.dumps(client.report(name, number).json, indent=2, allow_nan=False) + "\n"
    file.write_text(text, encoding="utf-8")
    facts = {"model": name, "version": number, "file": str(file), "bytes": file.stat().st_size}
    output.show(facts, f"wrote the report of {name}:{number} to {file}")


def _summary(to: Console, parts: dict[str, Any]) -> None:
    version, card = parts["version"], parts["card"]
    for title, sentences in (
        ("What it is", card["details"]),
        ("Trained on", card["training_data"]),
        ("Measured on", card["evaluation_data"]),
    ):
        _section(to, title, sentences)
    to.print("\nThe promise", style="bold")
    if (version.get("promise") or {}).get("population"):
        to.print(f"  It holds among {version['promise']['population']}.")
    rows: list[tuple[Any, ...]] = [
        (entry["fpr"], None, None, None, "not supported")
        if entry["refused"]
        else (entry["fpr"], entry["threshold"], entry["fpr_upper_bound"], entry["tpr"], entry["guarantee"])
        for entry in parts["promises"]
    ]
    output.table(("fpr", "threshold", "bound", "recognised", "guarantee"), rows, empty="  none")(to)
    to.print("\nMeasured", style="bold")
    metrics = {
        key: value for key, value in version["metrics"].items() if key not in ("groups", "pair_disagreement")
    }
    show_metrics(to, metrics)
    evidence = parts["evidence"] or {}
    searched, enrolled, aged = (evidence.get(name) for name in ("identification", "by_samples", "by_time"))
    if searched:
        to.print(f"\nSearches among {searched['gallery_size']} enrolled people", style="bold")
        rows = [(entry["fpir"], entry["fnir"], tuple(entry["interval"])) for entry in searched["at"]]
        output.table(("fpir", "fnir", "interval"), rows, empty="  none")(to)
    if enrolled:
        to.print(f"\nBy enrolled samples, {enrolled['n_people']} people", style="bold")
        _show_missed(to, enrolled["at"], samples=itemgetter("samples"), eer=itemgetter("eer"))
    if aged:
        to.print(f"\nBy time between samples{', ' + aged['unit'] if aged['unit'] else ''}", style="bold")
        _show_missed(to, aged["at"], apart=itemgetter("shortest", "longest"), pairs=itemgetter("n_pairs"))
    for at in (version["metrics"].get("groups") or {}).get("at", []):
        for entry in at.get("differentials") or []:
            ratio = entry["max_over_geomean"]
            to.print(
                f"groups at {at['fpr']:g}: {entry['rate']}, largest over geometric mean {output.cell(ratio['value'])} "
                f"({output.cell(ratio['low'])} to {output.cell(ratio['high'])})"
            )
    _section(to, "\nLimits", card["limits"])


def _show_missed(to: Console, at: list[dict[str, Any]], **columns: Callable[[dict[str, Any]], Any]) -> None:
    """What is missed at each false match rate, beside these columns."""
    rates = list(at[0]["fnmr_at_fmr"])
    rows = [
        [
            *(read(entry) for read in columns.values()),
            *(entry["fnmr_at_fmr"][rate]["value"] for rate in rates),
        ]
        for entry in at
    ]
    output.table([*columns, *(f"missed at {rate}" for rate in rates)], rows)(to)


def _section(to: Console, title: str, sentences: list[str]) -> None:
    to.print(title, style="bold")
    for sentence in sentences:
        to.print(f"  {sentence}")
