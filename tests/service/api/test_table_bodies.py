"""Calibrations and outcomes as files: what JSON lists hold, in a form with a CSV or Parquet file."""

from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import pytest

from pairmark.client import Client
from pairmark.schemas.reviews import MAX_LISTED
from tests.serving import RunningServer, answered

BY_ID = ("id", "name", "created_at")


Rows = list[tuple[float, int, str, str]]


def table() -> Rows:
    """Every pair of 60 samples of 30 people."""
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(30), 2)
    left, right = (people[side] for side in np.triu_indices(60, 1))
    scores = rng.normal(size=left.size) + 3.0 * (left == right)
    return [
        (float(score), int(a == b), f"person, {a}", f"person, {b}")
        for score, a, b in zip(scores, left, right, strict=True)
    ]


def as_file(rows: Rows, kind: str, folder: Path) -> bytes:
    lines = [f'{score!r},{same},"{a}","{b}"' for score, same, a, b in rows]
    path = folder / "table.csv"
    path.write_text("\n".join(["score,same,left_unit,right_unit", *lines]))
    if kind == "parquet":
        duckdb.sql(f"COPY (FROM '{path}') TO '{folder / 'table.parquet'}' (FORMAT parquet)")
    return (folder / f"table.{kind}").read_bytes()


def sent(
    server: RunningServer, path: str, content: bytes | str, file: str = "t.csv", **form: str
) -> httpx.Response:
    return server.http.post(path, files={"file": (file, content)}, data=form)


def told(answer: httpx.Response) -> dict[str, Any]:
    """What a calibration is, apart from what it is called."""
    assert answer.status_code == 201, answer.text
    return {name: value for name, value in answer.json().items() if name not in BY_ID}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_of_scores_calibrates_as_the_same_lists_do(
    plain_server: RunningServer, kind: str, tmp_path: Path
) -> None:
    rows = table()
    names = ("scores", "same", "left_unit", "right_unit")
    lists = dict(zip(names, zip(*rows, strict=True), strict=True))
    options = {"protocol": "open-set", "listing": "all"}
    as_json = plain_server.http.post("/calibrations", json={"name": "listed", **lists, **options})
    filed = sent(
        plain_server,
        "/calibrations",
        as_file(rows, kind, tmp_path),
        f"scores.{kind}",
        name="filed",
        **options,
    )
    assert told(filed) == told(as_json)
    assert filed.headers["location"] == f"/calibrations/{filed.json()['id']}"
    with Client(plain_server.url) as client:
        file = tmp_path / f"table.{kind}"
        assert client.calibrate_scores("filed", file=file, **options)["summary"] == as_json.json()["summary"]
        with pytest.raises(ValueError, match="either scores and same, or a file"):
            client.calibrate_scores("both", [0.5], [1], file=file)
    points = [
        plain_server.http.post(
            "/match",
            params={"fpr": 0.2, "confidence": 0.9, "calibration": answer.json()["id"]},
            json={"scores": [0.5, 5.0]},
        ).json()["operating_point"]
        for answer in (as_json, filed)
    ]
    assert points[0]["guarantee"] == "finite-sample"
    assert {**points[0], "calibration_id": None} == {**points[1], "calibration_id": None}


def test_scores_of_independent_pairs_need_no_units(plain_server: RunningServer) -> None:
    content = "\n".join(["same;score", *(f"{same};{score!r}" for score, same, *_ in table())])
    answered(sent(plain_server, "/calibrations", content, name="alone", independent="true"), 201)


@pytest.mark.parametrize(
    ("content", "form", "field", "said"),
    [
        ("score,left_unit,right_unit\n1,a,b\n", {}, "file", "'same' is missing; expected a first line"),
        ("score,same,left_units\n1,1,a\n", {}, "file", "'left_units' is not read here"),
        ("score,same\n1,1\nhigh,0\n", {}, "score[1]", "'high'; expected a finite number"),
        ("score,same\n1,1\ninf,0\n", {}, "score[1]", "expected a finite number"),
        ("score,same\n1,1\n0,maybe\n", {}, "same[1]", "expected 1 or true"),
        ("score,same\n1,1\n0,\n", {}, "same[1]", "same[1]: expected a valid boolean"),
        ("score,same,left_unit\n1,1,a\n0,0,a\n", {}, "right_unit", "go together"),
        (
            "score,same,left_unit,right_unit\n1,1,a,a\n0,0,,b\n",
            {},
            "left_unit[1]",
            "valid integer or a valid string",
        ),
        ("score,same\n", {}, "file", "no rows"),
        ("score,same\n1,1\n0,0\n", {"listing": "some"}, "listing", "listing"),
        ("score,same\n1,1\n0,0\n", {"protocol": "new"}, "protocol", "expected 'open-set' or 'closed-set'"),
        ("score,same\n1,1\n0,0\n", {"scores": "1"}, "scores", "expected file, name"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    plain_server: RunningServer, content: str, form: dict[str, str], field: str, said: str
) -> None:
    answer = answered(sent(plain_server, "/calibrations", content, name="wrong", **form), 422)
    assert answer.json()["field"] == field
    assert said in answer.json()["detail"]


def test_a_form_without_a_table_is_refused(plain_server: RunningServer) -> None:
    post = plain_server.http.post
    by_name = sent(plain_server, "/calibrations", b"", "t.npz", name="x").json()
    assert (by_name["field"], "expected .csv" in by_name["detail"]) == ("file", True)
    answer = post("/calibrations", files={"name": (None, "x")})
    assert (answer.status_code, answer.json()["field"]) == (422, "file")
    for kind in ("multipart/form-data; boundary=b", "multipart/form-data"):
        damaged = post("/calibrations", content=b"no form", headers={"content-type": kind})
        assert (damaged.status_code, damaged.json()["field"]) == (422, "body")
    too_long = answered(post("/calibrations", json={"name": "x" * 9_000_000}), 413)
    assert "CSV or Parquet" in too_long.json()["detail"]


def test_judgements_and_outcomes_come_as_files(plain_server: RunningServer) -> None:
    http = plain_server.http
    refs = [[f"a{at}", f"b{at}"] for at in range(30)]
    review = http.post("/reviews", json={"source": {"refs": refs}}).json()
    path = f"/reviews/{review['id']}"
    items = [one["item"] for one in http.get(f"{path}/next", params={"n": 20, "by": "ada"}).json()["items"]]
    rows = [f"{item},{'' if at == 7 else 'true'},ada" for at, item in enumerate(items)]
    judged = answered(sent(plain_server, f"{path}/outcomes", "\n".join(["item,same,by", *rows])))
    assert (judged.json()["judged"], judged.json()["wrong"]) == (20, 1)
    many = "\n".join(["item,same", *["x,1"] * 1_001])
    assert sent(plain_server, f"{path}/outcomes", many).status_code == 413
    assert "'item' is missing" in sent(plain_server, f"{path}/outcomes", "same\n1\n").json()["detail"]


def test_a_list_of_decisions_made_elsewhere_is_reviewed_from_a_file(plain_server: RunningServer) -> None:
    rows = [f"a{at},b{at},{at / 30},{'yes' if at < 20 else 'no'}" for at in range(30)]
    lines = "\n".join(["left,right,score,match", *rows]).replace("yes", "1").replace("no", "0")
    asked = {"name": "from a file", "question": "missed-matches", "at_most": "0.1", "confidence": "0.9"}
    made = answered(sent(plain_server, "/reviews", lines, **asked), 201).json()
    assert (made["name"], made["population"], made["confidence"]) == ("from a file", 30, 0.9)
    lists = {
        "refs": [[f"a{at}", f"b{at}"] for at in range(30)],
        "scores": [at / 30 for at in range(30)],
        "matches": [at < 20 for at in range(30)],
    }
    as_json = plain_server.http.post(
        "/reviews", json={**asked, "at_most": 0.1, "confidence": 0.9, "source": lists}
    ).json()
    assert {name: made[name] for name in ("population", "bound", "at_most", "source")} == {
        name: as_json[name] for name in ("population", "bound", "at_most", "source")
    }
    items = plain_server.http.get(f"/reviews/{made['id']}/next", params={"n": 5}).json()["items"]
    assert {item["refs"][0][1:] == item["refs"][1][1:] for item in items} == {True}
    wrong = sent(plain_server, "/reviews", "left,right,match\na,b,perhaps\n", **asked)
    assert wrong.json()["field"] == "match[0]"
    answered(sent(plain_server, "/reviews", "left,right\n,b\n"), 422)


def test_lists_of_decisions_are_bounded_alike_in_json_and_in_files(plain_server: RunningServer) -> None:
    n = 30_000
    refs = [[f"a{at}", f"b{at}"] for at in range(n)]
    as_json = answered(
        plain_server.http.post("/reviews", json={"source": {"refs": refs, "scores": None}}), 201
    )
    filed = sent(plain_server, "/reviews", "\n".join(["left,right", *map(",".join, refs)]))
    assert filed.json()["population"] == as_json.json()["population"] == n
    too_many = sent(plain_server, "/reviews", "\n".join(["left,right", *["a,b"] * (MAX_LISTED + 1)]))
    assert (too_many.status_code, too_many.json()["limit"]) == (413, MAX_LISTED)
    short = {"source": {"refs": [["a", "b"]] * (MAX_LISTED + 1)}}
    assert plain_server.http.post("/reviews", json=short).json()["limit"] == MAX_LISTED
    long = plain_server.http.post("/reviews", json={"source": {"refs": [["a" * 9_000_000, "b"]]}})
    assert (long.status_code, "CSV or Parquet" in long.json()["detail"]) == (413, True)


@pytest.mark.parametrize(
    ("source", "field", "said"),
    [
        ({"refs": [["a", "b"]] * 20_000 + [["a"]]}, "source.refs[20000]", "at least 2 items"),
        ({"refs": [["a", "b"], ["a", ""]]}, "source.refs[1][1]", "at least 1 character"),
        ({"refs": "all"}, "source.refs", "valid array"),
        ({"refs": [["a", "b"]], "matches": [1]}, "source.matches[0]", "expected a valid boolean"),
        ({"refs": [["a", "b"]], "scores": [1e300]}, "source.scores[0]", "beyond float32"),
        ({"refs": [["a", "b"]], "matches": [True, False]}, "source", "expected one for each of refs"),
        ({"model": "m", "gallery": "g"}, "source", "expected exactly one of model, gallery and refs"),
        ({"model": 3}, "source.model", "valid string"),
        ({"people": 3}, "source.people", "not a field"),
        ([], "source", "no JSON object; expected one"),
        (None, "source", "no JSON object; expected one"),
    ],
)
def test_what_is_wrong_with_a_source_is_named(
    plain_server: RunningServer, source: Any, field: str, said: str
) -> None:
    answer = answered(plain_server.http.post("/reviews", json={"source": source}), 422)
    assert answer.json()["field"] == field
    assert said in answer.json()["detail"]
