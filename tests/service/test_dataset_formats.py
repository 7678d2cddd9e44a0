"""The same data is the same dataset in every format; rankings, groups, ids and pairs come along."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_digits
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.settings import Settings
from tests.parquet import npz, parquet


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
    sparse_npz = io.BytesIO()
    sparse.save_npz(sparse_npz, sparse.csr_array(X))
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
    assert data.feature_names == ("a b", "c")
    assert data.identities == ('x, "y"', "z")
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
    content = b"x,r\n1,b>a>c\n2,b > a=c\n3,c>b\n4,a\n"
    out, data = send(datasets, content, "a.csv", ranking="r")
    assert data.label_names == ("a", "b", "c")
    nan = np.nan
    np.testing.assert_array_equal(data.rankings, [[1, 0, 2], [1, 0, 1], [nan, 1, 0], [0, nan, nan]])
    assert out.ranking_labels == ["a", "b", "c"]


def test_positions_that_would_give_the_ranking_away_are_no_features(datasets: Datasets) -> None:
    content = b"x,r,a,b\n1,b>a,1,0\n2,a>b,0,1\n"
    out, data = send(datasets, content, "a.csv", ranking="r")
    assert data.feature_names == ("x",)
    assert any("left out" in warning for warning in out.warnings)


PAIRS = b"left,right,same,weight\n0,1,1,2\n0,2,0,0.5\n"


def test_explicit_pairs_by_row_number(datasets: Datasets) -> None:
    out, data = send(datasets, b"x\n1\n2\n3\n", "a.csv", pairs=PAIRS)
    assert (out.n_pairs, out.n_same_pairs) == (2, 1)
    assert data.pairs.left.tolist() == [0, 0]
    assert data.pairs.right.tolist() == [1, 2]
    assert data.pairs.same.tolist() == [True, False]
    assert data.pairs.weight.tolist() == [2, 0.5]


@pytest.mark.parametrize("name", [b"match", b"label"])
def test_what_others_call_same_is_read_with_a_note(datasets: Datasets, name: bytes) -> None:
    out, data = send(datasets, b"x\n1\n2\n3\n", "a.csv", pairs=PAIRS.replace(b"same", name))
    assert data.pairs.same.tolist() == [True, False]
    assert any(f"{name.decode()!r} is read as 'same'" in warning for warning in out.warnings)


def test_explicit_pairs_by_row_id(datasets: Datasets) -> None:
    _, data = send(
        datasets, b"key,x\nu,1\n7,2\nv,3\n", "a.csv", pairs=b"left,right,same\nu,7,1\nv,u,0\n", id="key"
    )
    assert data.row_ids == ("u", "7", "v")
    assert data.pairs.left.tolist() == [0, 2]
    assert data.pairs.right.tolist() == [1, 0]
    assert data.pairs.weight is None
    assert data.feature_names == ("x",)
