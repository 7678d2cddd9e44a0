"""Pairs of a stored table to label: which are proposed, and the table with the answers."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.models.records.people import people
from tests.serving import RunningServer, serving

TABLE, WHO = people(60, seed=4, copies=5)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with a table of people, five rows each, without labels; and vectors."""
    home = tmp_path_factory.mktemp("queue")
    with serving(home / "home", f"sqlite:///{home / 'queue.db'}") as server:
        file = home / "people.csv"
        with file.open("w", newline="") as stream:
            lines = csv.writer(stream)
            lines.writerow(["rec", *TABLE])
            lines.writerows(
                [f"r{row}", *cells] for row, cells in enumerate(zip(*TABLE.values(), strict=True))
            )
        words = ("--column", "rec:id", "--column", "code:text", "--unlabelled")
        added = server.cli("datasets", "add", "people", str(file), *words)
        assert added.returncode == 0, added.stderr
        points = home / "points.csv"
        points.write_text("a,b,who\n" + "".join(f"{at},{at % 7},p{at % 40}\n" for at in range(80)))
        assert server.cli("datasets", "add", "points", str(points), "--identity", "who").returncode == 0
        yield server


def same(refs: list[str]) -> bool:
    left, right = (int(ref[1:]) for ref in refs)
    return bool(WHO[left] == WHO[right])


def ask(served: RunningServer, answers: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    request = {"answers": answers, "choose": 30, "fpr": 0.2, **options}
    answer = served.http.post("/datasets/people/proposals", json=request)
    assert answer.status_code == 200, answer.text
    proposed: dict[str, Any] = answer.json()
    return proposed


def said(item: dict[str, Any]) -> dict[str, Any]:
    left, right = item["refs"]
    return {"left": left, "right": right, "same": same(item["refs"]), "drawn_from": item["drawn_from"]}


def labelled(served: RunningServer, **options: Any) -> list[dict[str, Any]]:
    """All that is asked, answered."""
    answers: list[dict[str, Any]] = []
    for _ in range(100):
        items = ask(served, answers, **options)["items"]
        if not items:
            return answers
        answers += [said(item) for item in items]
    raise AssertionError("it never ends")


def test_pairs_are_chosen_and_then_drawn_until_they_are_enough(served: RunningServer, tmp_path: Path) -> None:
    answers = labelled(served)
    assert [one["drawn_from"] > 0 for one in answers[:30]] == [False] * 30
    drawn = answers[30:]
    state = ask(served, answers)
    assert {one["drawn_from"] for one in drawn} == {state["candidates"] - 30}
    assert len({(one["left"], one["right"]) for one in answers}) == len(answers)
    assert state["drawn"]["labelled"] - state["drawn"]["same"] == state["drawn"]["different_wanted"]
    # The command goes on from the same answers: nothing more is asked there.
    table, pairs = served.home.parent / "people.csv", tmp_path / "pairs.csv"
    with pairs.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["left", "right", "same", "drawn_from"])
        lines.writerows([one["left"], one["right"], int(one["same"]), one["drawn_from"]] for one in answers)
    words = ("--column", "rec:id", "--column", "code:text", "--choose", "30", "--fpr", "0.2", "--json")
    told = served.cli("label", str(table), "--pairs", str(pairs), *words)
    assert '"next": null' in told.stdout, told.stderr


def test_who_cannot_tell_is_not_asked_again(served: RunningServer) -> None:
    item = ask(served, [])["items"][0]
    again = ask(served, [{**said(item), "same": None}], n=100)
    assert item["refs"] not in [one["refs"] for one in again["items"]]
    assert again["chosen"]["labelled"] == 0


def test_the_table_is_stored_with_its_pairs_and_trains(served: RunningServer) -> None:
    answers = labelled(served, choose=16, fpr=0.05)
    made = served.http.post("/datasets/people/pairs", json={"name": "labelled", "answers": answers})
    assert made.status_code == 201, made.text
    facts = made.json()
    assert (facts["n_pairs"], facts["rows"]) == (len(answers), len(WHO))
    assert facts["population"] == answers[-1]["drawn_from"]
    repeated = served.http.post("/datasets/people/pairs", json={"name": "labelled", "answers": answers})
    assert repeated.json()["existing"] is True
    served.train(
        dataset="labelled", model="labelled", params={"n_estimators": 20, "n_forest": 10}, promote=True
    )
    point = served.http.get("/models/labelled/versions/1/operating-point?fpr=0.2").json()
    assert point["guarantee"] == "finite-population"
