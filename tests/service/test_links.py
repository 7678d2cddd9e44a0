"""Duplicates of a table and links between two, from files, without labels."""

import csv
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from benchmarks._linked_people import people
from pairmark.models.linking import engine, mixture
from pairmark.models.records.compare import LinkField
from pairmark.schemas.links import LinksRequest, LinkSummary
from pairmark.service.cli import main
from pairmark.service.errors import InvalidInput, NotReady, PairmarkError
from pairmark.service.links import duck, folders, results
from pairmark.service.links.judging import Pair
from pairmark.service.links.linking import link_files
from pairmark.service.links.outputs import Outputs
from pairmark.service.links.resolving import Resolver
from pairmark.service.links.results import Addition, Stored, open_results, rewrite_results
from pairmark.service.settings import Settings
from tests.serving import PAIRMARK, command, csv_table

N = 3_000


def write(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    path.write_bytes(csv_table(columns))
    return path


def linked(
    folder: Path,
    *files: Path,
    settings: Settings | None = None,
    columns: dict[str, str] | None = None,
    **options: Any,
) -> tuple[LinkSummary, list[dict[str, str]]]:
    """What linking some files says, and the rows that it writes."""
    scratch = folder / f"scratch{len(list(folder.iterdir()))}"
    scratch.mkdir()
    out = scratch / "links.csv"
    id_column = options.pop("id_column", None)
    given = options.pop("frequencies", {})
    named = dict.fromkeys(given, "file") or None
    request = LinksRequest(left="table", frequencies=named, **options)
    settings, options = settings or Settings(job_threads=1), {"columns": columns, "frequencies": given}
    summary = link_files(
        files, scratch, settings, request, outputs=Outputs(links=out), id_column=id_column, **options
    )
    with out.open(newline="") as stream:
        return summary, list(csv.DictReader(stream))


def f1(rows: Sequence[Mapping[str, str]], identity: Mapping[str, int]) -> float:
    """Of pairs in one entity, against those of one identity."""
    ids = list(identity)
    place = {name: at for at, name in enumerate(ids)}
    kept = [row for row in rows if row["decision"] == "match"]
    a, b = ([place[row[side]] for row in kept] for side in ("left", "right"))
    graph = coo_array((np.ones(len(kept)), (a, b)), shape=(len(ids), len(ids)))
    entity = connected_components(graph, directed=False)[1].astype(np.int64)
    who = np.array([identity[name] for name in ids])
    both = entity * (who.max() + 1) + who
    made, true, right = (np.unique(of, return_counts=True)[1] for of in (entity, who, both))
    pairs = [float((counts * (counts - 1) / 2).sum()) for counts in (made, true, right)]
    return 2 * pairs[2] / (pairs[0] + pairs[1])


def table(n: int, style: str, seed: int = 0) -> tuple[dict[str, int], dict[str, list[str]]]:
    who, columns = people(n, style, seed)
    ids = [f"r{row}" for row in range(n)]
    return dict(zip(ids, who, strict=True)), {"id": ids, **columns}


@pytest.mark.parametrize(("style", "least"), [("plain", 0.99), ("dependent", 0.99), ("families", 0.99)])
def test_duplicates_of_people_are_found_without_labels(tmp_path: Path, style: str, least: float) -> None:
    identity, columns = table(N, style)
    summary, rows = linked(tmp_path, write(tmp_path / "t.csv", columns))
    assert f1(rows, identity) >= least
    assert (summary.ids, summary.links) == (["id"], len(rows) - summary.conflicts)
    assert summary.false_links.estimate < 0.02
    # An entity is called by the first of its records, which every one of its links knows.
    of = {
        row[side]: row["entity"] for row in rows for side in ("left", "right") if row["decision"] == "match"
    }
    assert all(of[entity] == entity for entity in of.values())


@pytest.mark.parametrize("seed", [0, 2])
def test_namesakes_at_one_address_are_not_one_person_where_no_date_says_so(tmp_path: Path, seed: int) -> None:
    identity, columns = table(N, "families", seed)
    del columns["born"]
    summary, rows = linked(tmp_path, write(tmp_path / "t.csv", columns))
    is_false = [identity[row["left"]] != identity[row["right"]] for row in rows if row["decision"] == "match"]
    assert f1(rows, identity) >= 0.95
    assert np.mean(is_false) < summary.false_links.estimate < 0.05


def test_two_tables_whose_columns_are_spelled_differently_are_linked(tmp_path: Path) -> None:
    identity, columns = table(N, "dependent")
    sides = [row % 2 == 0 for row in range(N)]
    left, right = (
        {
            name: [cell for cell, is_left in zip(cells, sides, strict=True) if is_left == first]
            for name, cells in columns.items()
        }
        for first in (True, False)
    )
    right = {name.upper(): cells for name, cells in right.items() if name != "phone"}
    right["BORN"] = ["/".join(reversed(cell.split("-"))) for cell in right["BORN"]]
    files = write(tmp_path / "a.csv", left), write(tmp_path / "b.csv", right)
    summary, rows = linked(tmp_path, *files)
    true = {(a, b) for a in left["id"] for b in right["ID"] if identity[a] == identity[b]}
    # Equal rows of one table link to what the first of them links to best: entities say the rest.
    of = {
        row[side]: row["entity"] for row in rows for side in ("left", "right") if row["decision"] == "match"
    }
    found = {(a, b) for a in left["id"] for b in right["ID"] if a in of and of[a] == of.get(b)}
    assert len(found & true) >= 0.97 * len(found)
    assert len(found & true) >= 0.95 * len(true)
    assert any("'phone' of a.csv is not compared: b.csv has none" in note for note in summary.notes)


def test_the_number_of_threads_and_of_parts_and_the_format_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "t.csv", table(900, "dependent")[1])
    parquet = tmp_path / "t.parquet"
    duckdb.execute(f"COPY (SELECT * FROM read_csv('{file}', all_varchar=true)) TO '{parquet}'")
    once = linked(tmp_path, file)
    assert linked(tmp_path, file, settings=Settings(job_threads=3)) == once
    assert linked(tmp_path, parquet) == once
    monkeypatch.setattr(engine, "_AT_ONCE", 300)
    assert linked(tmp_path, file) == once


def test_an_index_that_is_made_in_parts_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "t.csv", table(300, "dependent")[1])
    found = []
    for n_keys in (results._KEYS_AT_ONCE, 100):
        monkeypatch.setattr(results, "_KEYS_AT_ONCE", n_keys)
        monkeypatch.setattr(results, "_BYTES_AT_ONCE", 64 * n_keys)
        state, scratch = tmp_path / f"state{n_keys}", tmp_path / f"scratch{n_keys}"
        for folder in (state, scratch):
            folder.mkdir()
        outputs = Outputs(links=scratch / "links.csv")
        settings, request = Settings(job_threads=1), LinksRequest(left="table")
        link_files([file], scratch, settings, request, outputs=outputs, folder=state)
        found.append({path.name: path.read_bytes() for path in state.iterdir() if path.suffix == ".npy"})
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_a_lower_share_of_false_links_leaves_the_surer_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", table(900, "dependent")[1])
    all_links, rows = linked(tmp_path, file)
    fewer, strict = linked(tmp_path, file, false_links=all_links.false_links.estimate / 10)
    assert 0 < fewer.links < all_links.links
    assert fewer.false_links.estimate <= all_links.false_links.estimate / 10
    left_out = {(row["left"], row["right"]) for row in rows} - {(row["left"], row["right"]) for row in strict}
    surest = max(float(row["score"]) for row in rows if (row["left"], row["right"]) in left_out)
    assert surest <= min(float(row["score"]) for row in strict)


def test_equal_rows_are_duplicates_and_each_is_linked_once(tmp_path: Path) -> None:
    _, columns = table(40, "plain", seed=1)
    copies = {name: (cells[:20] * 30) for name, cells in columns.items()}
    copies["id"] = [f"r{row}" for row in range(600)]
    summary, rows = linked(tmp_path, write(tmp_path / "t.csv", copies))
    assert len([row for row in rows if int(row["left"][1:]) % 20 == int(row["right"][1:]) % 20]) == 600 - 20
    assert len({(row["left"], row["right"]) for row in rows}) == summary.links == len(rows)


def test_rows_twice_in_a_table_of_few_columns_are_duplicates(tmp_path: Path) -> None:
    twice = {
        "id": [f"r{row}" for row in range(600)],
        "name": [f"ann {row // 2}" for row in range(600)],
        "born": [f"{1950 + row // 2 % 50}-01-0{1 + row // 2 % 9}" for row in range(600)],
    }
    summary, rows = linked(tmp_path, write(tmp_path / "t.csv", twice))
    assert summary.links == summary.entities == 300
    assert {(row["left"], row["right"]) for row in rows} == {
        (f"r{at}", f"r{at + 1}") for at in range(0, 600, 2)
    }


def test_strangers_are_not_linked(tmp_path: Path) -> None:
    who, columns = people(2_000, "dependent")
    first = [at for at, of in enumerate(who) if of not in who[:at]]
    alone = {name: [cells[at] for at in first] for name, cells in columns.items()}
    alone = {"id": [f"r{at}" for at in range(len(first))], **alone}
    summary, _ = linked(tmp_path, write(tmp_path / "t.csv", alone))
    assert summary.links <= 2
    rng = np.random.default_rng(0)
    numbers = {name: rng.normal(size=400).round(4).tolist() for name in "abcd"}
    assert linked(tmp_path, write(tmp_path / "n.csv", numbers))[0].links == 0


def test_columns_beyond_those_that_are_compared_are_told_in_one_note(tmp_path: Path) -> None:
    columns = table(40, "plain")[1] | {f"f{at}": [str(row % 3) for row in range(40)] for at in range(70)}
    notes = linked(tmp_path, write(tmp_path / "t.csv", columns))[0].notes
    [beyond] = [note for note in notes if "60 columns" in note]
    assert beyond.endswith("f67, f68, f69")


def test_of_one_column_equal_rows_are_linked_where_that_is_asked(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", {"email": [f"ann{at % 30}@mail.com" for at in range(40)]})
    summary, _ = linked(tmp_path, file)
    assert "by --same email" in summary.notes[0]
    assert linked(tmp_path, file, must=[["email"]])[0].links == 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("id,a,b\n", "has no rows"),
        ("id,a,b\n1,x,y\n", "has one row"),
        ("id,a,b\n1,x,y\n2,x,y\n", "nothing tells records apart"),
        ("id,a,b\n1,,\n2,,\n", "nothing tells records apart"),
        ("id,name,town\n1,ann,york\n1,bob,hull\n3,cid,bath\n", "'1' names 2 rows"),
    ],
)
def test_a_table_that_cannot_be_linked_is_refused_in_words(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        linked(tmp_path, file)


@pytest.mark.parametrize(
    ("header", "text", "said"),
    [
        ("last", "last,share\nlee,0.5\nkim,-0.1\n", "'-0.1' in row 2"),
        ("last", "last,share\nlee,many\n", "'many' in row 1"),
        ("last", "last,share\n", "no frequency"),
        ("last", "last,rank,share\nlee,1,0.5\n", "3 columns; expected two"),
        ("last", "last,share\nlee,0.5\nkim,0.7\n", "sum to 1.2"),
        ("age", "age,share\n40,0.5\n", "'age' is not compared"),
    ],
)
def test_frequencies_that_are_none_are_refused_in_words(
    tmp_path: Path, header: str, text: str, said: str
) -> None:
    file, given = write(tmp_path / "t.csv", table(60, "plain")[1]), tmp_path / "given.csv"
    given.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        linked(tmp_path, file, frequencies={header: given})


def test_an_id_column_that_is_not_there_and_tables_without_a_common_column_are_refused(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "t.csv", table(50, "plain")[1])
    with pytest.raises(InvalidInput, match="no column is called 'nope'"):
        linked(tmp_path, file, id_column="nope")
    with pytest.raises(InvalidInput, match="no column is called 'bron'"):
        linked(tmp_path, file, columns={"bron": "date"})
    other = write(tmp_path / "o.csv", {"id": [1, 2, 3], "color": ["red", "green", "blue"]})
    with pytest.raises(InvalidInput, match="no column in common"):
        linked(tmp_path, file, other)


def test_the_command_writes_links_and_says_what_it_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRMARK_HOME", str(tmp_path / "home"))
    file, out = write(tmp_path / "t.csv", table(1_000, "dependent")[1]), tmp_path / "links.parquet"
    with pytest.raises(SystemExit) as ended:
        main(["link", str(file), "-o", str(out)])
    said = capfd.readouterr()
    assert not ended.value.code, said.err
    assert "an estimate, no bound" in said.out
    assert "finding candidates" in said.err
    assert out.read_bytes().startswith(b"PAR1")
    connect = duckdb.connect

    def showing(*words: Any, **options: Any) -> duckdb.DuckDBPyConnection:
        """The database shows its own progress from the first moment on, as it does after two seconds."""
        connection = connect(*words, **options)
        connection.execute("SET progress_bar_time = 0")
        return connection

    monkeypatch.setattr(duckdb, "connect", showing)
    with pytest.raises(SystemExit):
        main(["link", str(file), "--json"])
    # The statements that begin and end the showing are shown themselves; without the latter, hundreds are.
    shown, brace, answer = capfd.readouterr().out.partition("{")
    assert shown.count("100%") < 10
    summary = json.loads(brace + answer)
    assert summary["links"] > 100
    assert summary["blocking"]["candidates_per_record"] > 0


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_next_week_entities_keep_their_ids_and_tables_come_back(tmp_path: Path) -> None:
    columns = table(600, "dependent")[1]
    files = [
        write(tmp_path / f"{name}.csv", {c: v[:n] for c, v in columns.items()})
        for name, n in (("a", 400), ("b", 600))
    ]
    links, home = tmp_path / "links.csv", {"PAIRMARK_HOME": str(tmp_path / "home")}
    assert not command("link", files[0], "-o", links, **home).returncode
    before = {row["left"]: row["entity"] for row in read(links) if row["decision"] == "match"}
    outs = {name: tmp_path / f"{name}.csv" for name in ("entities", "merged")}
    options = [f"--{name}={path}" for name, path in outs.items()] + ["--keep", "street:longest", "--cells"]
    again = ["link", files[1], "-o", links, "--previous", links]
    said = command(*again, *options, "--explain", "r1", "r2", **home)
    assert not said.returncode, said.stderr
    assert "entities joined" in said.stdout
    assert "column     r1" in said.stdout
    rows = read(links)
    after = {row["left"]: row["entity"] for row in rows if row["decision"] == "match"}
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert all(row["left last"] == columns["last"][columns["id"].index(row["left"])] for row in rows)
    people = read(outs["entities"])
    assert [row["id"] for row in people] == columns["id"]
    merged = read(outs["merged"])
    assert len(merged) == len({row["entity"] for row in people})
    assert sum(int(row["records"]) for row in merged) == len(people)
    one = max(merged, key=lambda row: int(row["records"]))
    own = [row for row in people if row["entity"] == one["entity"]]
    assert one["street"] == max((row["street"] for row in own), key=len)
    sources = [row for row in read(tmp_path / "merged.sources.csv") if row["entity"] == one["entity"]]
    by_id = {row["id"]: row for row in own}
    assert all(by_id[row["record"]][row["column"]] == row["value"] for row in sources)
    assert [each.name for each in (tmp_path / "links.csv.pairmark").iterdir()] == ["2"]
    new = {c: [v[columns["id"].index(one["entity"])], v[0]] for c, v in columns.items() if c != "born"}
    resolved = command("resolve", write(tmp_path / "new.csv", new), "--links", links, **home)
    assert not resolved.returncode, resolved.stderr
    assert resolved.stdout.splitlines()[2].split()[:2] == ["1", one["entity"]]
    # Kept, and kept once by its id.
    new["id"] = ["new0", "new1"]
    write(tmp_path / "new.csv", new)
    adding = ["resolve", tmp_path / "new.csv", "--links", links, "--add", "--id", "id"]
    added = [command(*adding, **home) for _ in range(2)]
    assert all("match" in each.stdout and not each.returncode for each in added), added[1].stderr
    assert not command(*again, **home).returncode
    assert {row["right"] for row in read(links)} >= {*new["id"]}
    assert command("resolve", tmp_path / "new.csv", "--links", files[0], **home).returncode == 2


def test_what_is_judged_labels_trains_and_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture.Mixture, "is_full", lambda *of: True)
    identity, columns = table(400, "dependent")
    said: list[str] = []
    labels = []

    def asking(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, bool | None]]:
        # Links and records are drawn by the system's entropy: of enough records some have partners that are found.
        for pair in itertools.islice(pairs, 240 if labels else 60):
            labels.append(identity[pair.ids[0]] == identity[pair.ids[1]])
            yield pair, labels[-1]

    (tmp_path / "kept").mkdir()
    file = write(tmp_path / "t.csv", columns)
    with pytest.raises(InvalidInput, match="Add --judge"):
        linked(tmp_path, file)
    scratch = tmp_path / "s"
    scratch.mkdir()
    summary = link_files(
        [file], scratch, Settings(job_threads=1), LinksRequest(left="t", false_links=0.1, recall=0.8),
        outputs=Outputs(links=tmp_path / "l.csv"), folder=tmp_path / "kept", asking=asking, say=said.append,
    )  # fmt: skip
    assert 5 < sum(labels[:60]) < 55
    assert summary.links > 100
    share = summary.false_links
    assert share.enough == (share.bound <= 0.1)
    assert [text[:16] for text in said if text.startswith("after")][:2] == [
        "after 20 answers",
        "after 50 answers",
    ]
    assert "was right about" in said[2]
    # The person stops after 240 pairs: records that are judged in part do not count.
    assert 8 <= summary.recall.judged <= 240
    assert 0 < summary.recall.bound < summary.recall.recall
    assert f1(read(tmp_path / "l.csv"), identity) > 0.9


def test_names_in_each_others_columns_are_explained_as_close(tmp_path: Path) -> None:
    state, columns = tmp_path / "state", table(300, "dependent")[1]
    state.mkdir()
    file, outputs = write(tmp_path / "t.csv", columns), Outputs(links=tmp_path / "links.csv")
    link_files(
        [file], tmp_path, Settings(job_threads=1), LinksRequest(left="t"), outputs=outputs, folder=state
    )
    record = {name: cells[0] for name, cells in columns.items()}
    with open_results(Stored(state)) as results:
        fields = results.explain(record, record | {"first": record["last"], "last": record["first"]})
    names = [field for field in fields if field["field"] in ("first", "last")]
    assert [field["level"] for field in names] == ["close"] * 2
    assert all(field["weight"] > 0 for field in names)


def test_phones_in_each_others_columns_are_of_one_person(tmp_path: Path) -> None:
    identity, columns = table(600, "dependent")
    number = {who: f"07{who:04d}{who * 7919 % 9973:05d}" for who in set(identity.values())}
    mobile = [number[who] for who in identity.values()]
    office = [f"0{int(phone) * 31 % 10**9:09d}" for phone in mobile]
    is_moved = [row % 2 == 0 for row in range(len(mobile))]
    sides = [
        [a if moved else b for a, b, moved in zip(one, other, is_moved, strict=True)]
        for one, other in ((mobile, office), (office, mobile))
    ]
    columns = {"id": columns["id"], "last": columns["last"], "mobile": sides[0], "phone": sides[1]}
    state, file = tmp_path / "state", write(tmp_path / "t.csv", columns)
    state.mkdir()
    outputs = Outputs(links=tmp_path / "links.csv")
    link_files(
        [file], tmp_path, Settings(job_threads=1), LinksRequest(left="t"), outputs=outputs, folder=state
    )
    assert f1(read(outputs.links), identity) >= 0.97
    record = {name: cells[0] for name, cells in columns.items()}
    crossed = record | {"mobile": record["phone"], "phone": record["mobile"]}
    with open_results(Stored(state)) as results:
        for other, levels in ((crossed, ["close", "close"]), (crossed | {"phone": ""}, ["close", "missing"])):
            fields = results.explain(record, other)
            assert [field["level"] for field in fields if field["field"] != "last"] == levels


def catalogs() -> tuple[list[dict[str, list[str]]], dict[str, int]]:
    """Two lists of 400 drugs, each column written in two ways, and what each record is."""
    drawn, identity = np.random.default_rng(0), dict[str, int]()
    sides: list[dict[str, list[str]]] = [{name: [] for name in ("id", "drug", "form", "pack")} for _ in "lr"]
    forms, packs = ("tablets", "tabs"), ("{} St", "N{}")
    for thing in range(400):
        drug = "".join(drawn.choice(["ka", "lo", "mi", "ren", "sta", "vo", "bel", "tur"], 4))
        dose, pack = drawn.choice([10, 25, 50, 100, 400], 2)
        for at, side in enumerate(sides):
            name = (f"{drug} {dose}mg", f"{dose}mg {drug}")[at]
            cells = (f"{'lr'[at]}{thing}", name, forms[at], packs[at].format(pack))
            identity[cells[0]] = thing
            for column, cell in zip(side.values(), cells, strict=True):
                column.append(cell)
    return sides, identity


def test_products_whose_columns_are_written_in_several_ways_are_linked_by_words(tmp_path: Path) -> None:
    sides, identity = catalogs()
    files = [write(tmp_path / f"{at}.csv", side) for at, side in enumerate(sides)]
    summary, rows = linked(tmp_path, *files, right="other")
    assert f1(rows, identity) >= 0.9
    assert summary.false_links.unknown
    assert any("hardly any two agree in enough columns" in note for note in summary.notes)
    # What bounds links is said of a model: it is not dropped.
    for bound in ({"cut": 0.45}, {"false_links": 0.01}, {"fpr": 1e-6}):
        assert linked(tmp_path, *files, right="other", **bound)[0].links == 0
    # In one table, the nearest are variants: of each drug, another dose and another pack.
    names = [*sides[0]]
    both = {name: [*sides[0][name], *sides[1][name]] for name in names}
    both["id"] = [f"d{row}" for row in range(800)]
    both["drug"][400:] = [f"{401 + row}mg {drug.split()[0]}" for row, drug in enumerate(sides[0]["drug"])]
    summary, rows = linked(tmp_path, write(tmp_path / "both.csv", both))
    assert summary.links <= 8
    assert summary.links or any("no links" in note for note in summary.notes)


@pytest.mark.parametrize(("shared", "least", "most"), [(0, 0, 0), (300, 200, 300)])
def test_words_link_no_more_than_chance_does_not(tmp_path: Path, shared: int, least: int, most: int) -> None:
    drawn, parts = np.random.default_rng(1), [["ka", "lo", "mi", "ren"], ["sta", "vo", "bel", "tur"]]
    syllables = [a + b for a, b in itertools.product(*parts)]
    drugs = [f"{a}{b}ix" for a, b in zip(syllables * 4, drawn.choice(syllables, 64), strict=True)]
    makers = [f"{b}a{a} labs" for a, b in zip(syllables, drawn.choice(syllables, 16), strict=True)]
    forms = ["tablets", "capsules", "cream", "drops", "syrup"]
    choices = drugs, [5, 10, 20, 25, 50, 100, 200, 400], forms, [10, 20, 30, 50, 60, 100], makers
    things = list(dict.fromkeys(tuple(str(drawn.choice(of)) for of in choices) for _ in range(620)))
    ways = ("{0} {1}mg", "{2}", "{3} pcs", "{4}"), ("{1}mg {0}", "{2:.3}.", "{3} st", "{4}")
    files, names = list[Path](), ("product", "form", "package", "maker")
    for side, of, way in zip("lr", (things[:300], things[300 - shared : 600 - shared]), ways, strict=True):
        columns = {"id": [f"{side}{'/'.join(thing)}" for thing in of]}
        columns |= {
            name: [form.format(*thing) for thing in of] for name, form in zip(names, way, strict=True)
        }
        files.append(write(tmp_path / f"{side}.csv", columns))
    summary, rows = linked(tmp_path, *files, right="other")
    assert any("hardly any two agree in enough columns" in note for note in summary.notes)
    assert least <= sum(row["left"][1:] == row["right"][1:] for row in rows) <= summary.links <= most
    assert any("nothing in common" in note for note in summary.notes) == (not summary.links)


def test_links_by_words_go_on_by_words_and_take_no_rules(tmp_path: Path) -> None:
    sides, _ = catalogs()
    files = [write(tmp_path / f"{at}.csv", side) for at, side in enumerate(sides)]
    state, outputs = tmp_path / "state", Outputs(links=tmp_path / "links.csv")

    def run(name: str, **options: Any) -> LinkSummary:
        (scratch := tmp_path / name).mkdir()
        request = LinksRequest(left="l", right="r", rules=options.pop("rules", None))
        return link_files(files, scratch, Settings(job_threads=1), request, outputs=outputs, **options)

    state.mkdir()
    first = run("first", folder=state)
    assert any("hardly any two agree in enough columns" in note for note in first.notes)
    found = read(outputs.links)
    again = run("again", previous=Stored(state))
    assert (again.links, read(outputs.links)) == (first.links, found)
    with pytest.raises(InvalidInput, match="expected no rules"):
        run("ruled", previous=Stored(state), rules=[["drug"]])


def test_edits_beside_a_folder_read_as_they_are_written_anew(tmp_path: Path) -> None:
    state, new_state = tmp_path / "state", tmp_path / "new"
    for folder in (state, new_state):
        folder.mkdir()
    columns = table(300, "dependent")[1]
    file, request = write(tmp_path / "t.csv", columns), LinksRequest(left="table")
    outputs = Outputs(links=tmp_path / "links.csv")
    link_files([file], tmp_path, Settings(job_threads=1), request, outputs=outputs, folder=state)
    drawn, added, resolver = np.random.default_rng(0), list[Addition](), Resolver(state)
    record = {name: cells[0] for name, cells in columns.items() if name != "id"}
    for step in range(24):
        with open_results(Stored(state, added)) as results:
            names = [row[0] for row in results.rows("SELECT DISTINCT entity FROM entities ORDER BY 1")]
            one, other = drawn.choice(names, 2, replace=False).tolist()
            ids = [name for _, name in results.members(one)]
            if step % 3 == 0:
                edit = folders.merge(results, [one, other])
            elif step % 3 == 1:
                edit = folders.split(results, one, ids[: 1 + step % (len(ids) - 1)])
            else:
                edit = resolver.put_in(record | {"last": f"smith{step}"}, f"new{step}")[2]
        added.append(json.loads(json.dumps(edit)))
        resolver.take(added[-1])
    with rewrite_results(Stored(state, added), new_state):
        pass
    read = []
    for stored in (Stored(state, added), Stored(new_state)):
        with open_results(stored) as results:
            tables = [
                results.rows(f"SELECT * EXCLUDE place FROM {name} ORDER BY ALL")
                for name in ("records", "links", "entities", "changes", "statements")
            ]
            read.append([*tables, results.counts()])
    assert read[0] == read[1]
    assert all(read[0])
    assert resolver.resolve(record) == Resolver(new_state).resolve(record)


def test_a_run_that_cannot_write_or_is_told_to_end_leaves_what_was_there(tmp_path: Path) -> None:
    file, out = write(tmp_path / "t.csv", table(600, "dependent")[1]), tmp_path / "links.csv"
    # Python would keep compiled modules that are cut at the limit, too.
    written = {"TMPDIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    home = {"env": os.environ | {"PAIRMARK_HOME": str(tmp_path / "home"), **written}}
    out.write_text("what was there")
    said = command("link", file, "-o", tmp_path, PAIRMARK_HOME=home["env"]["PAIRMARK_HOME"])
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)
    words = [*PAIRMARK, "link", str(file), "-o", str(out)]
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4_096, 4_096))
    said = subprocess.run(words, preexec_fn=full, capture_output=True, text=True, check=False, **home)
    assert (said.returncode, "Traceback" in said.stderr) == (1, False)
    assert said.stderr.splitlines()[-1].startswith("error: ")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **home) as process:
        process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 143
    assert out.read_text() == "what was there"
    assert not [each.name for each in tmp_path.iterdir() if each.name not in ("t.csv", "links.csv", "home")]


def test_a_full_disk_is_not_taken_for_too_little_memory(tmp_path: Path) -> None:
    bounds = {"memory_limit": "32MB", "temp_directory": str(tmp_path), "threads": "1"}
    rows = "SELECT md5(i::VARCHAR) AS cell FROM range(2000000) t(i)"
    for sql, refused in (
        (
            f"SET max_temp_directory_size = '1MB'; CREATE TABLE sorted AS {rows} ORDER BY cell",
            "no space left",
        ),
        (f"SELECT list(cell) FROM ({rows})", "takes more memory"),
    ):
        with pytest.raises(PairmarkError, match=refused), duck.duckdb_session(**bounds) as connection:
            connection.execute(sql)


def test_links_are_evaluated_against_a_column_or_pairs(tmp_path: Path) -> None:
    identity, columns = table(600, "dependent")
    home = {"PAIRMARK_HOME": str(tmp_path / "home")}
    file = write(tmp_path / "t.csv", columns | {"who": [f"p{who}" for who in identity.values()]})
    ids = list(identity)
    some = [(a, b) for at, a in enumerate(ids) for b in ids[at + 1 : at + 40]]
    same = [int(identity[a] == identity[b]) for a, b in some]
    given = {"left": [a for a, _ in some], "right": [b for _, b in some], "same": same}
    for truth, basis in (("who", "identities"), (str(write(tmp_path / "p.csv", given)), "pairs")):
        said = command("link", file, "--truth", truth, "--column", "who:ignore", "--json", **home)
        known = json.loads(said.stdout)["evaluation"]
        assert known["basis"] == basis
        assert 0.9 < known["decided"]["recall"][0] <= known["decided"]["recall"][2]
        assert known["by_cut"]
    said = command("link", file, "--truth", "whom", **home)
    assert (said.returncode, "no column is called 'whom'" in said.stderr) == (1, True)
    # A table given twice is two sides with the same identities.
    both = command(
        "link", file, file, "--truth", "who", "--column", "who:ignore", "--json",
        "--entities", tmp_path / "entities.csv", **home,
    )  # fmt: skip
    assert json.loads(both.stdout)["evaluation"]["basis"] == "identities"


def refused(home: Path, *words: Any) -> str:
    """What the command ``link`` says as it refuses; nothing where it ends well."""
    done = command("link", *words, PAIRMARK_HOME=str(home))
    return " ".join(done.stderr.replace("│", " ").split()) if done.returncode else ""


def test_options_without_their_table_or_file_are_refused_and_pairs_are_text_of_any_encoding(
    tmp_path: Path,
) -> None:
    file, none = write(tmp_path / "t.csv", table(100, "plain")[1]), tmp_path / "none.csv"
    for words, said in (
        (["--keep", "first:longest"], "--keep: expected it with --merged"),
        (["--cells"], "--cells: expected it with --output"),
        (["--above", "0.1"], "--above: expected it with --output"),
        (["--truth", none], "--truth: there is no file"),
        (["--frequencies", none], "--frequencies: there is no file"),
    ):
        assert said in refused(tmp_path / "home", file, *words)
    # What is read is never written over, and two outputs are two files.
    before, twice = file.read_bytes(), tmp_path / "twice.csv"
    (tmp_path / "alias.csv").symlink_to(file)
    for words in (
        ["-o", file], ["--merged", tmp_path / "alias.csv"], ["-o", twice, "--entities", twice],
        ["-o", tmp_path / "m.sources.csv", "--merged", tmp_path / "m.csv"],
    ):  # fmt: skip
        assert "expected a file of its own" in refused(tmp_path / "home", file, *words)
    assert (file.read_bytes(), twice.exists()) == (before, False)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("left;right\nr1;r2\n", encoding="utf-16")
    assert refused(tmp_path / "home", file, "--truth", pairs) == ""
    pairs.write_text("left,right\nr1\n")
    assert "pairs.csv: line 2 has 1 cells" in refused(tmp_path / "home", file, "--truth", pairs)


def test_a_pair_to_explain_is_checked_before_anything_is_linked(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.csv", table(100, "plain")[1]) for name in "abc"]
    for ids, said in (
        (("r1", "r2"), "expected '1:r1' or '2:r1' or '3:r1'"),
        (("1:r1", "no"), "no record 'no'"),
    ):
        assert said in refused(tmp_path / "home", *files, "-o", tmp_path / "links.csv", "--explain", *ids)
        assert not (tmp_path / "links.csv").exists()


def test_a_rule_that_finds_no_candidate_is_named(tmp_path: Path) -> None:
    columns = table(300, "dependent")[1] | {"code": [f"no {at}" for at in range(300)]}
    notes = linked(tmp_path, write(tmp_path / "t.csv", columns), rules=[["code"]])[0].notes
    assert any("rule code: no two records" in note for note in notes)


def test_tables_of_a_database_are_linked_and_written(tmp_path: Path) -> None:
    file, place = write(tmp_path / "t.csv", table(300, "dependent")[1]), tmp_path / "d.db"
    with duckdb.connect(str(place)) as connection:
        connection.execute(f"CREATE TABLE people AS FROM read_csv('{file}', all_varchar=true)")
    source, targets = f"duckdb:///{place}#people", {"-o": "links", "--entities": "rows", "--merged": "merged"}
    csvs = [word for option, name in targets.items() for word in (option, tmp_path / f"{name}.csv")]
    tables = [word for option, name in targets.items() for word in (option, f"duckdb:///{place}#{name}")]
    assert refused(tmp_path / "home", file, *csvs) == ""
    # A second run takes the place of what the first one wrote.
    for _ in range(2):
        assert refused(tmp_path / "home", source, *tables) == ""
        with duckdb.connect(str(place)) as connection:
            for name in (*targets.values(), "merged_sources"):
                csv_file = tmp_path / f"{name.replace('_', '.')}.csv"
                sql = "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM"
                rows = connection.execute(f"{sql} {name}").fetchall()
                assert rows == connection.execute(f"{sql} read_csv('{csv_file}')").fetchall()
    for words, said in (
        ([source, "-o", source], "is there, with the columns id, first"),
        ([source, "-o", f"duckdb:///{place}"], "expected #table"),
        (["postgresql://nobody@localhost:1/x#people"], "INSTALL postgres"),
    ):
        assert said in refused(tmp_path / "home", *words)


def test_tables_and_links_may_be_on_s3(bucket: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", table(600, "dependent")[1])
    bucket.upload_file(str(file), "in/t.csv")
    assert refused(tmp_path / "home", "s3://bucket/in/t.csv", "-o", "s3://bucket/out/links.csv") == ""
    there = bucket.Object("out/links.csv").get()["Body"].read().decode()
    assert list(csv.DictReader(there.splitlines())) == linked(tmp_path, file)[1]
    for wrong, said in (("s3://bucket/in/none.csv", "S3 failed while reading"), ("s3://bucket", "no object")):
        assert said in refused(tmp_path / "home", wrong)


def test_rules_of_the_command_are_the_only_ones_and_an_unknown_column_is_named(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "t.csv", table(600, "dependent")[1])
    rules = ["--rule", "phone", "--rule", "first,last", "--candidates-per-record", "7", "--json"]
    said = command("link", file, *rules, PAIRMARK_HOME=str(tmp_path / "home")).stdout
    blocking = json.loads(said)["blocking"]
    assert (blocking["rules"], blocking["at_most"]) == ([["phone"], ["first", "last"]], 7)
    for wrong, said in (
        (["--rule", "telephone"], "'telephone' is not compared; expected some of first, last"),
        (["--model", "nobody"], "there is no model 'nobody'"),
        (["-o", tmp_path / "nowhere" / "links.csv"], "there is no such folder"),
    ):
        assert said in refused(tmp_path / "home", file, *wrong)


def test_a_trained_model_gets_candidates_by_all_words_that_there_is_room_for() -> None:
    def linking(budget: int, **scoring: Any) -> engine.Linking:
        connection = duckdb.connect()
        titles = [f"item{row % 20} color{row % 7} size{row % 3} part{row}" for row in range(200)]
        connection.register("given", {"row": np.arange(200), "c0": np.array(titles, dtype=object)})
        connection.execute("CREATE TABLE source AS FROM given")
        found = engine.Linking(connection, [LinkField("title", "text")], [200], budget=budget, **scoring)
        found.run()
        return found

    def strangers(a: Any, b: Any) -> Any:
        return np.zeros(a.size)

    by_item, by_color = (linking(most, scorer=strangers, cut=0.5).n_candidates for most in (10, 50))
    assert by_item == 20 * 45
    assert 200 * 200 // 16 < by_color <= 50 * 200


def test_a_cluster_is_named_where_dask_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    settings = Settings(home=tmp_path, job_threads=1, dask_scheduler="tcp://127.0.0.1:9")
    with pytest.raises(NotReady, match="Dask is not installed: pip install"):
        linked(tmp_path, write(tmp_path / "t.csv", table(200, "plain")[1]), settings=settings)
