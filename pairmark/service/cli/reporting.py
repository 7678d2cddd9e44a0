"""Commands for a version's report."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.catalogue import Ref
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.points import Confidence, rate
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
    _section(to, "\nLimits", card["limits"])


def _section(to: Console, title: str, sentences: list[str]) -> None:
    to.print(title, style="bold")
    for sentence in sentences:
        to.print(f"  {sentence}")


def plan(
    fpr: Annotated[
        float,
        typer.Option(
            parser=rate, metavar="RATE", help="The false positive rate that you will ask for, as 0.01 or 1%."
        ),
    ],
    confidence: Confidence = 0.95,
    samples: Annotated[
        int, typer.Option(help="Samples of each person; two or more are needed to measure the TPR.", min=1)
    ] = 2,
    classes: Annotated[
        int | None,
        typer.Option(
            help="For closed-set use (the classes in use are those of training): the number of classes.",
            min=2,
        ),
    ] = None,
) -> None:
    """Show how many people, samples and pairs a false positive rate takes, before you collect them."""
    from pairmark.service.datasets.promises import plan_people

    try:
        to_collect = plan_people(fpr, confidence, samples, classes)
        output.show(to_collect, lambda to: _show_people(to, to_collect))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _show_people(to: Console, plan: dict[str, Any]) -> None:
    from pairmark.models.calibration.promises import BEST_TPR

    unit = {"open-set": "people", "closed-set": "samples"}[plan["protocol"]]
    fpr, needs = plan["fpr"], plan["needs"]
    to.print(
        f"A false positive rate of {fpr:g} at confidence {plan['confidence']:g}, {plan['protocol']}, takes at least:\n"
    )
    titles = {
        "method": "method",
        "calibration_people": "people to calibrate on",
        "dataset_people": "people in the dataset",
        "calibration_samples": "samples to calibrate on",
        "dataset_samples": "samples in the dataset",
        "calibration_pairs": f"different pairs of {unit}",
        "independent_pairs": "or independent pairs",
    }
    keys = [name for name in titles if any(need[name] is not None for need in needs)]
    rows = [[need[name] for name in keys] for need in needs]
    output.table([titles[name] for name in keys], rows)(to)
    to.print(f"\n{plan['text']} (pairmark train --target-fpr {fpr:g}).")
    to.print(
        f"finite-sample holds for every "
        "distribution; it is what `auto` uses. What a model that could recognise\n"
        f"{100 * BEST_TPR:.0f} % of same pairs at this rate is to be expected to recognise:"
    )
    for expected in plan["expected"]:
        to.print(f"  with {expected['people']:,} {unit} to calibrate on about {100 * expected['tpr']:.0f} %")
    to.print(
        "bootstrap is asymptotic. "
        "It answers only if you ask for it (method=bootstrap) or a policy allows it, at confidence\n0.90, 0.95 or "
        "0.99. Its numbers here are approximate."
    )
