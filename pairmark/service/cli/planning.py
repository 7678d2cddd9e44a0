"""The command that says how much data a rate takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.pair_labels import CHOSEN
from pairmark.service.cli.rates import Confidence, rate

if TYPE_CHECKING:
    from rich.console import Console


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
    of_records: Annotated[
        bool,
        typer.Option(
            "--pairs", help="For tables of records: how many pairs to label, with `pairmark label`."
        ),
    ] = False,
    same_share: Annotated[
        float,
        typer.Option(
            parser=rate, metavar="RATE", help="With --pairs: the share of candidate pairs that are the same."
        ),
    ] = 0.1,
) -> None:
    """Show how many people, samples and pairs a false positive rate takes, before you collect them."""
    from pairmark.service.datasets.plans import plan_pairs, plan_people

    try:
        if of_records:
            to_label = plan_pairs(fpr, confidence, same_share, CHOSEN)
            output.show(to_label, lambda to: _show_pairs(to, to_label))
        else:
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


def _show_pairs(to: Console, plan: dict[str, Any]) -> None:
    to.print(
        f"A false positive rate of {plan['fpr']:g} at confidence {plan['confidence']:g} among the candidate pairs of a "
        f"table, {100 * plan['same_share']:g} % of them the same:\n"
    )
    rows = [
        [plan["chosen"], f"{draw['drawn']:,}", f"{draw['different']:,}", f"{plan['chosen'] + draw['drawn']:,}",
         f"about {100 * draw['tpr']:.0f} %"]
        for draw in plan["draws"]
    ]  # fmt: skip
    titles = [
        "chosen, to train",
        "drawn at random",
        "different among them",
        "pairs to label",
        "matched of 90 %",
    ]
    output.table(titles, rows)(to)
    to.print(
        "\nThe last column says how many of the same pairs match that a perfect threshold would match 90 % of. "
        "`pairmark label FILE --pairs pairs.csv` asks which pairs are the same, and counts the candidates."
    )
