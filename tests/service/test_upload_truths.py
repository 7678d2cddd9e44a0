"""What an upload says of a file that is not what it looks like, or refuses at once, where a job would fail later."""

import io
import json
from typing import Any

import duckdb
import numpy as np
import pytest
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.service.errors import InvalidInput
from tests.service.conftest import Deployment, people
from tests.serving import csv_table, npz, parquet

RNG = np.random.default_rng(0)
WHO = np.repeat(np.arange(40), 3)
NUMBERS = RNG.normal(size=(120, 2)).round(4)
VECTORS = {"who": [f"p{one}" for one in WHO], "a": NUMBERS[:, 0].tolist(), "b": NUMBERS[:, 1].tolist()}
RECORDS = {
    "who": VECTORS["who"],
    "name": [f"{('ana', 'bob', 'carl')[one % 3]} {('king', 'mill')[one % 2]}" for one in range(120)],
    "city": [("lyon", "graz")[one % 2] for one in range(120)],
}


def added(deployment: Deployment, table: dict[str, Any], suffix: str = "csv", **roles: Any) -> DatasetOut:
    request = DatasetRequest(name="table", **({"identity": "who"} | roles))
    return deployment.datasets.add(UploadFile(io.BytesIO(csv_table(table)), filename=f"t.{suffix}"), request)


def written(deployment: Deployment, query: str, index: str | None = None) -> Any:
    """A Parquet file of a query; ``index``: its column that pandas would say is the index."""
    import duckdb

    path = deployment.folder / "t.parquet"
    pandas = json.dumps({"index_columns": [index]}).replace("'", "''")
    metadata = "" if index is None else f", KV_METADATA {{pandas: '{pandas}'}}"
    duckdb.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet{metadata})")
    return path


@pytest.mark.parametrize("index", ["__index_level_0__", "visit", "who"])
def test_the_index_of_a_data_frame_is_no_feature(deployment: Deployment, index: str) -> None:
    more = "" if index == "who" else f", i * 7 AS {index}"
    query = f"SELECT 'p' || (i // 2) AS who, sin(i) AS a{more} FROM range(80) t(i)"
    found = deployment.datasets.add(
        written(deployment, query, index), DatasetRequest(name="x", identity="who")
    )
    assert (found.feature_names, found.n_labels) == (["a"], 40)
    assert ("index of the data frame" in " ".join(found.warnings)) == (index != "who")


def test_the_index_of_a_frame_of_records_is_no_column(deployment: Deployment) -> None:
    path = written(
        deployment,
        "SELECT 'p' || (i // 2) AS who, 'n' || (i % 9) || ' x' AS name, i * 7 AS visit FROM range(80) t(i)",
        "visit",
    )
    kept = {"identity": "who", "columns": {"visit": "number"}}
    for roles, names in (({"identity": "who"}, ["name"]), (kept, ["name", "visit"])):
        assert deployment.datasets.add(path, DatasetRequest(name="x", **roles)).feature_names == names


@pytest.mark.parametrize("values", [WHO * 7 + 3, [one * 2654435761 % 2**31 for one in WHO], WHO / 7])
def test_a_feature_that_names_the_person_is_told(deployment: Deployment, values: Any) -> None:
    for table in (VECTORS, RECORDS):
        found = " ".join(added(deployment, {**table, "code": list(values)}).warnings)
        assert "names the person: 'code' is the same" in found
        assert "--exclude code" in found


def test_what_does_not_name_the_person_is_not_told(deployment: Deployment) -> None:
    year = 1950 + WHO % 20
    for table in (
        {**VECTORS, "year": year, "noisy": WHO + 0.01 * NUMBERS[:, 0]},
        {**RECORDS, "year": year, "street": [f"mill road of {one}" for one in WHO]},
        {"who": VECTORS["who"], "a": WHO / 7, "b": WHO / 3},
    ):
        assert "names the person" not in " ".join(added(deployment, table).warnings)


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("inv", [f"INV-{at:06d}" for at in range(120)]),
        ("CustomerID", RNG.permutation(10**6)[:120].tolist()),
        ("guid", [f"{at:x}" for at in RNG.integers(2**60, size=120)]),
        ("rowKey", [f"z{at}" for at in RNG.permutation(10**6)[:120]]),
        ("photo_id", [".", "..", "N/A", *(f"z{at}" for at in RNG.permutation(10**6)[:117])]),
    ],
)
def test_labels_of_rows_are_ids(deployment: Deployment, column: str, cells: list[Any]) -> None:
    types = {each.name: each.type for each in added(deployment, {**RECORDS, column: cells}).columns}
    assert types[column] == "id"
    assert deployment.datasets.rows("table", [0]).items[0].id == str(cells[0])
    # A second one is compared, and told.
    second = added(deployment, {**RECORDS, column: cells}, columns={column: "text"})
    assert f"column '{column}': looks like an id" in " ".join(second.warnings)


def test_names_that_end_like_ids_are_none(deployment: Deployment) -> None:
    found = added(
        deployment,
        {**RECORDS, "paid": [f"on {at}th" for at in range(120)], "madrid": [f"q {at}" for at in range(120)]},
    )
    assert {each.name: each.type for each in found.columns}["paid"] == "text"
    assert "looks like an id" not in " ".join(found.warnings)


def test_a_zoned_time_is_a_date(deployment: Deployment) -> None:
    query = (
        "SELECT 'p' || (i // 2) AS who, 'n' || (i % 9) || ' x' AS name, "
        "TIMESTAMPTZ '2020-03-01 12:00:00+00' + INTERVAL (i) DAY AS seen FROM range(80) t(i)"
    )
    added_ = deployment.datasets.add(written(deployment, query), DatasetRequest(name="x", identity="who"))
    assert {each.name: each.type for each in added_.columns}["seen"] == "date"
    assert deployment.datasets.rows("x", [1]).items[0].vector["seen"] == "2020-03-02T12:00:00"


@pytest.mark.parametrize("text", ["x,y,z", "x<y<z", "x|y|z", "x; y; z", '["x", "y", "z"]', "x y z"])
def test_rankings_in_another_form_are_refused_at_upload(deployment: Deployment, text: str) -> None:
    table = {"a": VECTORS["a"], "order": [text] * 120}
    with pytest.raises(
        InvalidInput, match=r"fewer than two labels, as in .*expected labels best first with >"
    ):
        added(deployment, table, identity=None, ranking=["order"])
    fine = {"a": VECTORS["a"], "order": ["x > y > z", "y > x", "x"] * 40}
    assert added(deployment, fine, identity=None, ranking=["order"]).ranking_labels == ["x", "y", "z"]


def test_minus_one_is_no_position(deployment: Deployment) -> None:
    table = {"a": VECTORS["a"], "x": [1, 2] * 60, "y": [2, 1] * 60, "z": [3, -1] * 60}
    with pytest.raises(
        InvalidInput, match=r"line 3 has the ranking position -1.*nothing .* where a label is absent"
    ):
        added(deployment, table, identity=None, ranking=["x", "y", "z"])
    negated = {**table, "x": [-1, -2] * 60, "y": [-2, -1] * 60, "z": [-3, -3] * 60}
    assert added(deployment, negated, identity=None, ranking=["x", "y", "z"]).rows == 120


@pytest.mark.parametrize("form", ["[{:.2f}, {:.2f}]", "[{:.2f},{:.2f}]", " [ {:.1e} , {:.1e} ]"])
def test_lists_of_numbers_in_cells_are_vectors(deployment: Deployment, form: str) -> None:
    cells = [form.format(*row) for row in NUMBERS]
    found = added(deployment, {"who": VECTORS["who"], "v": cells, "age": VECTORS["a"]})
    assert found.feature_names == ["v[0]", "v[1]", "age"]
    for wrong, said in (("[1.0]", "lists of 1 to 2 numbers"), ("deleted", "rows without a list")):
        with pytest.raises(InvalidInput, match=said):
            added(deployment, {"who": VECTORS["who"], "v": [*cells[:-1], wrong]}, columns=None)


def test_columns_of_two_tables_are_one_by_spelling(deployment: Deployment) -> None:
    left = "id,Last Name,city,age\n" + "".join(f"a{at},n{at} x,c{at % 3} y,{at}\n" for at in range(40))
    right = "id,last_name,City,title\n" + "".join(f"b{at},n{at} x,c{at % 3} y,t{at} z\n" for at in range(40))
    pairs = "left,right,same\n" + "".join(f"a{at},b{(at + at % 2) % 40},{1 - at % 2}\n" for at in range(40))
    found = deployment.datasets.add(
        UploadFile(io.BytesIO(left.encode()), filename="l.csv"),
        DatasetRequest(name="two"),
        right=UploadFile(io.BytesIO(right.encode()), filename="r.csv"),
        pairs=UploadFile(io.BytesIO(pairs.encode())),
    )
    assert found.feature_names == ["Last Name", "city"]
    assert "only one of the tables has them: 'age', 'title'" in " ".join(found.warnings)
    assert deployment.datasets.rows("two", [41]).items[0].vector == {"Last Name": "n1 x", "city": "c1 y"}


def table(**columns) -> bytes:
    names = list(columns)
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join([",".join(names), *lines, ""]).encode()


def look(deployment, content: bytes, filename: str = "a.csv", **roles):
    return deployment.datasets.inspect(
        UploadFile(io.BytesIO(content), filename=filename), DatasetRequest(name="inspected", **roles)
    )


def faces(n: int = 60, rows: int = 3) -> bytes:
    X, y = people(n, rows)
    return table(
        photo=[f"img-{at}.jpg" for at in range(y.size)],
        person=[f"p{who}" for who in y],
        **{f"f{at}": X[:, at] for at in range(4)},
    )


def test_roles_are_inferred_and_the_upload_matches_the_preview(deployment):
    content = faces()
    reported = look(deployment, content)
    roles = {column.name: column.role for column in reported.columns}
    assert (roles["person"], roles["photo"], roles["f0"]) == ("label", "text", "number")
    assert all(column.inferred for column in reported.columns)
    assert "to learn from vectors" in " ".join(reported.warnings)
    assert reported.problem is None
    assert deployment.datasets.page().items[0].name == "people"
    added = deployment.datasets.add(
        UploadFile(io.BytesIO(content), filename="a.csv"), DatasetRequest(name="faces", **reported.request)
    )
    assert (added.rows, added.features, added.n_labels) == (
        reported.rows,
        reported.features,
        reported.n_labels,
    )
    assert (added.label_counts, added.promise) == (reported.label_counts, reported.promise)
    assert reported.promise.units == 60


def test_the_number_of_people_is_exact(deployment):
    reported = look(deployment, faces(n=400, rows=6))
    assert {column.name: column.distinct for column in reported.columns}["person"] == reported.n_labels == 400


def test_rankings_numbers_and_arrays(deployment):
    ranked = look(deployment, table(x=[1, 2, 3], order=["a>b>c", "b>a", "c>b>a"]))
    assert (ranked.request, ranked.ranking_labels) == ({"ranking": ["order"]}, ["a", "b", "c"])
    digits = look(deployment, table(pixel=[0.5, 0.25, 0.75, 1.5], digit=[1, 2, 1, 2], target=[0, 1, 1, 0]))
    assert digits.request["label"] == "target"
    arrays = look(deployment, npz(X=np.eye(4), y=[1, 1, 2, 2], other=np.zeros(4)), "a.npz")
    assert {column.name: column.role for column in arrays.columns}["X"] == "points"
    assert arrays.n_labels == 2
    content = parquet("SELECT [i, i + 1]::FLOAT[2] AS v, 'p' || (i // 2) AS who FROM range(8) t(i)")
    vectors = look(deployment, content, "a.parquet")
    assert [column.kind for column in vectors.columns] == ["vector", "text"]
    assert (vectors.features, vectors.n_labels) == (2, 4)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3\n", b"\x00\x01", b'a,b\n"1,2\n'])
def test_what_is_no_table_is_refused(deployment, content):
    with pytest.raises(InvalidInput):
        look(deployment, content)


MESSY = "who,a,city,age,born\n" + "".join(
    f"p{at // 2},{at},{'Rome' if at % 2 else 'Oslo'},{'' if at == 4 else at},1990-01-{at + 1:02d}\n"
    for at in range(20)
)


def add(deployment, **roles):
    return deployment.datasets.add(
        UploadFile(io.BytesIO(MESSY.encode()), filename="a.csv"), DatasetRequest(name="messy", **roles)
    )


def test_a_table_with_text_is_read_as_records(deployment):
    seen = look(deployment, MESSY.encode(), identity="who")
    assert {each.name: each.role for each in seen.columns} == {
        "who": "identity", "a": "id", "city": "category", "age": "number", "born": "date",
    }  # fmt: skip
    assert seen.problem is None
    assert deployment.datasets.load(add(deployment, identity="who").id).schema is not None
    # Numbers alone are vectors.
    assert add(deployment, identity="who", exclude=["city", "age", "born"]).features == 1
    empty = {"identity": "who", "exclude": ["city", "born"]}
    with pytest.raises(InvalidInput, match=r"line 6, column 'age' is empty.*--column NAME:number"):
        add(deployment, **empty)
    with pytest.raises(InvalidInput, match=r"line 6 has no cell.*leave out the 1 of 20 rows"):
        add(deployment, **empty, columns={"age": "number"})
    records = add(deployment, identity="who", exclude=["born"], columns={"age": "number"})
    assert deployment.datasets.load(records.id).schema is not None


def test_texts_of_digits_are_no_numbers_where_the_file_types_them(deployment, tmp_path):
    path = tmp_path / "a.parquet"
    duckdb.sql(f"COPY (SELECT '0' || i AS code, 'p' || (i // 2) AS who FROM range(8) t(i)) TO '{path}'")
    added = deployment.datasets.add(path, DatasetRequest(name="codes", identity="who"))
    assert deployment.datasets.load(added.id).schema is not None


def test_a_column_that_numbers_the_rows_is_no_feature_in_silence(deployment):
    rows = [{"who": f"p{at // 3}", "record_id": at + 1, "n": at + 1, "a": at % 7} for at in range(60)]
    content = table(**{name: [row[name] for row in rows] for name in rows[0]})
    assert look(deployment, content).request["id"] == "record_id"
    added = deployment.datasets.add(
        UploadFile(io.BytesIO(content), filename="a.csv"), DatasetRequest(name="numbered", identity="who")
    )
    assert added.warnings[0] == (
        "features that number the rows: 'record_id', 'n'. Exclude them, unless order means something "
        "(--exclude record_id --exclude n)"
    )


def test_a_table_that_would_be_refused_still_shows_its_columns(deployment):
    rows = [(f"p{at // 2}", at % 3, f"{at},5") for at in range(20)]
    rows[4] = rows[9] = ("", 1, "4,5")
    content = "\n".join(["who;day;size", *(";".join(map(str, row)) for row in rows), ""]).encode()
    seen = look(deployment, content, columns={"who": "identity"})
    assert [(each.name, each.role) for each in seen.columns] == [
        ("who", "feature"),
        ("day", "feature"),
        ("size", "feature"),
    ]
    missing = "line 6 has no label"
    assert missing in seen.problem
    with pytest.raises(InvalidInput, match=missing):
        deployment.datasets.add(
            UploadFile(io.BytesIO(content), filename="a.csv"),
            DatasetRequest(name="missing", columns={"who": "identity"}),
        )
