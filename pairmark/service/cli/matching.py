"""The commands that score, decide and judge pairs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.models import resolve
from pairmark.service.cli.options import (
    Connection,
    Members,
    given_members,
    point_of,
    read_records,
    read_table,
)

if TYPE_CHECKING:
    from rich.console import Console

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

    def human(to: Console) -> None:
        rows = [
            [at, *(f"{one:.6g}" if isinstance(one, float) else one for one in pair.values())]
            for at, pair in enumerate(pairs)
        ]
        output.table(("pair", *columns), rows, empty="no pairs", most=SHOWN)(to)
        output.warn(to, (warning["detail"] for warning in answer.warnings))
        to.print(point["meaning"])
        output.facts({name: point.get(name) for name in BESIDE_THE_MEANING})(to)

    output.show({"model": answer.model, "pairs": pairs, "operating_point": point}, human)


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
    from pairmark.models.records.tables import declared

    schema = declared(columns)
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


def _ask(client: Client, review_id: str, by: str | None) -> None:
    """Ask about pairs until it is enough, nothing is left, or the person stops."""
    before: str | None = None
    while True:
        items = client.pairs_to_judge(review_id, by=by)
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
        outcome = {"item": name, "same": _KEYS[key], **({} if by is None else {"by": by})}
        now = client.judge(review_id, [outcome])
        before = name
        output.say(f"{now.judged} judged, {now.wrong} wrong: {now.statement}")
        if now.enough:
            return
