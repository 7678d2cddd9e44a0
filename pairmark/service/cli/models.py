"""Commands for datasets and models: upload, train, evaluate, promote, report, and plan."""

from __future__ import annotations

import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.options import (
    ColumnTypes,
    Commands,
    Connection,
    Members,
    NewConnection,
    PairsFile,
    RequiredModel,
    RightFile,
    TableFile,
    UrlOption,
    client_for,
    column_types,
    given_members,
    param_of,
    read_spec,
    settings,
    thread_beside,
)

if TYPE_CHECKING:
    from pairmark.client import Client
    from pairmark.schemas.datasets import DatasetRequest, ReadingRequest
    from pairmark.schemas.jobs import EvaluationRequest, JobOut, JobRequest
    from pairmark.schemas.models import AliasRequest, MeasureRequest

datasets = Commands(
    help="Datasets: labeled vectors or records. A dataset never changes after its upload.",
    no_args_is_help=True,
)
models = Commands(help="Models, their versions and aliases.", no_args_is_help=True)
Ref = Annotated[str, typer.Argument(help="NAME, NAME@ALIAS or NAME:VERSION.", metavar="MODEL")]
DatasetRef = Annotated[
    str, typer.Argument(help="NAME (its newest version) or NAME:VERSION.", metavar="DATASET")
]
UNSUPPORTED_RATE = 3
"""Exit code of `train` where the version cannot answer ``--target-fpr``."""
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@datasets.command("add")
def add_dataset(
    client: NewConnection,
    name: Annotated[str, typer.Argument(help="Name of the dataset.")],
    file: TableFile,
    reading: Annotated[
        ReadingRequest,
        Members("identity classes label ranking group id exclude keep header format"),
    ],
    contents: Annotated[DatasetRequest, Members("unlabelled")],
    pairs: PairsFile = None,
    column: ColumnTypes = None,
    right_file: RightFile = None,
) -> None:
    """Upload a dataset."""
    options = {**given_members(reading), "columns": column_types(column)}
    with output.progress_bar(f"uploading {file.name}") as progress:
        dataset = client.add_dataset(
            name,
            file,
            pairs=pairs,
            right_file=right_file,
            progress=progress,
            **options,
            **given_members(contents),
        )
    output.show(dataset, *_dataset_parts(dataset.json))


@datasets.command("inspect")
def inspect_dataset(
    client: NewConnection,
    file: TableFile,
    reading: Annotated[
        ReadingRequest, Members("identity classes label ranking group exclude keep header format")
    ],
    pairs: PairsFile = None,
    column: ColumnTypes = None,
    right_file: RightFile = None,
) -> None:
    """Show how a file would be read and which rate it supports, without storing it."""
    options = {**given_members(reading), "columns": column_types(column)}
    with output.progress_bar(f"reading {file.name}") as progress:
        inspection = client.inspect_dataset(
            file, pairs=pairs, right_file=right_file, progress=progress, **options
        )
    output.show(inspection, *_inspection_parts(file, inspection.json))
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
    output.show(dataset, *_dataset_parts(dataset.json))


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
    facts = version.get("facts") or {}
    keys = "kind aliases capabilities params n_features calibration_id created_at lineage"
    suspects = (facts.get("suspects") or {}).get("text")
    about = {
        "model": f"{name}:{number}",
        **{key: version.get(key) for key in keys.split()},
        "promotion": (facts.get("promotion") or {}).get("reason"),
    }
    output.show(
        version,
        output.details(about),
        *_metric_parts(version.json),
        output.warnings([suspects] if suspects else []),
        *_guarantee_parts(version.json),
    )


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
    promotion = client.promote(name, number, alias, **given_members(moving))
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
    if not yes and not output.wants_json() and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _dataset_parts(dataset: dict[str, Any]) -> list[output.Part]:
    keys = "rows features sha256 label label_role ranking_labels label_counts created_at"
    facts = {
        key: dataset[key] for key in (f"{keys} n_pairs n_same_pairs" if dataset["n_pairs"] else keys).split()
    }
    # The service counts the rows of the most frequent labels only.
    counts, more = dataset["label_counts"], (dataset["n_labels"] or 0) - output.CELL_ENTRIES
    if more > 0:
        shown = (f"{label}: {counts[label]}" for label in list(counts)[: output.CELL_ENTRIES])
        facts["label_counts"] = ", ".join([*shown, f"and {more:,} more"])
    return [
        output.details({"dataset": f"{dataset['name']}:{dataset['version']}", **facts}),
        "the newest version has this content already: nothing was added" if dataset["existing"] else None,
        *_guarantee_parts(dataset),
        "guarantee: depends on how the list of pairs came about. Name it with `pairmark train --listing all` "
        "or `random-people`; of a list of unknown origin nothing is guaranteed"
        if dataset["n_pairs"] and dataset["population"] is None
        else None,
        output.warnings(dataset.get("warnings") or []),
    ]


def _inspection_parts(file: Path, inspection: dict[str, Any]) -> list[output.Part]:
    columns = ("name", "kind", "role", "inferred", "distinct", "examples")
    read = [
        output.table(columns, inspection["columns"], most=output.TABLE_ROWS),
        output.warnings(inspection["warnings"]),
    ]
    if problem := inspection["problem"]:
        return [*read, lambda to: to.print(f"it would be refused: {problem}", style="yellow")]
    return [
        *read,
        output.facts({key: inspection[key] for key in ("rows", "features", "n_labels", "ranking_labels")}),
        *_guarantee_parts(inspection),
        f"keep it with: pairmark datasets add NAME {shlex.quote(str(file))} and the same options",
    ]


def train(
    request: Annotated[JobRequest, Members("dataset model learner", optional=True)],
    spec: Annotated[
        Path | None,
        typer.Option(
            help="A .json or .toml file with the job as POST /jobs takes it.", exists=True, dir_okay=False
        ),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter of the learner as NAME=VALUE; VALUE may be JSON (repeatable).", metavar="K=V"
        ),
    ] = None,
    *,
    evaluation: Annotated[
        EvaluationRequest,
        Members("protocol calibration_fraction test_fraction n_pairs target_fpr listing groups"),
    ],
    strangers: Annotated[
        str | None,
        typer.Option(
            help="A file, or a dataset, of rows without labels, each of another person, who calibrate the false "
            "positive rate."
        ),
    ] = None,
    extras: Annotated[JobRequest, Members("budget_seconds unlabelled")],
    promote: Annotated[
        str | None,
        typer.Option(
            help="if-better (default: production moves unless the new version is worse), true, false, or an alias."
        ),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Submit the job and return; a worker trains.")
    ] = False,
    url: UrlOption = None,
) -> None:
    """Train a model with the service at PAIRMARK_URL or --url. Without one, train in this process.

    Exit code 3: trained, but its calibration does not support --target-fpr; production then stays as it is.
    """
    options = {
        **given_members(request),
        **given_members(extras),
        "promote": {"true": True, "false": False}.get(promote or "", promote),
    }
    job = _job_request(spec, options, given_members(evaluation), param or [])
    with client_for(url) as client:
        if strangers is not None:
            job.setdefault("evaluation", {})["strangers"] = _dataset_of(client, strangers)
        submitted = _submit(client, job)
        if no_wait:
            output.show(submitted, output.facts({"job": submitted["id"], "state": submitted["state"]}))
            return
        if submitted["message"]:
            output.say(submitted["message"])
        if job.get("budget_seconds"):
            output.say(
                f"about {job['budget_seconds']:g} s of comparing and fitting; calibrating and measuring come on top"
            )
        running = nullcontext() if url else _worker_for(submitted["id"])
        with running, output.progress_bar("training") as progress:
            try:
                job_done = client.wait(
                    submitted["id"], progress=progress, waiting=output.say if url else lambda _: None
                )
            except KeyboardInterrupt:
                client.cancel(submitted["id"])
                raise
        version = client.version(job_done["model"], job_done["version"])
        rates = client.report(job_done["model"], job_done["version"]).json["promises"]
    output.show(
        {"job": job_done, "version": version},
        lambda to: to.print(f"{version['model']}:{version['version']}  {version['kind']}", style="bold"),
        *_metric_parts(version.json),
        f"\n{job_done['message'] or ''}",
        *_guarantee_parts(version.json),
        *people_parts(rates),
    )
    target, promise = job_done["evaluation"].get("target_fpr"), version["promise"]
    if target is not None and promise and not (promise["smallest_fpr"] or 1.0) <= target:
        output.complain(
            f"trained, but decisions at a false positive rate of {100 * target:g} % will be refused"
        )
        raise typer.Exit(UNSUPPORTED_RATE)


def evaluate(
    client: Connection,
    model: RequiredModel,
    dataset: Annotated[str, typer.Option(help="NAME or NAME:VERSION of a labelled dataset.")],
    *,
    measuring: Annotated[MeasureRequest, Members("protocol")],
) -> None:
    """Measure a version on another dataset: its ROC curve, and the rates at its thresholds."""
    name, number = resolve(client, model)
    report = client.evaluate(name, number, dataset, **given_members(measuring))
    shown = output.details({**report.json, "warnings": None, "roc": None})
    output.show(report, shown, output.warnings(report.json["warnings"]))


def resolve(client: Client, ref: str) -> tuple[str, int]:
    """The name and version that NAME, NAME@ALIAS or NAME:VERSION means."""
    from pairmark.service.errors import InvalidInput
    from pairmark.service.names import parse_ref

    try:
        parsed = parse_ref(ref)
    except InvalidInput as error:
        raise typer.BadParameter(f"{ref!r}: {error.detail}") from error
    name, alias = parsed.name, parsed.alias
    if parsed.version is not None:
        return name, parsed.version
    aliases = {entry["alias"]: entry["version"] for entry in client.model(name)["aliases"]}
    if alias not in aliases:
        has = ", ".join(sorted(aliases)) or "none"
        raise typer.BadParameter(
            f"model {name!r} has no alias {alias!r} (it has: {has}); name {name}:VERSION"
        )
    return name, aliases[str(alias)]


def _job_request(
    spec: Path | None, options: dict[str, Any], evaluation: dict[str, Any], params: list[str]
) -> dict[str, Any]:
    """The job that the file describes, with what the options say in its place."""
    from pairmark.schemas.jobs import JobRequest

    job = {} if spec is None else read_spec(spec)
    unknown = sorted(set(job) - JobRequest.model_fields.keys())
    if unknown:
        raise typer.BadParameter(f"the spec names {', '.join(unknown)}, which a job does not have")
    job.update({name: value for name, value in options.items() if value is not None})
    missing = [name for name in ("dataset", "model") if not job.get(name)]
    if missing:
        raise typer.BadParameter(
            f"missing {', '.join('--' + name for name in missing)}: expected --dataset and --model, or a --spec file "
            "that names them"
        )
    if params:
        job["params"] = {**job.get("params", {}), **dict(map(param_of, params))}
    if evaluation:
        job["evaluation"] = {**job.get("evaluation", {}), **evaluation}
    return job


def _dataset_of(client: Client, place: str) -> str:
    """The dataset of a file of rows without labels, uploaded under its stem; what is no file is a dataset's name."""
    if not Path(place).is_file():
        return place
    dataset = client.add_dataset(Path(place).stem, file=place, unlabelled=True)
    return f"{dataset['name']}:{dataset['version']}"


def _submit(client: Client, job: dict[str, Any]) -> JobOut:
    """The job in the queue; where the service asks what the labels are, the options that say it."""
    from pairmark.client import Problem

    try:
        return client.train(**job, wait=False)
    except Problem as problem:
        if problem.slug != "choose-protocol":
            raise
        options = " or ".join(f"--protocol {choice['protocol']}" for choice in problem.facts["choices"])
        raise typer.BadParameter(f"{problem.detail}. Add {options}") from problem


def _worker_for(job_id: str) -> AbstractContextManager[None]:
    """Without a service: a worker in this process for that one job, unless another one was quicker."""
    from pairmark.service.worker import Worker

    # The bar shows the progress; the worker's own logs would write across it.
    worker = Worker(settings().model_copy(update={"log_level": "WARNING"}))
    return thread_beside(partial(worker.run, drain=True, only_job=job_id))


def people_parts(rates: list[dict[str, Any]]) -> list[output.Part]:
    """What more people would bring at each rate of a report, where that is known."""
    rows = [
        {"fpr": rate["fpr"], **{f"{more['people']:,}": more["tpr"] for more in rate["by_people"]}}
        for rate in rates
        if rate["by_people"]
    ]
    heading = (
        "\nTPR to expect of the people who calibrated, by how many do (estimates, too: only the false positive "
        "rate is guaranteed):"
    )
    return [heading if rows else None, *(output.table(tuple(row), [row]) for row in rows)]


def _guarantee_parts(answer: dict[str, Any]) -> list[output.Part]:
    """What a dataset or version can guarantee, in a sentence; where that depends on what its labels are, in two."""
    return [
        f"guarantee: {answer['promise']['text']}" if answer.get("promise") else None,
        *(
            f"guarantee with --{choice['role']} ({choice['meaning']}): "
            f"{(choice['promise'] or {}).get('text', 'not known from the size')}"
            for choice in answer.get("choices") or []
        ),
    ]


def _metric_parts(version: dict[str, Any]) -> list[output.Part]:
    """Metrics with their intervals, what the learner chose from, and the model among the baselines on the same data."""
    facts, metrics = version.get("facts") or {}, version.get("metrics") or {}
    race, board = facts.get("race") or {}, facts.get("leaderboard") or {}
    units = "people" if metrics.get("protocol") == "open-set" else "samples"
    parts: list[output.Part] = [
        f"measured on {metrics['n_units']:,} {units} held out of training: estimates, none guaranteed"
        if "n_units" in metrics
        else None,
        output.details(metrics),
    ]
    if race.get("candidates"):
        parts += [
            f"\nchosen by cross-validation: {race['winner']}, the simplest of the best",
            output.table(("name", "mean_tpr", "folds", "status"), race["candidates"]),
        ]
    if board:
        parts += [
            f"\n{board['judged_by']}, on the same held-out data:",
            output.table(("name", "value", "interval", "difference", "difference_interval"), board["items"]),
        ]
    return parts


def report(client: Connection, ref: Ref) -> None:
    """Show a version's report: guarantee, error rates and limits."""
    answer = client.report(*resolve(client, ref))
    parts = answer.json
    columns = ("fpr", "threshold", "fpr_upper_bound", "tpr", "guarantee", "refused")
    promises = [{name: entry.get(name) for name in columns} for entry in parts["promises"]]
    shown = {"limits": parts["limits"], **parts["version"]["metrics"], "promises": promises}
    output.show(answer, output.details(shown))
