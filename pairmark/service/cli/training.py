"""Commands that train and evaluate models: train, evaluate."""

from __future__ import annotations

import json as json_module
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.schemas.jobs import EvaluationRequest, JobRequest
from pairmark.schemas.models import MeasureRequest
from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection, UrlOption, connected, settings
from pairmark.service.cli.options import Members, given
from pairmark.service.cli.points import RequiredModel

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.client import Client
    from pairmark.schemas.jobs import JobOut


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
        Members("protocol calibration_fraction test_fraction n_pairs target_fpr groups listing"),
    ],
    extras: Annotated[JobRequest, Members("budget_seconds unlabelled")],
    promote: Annotated[
        str | None,
        typer.Option(
            help="if-better (default: production moves unless the new version is worse), true, false, or an alias."
        ),
    ] = None,
    no_promote: Annotated[bool, typer.Option("--no-promote", help="Do not move any alias.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Submit the job and return; a worker trains.")
    ] = False,
    url: UrlOption = None,
) -> None:
    """Train a model with the service at PAIRMARK_URL or --url. Without one, train in this process."""
    if promote is not None and no_promote:
        raise typer.BadParameter("expected one of --promote and --no-promote")
    options = {
        **given(request),
        **given(extras),
        "promote": False if no_promote else {"true": True, "false": False}.get(promote or "", promote),
    }
    job = _job_request(spec, options, given(evaluation), param or [])
    with connected(url) as client:
        submitted = _submitted(client, job)
        if no_wait:
            output.show(submitted, output.facts({"job": submitted["id"], "state": submitted["state"]}))
            return
        if submitted["message"]:
            output.say(submitted["message"])
        with _worker_for(submitted["id"], url), output.progress_bar("training") as progress:
            try:
                job_done = client.wait(
                    submitted["id"], progress=progress, waiting=output.say if url else lambda _: None
                )
            except KeyboardInterrupt:
                client.cancel(submitted["id"])
                raise
        version = client.version(job_done["model"], job_done["version"])
    output.show(
        {"job": job_done, "version": version}, lambda to: _show_trained(to, job_done.json, version.json)
    )


def evaluate(
    client: Connection,
    model: RequiredModel,
    dataset: Annotated[str, typer.Option(help="NAME or NAME:VERSION of a labelled dataset.")],
    *,
    measuring: Annotated[MeasureRequest, Members("protocol")],
) -> None:
    """Measure a version on another dataset: its ROC curve, and the rates at its thresholds."""
    name, number = resolve(client, model)
    report = client.evaluate(name, number, dataset, **given(measuring))
    output.show(report, lambda to: _show_evaluation(to, report.json))


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
    job = {} if spec is None else _read_spec(spec)
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
        job["params"] = {**job.get("params", {}), **dict(_param(entry) for entry in params)}
    if evaluation:
        job["evaluation"] = {**job.get("evaluation", {}), **evaluation}
    return job


def _submitted(client: Client, job: dict[str, Any]) -> JobOut:
    """The job in the queue. Where the service asks what the labels are, ask on a terminal; else say what to add."""
    from pairmark.client import Problem

    try:
        return client.train(**job, wait=False)
    except Problem as problem:
        if problem.slug != "choose-protocol":
            raise
        choices = problem.facts["choices"]
        if output.wants_json() or not sys.stdin.isatty():
            options = " or ".join(f"--protocol {choice['protocol']}" for choice in choices)
            raise typer.BadParameter(f"{problem.detail}. Add {options}") from problem
    protocols = {choice["role"]: choice["protocol"] for choice in choices}

    def protocol_of(role: str) -> str:
        if role not in protocols:
            raise typer.BadParameter(f"expected {' or '.join(protocols)}")
        return str(protocols[role])

    for choice in choices:
        text = (choice["promise"] or {}).get("text", "")
        typer.echo(f"{choice['role']}: {choice['meaning']}. {text}", err=True)
    question = f"What are the labels? ({'/'.join(protocols)})"
    protocol = typer.prompt(question, value_proc=protocol_of, err=True)
    evaluation = {**job.get("evaluation", {}), "protocol": protocol}
    return client.train(**{**job, "evaluation": evaluation}, wait=False)


def _read_spec(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        job = tomllib.loads(text) if path.suffix == ".toml" else json_module.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{path}: {error}") from error
    if not isinstance(job, dict):
        raise typer.BadParameter(f"{path}: expected an object with learner, dataset and model")
    return job


def _param(entry: str) -> tuple[str, Any]:
    name, equals, text = entry.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"--param {entry!r}: expected NAME=VALUE")
    try:
        return name, json_module.loads(text)
    except ValueError:
        return name, {"True": True, "False": False, "None": None}.get(text, text)


@contextmanager
def _worker_for(job_id: str, url: str | None) -> Iterator[None]:
    """Without a service: a worker in this process for that one job, unless another one was quicker."""
    if url:
        yield
        return
    from pairmark.service.jobs.worker import Worker

    stop = threading.Event()
    # The bar shows the progress; the worker's own logs would write across it.
    worker = Worker(settings().model_copy(update={"log_level": "WARNING"}))
    thread = threading.Thread(target=worker.run, args=(stop,), kwargs={"drain": True, "only_job": job_id})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show_trained(to: Console, job: dict[str, Any], version: dict[str, Any]) -> None:
    to.print(f"{version['model']}:{version['version']}  {version['kind']}", style="bold")
    show_metrics(to, version.get("metrics") or {})
    show_leaderboard(to, version.get("facts") or {})
    to.print("\n" + str(job.get("message") or ""))
    show_promise(to, version)


def show_promise(to: Console, of: dict[str, Any]) -> None:
    """What a dataset or version can promise, in a sentence; where that depends on what its labels are, in two."""
    if of.get("promise"):
        to.print(f"promise: {of['promise']['text']}")
    for choice in of.get("choices") or []:
        text = (choice["promise"] or {}).get("text", "not known from the size")
        to.print(f"promise with --{choice['role']} ({choice['meaning']}): {text}")


def show_leaderboard(to: Console, facts: dict[str, Any]) -> None:
    """What the learner chose from, and the model among the baselines, on the same held-out data."""
    race = facts.get("race") or {}
    if race.get("candidates"):
        to.print(f"\nchosen by cross-validation: {race['winner']}, the simplest of the best")
        output.table(("name", "mean_tpr", "folds", "reference_seconds"), race["candidates"])(to)
    board = facts.get("leaderboard") or {}
    for table in filter(None, (board, board.get("classification"))):
        to.print(f"\n{table['judged_by']}, on the same held-out data:")
        output.table(("name", "value", "interval", "difference", "difference_interval"), table["items"])(to)


_METRICS = {
    "auc": "AUC",
    "eer": "equal error rate",
    "tpr_at_fpr": "TPR at FPR",
    "n_units": "held-out units",
    "n_negative_pairs": "held-out different pairs",
    "n_same_pairs": "held-out same pairs",
}
_FOOTNOTES = ("intervals", "estimand")


def show_metrics(to: Console, metrics: dict[str, Any]) -> None:
    """Metrics with their intervals, as a table; what the intervals are, below it."""
    rows: list[tuple[str, Any, Any]] = []

    def add(name: str, value: Any) -> None:
        if isinstance(value, dict) and "value" in value:
            rows.append((name, value["value"], value.get("interval")))
        elif isinstance(value, dict):
            for at, nested in value.items():
                add(f"{name} {at}".replace("_", " "), nested)
        elif isinstance(value, (int, float, str)):
            rows.append((name, value, None))

    for name, value in metrics.items():
        if name == "likelihood_ratios":
            for method, worth in (value or {}).items():
                add(f"Cllr of likelihood ratios by {method}, bits", worth.get("cllr"))
        # FNMR is 1 - TPR: JSON has both.
        elif name not in (*_FOOTNOTES, "fnmr_at_fmr"):
            add(_METRICS.get(name, name), value)
    output.table(("metric", "value", "interval"), rows, empty="no metrics")(to)
    for name in _FOOTNOTES:
        if isinstance(metrics.get(name), str):
            to.print(f"{name}: {metrics[name]}", style="dim")


def _show_evaluation(to: Console, report: dict[str, Any]) -> None:
    to.print(f"{report['model']}:{report['version']} on {report['dataset']} ({report['protocol']})")
    output.warn(to, report.get("warnings", []))
    show_metrics(to, report["metrics"])
    inputs = report.get("inputs")
    if inputs is not None:
        to.print(f"{inputs['unlike']:,} of {inputs['rows']:,} rows are unlike those of the calibration")
    points = report.get("operating_points") or []
    if points:
        columns = list(points[0])
        output.table(columns, points)(to)
