"""The commands that score, decide and judge pairs, and that say how many people a rate takes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pairmark.service.cli import output
from pairmark.service.cli.models import DatasetRef, people_parts, resolve
from pairmark.service.cli.operating import open_stores
from pairmark.service.cli.options import (
    Confidence,
    Connection,
    Members,
    UrlOption,
    client_for,
    given_members,
    param_of,
    point_of,
    rate,
    read_records,
    read_table,
    require_database,
    settings,
)

if TYPE_CHECKING:
    from pairmark.client import Client
    from pairmark.schemas.scoring import MatchParameters, SimilarityParameters

SHOWN = 20
BESIDE_THE_MEANING = ("fnr_upper_bound", "samples", "aggregation", "n_units", "assumes")

Side = Annotated[
    str,
    typer.Argument(
        help="A CSV of points or records whose first line names the columns (-: standard input), one point: "
        "5.1,3.5,1.4, or a JSON file of records, or of subjects with their samples."
    ),
]


def similarity(
    client: Connection,
    left: Side,
    right: Side,
    *,
    scoring: Annotated[SimilarityParameters, Members("aggregation model")],
) -> None:
    """Score pairs row by row, or one point against many."""
    sides = [_side(side, client, scoring.model) for side in (left, right)]
    scores = client.similarity(*sides, **given_members(scoring)).tolist()
    rows = [(at, f"{score:.6g}") for at, score in enumerate(scores)]
    output.show({"scores": scores}, output.table(("pair", "score"), rows, empty="no pairs", most=SHOWN))


def match(
    client: Connection,
    left: Side,
    right: Side,
    *,
    deciding: Annotated[
        MatchParameters,
        Members("fpr decision fnr confidence method simultaneous aggregation model"),
    ],
) -> None:
    """Decide which pairs match, at a false positive rate you choose or, of records, where F1 is best."""
    if deciding.fpr is None and deciding.decision is None:
        raise typer.BadParameter("expected --fpr, or --decision best-f1")
    sides = [_side(side, client, deciding.model) for side in (left, right)]
    answer = client.match(*sides, **given_members(deciding))
    decisions = answer.decisions or [
        "match" if is_match else "different" for is_match in answer.matches.tolist()
    ]
    point = answer.operating_point.json
    columns = {
        "score": answer.scores.tolist(),
        "decision": decisions,
        "reason": answer.reasons,
        "compared": answer.compared,
    }
    # What no pair has is left out; scores are those of a key that may see them.
    columns = {name: of for name, of in columns.items() if any(one is not None and one == one for one in of)}
    pairs = [dict(zip(columns, pair, strict=True)) for pair in zip(*columns.values(), strict=True)]

    rows = (
        [at, *(f"{one:.6g}" if isinstance(one, float) else one for one in pair.values())]
        for at, pair in enumerate(pairs)
    )
    output.show(
        {"model": answer.model, "pairs": pairs, "operating_point": point},
        lambda to: output.table(("pair", *columns), [*rows], empty="no pairs", most=SHOWN)(to),
        output.warnings(warning["detail"] for warning in answer.warnings),
        point["meaning"],
        output.facts({name: point.get(name) for name in BESIDE_THE_MEANING}),
    )


def _side(argument: str, client: Connection, model: str | None) -> list[Any]:
    """A point, or the points or records of a file."""
    if argument.lstrip().startswith("{") or argument.endswith(".json"):
        return read_records(argument)
    with suppress(ValueError):
        return [[float(word) for word in argument.split(",")]]
    names, lines = read_table(argument)
    try:
        return [point_of(names, line, f"{argument}: line {number}") for number, line in lines.items()]
    except typer.BadParameter:
        # A key that may only decide reads no model's columns, and sends points.
        columns = _columns(client, model)
        if columns is None:
            raise
    from pairmark.models.records.schema import RecordError
    from pairmark.models.records.tables import declare_schema

    schema = declare_schema(columns)
    rows = [dict(zip(names, line, strict=True)) for line in lines.values()]
    try:
        return list(schema.values(schema.records(rows, "a line", strict=False)))
    except RecordError as error:
        first = error.problems[0]
        number = [*lines][first["row"] - 1]
        raise typer.BadParameter(
            f"{argument}: line {number}, column {first['column']!r}: {first['detail']}"
        ) from None


def _columns(client: Connection, model: str | None) -> dict[str, str] | None:
    """The types of the columns of a model of records, where it is known which model is asked."""
    names = [model] if model else [entry["name"] for entry in client.models(limit=2)]
    if len(names) != 1:
        return None
    facts = client.version(*resolve(client, names[0]))["facts"]
    columns: dict[str, str] | None = facts.get("columns")
    return columns


_KEYS = {"s": True, "d": False, "?": None}


def review(
    client: Connection,
    review_id: Annotated[str, typer.Argument(help="The review's id.", metavar="ID")],
    by: Annotated[str | None, typer.Option(help="Your name as a reviewer; default: the key.")] = None,
) -> None:
    """Judge pairs drawn at random, and learn how many of all decisions are wrong.

    With --json it only shows what is known.
    """
    if not output.wants_json():
        _ask(client, review_id, by)
    now = client.review(review_id)
    names = "id population judged waiting wrong bound enough expected_more statement"
    output.show(now, output.facts({name: now[name] for name in names.split()}))


def _key(question: str) -> str:
    return str(typer.prompt(question, err=True)).strip().lower()


def ask_pair(refs: Sequence[str | None], left: Any, right: Any, question: str) -> str:
    """The key that a person presses who sees two sides beside each other."""
    names = [ref or "-" for ref in refs]
    if isinstance(left, dict) and isinstance(right, dict):
        rows = [
            [name, left.get(name), right.get(name), "" if left.get(name) == right.get(name) else "≠"]
            for name in dict.fromkeys([*left, *right])
        ]
        output.table(("", *names, ""), rows)(output.console(stderr=True))
    else:
        output.say(f"\n{names[0]}  |  {names[1]}")
        for side in (left, right):
            if side is not None:
                output.say(f"  {output.cell(side)}")
    return _key(question)


def _ask(client: Client, review_id: str, reviewer: str | None) -> None:
    """Ask about pairs until it is enough, nothing is left, or the person stops."""
    before: str | None = None
    while True:
        items = client.pairs_to_judge(review_id, by=reviewer)
        if not items:
            output.say("nothing to judge: it is enough, all is drawn, or the rest is with others")
            return
        item = items[0]
        name = item["item"]
        key = ask_pair(
            item["refs"],
            item["left"],
            item["right"],
            "same (s), different (d), cannot tell (?), undo (u), stop (q)",
        )
        if key == "q":
            return
        if key == "u" and before is not None:
            name = before
            key = _key("the pair before: same (s), different (d), cannot tell (?)")
        if key not in _KEYS:
            output.say("expected s, d, ?, u or q")
            continue
        outcome = {"item": name, "same": _KEYS[key], **({} if reviewer is None else {"by": reviewer})}
        now = client.judge(review_id, [outcome])
        before = name
        output.say(f"{now.judged} judged, {now.wrong} wrong: {now.statement}")
        if now.enough:
            return


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

    from pairmark.models.evaluation.pairs import draw_learning_curve
    from pairmark.models.evaluation.validation import learning_curve as measured_curve
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
        params = checked_params(spec, dict(map(param_of, param or [])))
        if params.get("protocol") == "auto":
            params["protocol"] = "open-set"
        if "target_fpr" in params:
            params["target_fpr"] = params["target_fpr"] or fpr
        estimator = spec.estimator(**{**spec.params.model_validate(params).model_dump()})
        X = taken_by(spec, data.X, config.max_dense_bytes)
        with (
            refusals(f"no learning curve of {dataset}"),
            output.progress_bar("learning") as progress,
            parallel_config(backend="threading", n_jobs=config.job_threads or cpu_count()),
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
    rows = [
        (
            f"{point['people']:,}",
            f"{100 * point['tpr']:.1f} %",
            f"± {100 * point['deviation']:.1f} % from fold to fold" if point["measured"] else "trend",
        )
        for point in points
    ]
    output.show(
        {"dataset": name, "learner": spec.kind, "fpr": fpr, "points": points, "trend": TREND},
        f"{spec.kind} on {name}: TPR at a false positive rate of {100 * fpr:g} %, of people held out",
        output.table(("people who train", "TPR", ""), rows),
        TREND,
    )


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
        shown = [{"fpr": each["fpr"], "by_people": each["by_people"]} for each in rates]
        if not any(each["by_people"] for each in rates):
            output.say(
                f"{model}: more people would change nothing that is known, see pairmark report {model}"
            )
        output.show(shown, *people_parts(rates))
        return
    assert fpr is not None, "one of both is given"
    from pairmark.service.datasets.guarantees import plan_people

    try:
        to_collect = plan_people(fpr, confidence, samples, classes)
        output.show(to_collect, output.details(to_collect))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
