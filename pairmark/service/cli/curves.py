"""The commands that say how many people a rate takes, and what more of them would bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pairmark.service.cli import output
from pairmark.service.cli.models import DatasetRef, resolve, show_by_people
from pairmark.service.cli.operating import open_stores
from pairmark.service.cli.options import (
    Confidence,
    UrlOption,
    client_for,
    params_of,
    rate,
    require_database,
    settings,
)

if TYPE_CHECKING:
    from rich.console import Console

TREND = "a + b log(people), fitted to what was measured: a trend, no guarantee"


def learning_curve(
    dataset: DatasetRef,
    fpr: Annotated[
        float, typer.Option(parser=rate, metavar="RATE", help="The false positive rate, as 0.01 or 1%.")
    ] = 0.01,
    learner: Annotated[str | None, typer.Option(help="The learner; left out, as `train` chooses.")] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter of the learner as NAME=VALUE; VALUE may be JSON (repeatable).", metavar="K=V"
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write a picture, .svg or .png, too.", dir_okay=False),
    ] = None,
) -> None:
    """Show the TPR by the number of people who train, and the trend to twice as many.

    Trains up to 16 models in this process, on a dataset in the database of the settings.
    """
    formats: dict[str, Literal["svg", "png"]] = {".svg": "svg", ".png": "png"}
    if picture is not None and picture.suffix not in formats:
        raise typer.BadParameter(f"{picture}: expected a name that ends in .svg or .png", param_hint="-o")
    require_database(settings())
    from joblib import cpu_count, parallel_config

    from pairmark.models.evaluation.learning_curve import draw_learning_curve
    from pairmark.models.evaluation.learning_curve import learning_curve as measured_curve
    from pairmark.service.datasets.held_out import taken_by
    from pairmark.service.datasets.ingest import Datasets
    from pairmark.service.errors import InvalidInput, refusals
    from pairmark.service.training.validation import checked_params, default_learner, known_learner

    with open_stores() as (config, database, blobs):
        datasets = Datasets(database, blobs, config)
        described = datasets.get(dataset)
        spec = known_learner(learner or default_learner(described))
        data = datasets.load(described.id)
        if data.y is None or data.schema is not None or spec.needs != "identities":
            raise InvalidInput(
                f"dataset {dataset}: expected vectors of people, uploaded with `identity`, and a learner of "
                "similarities: there is no learning curve of tables, lists of pairs and rankings",
                field="dataset",
            )
        params = checked_params(spec, params_of(param or []))
        if params.get("protocol") == "auto":
            params["protocol"] = "open-set"
        if "target_fpr" in params:
            params["target_fpr"] = params["target_fpr"] or fpr
        estimator = spec.estimator(**{**spec.params.model_validate(params).model_dump()})
        X = taken_by(spec, data.X, config.max_dense_bytes)
        threads = config.job_threads or cpu_count()
        with (
            refusals(f"no learning curve of {dataset}"),
            output.progress_bar("learning") as progress,
            parallel_config(backend="threading", n_jobs=threads),
        ):
            points = measured_curve(
                estimator,
                X,
                data.y,
                fpr,
                int(params.get("random_state") or 0),
                lambda share: progress(share, ""),
            )
    name = f"{described.name}:{described.version}"
    if picture is not None:
        picture.write_bytes(
            draw_learning_curve(points, formats[picture.suffix], f"{name}, TPR at FPR {100 * fpr:g} %")
        )

    def human(to: Console) -> None:
        to.print(
            f"{spec.kind} on {name}: TPR at a false positive rate of {100 * fpr:g} %, of people held out"
        )
        rows = [
            (
                f"{point['people']:,}",
                f"{100 * point['tpr']:.1f} %",
                f"± {100 * point['deviation']:.1f} % from fold to fold" if point["measured"] else "trend",
            )
            for point in points
        ]
        output.table(("people who train", "TPR", ""), rows)(to)
        to.print(TREND)

    shown: dict[str, Any] = {
        "dataset": name,
        "learner": spec.kind,
        "fpr": fpr,
        "points": points,
        "trend": TREND,
    }
    output.show(shown, human)


def plan(
    fpr: Annotated[
        float | None,
        typer.Option(
            parser=rate, metavar="RATE", help="The false positive rate that you will ask for, as 0.01 or 1%."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="NAME, NAME@ALIAS or NAME:VERSION: what more people bring on its scores, instead."),
    ] = None,
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
    url: UrlOption = None,
) -> None:
    """Show how many people, samples and pairs a false positive rate takes, before you collect them, or what more of
    them would bring to a model."""
    if (fpr is None) == (model is None):
        raise typer.BadParameter("expected --fpr, of a model to come, or --model, of one that is calibrated")
    if model is not None:
        with client_for(url) as client:
            rates = client.report(*resolve(client, model)).json["promises"]
        by_people = [{"fpr": each["fpr"], "by_people": each["by_people"]} for each in rates]
        if not any(each["by_people"] for each in rates):
            output.say(
                f"{model}: more people would change nothing that is known, see pairmark report {model}"
            )
        output.show(by_people, lambda to: show_by_people(to, rates))
        return
    assert fpr is not None, "one of both is given"
    from pairmark.service.datasets.guarantees import plan_people

    try:
        to_collect = plan_people(fpr, confidence, samples, classes)
        output.show(to_collect, output.details(to_collect))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
