"""The command that makes reviews and asks a person about pairs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.schemas.reviews import ReviewRequest, ReviewSource
from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.options import Members, given

if TYPE_CHECKING:
    from pairmark.client import Client

_KEYS = {"s": True, "d": False, "?": None}


def review(
    client: Connection,
    review_id: Annotated[
        str | None,
        typer.Argument(help="The review's id; without one, make a review or list them.", metavar="[ID]"),
    ] = None,
    *,
    source: Annotated[ReviewSource, Members("model gallery")],
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="Make a review of a list: CSV with the columns left, right, and optionally score and match (0 or 1).",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    asking: Annotated[ReviewRequest, Members("question at_most confidence")],
    by: Annotated[str | None, typer.Option(help="Your name as a reviewer; default: the key.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show what the review has shown so far.")] = False,
) -> None:
    """Judge pairs drawn at random, and learn how many of all decisions are wrong."""
    makes = bool(given(source)) or pairs is not None
    if review_id is not None and makes:
        raise typer.BadParameter("expected either an ID, or what to make a review of")
    if makes:
        listed_pairs = {} if pairs is None else _pairs_of_file(pairs)
        new = client.create_review(**given(source), **listed_pairs, **given(asking))
        output.show(new, output.facts(_facts(new)))
    elif review_id is None:
        reviews = list(client.reviews(limit=50))
        rows = [[row.id, row["model"], row.judged, row.wrong, row.bound, row.enough] for row in reviews]
        columns = ["ID", "Model", "Judged", "Wrong", "Bound", "Enough"]
        output.show(reviews, output.table(columns, rows, empty="no review yet: pairmark review --model NAME"))
    else:
        if not show and not output.wants_json():
            _ask(client, review_id, by)
        now = client.review(review_id)
        output.show(now, output.facts(_facts(now)))


def _facts(state: Any) -> dict[str, Any]:
    names = "id population judged waiting wrong bound enough expected_more statement"
    return {name: state[name] for name in names.split()}


def _key(question: str) -> str:
    return str(typer.prompt(question, err=True)).strip().lower()


def _pairs_of_file(file: Path) -> dict[str, Any]:
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows or not {"left", "right"} <= set(rows[0]):
        raise typer.BadParameter(f"{file}: expected the columns left and right, and at least one row")
    source: dict[str, Any] = {"refs": [[row["left"], row["right"]] for row in rows]}
    try:
        if "score" in rows[0]:
            source["scores"] = [float(row["score"]) for row in rows]
        if "match" in rows[0]:
            source["matches"] = [bool(int(row["match"])) for row in rows]
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(f"{file}: score must be a number and match 0 or 1 in every row") from error
    return source


def _ask(client: Client, review_id: str, by: str | None) -> None:
    """Ask about pairs until it is enough, nothing is left, or the person stops."""
    before: str | None = None
    while True:
        items = client.pairs_to_judge(review_id, by=by)
        if not items:
            output.say("nothing to judge: it is enough, all is drawn, or the rest is with others")
            return
        item = items[0]
        output.say(f"\n{item['refs'][0] or '-'}  |  {item['refs'][1] or '-'}")
        for name in ("left", "right"):
            if item[name] is not None:
                output.say(f"  {name}: {output.cell(item[name])}")
        name = item["item"]
        key = _key("same (s), different (d), cannot tell (?), undo (u), stop (q)")
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
