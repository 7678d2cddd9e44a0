"""The same data is the same dataset in every format; rankings, groups, ids and pairs come along."""

import contextlib
import csv
import gzip
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_digits
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.service.blobs import Blobs, collect
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, PairmarkError, TooLarge, UnknownDataset
from pairmark.service.settings import Settings
from tests.serving import npz, parquet


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory, new_database) -> Datasets:
    home = tmp_path_factory.mktemp("home")
    settings = Settings(home=home, database_url=new_database("sqlite"))
    database = Database(settings.resolved_database_url)
    yield Datasets(database, Blobs(home / "store"), settings)
    database.dispose()


def send(
    datasets: Datasets, content: bytes, filename: str, pairs: bytes | None = None, **request
) -> tuple[DatasetOut, LabelledData]:
    out = datasets.add(
        UploadFile(io.BytesIO(content), filename=filename),
        DatasetRequest(name="d", **request),
        pairs=None if pairs is None else UploadFile(io.BytesIO(pairs)),
    )
    return out, datasets.load(out.id)


def as_csv(X: np.ndarray, y: list[str] | None = None, delimiter: str = ",") -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
    writer.writerow([*(f"x{n}" for n in range(X.shape[1])), *(["who"] if y is not None else [])])
    for row, values in enumerate(X.tolist()):
        writer.writerow([*map(repr, values), *([y[row]] if y is not None else [])])
    return stream.getvalue().encode()


def test_csv_parquet_npz_and_svmlight_of_the_same_data_are_the_same(
    datasets: Datasets, tmp_path: Path
) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:500] / 7, y[:500]
    text = as_csv(X, [str(label) for label in y])
    (tmp_path / "digits.csv").write_bytes(text)
    svm = io.BytesIO()
    dump_svmlight_file(X, y, svm, zero_based=False)
    table = parquet(f"SELECT * FROM read_csv('{tmp_path}/digits.csv')")
    csr = sparse.csr_array(X)
    sent = [
        send(datasets, text, "digits.csv", label="who"),
        send(datasets, gzip.compress(text), "digits.csv.gz", label="who"),
        send(datasets, as_csv(X, [str(label) for label in y], ";"), "digits.csv", label="who"),
        send(datasets, table, "digits.parquet", label="who"),
        send(datasets, npz(X=X, y=y), "digits.npz"),
        send(datasets, npz(X=np.asfortranarray(X.astype(np.float32)), y=y.astype(float)), "digits.npz"),
        send(datasets, npz(X=X, y=y.astype(str)), "digits.npz", label="y"),
        send(
            datasets,
            npz(data=csr.data, indices=csr.indices, indptr=csr.indptr, shape=csr.shape, y=y),
            "d.npz",
        ),
        send(datasets, svm.getvalue(), "digits.svm"),
        send(datasets, gzip.compress(svm.getvalue()), "digits.svm.gz"),
    ]
    expected = X.astype(np.float32)
    hashes = sent[0][1].row_hashes
    assert len(set(hashes.tolist())) == len(np.unique(expected, axis=0))
    for number, (out, data) in enumerate(sent):
        dense = data.X.toarray() if data.is_sparse else data.X
        if number < 8:
            np.testing.assert_array_equal(dense, expected)
        else:
            # svmlight text holds the values to 16 digits, the last column empty in every row goes unseen
            np.testing.assert_allclose(dense, expected[:, : dense.shape[1]], rtol=1e-7)
        assert [data.identities[code] for code in data.y] == [str(label) for label in y]
        assert data.identities == tuple(str(digit) for digit in range(10))
        assert out.label_counts == {str(digit): int((y == digit).sum()) for digit in range(10)}
        assert (out.rows, out.features) == dense.shape
        if number < 8:
            np.testing.assert_array_equal(data.row_hashes, hashes)


def test_columns_without_a_name_are_numbered(datasets: Datasets) -> None:
    content = b",t,u,who\n0,1,9,a\n1,4,9.5,b\n2,7,9,a\n"
    out, data = send(datasets, content, "a.csv", label="who")
    assert data.feature_names == ("unnamed.0", "t", "u")
    assert any("without a name" in warning for warning in out.warnings)
    _, data = send(datasets, content, "a.csv", label="who", exclude=["t", "unnamed.0"])
    assert data.feature_names == ("u",)


def test_quotes_crlf_bom_blank_lines_and_spaces_are_ordinary(datasets: Datasets) -> None:
    content = b'\xef\xbb\xbf\r\n \t\r\n"a b", c ,who\r\n 1 ,2,"x, ""y"""\r\n\r\n3,4,z\r\n5,6,"x, ""y"""\r\n'
    _, data = send(datasets, content, "a.csv", label="who")
    assert (data.feature_names, data.identities) == (("a b", "c"), ('x, "y"', "z"))
    np.testing.assert_array_equal(data.X, np.float32([[1, 2], [3, 4], [5, 6]]))


def test_a_list_column_of_parquet_is_a_vector(datasets: Datasets) -> None:
    content = parquet("SELECT [i::FLOAT, i * 2] AS v, i + 0.5 AS w, 'p' || (i % 2) AS who FROM range(6) t(i)")
    _, data = send(datasets, content, "a.parquet", label="who")
    assert data.feature_names == ("v[0]", "v[1]", "w")
    np.testing.assert_array_equal(data.X[2], np.float32([2, 4, 2.5]))


def test_rows_may_be_unlabelled_when_that_is_said(datasets: Datasets) -> None:
    out, data = send(datasets, b"a,b\n1,2\n3,4\n", "a.csv", unlabelled=True)
    assert (out.label, out.n_labels, data.y) == (None, 0, None)
    out, data = send(datasets, npz(X=np.eye(3), y=[1, 1, 2]), "a.npz", unlabelled=True)
    assert (out.label, data.y) == (None, None)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"a,b\n1,2\n3,4\n", "a.csv"),
        (b"name,city\nAnna Weber,Bonn\nBert Kraus,Ulm\n", "a.csv"),
        (npz(X=np.eye(3), z=[1, 2, 3]), "a.npz"),
    ],
)
def test_rows_without_a_label_are_stored_and_that_is_told(datasets: Datasets, content, name: str) -> None:
    out, data = send(datasets, content, name)
    assert (out.label, out.n_labels, out.promise, data.y) == (None, 0, None, None)
    assert [line for line in out.warnings if "`identity`" in line]
    assert not send(datasets, content, name, unlabelled=True)[0].warnings


def test_rankings_of_labels_as_text(datasets: Datasets) -> None:
    out, data = send(datasets, b"x,r\n1,b>a>c\n2,b > a=c\n3,c>b\n4,a\n", "a.csv", ranking="r")
    assert data.label_names == ("a", "b", "c")
    nan = np.nan
    np.testing.assert_array_equal(data.rankings, [[1, 0, 2], [1, 0, 1], [nan, 1, 0], [0, nan, nan]])
    assert out.ranking_labels == ["a", "b", "c"]


def test_positions_that_would_give_the_ranking_away_are_no_features(datasets: Datasets) -> None:
    out, data = send(datasets, b"x,r,a,b\n1,b>a,1,0\n2,a>b,0,1\n", "a.csv", ranking="r")
    assert data.feature_names == ("x",)
    assert any("left out" in warning for warning in out.warnings)


PAIRS = b"left,right,same,weight\n0,1,1,2\n0,2,0,0.5\n"


def test_explicit_pairs_by_row_number(datasets: Datasets) -> None:
    out, data = send(datasets, b"x\n1\n2\n3\n", "a.csv", pairs=PAIRS)
    assert (out.n_pairs, out.n_same_pairs) == (2, 1)
    assert (data.pairs.left.tolist(), data.pairs.right.tolist()) == ([0, 0], [1, 2])
    assert (data.pairs.same.tolist(), data.pairs.weight.tolist()) == ([True, False], [2, 0.5])


@pytest.mark.parametrize("name", [b"match", b"label"])
def test_what_others_call_same_is_read_with_a_note(datasets: Datasets, name: bytes) -> None:
    out, data = send(datasets, b"x\n1\n2\n3\n", "a.csv", pairs=PAIRS.replace(b"same", name))
    assert data.pairs.same.tolist() == [True, False]
    assert any(f"{name.decode()!r} is read as 'same'" in warning for warning in out.warnings)


def test_explicit_pairs_by_row_id(datasets: Datasets) -> None:
    _, data = send(
        datasets, b"key,x\nu,1\n7,2\nv,3\n", "a.csv", pairs=b"left,right,same\nu,7,1\nv,u,0\n", id="key"
    )
    assert (data.row_ids, data.pairs.left.tolist()) == (("u", "7", "v"), [0, 2])
    assert (data.pairs.right.tolist(), data.pairs.weight, data.feature_names) == ([1, 0], None, ("x",))


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, new_database):
    home = tmp_path_factory.mktemp("home")
    settings = Settings(
        home=home,
        database_url=new_database("sqlite"),
        max_upload_bytes=2_000_000,
        max_dataset_rows=1_000,
        max_dimension=5_000,
        max_dataset_bytes=500_000,
    )
    database = Database(settings.resolved_database_url)
    store = Blobs(home / "store")
    yield Datasets(database, store, settings), store
    database.dispose()


def refused(
    deployment, content: bytes, filename: str = "a.csv", pairs: bytes | None = None, **request
) -> PairmarkError:
    datasets, store = deployment
    named = request.keys() & {"label", "ranking"} or pairs is not None or b"y.npy" in content
    if not named and filename.endswith((".csv", ".parquet", ".npz")):
        request["unlabelled"] = True
    with pytest.raises((InvalidInput, TooLarge)) as caught:
        datasets.add(
            UploadFile(io.BytesIO(content), filename=filename),
            DatasetRequest(name="bad", **request),
            pairs=None if pairs is None else UploadFile(io.BytesIO(pairs)),
        )
    with pytest.raises(UnknownDataset):
        datasets.get("bad")
    assert [path for path in store.root.rglob("*") if path.is_file()] == []
    assert str(store.root) not in str(caught.value)
    json.dumps(caught.value.facts, allow_nan=False)
    return caught.value


HEAD = b"a,b,who\n1,2,p\n"

BAD_CSV = {
    "text": (HEAD + b"3,x,q\n", "line 3, column 'b' is 'x', not a number"),
    "NA": (HEAD + b"NA,4,q\n", "line 3, column 'a' is 'NA', not a number"),
    "missing": (HEAD + b"3,,q\n", "line 3, column 'b' is empty"),
    "quoted nothing": (HEAD + b'3,"",q\n', "line 3, column 'b' is empty"),
    "NaN": (HEAD + b"3,nan,q\n", "line 3, column 'b' is NaN"),
    "infinite": (HEAD + b"-inf,4,q\n", "line 3, column 'a' is infinite"),
    "beyond double": (HEAD + b"1e999,4,q\n", "line 3, column 'a' is infinite"),
    "beyond float32": (HEAD + b"3.5e38,4,q\n", "line 3, column 'a' is 3.5e+38, beyond the range of float32"),
    "no label": (HEAD + b"3,4,\n", "line 3 has no label"),
    "short line": (HEAD + b"3,q\n", "line 3 has 2 cells, the header 3"),
    "long line": (HEAD + b"3,4,q,5\n", "line 3 has 4 cells, the header 3"),
    "open quote": (HEAD + b'3,4,"q\n', "line 3 has a quote that is not closed"),
    "broken UTF-8": (HEAD + "3,4,é\n5,6,".encode() + b"Ren\xe9\n", "line 4 is not UTF-8"),
    "Cyrillic, not UTF-8": (HEAD + "3,4,Иван\n".encode("cp1251"), "line 3 is not UTF-8"),
    "UTF-16 cut within a character": ("a,b,who\n1,2,😀\n".encode("utf-16")[:-5], "the file is not UTF-8"),
    "not UTF-8 with no character for a byte": (HEAD + b"3,4,a\x81\n", "the file is not UTF-8"),
    "zero byte": (HEAD + b"3,4,q\x00\n", "line 3 has a label that is not plain text"),
    "cut within a character": (HEAD + "3,4,é".encode()[:-1], "line 3 is not UTF-8"),
    "empty": (b"", "the file is empty"),
    "blank": (b"\n\n  \n", "the file is empty"),
    "header only": (b"a,b,who\n", "the file has no rows"),
    "one class": (HEAD + b"3,4,p\n", "every row has the same label"),
    "all differ": (HEAD + b"3,4,q\n", "is the label column an id"),
    "zip": (b"PK\x03\x04" + HEAD, "a zip archive"),
    "Parquet": (b"PAR1" + HEAD, "send format=parquet"),
    "cut gzip": (gzip.compress(HEAD * 50)[:-12], "truncated or damaged"),
    "broken gzip": (gzip.compress(HEAD * 50)[:30] + b"junk" * 30, "truncated or damaged"),
    "gzip of nothing": (gzip.compress(b""), "the file is empty"),
    "open quote in the header": (b'"a,b,who\n1,2,p\n', "first line is not CSV"),
    "long label": (HEAD + b"3,4," + b"q" * 1_001 + b"\n", "at most 1000 characters"),
    "long name": (b"a" * 1_001 + b",who\n1,p\n", "the name of column 1 is not plain text"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CSV)
def test_bad_csv(deployment, case: str) -> None:
    content, said = BAD_CSV[case]
    assert said in refused(deployment, content, label="who").detail


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "cp1252", "utf-8-sig"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_of_other_encodings(datasets, encoding: str, pack) -> None:
    """UTF-16 by its mark; Windows-1252, which has none, with a warning that shows how it was read."""
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    table = f"{mark}a;b;who\n1;2;Zoë 3 €\n3;4;Renée\n5;6;Zoë 3 €\n".encode(encoding)
    upload = UploadFile(io.BytesIO(pack(table)), filename="a.csv")
    data = datasets.add(upload, DatasetRequest(name="people", identity="who"))
    assert sorted(data.label_counts) == ["Renée", "Zoë 3 €"]
    assert any("read as Windows-1252, such as 'Zoë'" in said for said in data.warnings) == (
        encoding == "cp1252"
    )


def test_every_column_of_text_is_named_at_once(deployment) -> None:
    error = refused(deployment, b"a,b,c\n1,x,5\n2,6,v\n")
    assert "column 'b' is 'x'" in error.detail
    assert "Text is also in 'c'" in error.detail
    assert "which reads the table as records" in error.detail
    assert (error.facts["row"], error.facts["line"], error.facts["column"]) == (1, 2, "b")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_messages_name_lines_as_the_file_has_them(deployment, pack) -> None:
    """Cells of several lines and blank lines move what comes after; without a header the first row is line 1."""
    table = b'a,b,who\n1,2,"p\nand q"\n\n3,,r\n'
    error = refused(deployment, pack(table), "a.csv", label="who")
    assert error.detail.startswith("line 5, column 'b' is empty"), error.detail
    assert (error.facts["row"], error.facts["line"]) == (2, 5)
    later = refused(deployment, pack(b"\n  \n" + table), "a.csv", label="who")
    assert later.detail.startswith("line 7, column 'b' is empty"), later.detail
    bare = refused(deployment, pack(b"1,2,p\n3,x,q\n"), "a.csv", label="c2", header=False)
    assert bare.detail.startswith("line 2, column 'c1' is 'x'")
    listed = refused(deployment, b"x\n1\n2\n", pairs=pack(b"left,right,same\n\n0,1,7\n"))
    assert listed.detail.startswith("pairs file: line 3: same is 7")


def test_the_columns_asked_for_must_be_there_once(deployment) -> None:
    rows = b"a,b,who\n1,2,p\n3,4,q\n5,6,p\n"
    assert (
        "no column 'where'; the file has 'a', 'b', 'who'" in refused(deployment, rows, label="where").detail
    )
    twice = rows.replace(b"a,b", b"a,a")
    assert "column names repeat: 'a'; expected" in refused(deployment, twice, label="who").detail
    assert "both used and excluded" in refused(deployment, rows, label="who", exclude="who").detail
    assert "no feature column is left" in refused(deployment, rows, label="who", exclude="a,b").detail
    assert "two roles" in refused(deployment, rows, label="who", ranking=["who", "b"]).detail


def test_bounds_are_said(deployment) -> None:
    assert "larger than 2000000 bytes" in refused(deployment, b"a\n" + b"1\n" * 1_000_001).detail
    assert (
        "1001 rows or more; at most 1000 rows are taken (PAIRMARK_MAX_DATASET_ROWS raises this)"
        in refused(deployment, b"a\n" + b"1\n" * 1_001).detail
    )
    wide = b",".join(b"c%d" % n for n in range(4_097)) + b"\n" + b",".join(b"1" for _ in range(4_097)) + b"\n"
    assert "4097 columns; at most 4096" in refused(deployment, wide).detail
    assert "5001 features; at most 5000" in refused(deployment, npz(X=np.eye(2, 5_001)), "a.npz").detail
    tall = (
        b",".join(b"c%d" % n for n in range(500))
        + b"\n"
        + (b",".join(b"1" * 500 for _ in range(500)) + b"\n")
    )
    assert isinstance(
        refused(deployment, tall.replace(b"1" * 500, b"1") * 1 + (b"1," * 499 + b"1\n") * 400), TooLarge
    )
    bomb = gzip.compress(b"a\n" + b"1\n" * 1_500_000)
    assert "unpacks to 2097152 bytes or more; at most 2000000" in refused(deployment, bomb, "a.csv.gz").detail
    assert "at most" in refused(deployment, b"c" + b",c" * 40_000 + b"\n").detail


def test_bad_parquet(deployment) -> None:
    whole = parquet("SELECT i AS x, 'p' || (i % 2) AS who FROM range(100) t(i)")
    for cut in (3, 50, len(whole) // 2, len(whole) - 3):
        assert "Parquet" in refused(deployment, whole[:cut], "a.parquet", label="who").detail
    hole = parquet("SELECT CASE WHEN i <> 4 THEN i END AS x FROM range(9) t(i)")
    assert "row 5, column 'x' is empty" in refused(deployment, hole, "a.parquet").detail
    ragged = parquet("SELECT range(i % 2 + 1)::FLOAT[] AS v FROM range(9) t(i)")
    assert "lists of 1 to 2 numbers" in refused(deployment, ragged, "a.parquet").detail
    null = parquet("SELECT [1.0, CASE WHEN i <> 2 THEN 1 END]::FLOAT[] AS v FROM range(9) t(i)")
    assert "row 3, column 'v[1]' is NaN" in refused(deployment, null, "a.parquet").detail
    bomb = parquet("SELECT 0 AS x FROM range(1000000)")
    assert len(bomb) < 20_000
    assert isinstance(refused(deployment, bomb, "a.parquet"), TooLarge)
    assert "Parquet" in refused(deployment, HEAD, "a.parquet").detail


def test_bad_npz(deployment) -> None:
    X, y = np.eye(4), np.array([0, 0, 1, 1])
    cases = {
        "expected 'X'": npz(points=X),
        "array 'X' has shape (4,)": npz(X=y),
        "array 'X' holds <U1": npz(X=np.array([["a"]])),
        "array 'X' holds complex128": npz(X=X * 1j),
        "array 'y' has shape (3,)": npz(X=X, y=y[:3]),
        "row 2, column 'x3' is NaN": npz(X=np.where(np.arange(16).reshape(4, 4) == 7, np.nan, X), y=y),
        "'y' in the npz is not a whole array of numbers or fixed-width strings": npz(
            X=X, y=np.array([{}, 1, 2, 3], dtype=object)
        ),
        "every row has the same label": npz(X=X, y=y * 0),
        "row 1 has no label": npz(X=X, y=np.array([np.nan, 1, 2, 2])),
        "do not make a CSR": npz(data=[1.0], indices=[9], indptr=[0, 1], shape=[1, 3]),
        "not CSR": npz(data=[1.0], indices=[0], indptr=[0, 1], shape=[1, 3], format=b"csc"),
        "the file has no rows": npz(X=np.empty((0, 3))),
        "no feature column": npz(X=np.empty((3, 0))),
        "expected 4 different names": npz(X=X, feature_names=["a", "a", "b", "c"]),
        "1001 rows or more; at most 1000": npz(X=np.zeros((1_001, 1))),
    }
    for said, content in cases.items():
        assert said in refused(deployment, content, "a.npz").detail
    assert "no array 'who'" in refused(deployment, npz(X=X), "a.npz", label="who").detail
    assert "no feature 'z'" in refused(deployment, npz(X=X), "a.npz", exclude="z").detail
    whole = npz(X=X, y=y)
    for cut in range(1, len(whole), 37):
        refused(deployment, whole[:cut], "a.npz")
    for at in range(0, len(whole), 5):
        broken = bytearray(whole)
        broken[at] ^= 0x55
        try:
            out = deployment[0].add(
                UploadFile(io.BytesIO(bytes(broken)), filename="a.npz"), DatasetRequest(name="broken")
            )
        except PairmarkError:
            continue
        deployment[0].delete(f"broken:{out.version}")


def test_an_npz_never_runs_code(deployment, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], dtype=object), allow_pickle=True)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("X.npy", stream.getvalue())
        packed.writestr("y.npy", pickle.dumps(Trap()))
        packed.writestr("../../escaped.npy", b"")
    refused(deployment, archive.getvalue(), "a.npz")
    assert not (tmp_path / "sprung").exists()


def test_bad_svmlight(deployment) -> None:
    good = b"1 1:0.5 3:2\n2 2:1\n"
    cases = {
        "line 3 ('x 1:2') is not svmlight": good + b"x 1:2\n",
        "line 3 ('1 a:2')": good + b"1 a:2\n",
        "line 3 ('1 2')": good + b"1 2\n",
        "line 3 ('1 3:1 2:1')": good + b"1 3:1 2:1\n",
        "row 3, column 'x0' is NaN": good + b"1 1:nan\n",
        "row 3, column 'x1' is infinite": good + b"1 2:inf\n",
        "6001 features; at most 5000": good + b"1 6001:1\n",
        "the file has no rows": b"# nothing\n",
        "no line has a feature": b"1\n2\n",
        "every row has the same label": b"1 1:2\n1 1:3\n",
        "the file is empty": b"",
        "only some lines have a qid": b"1 qid:1 1:2\n1 1:3\n",
    }
    for said, content in cases.items():
        assert said in refused(deployment, content, "a.svm").detail, said
    assert "no columns to name as exclude" in refused(deployment, good, "a.svm", exclude="x1").detail
    assert "no line has a qid" in refused(deployment, good, "a.svm", group="qid").detail


def test_bad_rankings(deployment) -> None:
    cases = {
        "line 3: 'a>a' is not a ranking": b"x,r\n1,a>b\n2,a>a\n",
        "line 3: 'a>' is not a ranking": b"x,r\n1,a>b\n2,a>\n",
        "line 3: '' is not a ranking": b"x,r\n1,a>b\n2,\n",
        "orders fewer than two labels": b"x,r\n1,a\n2,a\n",
    }
    for said, content in cases.items():
        assert said in refused(deployment, content, ranking="r").detail
    assert "line 3 ranks no label" in refused(deployment, b"x,a,b\n1,0,1\n2,,\n", ranking="a,b").detail
    assert "column 'b' is 'z'" in refused(deployment, b"x,a,b\n1,0,z\n", ranking="a,b").detail


def test_bad_pairs(deployment) -> None:
    points = b"x\n1\n2\n3\n"
    cases = {
        "line 3: left is '3'; expected a row from 0 to 2": b"left,right,same\n0,1,1\n3,1,0\n",
        "line 2: right is '-1'": b"left,right,same\n0,-1,1\n",
        "line 2: same is 2; expected 0 or 1": b"left,right,same\n0,1,2\n",
        "every pair has same=1": b"left,right,same\n0,1,1\n",
        "the same row": b"left,right,same\n0,1,1\n1,1,0\n",
        "line 3: weight is -1": b"left,right,same,weight\n0,1,1,1\n0,2,0,-1\n",
        "expected a first line that names left, right, same": b"0,2,1\n1,2,0\n",
        "'1'; expected a first line that names each column once": b"0,1,1\n1,2,0\n",
        "columns are 'left', 'right', 'alike'": b"left,right,alike\n0,1,1\n",
        "columns are 'left', 'right', 'same', 'left_unit'": b"left,right,same,left_unit\n0,1,1,a\n",
        "no pairs": b"left,right,same\n",
        "the file is empty": b"",
        "line 2: same is no number; expected 0 or 1": b"left,right,same\n0,1,yes\n",
    }
    for said, content in cases.items():
        error = refused(deployment, points, pairs=content)
        assert said in error.detail, (said, error.detail)
        assert error.detail.startswith("pairs file: ")
        assert error.facts["field"] == "pairs"
    ids = b"k,x\nu,1\nv,2\n"
    assert "not a row id" in refused(deployment, ids, pairs=b"left,right,same\nu,w,1\n", id="k").detail
    assert "row ids repeat" in refused(deployment, b"k,x\nu,1\nu,2\n", id="k").detail


@given(
    content=st.binary(max_size=300) | st.text(max_size=200).map(str.encode),
    kind=st.sampled_from(["csv", "parquet", "npz", "svmlight"]),
)
def test_whatever_is_sent_is_taken_or_refused_in_words(deployment, content: bytes, kind: str) -> None:
    with contextlib.suppress(InvalidInput, TooLarge):
        deployment[0].add(UploadFile(io.BytesIO(content)), DatasetRequest(name="fuzz", format=kind))


KILLED = """
import sys, time
from pathlib import Path
from starlette.datastructures import UploadFile
from pairmark.service.blobs import open_blobs
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.settings import Settings

class Slow:
    def __init__(self): self.sent = 0
    def read(self, size):
        self.sent += 1
        if self.sent == 1: return b"a,who\\n" + b"1,p\\n2,q\\n" * 50_000
        print("half", flush=True)
        time.sleep(60)

settings = Settings(home=Path(sys.argv[1]), database_url=sys.argv[2])
sent = UploadFile(Slow(), filename="d.csv")
Datasets(Database(sys.argv[2]), open_blobs(settings), settings).add(sent, DatasetRequest(name="d"))
"""


def test_an_upload_killed_half_way_leaves_no_row_and_no_file(
    database: Database, blobs: Blobs, settings: Settings
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(settings.home), settings.resolved_database_url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "half\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    collect(database, blobs)
    assert Datasets(database, blobs, settings).page().items == []
    assert [path for path in Path(settings.resolved_artefacts).rglob("*") if path.is_file()] == []
