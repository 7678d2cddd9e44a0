"""What a file would become is said without keeping it, and what is said is what an upload then gives."""

from __future__ import annotations

import io

import duckdb
import numpy as np
import pytest
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.errors import InvalidInput
from tests.parquet import npz, parquet
from tests.service.conftest import people


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
    assert roles["person"] == "label"
    assert roles["photo"] == "text"
    assert roles["f0"] == "number"
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
    assert added.label_counts == reported.label_counts
    assert added.promise == reported.promise
    assert reported.promise.units == 60


def test_the_number_of_people_is_exact(deployment):
    content = faces(n=400, rows=6)
    reported = look(deployment, content)
    assert {column.name: column.distinct for column in reported.columns}["person"] == reported.n_labels == 400


def test_a_file_that_would_be_refused_says_why_and_still_shows_its_columns(deployment):
    reported = look(deployment, table(who=["a", "a", "b", "b"], x=[1, 2, "", 4]))
    assert reported.rows is None
    assert "line 4, column 'x' is empty" in reported.problem
    assert [column.empty for column in reported.columns] == [0, 1]


def test_rankings_numbers_and_arrays(deployment):
    ranked = look(deployment, table(x=[1, 2, 3], order=["a>b>c", "b>a", "c>b>a"]))
    assert ranked.request == {"ranking": ["order"]}
    assert ranked.ranking_labels == ["a", "b", "c"]
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
    added = add(deployment, identity="who")
    assert deployment.datasets.load(added.id).schema is not None
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
