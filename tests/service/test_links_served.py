"""Links of stored tables: explained, judged, scored by models, joined to entities that stay, erased."""

import csv
import io
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.client import Client, Conflict, JobFailed, NotFound, Problem
from pairmark.client import InvalidInput as RefusedInput
from pairmark.models.linking import mixture
from pairmark.models.records.compare.normal import date
from pairmark.schemas.datasets import DatasetRequest
from pairmark.schemas.links import LinksRequest, ResolveRequest
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.errors import Conflict as StoredConflict
from pairmark.service.errors import UnknownLinks
from pairmark.service.links.folders import LinkFolders
from pairmark.service.links.jobs import Linker
from pairmark.service.links.links import Links
from pairmark.service.links.results import Results
from pairmark.service.names import EVERY_NAME, VisibleNames
from pairmark.service.processes import child_environment
from pairmark.service.reviews.reviews import Reviews
from pairmark.service.runtime.operating_points import OperatingPoints
from tests.service.test_links import f1, table, write
from tests.serving import PAIRMARK, csv_table, serving

N = 900
Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, columns: Rows) -> Iterator[Client]:
    """Of a service that has the table ``people``."""
    home = tmp_path_factory.mktemp("served")
    with (
        serving(home / "home", f"sqlite:///{home / 'links.db'}", job_thread=True) as server,
        Client(server.url) as client,
    ):
        upload(client, "people", columns)
        yield client


@pytest.fixture(scope="module")
def identity() -> dict[str, int]:
    return table(N, "dependent")[0]


@pytest.fixture(scope="module")
def columns() -> Rows:
    return table(N, "dependent")[1]


def upload(client: Client, name: str, columns: Mapping[str, Sequence[Any]], **roles: Any) -> None:
    client.add_dataset(name, io.BytesIO(csv_table(columns)), format="csv", **(roles or {"unlabelled": True}))


@pytest.fixture(scope="module")
def found(client: Client) -> dict[str, Any]:
    """Links of ``people``, for tests that change nothing."""
    return dict(client.link("people"))


def link_by_command(file: Path, *words: object) -> str:
    """What the command says, as a process of its own: jobs compile in this one, and two threads parse no source."""
    done = subprocess.run(
        [*PAIRMARK, "link", str(file), *map(str, words)],
        env=os.environ | {"PAIRMARK_HOME": str(file.parent)},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def rows_of(client: Client, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in client.links(found["id"])]


def entities_of(client: Client, found: Mapping[str, Any]) -> dict[str, list[str]]:
    return {each["id"]: each["records"] for each in client.pages(f"/links/{found['id']}/entities")}


def entities_by_table(client: Client, path: str) -> list[tuple[str, set[tuple[int, str]]]]:
    """Entities, each with its records as (table, id)."""
    return [(each["id"], {*zip(each["tables"], each["records"], strict=True)}) for each in client.pages(path)]


def asked(client: Client, method: str, path: str, **options: Any) -> Any:
    return client.request(method, path, **options).json()


def judge(
    client: Client, review: str, identity: Mapping[str, int], n: int
) -> list[tuple[dict[str, Any], bool]]:
    """Judge the next pairs of a review by whom they are of; pairs and whether they are the same."""
    items = [dict(item) for item in client.pairs_to_judge(review, n=n)]
    same = [identity[item["refs"][0]] == identity[item["refs"][1]] for item in items]
    said = [{"item": item["item"], "same": is_one} for item, is_one in zip(items, same, strict=True)]
    if said:
        client.judge(review, said)
    return [*zip(items, same, strict=True)]


def test_links_and_entities_come_in_pages_and_as_files(
    client: Client, found: dict[str, Any], identity: dict[str, int]
) -> None:
    assert found["state"] == "succeeded"
    rows = rows_of(client, found)
    assert len(rows) == found["links"] + found["conflicts"] > 200
    assert f1([{name: str(value) for name, value in row.items()} for row in rows], identity) > 0.98
    path = f"/links/{found['id']}"
    text = client.request("GET", f"{path}/links", headers={"Accept": "text/csv"}).text
    lines = list(csv.DictReader(text.splitlines()))
    assert [(line["left"], line["right"]) for line in lines] == [(row["left"], row["right"]) for row in rows]
    entities = entities_of(client, found)
    assert len(entities) == found["entities"]
    assert all(name in records and len(records) > 1 for name, records in entities.items())
    text = client.request("GET", f"{path}/entities", headers={"Accept": "text/csv"}).text
    members = {(line["entity"], line["record"]) for line in csv.DictReader(text.splitlines())}
    assert members == {(name, record) for name, records in entities.items() for record in records}
    parquet = client.request("GET", f"{path}/links", headers={"Accept": "application/vnd.apache.parquet"})
    assert parquet.content.startswith(b"PAR1")
    assert found["id"] in [job["id"] for job in client.pages("/links")]


def test_a_link_is_explained_field_by_field_and_so_is_a_pair_that_is_none(
    client: Client, found: dict[str, Any], columns: Rows, identity: dict[str, int]
) -> None:
    row = next(row for row in rows_of(client, found) if row["decision"] == "match")
    path = f"/links/{found['id']}/links"
    link = asked(client, "GET", f"{path}/{row['left']}/{row['right']}")
    assert {name: link.get(name) for name in row} == row
    at = columns["id"].index(row["left"])
    fields = {field["field"]: field for field in link["fields"]}
    assert fields["last"]["left"] == columns["last"][at]
    # What tells one person from another says more than what a household has in common.
    assert max(fields[name]["weight"] for name in ("first", "born")) > 2
    assert all(field["weight"] == 0 for field in link["fields"] if field["level"] == "missing")
    other_way = asked(client, "GET", f"{path}/{row['right']}/{row['left']}")
    assert (other_way["score"], other_way["decision"]) == (row["score"], "match")
    stranger = next(name for name in columns["id"] if identity[name] != identity[row["left"]])
    none = asked(client, "GET", f"{path}/{row['left']}/{stranger}")
    assert (none["score"], none["decision"], none["entity"]) == (None, "different", None)
    with pytest.raises(NotFound, match="no record 'nobody'"):
        asked(client, "GET", f"{path}/{row['left']}/nobody")


def test_rules_are_given_and_read_back_and_recall_is_measured_where_there_are_labels(
    client: Client, found: dict[str, Any], columns: Rows, identity: dict[str, int]
) -> None:
    assert found["blocking"]["recall_from"] == "overlap"
    assert found["blocking"]["recall"] > 0.95
    upload(client, "labelled", columns | {"who": [f"p{who}" for who in identity.values()]}, identity="who")
    made = client.link("labelled")
    full = made["blocking"]
    assert full["recall_from"] == "labels"
    assert full["recall_interval"][0] < full["recall"] <= full["recall_interval"][1]
    known = asked(client, "GET", f"/links/{made['id']}/evaluation")
    value, low, high = known["decided"]["f1"]
    assert known["basis"] == "identities"
    assert 0.9 < low < value <= high
    assert b"recall" in client.request("GET", f"/links/{made['id']}/evaluation.svg").content
    page = client.request("GET", f"/console/links/{made['id']}", headers={"Accept": "text/html"}).text
    assert f"/links/{made['id']}/evaluation.svg" in page
    # What a higher cut would leave is what it leaves, by the button of the page.
    said = next(each for each in made["cuts"] if each["cut"] == 0.99)
    above = client.link(**made["request"] | {"cut": 0.99})
    assert (above["links"], above["cuts"][0]["cut"]) == (said["links"], 0.99)
    assert (
        max(row["score"] for row in rows_of(client, made))
        >= min(row["score"] for row in rows_of(client, above))
        > 0.99
    )
    few = client.link("labelled", rules=[["phone"], ["last", "born"]])["blocking"]
    assert few["rules"] == [["phone"], ["last", "born"]]
    assert few["recall"] < full["recall"]
    assert few["candidates_per_record"] < full["candidates_per_record"]
    assert (full["at_most"], full["left_out"]) == (50, [])
    scarce = client.link("labelled", candidates_per_record=1)["blocking"]
    assert scarce["candidates_per_record"] <= scarce["at_most"] == 1
    assert scarce["left_out"]
    with pytest.raises(Conflict, match="no evaluation"):
        asked(client, "GET", f"/links/{found['id']}/evaluation")
    with pytest.raises(RefusedInput, match="'age' is not compared; expected some of first"):
        client.link("people", rules=[["age"]])


def test_judgements_bound_the_share_of_false_links(
    client: Client, columns: Rows, identity: dict[str, int]
) -> None:
    upload(client, "judged", columns)
    made = client.link("judged", false_links=0.05)
    assert {"bound", "estimate", "unknown"} & {*made["false_links"]} == {"estimate"}
    assert made["false_links"]["judged"] == 0
    assert made["false_links"]["expected_more"] > 0
    assert 0 <= made["false_links"]["estimate"] <= 0.05
    review = client.review(made["review"])
    assert (review["population"], review["at_most"], review["source"]) == (
        made["links"],
        0.05,
        {"links": made["id"], "columns": review["source"]["columns"]},
    )
    judged = 0
    while not client.review(made["review"])["enough"]:
        items = judge(client, made["review"], identity, 20)
        for item, _ in items:
            assert item["left"]["last"] == (columns["last"][columns["id"].index(item["refs"][0])] or None)
        judged += len(items)
        assert judged < 400
    now = asked(client, "GET", f"/links/{made['id']}")["false_links"]
    assert now["enough"]
    assert now["bound"] <= 0.05
    assert (now["confidence"], now["judged"], now["expected_more"]) == (0.95, judged, 0)
    assert (now["bound_of"], now["by_hand"]) == (made["links"], 0)
    apart = [row for row in rows_of(client, made) if row["decision"] == "match"][:3]
    for row in apart:
        edit = {"split": row["entity"], "records": [row["right"]]}
        asked(client, "POST", f"/links/{made['id']}/entities", json=edit)
    merge = {"merge": [apart[0]["left"], apart[0]["right"]]}
    changed = asked(client, "POST", f"/links/{made['id']}/entities", json=merge)
    worst = changed["false_links"]
    assert worst["by_hand"] >= 1
    most = round(now["bound"] * worst["bound_of"]) + worst["by_hand"]
    assert worst["bound"] == pytest.approx(most / changed["links"])
    assert worst["enough"] == (worst["expected_more"] == 0)
    asked(client, "POST", f"/links/{made['id']}/erase", json={"record": apart[1]["left"]})
    left = asked(client, "GET", f"/links/{made['id']}")
    assert left["links"] < changed["links"], "what was judged of an erased record is still counted"
    assert left["false_links"]["bound"] == pytest.approx(most / left["links"])
    client.request("DELETE", f"/links/{made['id']}")
    with pytest.raises(NotFound):
        client.review(made["review"])
    with pytest.raises(NotFound, match="no links"):
        rows_of(client, made)
    with pytest.raises(NotFound, match="no links"):
        client.request("GET", "/links/nope")


def test_judgements_of_candidates_bound_the_share_of_missed_links(
    client: Client, columns: Rows, identity: dict[str, int]
) -> None:
    upload(client, "missing", columns)
    made = client.link("missing", missed_links=0.1)
    asked_of = made["missed_links"]
    assert (asked_of["bound"], asked_of["judged"], asked_of["enough"]) == (None, 0, False)
    review = client.review(asked_of["review"])
    assert review["question"] == "missed-matches"
    assert review["population"] >= made["candidates"] > made["links"]
    judged = 0
    while not client.review(asked_of["review"])["enough"]:
        judged += len(judge(client, asked_of["review"], identity, 20))
        assert judged < review["population"]
    now = asked(client, "GET", f"/links/{made['id']}")["missed_links"]
    assert now["enough"]
    assert now["bound"] <= 0.1
    assert now["judged"] == judged
    with pytest.raises(RefusedInput, match="missed_links or previous"):
        client.link("missing", missed_links=0.1, previous=made["id"])
    client.request("DELETE", f"/links/{made['id']}")
    with pytest.raises(NotFound):
        client.review(asked_of["review"])


def test_judged_records_bound_recall_from_below_and_what_no_rule_found_is_missed(
    client: Client, columns: Rows, identity: dict[str, int]
) -> None:
    upload(client, "recalled", columns)
    made = client.link("recalled", recall=0.4, rules=[["last", "born"]])
    known = made["recall"]
    assert (known["recall"], known["bound"], known["enough"]) == (None, 0, False)
    review = client.review(known["review"])
    assert (review["question"], review["judged"], review["bound"]) == ("recall", 0, 1)
    assert known["expected_more"] < review["expected_more"]
    joined = {record: id for id, records in entities_of(client, made).items() for record in records}
    lefts = list[str]()
    linked_of: dict[str, list[bool]] = {}
    while items := judge(client, known["review"], identity, 100):
        lefts += [item["refs"][0] for item, _ in items]
        for (one, other), is_one in ((item["refs"], is_one) for item, is_one in items):
            if is_one:
                linked_of.setdefault(one, []).append(one in joined and joined[one] == joined.get(other))
        known = asked(client, "GET", f"/links/{made['id']}")["recall"]
    # The pairs of a record come one after another.
    assert len({*lefts}) == 1 + sum(one != other for one, other in itertools.pairwise(lefts))
    # Of the records that were drawn, which nobody can foresee.
    assert known["recall"] == pytest.approx(np.mean([np.mean(each) for each in linked_of.values()]))
    assert (known["enough"], known["expected_more"]) == (True, 0)
    # That it holds of all records has a confidence, and is tested by fixed draws.
    assert 0.4 <= known["bound"] < known["recall"]
    now = client.review(known["review"])
    assert (now["enough"], now["bound"]) == (True, pytest.approx(1 - known["bound"]))
    with pytest.raises(RefusedInput, match="recall or previous"):
        client.link("recalled", recall=0.4, previous=made["id"])
    with pytest.raises(RefusedInput, match="POST /links"):
        client.request("POST", "/reviews", json={"source": {"refs": [["a", "b"]]}, "question": "recall"})
    client.request("DELETE", f"/links/{made['id']}")
    with pytest.raises(NotFound):
        client.review(known["review"])


def test_where_no_record_is_near_another_there_is_no_recall_to_judge(client: Client) -> None:
    upload(client, "apart", {"id": ["a", "b"], "first": ["Ann", "Zoe"], "last": ["Miller", "Quist"]})
    made = client.link("apart", recall=0.9)
    assert (made["links"], made["recall"]) == (0, None)


def test_where_matches_cannot_be_told_from_strangers_a_review_asks_about_pairs(
    client: Client, identity: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixture.Mixture, "is_full", lambda *of: True)
    job = client.link("people", wait=False)
    with pytest.raises(JobFailed, match="Judge pairs of review") as failed:
        client.wait(job["id"])
    state = asked(client, "GET", f"/links/{job['id']}")
    assert (state["state"], state["links"]) == ("failed", None)
    assert state["review"] in str(failed.value)
    review = client.review(state["review"])
    assert (review["question"], review["population"], review["bound"]) == ("label", N, None)
    # Its remedy: labels, twice, each a better model of the same columns, and links by it.
    for version in (1, 2):
        items = judge(client, state["review"], identity, 100)
        assert {item["decision"] for item, _ in items} == {None}
        assert len({same for _, same in items}) == 2
        now = client.review(state["review"])
        assert (now["judged"], now["bound"], now["enough"], now["alarm"]) == (
            100 * version,
            None,
            False,
            False,
        )
        dataset = asked(client, "POST", f"/reviews/{review['id']}/dataset", json={"name": "labels"})
        assert {each["name"]: each["type"] for each in dataset["columns"]} == {
            each["name"]: each["type"]
            for each in asked(client, "GET", "/datasets/people")["columns"]
            if each["type"] != "id"
        }
        client.train("record-trees", "labels", "labeled", params={"n_estimators": 100}, promote=True)
    linked = client.link("people", model="labeled")
    rows = [{name: str(value) for name, value in row.items()} for row in rows_of(client, linked)]
    assert f1(rows, identity) > 0.95


def test_a_record_whose_id_has_a_line_break_is_explained(client: Client, columns: Rows) -> None:
    upload(
        client,
        "broken",
        columns | {"id": [f"=a\n{name}" for name in columns["id"]]},
        id="id",
        unlabelled=True,
    )
    made = client.link("broken")
    row = rows_of(client, made)[0]
    pair = {side: row[side] for side in ("left", "right")}
    assert asked(client, "GET", f"/links/{made['id']}/pair", params=pair)["score"] == row["score"]
    # A download is a file with a name, in which no id is a formula of a spreadsheet.
    sent = client.request("GET", f"/links/{made['id']}/entities", headers={"Accept": "text/csv"})
    assert "entities.csv" in sent.headers["Content-Disposition"]
    assert {line["record"][:2] for line in csv.DictReader(io.StringIO(sent.text))} == {"'="}


def test_one_to_one_links_each_record_to_the_surest_other(
    client: Client, found: dict[str, Any], columns: Rows
) -> None:
    entities = entities_of(client, client.link("people", one_to_one=True))
    assert max(map(len, entities_of(client, found).values())) > 2
    assert {len(records) for records in entities.values()} == {2}
    half = N // 2
    for name, part in (("firsts", slice(0, half)), ("seconds", slice(half, N))):
        upload(client, name, {column: cells[part] for column, cells in columns.items()})
    made = client.link("firsts", "seconds", one_to_one=True)
    kept = [row for row in rows_of(client, made) if row["decision"] == "match"]
    assert len(kept) > 50
    for side in ("left", "right"):
        assert len({row[side] for row in kept}) == len(kept)


def test_a_learned_model_scores_candidates_and_fpr_takes_its_threshold(
    client: Client, columns: Rows, identity: dict[str, int]
) -> None:
    upload(client, "marked", columns | {"who": [f"p{who}" for who in identity.values()]}, identity="who")
    client.train(
        "record-trees", "marked", "matcher", params={"n_estimators": 40, "n_pairs": 4_000}, promote=True
    )
    upload(client, "to-link", columns)
    made = client.link("to-link", model="matcher")
    assert made["model"] == "matcher:1"
    assert "estimate" not in made["false_links"]
    rows = rows_of(client, made)
    assert f1([{name: str(value) for name, value in row.items()} for row in rows], identity) > 0.9
    link = asked(client, "GET", f"/links/{made['id']}/links/{rows[0]['left']}/{rows[0]['right']}")
    assert any(field["weight"] for field in link["fields"])
    with pytest.raises(Problem, match="by a trained model or by the words of texts"):
        asked(client, "POST", f"/links/{made['id']}/resolve", json={"record": {"last": "miller"}})
    strict = client.link("to-link", model="matcher:1", fpr=0.1)
    point = strict["operating_point"]
    assert (point["fpr"], point["guarantee"]) == (0.1, "none")
    assert all(row["score"] > point["threshold"] - 1e-6 for row in rows_of(client, strict))
    fitted = client.link("to-link", fpr=1e-8)
    assert fitted["operating_point"]["guarantee"] == "none"
    scores = [row["score"] for row in rows_of(client, fitted)]
    assert min(scores) > fitted["operating_point"]["threshold"] - 1e-6 > 0.5
    for wrong, said in (
        ({"model": "nobody"}, "no model 'nobody'"),
        ({"model": "matcher", "fpr": 0.1, "false_links": 0.1}, "not both"),
    ):
        with pytest.raises((RefusedInput, NotFound), match=said):
            client.link("to-link", **wrong)
    client.train("fellegi-sunter", "marked", "unlabeled", promote=True)
    notes = {fpr: client.link("to-link", model="unlabeled", fpr=fpr)["notes"] for fpr in (None, 0.1)}
    assert [any("labels are needed" in note for note in of) for of in notes.values()] == [True, False]
    upload(client, "narrow", {name: columns[name] for name in ("id", "first", "last", "born")})
    with pytest.raises(RefusedInput, match="compares column 'street' of type"):
        client.link("narrow", model="matcher")


def grown(columns: Rows) -> tuple[Rows, list[str]]:
    """The table with twenty more records of people that are there, with a mistake each."""
    more = range(0, N, 60)
    new = {
        name: [f"{cells[at]}x" if name == "street" else cells[at] for at in more]
        for name, cells in columns.items()
    }
    new["id"] = [f"n{at}" for at in more]
    return {name: [*cells, *new[name]] for name, cells in columns.items()}, new["id"]


def test_what_is_new_is_compared_and_entities_keep_their_ids(client: Client, columns: Rows) -> None:
    upload(client, "growing", columns)
    first = client.link("growing")
    before = entities_of(client, first)
    more, new = grown(columns)
    upload(client, "growing", more)
    second = client.link("growing", previous=first["id"])
    whole = client.link("growing")
    assert second["candidates"] < whole["candidates"] / 5
    after = entities_of(client, second)
    assert {frozenset(records) for records in after.values()} == {
        frozenset(records) for records in entities_of(client, whole).values()
    }
    for name, records in before.items():
        assert {*records} <= {*after[name]}
    changes = list(client.pages(f"/links/{second['id']}/changes"))
    assert {change["change"] for change in changes} == {"joined"}
    assert {*new} <= {record for change in changes for record in change["records"]}
    with pytest.raises(RefusedInput, match="expected the same datasets"):
        client.link("people", previous=first["id"])


def test_entities_are_merged_and_split_by_hand_and_stay_so(client: Client, columns: Rows) -> None:
    upload(client, "edited", columns)
    first = client.link("edited")
    path = f"/links/{first['id']}/entities"
    before = entities_of(client, first)
    one, other = [*before][:2]
    large = next(name for name, records in before.items() if len(records) > 2 and name not in (one, other))
    leaving = before[large][1:]
    assert asked(client, "POST", path, json={"merge": [one, other]})["entities"] == first["entities"] - 1
    asked(client, "POST", path, json={"split": large, "records": leaving})
    now = entities_of(client, first)
    assert {*now[one]} == {*before[one], *before[other]}
    assert large not in now
    assert sorted(leaving) in [sorted(records) for records in now.values()]
    again = client.link("edited", previous=first["id"])
    assert {frozenset(records) for records in entities_of(client, again).values()} == {
        frozenset(records) for records in now.values()
    }
    assert list(client.pages(f"/links/{again['id']}/changes")) == []
    assert len(entities_of(client, client.link("edited"))) == len(before)
    for wrong, said in (
        ({"merge": [one, "nobody"]}, "'nobody' is neither an entity"),
        ({"split": one, "records": [*now[one]]}, "not all"),
        ({"split": "nobody", "records": ["x"]}, "no entity 'nobody'"),
        ({"split": one, "records": ["x"]}, "'x' is not in entity"),
        ({"merge": [one, other], "split": one}, "either merge"),
    ):
        with pytest.raises(RefusedInput, match=said):
            asked(client, "POST", path, json=wrong)


def test_a_new_record_is_resolved_to_its_entity_and_kept_where_asked(
    client: Client, found: dict[str, Any], columns: Rows
) -> None:
    upload(client, "resolved", columns)
    made = client.link("resolved")
    entities = entities_of(client, made)
    name, records = next((name, each) for name, each in entities.items() if len(each) > 2)
    at = columns["id"].index(records[1])
    record = {column: cells[at] or None for column, cells in columns.items() if column != "id"}
    record["street"] = f"{record['street']}x"
    path = f"/links/{made['id']}"
    answer = asked(client, "POST", f"{path}/resolve", json={"record": record})
    first = answer["entities"][0]
    assert (first["entity"], first["decision"], first["records"]) == (name, "match", records)
    assert first["score"] > 0.9
    assert answer["added"] is None
    assert entities_of(client, made) == entities
    stranger = {"first": "zzyzx", "last": "quuxbar", "born": "1901-01-01"}
    assert asked(client, "POST", f"{path}/resolve", json={"record": stranger})["entities"] == []
    # Kept: it is in the entity, a change says so, and the next job keeps it, although no table has it.
    kept = asked(client, "POST", f"{path}/resolve", json={"record": record, "add": True, "id": "c9"})
    assert kept["added"] == "c9"
    alone = asked(client, "POST", f"{path}/resolve", json={"record": stranger, "add": True})
    assert (
        asked(client, "POST", f"{path}/resolve", json={"record": stranger})["entities"][0]["entity"]
        == alone["added"]
    )
    now = asked(client, "GET", path)
    assert (now["records"], now["entities"]) == (N + 2, made["entities"])
    assert entities_of(client, made)[name] == [*records, "c9"]
    assert any(row["right"] == "c9" for row in rows_of(client, made))
    change = {"entity": name, "change": "joined", "records": ["c9"], "entities": []}
    assert list(client.pages(f"{path}/changes")) == [change]
    assert asked(client, "GET", f"{path}/links/{records[1]}/c9")["decision"] == "match"
    again = client.link("resolved", previous=made["id"])
    assert any("not in the tables are kept: 2" in note for note in again["notes"])
    assert entities_of(client, again)[name] == [*records, "c9"]
    assert {frozenset(each) for each in entities_of(client, again).values()} == {
        frozenset(each) for each in entities_of(client, made).values()
    }
    assert list(client.pages(f"/links/{again['id']}/changes")) == []
    asked(client, "POST", f"{path}/erase", json={"record": records[0]})
    left = asked(client, "POST", f"{path}/resolve", json={"record": record})["entities"][0]
    assert (left["decision"], left["records"]) == ("match", [*records[1:], "c9"])
    for wrong, said in (
        ({"record": {"age": 3}}, "no column 'age' was linked; expected some of first"),
        ({"record": {"first": None, "last": " "}}, "no cell in the columns"),
        ({"record": {"last": "miller", "born": "03/04/1980"}}, "write dates as YYYY-MM-DD"),
        ({"record": record, "id": "c10"}, "expected id with add"),
        ({"record": record, "first": 1}, "first"),
        ({"record": {"last": "a\x00"}, "add": True}, "record.last holds a character that no database keeps"),
        ({"record": record, "add": True, "id": "a\x00"}, "id holds a character that no database keeps"),
        ({"record": record, "add": True, "id": " "}, "id is blank"),
    ):
        with pytest.raises(RefusedInput, match=said):
            asked(client, "POST", f"{path}/resolve", json=wrong)
    # Half of a character, which the client's own JSON cannot hold.
    body = {"content": b'{"record": {"last": "\\ud800"}}', "headers": {"Content-Type": "application/json"}}
    with pytest.raises(RefusedInput, match=r"record\.last holds a character"):
        client.request("POST", f"{path}/resolve", **body)
    # Said again, an addition is the same; another record has no such id.
    adding = {"record": record, "add": True, "id": "c9"}
    assert asked(client, "POST", f"{path}/resolve", json=adding)["added"] == "c9"
    assert asked(client, "GET", path)["records"] == N + 1
    with pytest.raises(Conflict, match="there is another record 'c9'"):
        asked(client, "POST", f"{path}/resolve", json=adding | {"record": stranger})


def test_a_record_is_erased_from_links_entities_and_review(client: Client, columns: Rows) -> None:
    upload(client, "erased", columns | {"id": [f"s/{each}" for each in columns["id"]]})
    made = client.link("erased")
    name, records = next((name, each) for name, each in entities_of(client, made).items() if len(each) > 2)
    link = asked(client, "GET", f"/links/{made['id']}/links/{name}/{records[1]}")
    assert (link["left"], link["right"], link["entity"]) == (name, records[1], name)
    receipt = asked(client, "POST", f"/links/{made['id']}/erase", json={"record": name})
    assert receipt["links"] > 0
    assert receipt["review_items"] == receipt["links"]
    assert any("erased:1" in duty for duty in receipt["pending"])
    text = client.request("GET", f"/links/{made['id']}/entities", headers={"Accept": "text/csv"}).text
    assert name not in [word for line in text.splitlines() for word in line.split(",")]
    assert sorted(records[1:]) in [sorted(each) for each in entities_of(client, made).values()]
    assert all(name not in (row["left"], row["right"], row["entity"]) for row in rows_of(client, made))
    with pytest.raises(NotFound, match="no record"):
        asked(client, "POST", f"/links/{made['id']}/erase", json={"record": name})
    with pytest.raises(NotFound, match="no record"):
        asked(client, "GET", f"/links/{made['id']}/links/{name}/{records[1]}")


def test_an_erasure_leaves_changes_of_other_records_of_the_id(client: Client, columns: Rows) -> None:
    before: dict[str, Any] = {}
    for size in (200, 201):
        part = {name: cells[:size] for name, cells in columns.items()}
        part["id"] = [*columns["id"][:200], "new"][:size]
        upload(client, "one", part)
        upload(client, "other", part | {"street": [f"{cell}x" for cell in part["street"]]})
        made = client.link("one", "other", **before)
        before = {"previous": made["id"]}
    path = f"/links/{made['id']}"
    change = {"entity": "new", "change": "joined", "records": ["new", "new"], "entities": []}
    assert list(client.pages(f"{path}/changes")) == [change]
    asked(client, "POST", f"{path}/erase", json={"record": "1:new"})
    assert list(client.pages(f"{path}/changes")) == [change | {"records": ["new"]}]


def test_an_erased_id_is_gone_from_changes_of_what_is_no_entity_any_more(
    client: Client, columns: Rows
) -> None:
    parted = {name: [*cells] for name, cells in columns.items()}
    upload(client, "parted", parted)
    first = client.link("parted")
    name, records = next(each for each in entities_of(client, first).items() if len(each[1]) == 2)
    at = parted["id"].index(records[1])
    stranger = {"id": records[1], "first": "zzyzx", "last": "quuxbar", "born": "1901-01-01"}
    for column, cells in parted.items():
        cells[at] = stranger.get(column, "")
    upload(client, "parted", parted)
    made = client.link("parted", previous=first["id"])
    path = f"/links/{made['id']}"
    change = {"entity": name, "change": "split", "records": sorted(records), "entities": []}
    assert list(client.pages(f"{path}/changes")) == [change]
    asked(client, "POST", f"{path}/erase", json={"record": name})
    assert list(client.pages(f"{path}/changes")) == [change | {"entity": "", "records": records[1:]}]


def test_what_is_not_ready_and_tables_of_vectors_are_refused(client: Client, found: dict[str, Any]) -> None:
    numbers = {
        "id": [*range(40)],
        "a": [*range(40)],
        "b": [*range(40)],
        "who": [f"p{at // 2}" for at in range(40)],
    }
    upload(client, "numbers", numbers, identity="who")
    with pytest.raises(RefusedInput, match="holds vectors"):
        client.link("numbers")
    with pytest.raises(NotFound, match="no links"):
        client.link("people", previous="0" * 32)


def test_the_console_shows_links_entities_and_two_records_side_by_side(
    client: Client, found: dict[str, Any]
) -> None:
    row = rows_of(client, found)[0]
    html = {"Accept": "text/html"}
    listed = client.request("GET", "/console/links", headers=html).text
    assert client.request("GET", "/links", params={"limit": 1}).json()["items"][0]["id"] in listed
    assert 'data-api="POST /links"' in listed
    path = f"/console/links/{found['id']}"
    page = client.request("GET", path, params={"left": row["left"], "right": row["right"]}, headers=html).text
    assert f"/console/reviews/{found['review']}" in page
    assert "not known before pairs are judged" in page
    assert f"{row['left']} and {row['right']}: match" in page
    assert f'name="split" value="{row["entity"]}"' in page


def test_a_tenant_sees_its_own_links_alone(deployment: Any, tmp_path: Path) -> None:
    links = links_of(deployment)
    add(deployment, "acme/people", table(60, "plain")[1], tmp_path)
    job = links.submit(LinksRequest(left="acme/people"), EVERY_NAME)
    assert links.get(job.id, VisibleNames(prefix="acme/")).left == "acme/people:1"
    other = VisibleNames(prefix="other/")
    assert links.page(10, None, other).items == []
    for ask in (
        lambda: links.get(job.id, other),
        lambda: links.list_links(job.id, other, limit=10, cursor=None, sort="row", search=None, cells=False),
        lambda: links.explain(job.id, "a", "b", other),
        lambda: links.erase(job.id, "a", other),
        lambda: links.resolve(job.id, ResolveRequest(record={"last": "a"}, add=True), other),
        lambda: links.delete(job.id, other),
        lambda: links.submit(LinksRequest(left="acme/people", previous=job.id), other),
    ):
        with pytest.raises(UnknownLinks):
            ask()


def links_of(deployment: Any) -> Links:
    return Links(
        deployment.db,
        deployment.blobs,
        deployment.queue,
        deployment.settings,
        OperatingPoints(lambda _: None),
    )


def add(deployment: Any, name: str, columns: Rows, folder: Path) -> None:
    path = write(folder / "t.csv", columns)
    datasets = Datasets(deployment.db, deployment.blobs, deployment.settings)
    datasets.add(path, DatasetRequest(name=name, unlabelled=True))


DYING = """
import os, signal, sys
from pairmark.service.worker import main
from pairmark.service.links import jobs

last = sys.argv.pop()

class Dying(jobs.Progress):
    def stage(self, name):
        super().stage(name)
        if name == last:
            os.kill(os.getpid(), signal.SIGKILL)

jobs.Progress = Dying
if last == "committing":
    jobs.Leases.finish = lambda *args, **facts: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main(sys.argv[1:]))
"""


def test_a_worker_killed_at_any_stage_leaves_one_result(deployment: Any, tmp_path: Path) -> None:
    deployment.settings.max_attempts = 9
    links = links_of(deployment)
    add(deployment, "people", table(N, "dependent")[1], tmp_path)
    whole, killed = (links.submit(LinksRequest(left="people"), EVERY_NAME).id for _ in range(2))
    claimed = partial(deployment.queue.leases.claim, "worker")
    for stage in ("loading", "linking", "storing", "committing"):
        claim = claimed(job_id=killed)
        words = [sys.executable, "-c", DYING, killed, str(claim.attempt), str(os.getpid()), stage]
        ended = subprocess.run(words, env=child_environment(deployment.settings), check=False)
        assert ended.returncode == -signal.SIGKILL
        assert links.get(killed, EVERY_NAME).links is None
        deployment.queue.leases.lost(claim, "killed")
    for job_id in (whole, killed):
        Linker(deployment.db, deployment.blobs, deployment.settings).run(claimed(job_id=job_id))
    one, other = (links.get(job_id, EVERY_NAME) for job_id in (whole, killed))
    assert other.state == "succeeded"
    assert one.links == other.links > 200
    pages = [
        links.list_links(
            job_id, EVERY_NAME, limit=500, cursor=None, sort="row", search=None, cells=False
        ).items
        for job_id in (whole, killed)
    ]
    assert pages[0] == pages[1]
    reviews = Reviews(deployment.db).page(10, None, EVERY_NAME).items
    assert {review.id for review in reviews} == {one.review, other.review}

    # Who reads files that somebody else puts others in the place of reads those.
    folders, seen = LinkFolders(deployment.db, deployment.blobs), list[Results]()

    def look(results: Results) -> int:
        if not seen:
            links.erase(whole, "r0", EVERY_NAME)
        seen.append(results)
        return results.counts()["entities"]

    assert folders.read(whole, EVERY_NAME, look) == links.get(whole, EVERY_NAME).entities
    assert len(seen) == 2

    # A page beside records that are put in shows them, and writes no file anew.
    folder = folders.stored(whole, EVERY_NAME).folder
    record = {"first": "zzyzx", "last": "quuxbar", "born": "1901-01-01"}
    for name in ("new0", "new1"):
        links.resolve(whole, ResolveRequest(record=record, add=True, id=name), EVERY_NAME)
        entities = folders.read(
            whole, EVERY_NAME, lambda results: results.rows("SELECT record FROM entities")
        )
    assert {("new0",), ("new1",)} <= {*entities}
    assert folders.stored(whole, EVERY_NAME).folder == folder


@pytest.fixture(scope="module")
def parts(client: Client, columns: Rows) -> list[Rows]:
    """Datasets ``part0`` to ``part2``, in each of which ids begin anew."""
    parts = [
        {c: v[rows] for c, v in columns.items()} for rows in (slice(300), slice(300, 600), slice(600, N))
    ]
    parts = [part | {"id": [f"n{row}" for row in range(300)]} for part in parts]
    for at, part in enumerate(parts):
        upload(client, f"part{at}", part)
    return parts


def test_any_number_of_tables_is_linked_as_the_command_does_it(
    client: Client, parts: list[Rows], identity: dict[str, int], tmp_path: Path
) -> None:
    made = client.link(tables=["part0", "part1", "part2"], unique=["part0"])
    assert (made["tables"], made["unique"]) == ([f"part{at}:1" for at in range(3)], ["part0:1"])
    assert (made["left"], made["right"], made["records"]) == ("part0:1", "part1:1", N)
    rows = rows_of(client, made)
    who = list(identity.values())
    ends = [
        [(row[f"{side}_table"] - 1) * 300 + int(row[side][1:]) for side in ("left", "right")] for row in rows
    ]
    same = [who[a] == who[b] for a, b in ends]
    assert sum(same) > 0.98 * len(same) > 100
    assert {(a // 300, b // 300) for a, b in ends} >= {(0, 1), (0, 2), (1, 1), (1, 2), (2, 2)}
    assert (1, 1) not in {(row["left_table"], row["right_table"]) for row in rows}
    files, out = (
        [write(tmp_path / f"part{at}.csv", part) for at, part in enumerate(parts)],
        tmp_path / "links.csv",
    )
    link_by_command(*files, "--unique", files[0], "-o", out)
    with out.open(newline="") as stream:
        written = [{**row, "score": float(row["score"])} for row in csv.DictReader(stream)]
    of = ("left", "right", "score", "left_table", "right_table")
    assert [[str(row[name]) for name in of] for row in rows] == [[str(row[n]) for n in of] for row in written]

    # What is shown of a link is of its own tables.
    path = f"/links/{made['id']}"
    row = next(row for row in rows if row["left_table"] == 2 and row["decision"] == "match")
    shown = asked(client, "GET", f"{path}/links", params={"cells": "true", "limit": 500})["items"]
    cells = next(each["cells"] for each in shown if {**each, "cells": None} == {**row, "cells": None})
    for side, name in enumerate(("left", "right")):
        assert cells[side]["last"] == parts[row[f"{name}_table"] - 1]["last"][int(row[name][1:])]
    for each in rows[:20]:
        ends_of = {side: f"{each[f'{side}_table']}:{each[side]}" for side in ("left", "right")}
        pair = asked(client, "GET", f"{path}/pair", params=ends_of)
        assert (pair["decision"], pair["entity"]) == (each["decision"], each["entity"])
    searched = asked(client, "GET", f"{path}/links", params={"search": row["left"]})["items"]
    assert row["left"] in {each[side] for each in searched for side in ("left", "right")}
    item = client.pairs_to_judge(made["review"], n=1)[0]
    assert item["refs"] in [
        [f"{each[f'{side}_table']}:{each[side]}" for side in ("left", "right")] for each in rows
    ]
    # An id that several tables have is refused, with what to write.
    for method, end, body in (
        ("GET", "pair?left=n1&right=n2", None),
        ("POST", "erase", {"record": "n1"}),
        (
            "POST",
            "entities",
            {"merge": sorted({row["right"] for row in rows} - {*entities_of(client, made)})[:2]},
        ),
    ):
        with pytest.raises(RefusedInput, match=r"expected '1:n\d+' or '2:n\d+' or '3:n"):
            asked(client, method, f"{path}/{end}", **({} if body is None else {"json": body}))
    # What is said by hand leaves the tables of all links as they are, here and for the next job.
    entities = [*client.pages(f"{path}/entities")]
    assert all(len(each["tables"]) == len(each["records"]) for each in entities)
    # Entities of different tables are never called the same.
    people = [
        {who[(table - 1) * 300 + int(name[1:])] for table, name in has}
        for _, has in entities_by_table(client, f"{path}/entities")
    ]
    assert sum(len(each) > 1 for each in people) < 5
    whole = next(each for each in entities if len(each["records"]) == len({*each["records"]}) == 2)
    asked(client, "POST", f"{path}/entities", json={"split": whole["id"], "records": whole["records"][1:]})
    changed = rows_of(client, made)
    assert [[each[name] for name in of] for each in changed] == [[each[name] for name in of] for each in rows]
    again = client.link(tables=["part0", "part1", "part2"], unique=["part0"], previous=made["id"])
    assert [[each[name] for name in of] for each in rows_of(client, again)] == [
        [each[name] for name in of] for each in rows
    ]
    # Of an entity that has an id twice, a split says which table's.
    path = f"/links/{again['id']}/entities"
    one = rows_of(client, again)[0]["right"]
    called = {
        table: next(
            (name for name, has in entities_by_table(client, path) if (table, one) in has), f"{table}:{one}"
        )
        for table in (2, 3)
    }
    asked(client, "POST", path, json={"merge": [*called.values()]})
    name = next(name for name, has in entities_by_table(client, path) if {(2, one), (3, one)} <= has)
    with pytest.raises(
        RefusedInput, match=rf"several tables have a record '{one}'; expected '2:{one}' or '3:"
    ):
        asked(client, "POST", path, json={"split": name, "records": [one]})
    asked(client, "POST", path, json={"split": name, "records": [f"2:{one}"]})
    assert not any({(2, one), (3, one)} <= has for _, has in entities_by_table(client, path))
    # A record that is put in takes no other's name, and an erasure is of one table's record.
    record = {name: cells[0] for name, cells in parts[0].items() if name != "id" and cells[0]}
    adding = {"record": record, "add": True, "id": f"1:{one}"}
    with pytest.raises(Conflict, match=f"'1:{one}' names record '{one}'"):
        asked(client, "POST", f"/links/{again['id']}/resolve", json=adding)
    ends_after = [
        [(row[f"{side}_table"], row[side]) for side in ("left", "right")]
        for row in rows_of(client, again)
        if row["decision"] == "match"
    ]
    erased = next(
        right for (table, _), (other, right) in ends_after if (table, other) == (1, 2) and right != one
    )
    mine = [ends for ends in ends_after if (2, erased) in ends]
    receipt = asked(client, "POST", f"/links/{again['id']}/erase", json={"record": f"2:{erased}"})
    assert receipt["review_items"] == len(mine) > 0
    for tables in (["part0", "part1"], ["part1", "part0", "part2"]):
        with pytest.raises(RefusedInput, match="expected the same datasets"):
            client.link(tables=tables, previous=made["id"])


@pytest.mark.parametrize("more", [{}, {"born": "date"}])
def test_command_and_service_read_a_messy_table_alike(
    client: Client, columns: Rows, tmp_path: Path, more: dict[str, str]
) -> None:
    born = [cell[8:] + cell[4:8] + cell[:4] if at % 3 else cell for at, cell in enumerate(columns["born"])]
    born[5:900:40] = ["31.02.19x0"] * len(born[5:900:40])
    messy = columns | {"born": born, "last": [f" {cell.title()}" for cell in columns["last"]]}
    path = write(tmp_path / "messy.csv", messy)
    declared = {"suburb": "text", "phone": "phone"} | more
    uploaded = client.add_dataset("messy", path, format="csv", unlabelled=True, columns=declared)
    told = [
        line
        for line in uploaded["warnings"]
        if "49 of 880 cells are not dates, and taken as missing: row 6" in line
    ]
    assert len(told) == len(more)
    made = client.link("messy")
    served = client.request("GET", f"/links/{made['id']}/links", headers={"Accept": "text/csv"}).content
    out = tmp_path / "links.csv"
    words = [word for each in declared.items() for word in ("--column", ":".join(each))]
    said = link_by_command(path, "-o", out, *words)
    assert ("49 cells, such as '31.02.19x0' in row 6, are no date" in said) == bool(more)
    kinds = {each["name"]: each["kind"] for each in made["columns"]}
    assert (kinds["suburb"], kinds["born"]) == ("text", "date")
    assert len(served.splitlines()) > 100
    assert served == out.read_bytes()

    # An addition is made once by its id, goes into no entity that has a record of a unique table, and stays.
    register = {name: cells[:300] for name, cells in columns.items()}
    upload(client, "register", register)
    both = client.link(left="messy", right="register", unique=["register"])
    entity = next(each for each in client.pages(f"/links/{both['id']}/entities") if 2 in each["tables"])
    at = columns["id"].index(entity["records"][entity["tables"].index(2)])
    adding = {
        "record": {name: cells[at] for name, cells in register.items() if name != "id" and cells[at]},
        "add": True,
        "id": "new",
    }
    for _ in range(2):
        assert asked(client, "POST", f"/links/{both['id']}/resolve", json=adding)["added"] == "new"
    joined = [each for each in client.pages(f"/links/{both['id']}/entities") if "new" in each["records"]]
    assert all(each["tables"].count(2) == 1 for each in joined)
    assert asked(client, "GET", f"/links/{both['id']}")["records"] == both["records"] + 1


def test_frequencies_of_elsewhere_weigh_equal_values_alike_by_command_and_service(
    client: Client, columns: Rows, tmp_path: Path
) -> None:
    cells = Counter(filter(None, columns["last"]))
    common = cells.most_common(1)[0][0]
    shares = {name: 0.2 if name == common else 0.8 * n / len(columns["last"]) for name, n in cells.items()}
    del shares[min(cells)]
    given = write(
        tmp_path / "surnames.csv", {"last": [*map(str.upper, shares)], "tf_last": [*shares.values()]}
    )
    client.add_dataset("surnames", given, format="csv", unlabelled=True)
    path = write(tmp_path / "weighed.csv", columns)
    client.add_dataset("weighed", path, format="csv", unlabelled=True)
    plain, made = (client.link("weighed", **more) for more in ({}, {"frequencies": {"last": "surnames"}}))
    assert any("the others are as frequent as in the tables" in note for note in made["notes"])
    served = client.request("GET", f"/links/{made['id']}/links", headers={"Accept": "text/csv"}).content
    out = tmp_path / "links.csv"
    for words in ([given], [f"last:{given}"]):
        link_by_command(path, "-o", out, "--frequencies", *words)
        assert served == out.read_bytes()
    # Datasets whose names are alike are two.
    firsts = write(tmp_path / "firsts.csv", {"first": ["nobody"], "frequency": ["0.1"]})
    for name, file in (("list/of", given), ("list-of", firsts)):
        client.add_dataset(name, file, format="csv", unlabelled=True)
    both = client.link("weighed", frequencies={"last": "list/of", "first": "list-of"})
    shown = {note.split(":")[0]: note.split(" has ")[1] for note in both["notes"] if "frequencies" in note}
    (expected,) = (note.split(" has ")[1] for note in made["notes"] if "frequencies" in note)
    assert shown["frequencies of 'last'"] == expected
    # A name that many bear elsewhere says less than the table alone has it.
    last = dict(zip(columns["id"], columns["last"], strict=True))
    pair = next(row for row in rows_of(client, plain) if last[row["left"]] == last[row["right"]] == common)
    before, after = (
        asked(client, "GET", f"/links/{each['id']}/links/{pair['left']}/{pair['right']}")["fields"]
        for each in (plain, made)
    )
    weights = [next(each["weight"] for each in of if each["field"] == "last") for of in (before, after)]
    assert weights[1] < weights[0] - 0.3
    for wrong, said in (
        ({"frequencies": {"nope": "surnames"}}, "'nope' is not compared"),
        ({"frequencies": {"last": "surnames"}, "previous": plain["id"]}, "frequencies or previous"),
    ):
        with pytest.raises(RefusedInput, match=said):
            client.link("weighed", **wrong)


def test_records_of_one_number_are_linked_and_those_of_different_dates_never(
    client: Client, columns: Rows, tmp_path: Path
) -> None:
    numbered = columns | {
        "npi": [f"n{at}" for at in range(N)],
        "born": [
            cell if at > 2 else ("1950-01-01", "", "1960-01-01")[at]
            for at, cell in enumerate(columns["born"])
        ],
    }
    numbered["npi"][:3] = ["same"] * 3
    file = write(tmp_path / "numbered.csv", numbered)
    client.add_dataset("numbered", file, format="csv", unlabelled=True, columns={"npi": "category"})
    made = client.link("numbered", must=[["npi"]], never=["born"])
    entities = [{*records} for records in entities_of(client, made).values()]
    assert [len({"r0", "r1", "r2"} & each) for each in entities if "r1" in each] == [2]
    born = {name: date(cell) for name, cell in zip(columns["id"], numbered["born"], strict=True)}
    days = [{born[record] for record in each} - {None} for each in entities]
    days += [{born[row["left"]], born[row["right"]]} - {None} for row in rows_of(client, made)]
    assert [each for each in days if len(each) > 1] == []
    # Nor is a new record of an entity that has another date.
    entity, records = next((name, each) for name, each in entities_of(client, made).items() if born[each[0]])
    at = columns["id"].index(records[0])
    record = {name: cells[at] for name, cells in numbered.items() if name != "id" and cells[at]}
    for day, decision in (({}, "match"), ({"born": "1899-12-31"}, "different")):
        answer = asked(client, "POST", f"/links/{made['id']}/resolve", json={"record": record | day})
        decisions = {each["entity"]: each["decision"] for each in answer["entities"]}
        assert decisions.get(entity, "different") == decision
    # A stranger of the number is, if nothing else speaks for it.
    stranger = {"first": "zzyzx", "last": "quuxbar", "npi": "same"}
    answer = asked(client, "POST", f"/links/{made['id']}/resolve", json={"record": stranger})["entities"][0]
    assert (answer["entity"] in {"r0", "r1", "r2"}, answer["decision"]) == (True, "match")
    for wrong, said in (({"never": ["age"]}, "'age'"), ({"must": [["npi", "age"]]}, "'age'")):
        with pytest.raises(RefusedInput, match=said):
            client.link("numbered", **wrong)


def test_links_of_texts_take_no_record_and_say_what_does(client: Client) -> None:
    rng = np.random.default_rng(1)
    words = [f"{a}{b}{c}" for a in "kmprst" for b in ("anu", "ele", "iro", "osa") for c in ("b", "nd", "ver")]
    texts = [" ".join(rng.choice(words, 9)) for _ in range(150)]
    both = [text for first in texts for text in (first, " ".join(first.split()[1:]))]
    upload(client, "articles", {"id": [f"a{at}" for at in range(300)], "title": both})
    made = client.link("articles")
    assert made["links"] > 50
    with pytest.raises(Problem, match=r"by the words of texts.*link it again with previous"):
        asked(client, "POST", f"/links/{made['id']}/resolve", json={"record": {"title": both[0]}})


def test_links_to_a_unique_table_are_kept_to_an_expected_share(
    client: Client, columns: Rows, identity: dict[str, int]
) -> None:
    register = sorted({who: at for at, who in reversed([*enumerate(identity.values())])}.values())
    others = sorted({*range(N)} - {*register})
    for name, rows in (("whole", register), ("others", others)):
        upload(client, name, {column: [of[row] for row in rows] for column, of in columns.items()})
    options = {"left": "others", "right": "whole", "unique": ["whole"]}
    found = client.link(**options, expected_false_links=0.05)
    rows = rows_of(client, found)
    assert sum(identity[row["left"]] == identity[row["right"]] for row in rows) > 0.9 * len(rows)
    assert len(rows) > 0.8 * len(others)
    share = found["false_links"]
    assert share["expected"] == 0.05
    assert "bound" not in share
    assert any("expected to be false" in note for note in found["notes"])
    assert client.link(**options).false_links.expected is None


@pytest.mark.parametrize(
    ("asking", "said"),
    [
        ({}, "either left"),
        ({"left": "part0", "tables": ["part1"]}, "either left"),
        ({"tables": []}, "at least 1"),
        ({"tables": ["part0"] * 31}, "at most 30"),
        ({"tables": ["part0", "part1", "part0:1"]}, "there twice"),
        ({"tables": ["part0"], "unique": ["part0"]}, "two tables or more"),
        ({"left": "part0", "right": "part1", "unique": ["part2"]}, "unique names 'part2'"),
        ({"left": "part0", "right": "part1", "expected_false_links": 0.02}, "one of them unique"),
        (
            {"tables": ["part0", "part1"], "unique": ["part0"], "expected_false_links": 0.1, "fpr": 0.1},
            "expected_false_links or fpr",
        ),
    ],
)
def test_tables_that_do_not_go_together_are_refused(
    client: Client, parts: list[Rows], asking: dict[str, Any], said: str
) -> None:
    with pytest.raises(RefusedInput, match=said):
        client.link(**asking)


def test_each_of_several_tables_stays_and_is_of_the_version_that_was_there(
    deployment: Any, tmp_path: Path
) -> None:
    part = table(60, "plain")[1]
    for at in range(3):
        add(deployment, f"acme/part{at}", part, tmp_path)
    tables = [f"acme/part{at}" for at in range(3)]
    job = links_of(deployment).submit(LinksRequest(tables=tables), VisibleNames(prefix="acme/"))
    datasets = Datasets(deployment.db, deployment.blobs, deployment.settings)
    for name in tables:
        with pytest.raises(StoredConflict, match=job.id):
            datasets.delete(name)
    # A later version changes nothing of a job that waits.
    add(deployment, "acme/part2", part, tmp_path)
    assert links_of(deployment).get(job.id, EVERY_NAME).tables == [f"{name}:1" for name in tables]
