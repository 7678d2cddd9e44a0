"""What clients send, read exactly or refused with the field, and what one answer says of its rows and earlier ones."""

import asyncio
import io
import json
import struct
import time
import zipfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pairmark import MetricSimilarity, RecordSimilarity
from pairmark.service.app import create_app
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scoring.json import RecordRows, SparseRows
from pairmark.service.scoring.requests import holds_scores, parse_npz, parse_octets, parse_pairs, parse_scores
from pairmark.service.scoring.score import Resolved, UnlikeRows, to_rows
from tests.service.conftest import Deployment, people
from tests.service.galleries.conftest import served


def version(width: int, *, takes_sparse: bool) -> LoadedVersion:
    """A version of vectors so wide."""
    return replace(served(MetricSimilarity().fit(np.eye(3, width), [0, 0, 1])), accepts_sparse=takes_sparse)


finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
matrices = arrays(np.float32, st.tuples(st.integers(1, 5), st.just(4)), elements=finite32)


_numbers = st.one_of(finite32, st.integers(-(2**70), 2**70), st.sampled_from([1e39, True, None, "1"]))
_sides = st.recursive(_numbers, lambda inner: st.lists(inner, max_size=3), max_leaves=8)


@given(left=st.one_of(matrices.map(np.ndarray.tolist), _sides), right=_sides)
def test_plain_vectors_are_read_in_one_piece_as_in_several(left: Any, right: Any) -> None:
    def read(**more: Any) -> tuple[list[Any], list[Any]] | str:
        body = json.dumps({"left": left, "right": right, **more}).encode()
        try:
            pairs = parse_pairs(body)
        except InvalidInput as error:
            return str(error)
        return pairs.left.tolist(), pairs.right.tolist()

    # Lists beside the vectors have each side read by itself.
    assert read() == read(refs=[["a", "b"]])


@given(dense=matrices)
def test_sparse_vectors_unfold_to_the_dense_ones(dense: np.ndarray) -> None:
    rows = [
        {"indices": np.flatnonzero(row).tolist()[::-1], "values": row[np.flatnonzero(row)].tolist()[::-1]}
        for row in dense
    ]
    pairs = parse_pairs(json.dumps({"left": rows, "right": rows[0]}).encode())
    assert isinstance(pairs.left, SparseRows)
    np.testing.assert_array_equal(to_rows(version(4, takes_sparse=False), pairs.left, "left"), dense)
    np.testing.assert_array_equal(to_rows(version(4, takes_sparse=True), pairs.left, "left").toarray(), dense)
    np.testing.assert_array_equal(to_rows(version(4, takes_sparse=False), pairs.right, "right"), dense[:1])


@pytest.mark.parametrize(
    ("left", "field", "said"),
    [
        ("[1, NaN]", "left[1]", "finite"),
        ("[1, Infinity]", "left[1]", "finite"),
        ("[1, -Infinity]", "left[1]", "finite"),
        ("[1, 1e400]", "left[1]", "finite"),
        ("[1, 1e39]", "left[1]", "float32"),
        (f"[1, 1{'0' * 400}]", "left[1]", "float32"),
        ('[1, "2"]', "left[1]", "expected a valid number"),
        ("[true, 2]", "left[0]", "expected a valid number"),
        ("[1, null]", "left[1]", "expected a valid number"),
        ("[[1, 2], [1, [2]]]", "left[1][1]", "expected a valid number"),
        ("[[1, 2], [1, 2], [1, NaN], [3, 4]]", "left[2][1]", "finite"),
        ("[[1, 2], [1, 2], [1, 2, 3]]", "left[2]", "3 numbers"),
        ("[[1, 2], []]", "left[1]", "expected at least 1 item"),
        ("[[], [1, 2]]", "left[0]", "expected at least 1 item"),
        ("[]", "left", "expected at least 1 item"),
        ("[[1, 2], 3]", "left[1]", "expected a valid array"),
        ("[[1, [2, 3]], 4]", "left[0][1]", "expected a valid number"),
        ("[[1, [2, 3, 4, 5]], 6, 7, 8]", "left[0][1]", "expected a valid number"),
        ('[[1, 2], {"indices": [0], "values": [1]}]', "left[1]", "expected a valid array"),
        ("null", "left", "expected a vector"),
        ("3", "left", "expected a vector"),
        ('"abc"', "left", "expected a vector"),
        ('{"indices": [0]}', "left.values", "missing"),
        ('{"indices": [0.5], "values": [1]}', "left.indices[0]", "expected a valid integer"),
        ('{"indices": [0], "values": [NaN]}', "left.values[0]", "expected less than"),
        ('{"indices": [0], "values": [1e39]}', "left.values[0]", "expected less than"),
        ('[{"indices": [0], "values": ["1"]}]', "left[0].values[0]", "expected a valid number"),
        ('{"indices": [0], "values": [1], "dim": 3}', "left", "expected these two"),
        ('[{"indices": [0], "values": [1, 2]}]', "left[0]", "1 indices and 2 values"),
    ],
)
def test_what_is_wrong_is_named(left: str, field: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        parse_pairs(b'{"left": %b, "right": [1, 2]}' % left.encode())
    assert caught.value.facts["field"] == field


@pytest.mark.parametrize(
    ("sparse", "field"),
    [
        ('{"indices": [0, 2], "values": [1, 1]}', "left.indices[1]"),
        ('{"indices": [-1], "values": [1]}', "left.indices[0]"),
        ('{"indices": [99999999999999999999999], "values": [1]}', "left.indices[0]"),
        ('{"indices": [1, 1], "values": [1, 1]}', "left.indices[1]"),
    ],
)
def test_sparse_columns_must_be_the_models(sparse: str, field: str) -> None:
    pairs = parse_pairs(b'{"left": %b, "right": [1, 2]}' % sparse.encode())
    with pytest.raises(InvalidInput) as caught:
        to_rows(version(2, takes_sparse=False), pairs.left, "left")
    assert caught.value.facts["field"] == field


@pytest.mark.parametrize(
    ("read", "field"),
    [
        *(
            pytest.param(partial(parse_pairs, body), field, id=f"JSON {body[:40]!r}")
            for body, field in (
                (b"", "body"),
                (b"\xff\xfe", "body"),
                (b"[1, 2]", "body"),
                (b'{"left": [1]}', "right"),
                (b'{"left": [1], "right": [1], "modle": "x"}', "modle"),
                (b'{"left": [1], "right": [1], "model": 3}', "model"),
                (b"[" * 100_000, "body"),
                (b'{"left": [1,], "right": [1]}', "body"),
            )
        ),
        *(
            pytest.param(
                partial(parse_octets, body, dim=2, n_left=n_left),
                field,
                id=f"{len(body)} raw, {n_left}",
            )
            for body, n_left, field in (
                (b"", None, "body"),
                (bytes(8), None, "body"),
                (bytes(10), None, "body"),
                (bytes(24), None, "body"),
                (bytes(24), 3, "n_left"),
                (np.array([1, 2, 3, 4, 5, 6, 7, np.inf], dtype="<f4").tobytes(), None, "right[1][1]"),
            )
        ),
    ],
)
def test_bodies_that_are_no_pairs(read: Callable[[], Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read()
    assert caught.value.facts["field"] == field


def test_sizes_must_make_pairs() -> None:
    rows = {"left": [[1, 2], [3, 4], [5, 6]], "right": [[1, 2], [3, 4]]}
    with pytest.raises(InvalidInput, match="left has 3 vectors and right 2"):
        parse_pairs(json.dumps(rows).encode()).check_sizes(10)
    one_to_many = parse_pairs(json.dumps({**rows, "right": [1, 2]}).encode())
    assert one_to_many.n_pairs == 3
    one_to_many.check_sizes(3)
    with pytest.raises(TooLarge, match="3 pairs; at most 2"):
        one_to_many.check_sizes(2)


def test_raw_numbers_of_another_type_are_read_if_declared_and_refused_if_they_make_other_pairs() -> None:
    rows = np.random.default_rng(0).normal(size=(8, 4))
    for name in ("float16", "float32", "float64"):
        body = rows.astype(name).astype(np.dtype(name).newbyteorder("<")).tobytes()
        read = parse_octets(body, dim=4, n_left=None, pairs=4, dtype=name)
        np.testing.assert_array_equal(np.concatenate(read), rows.astype(name).astype("f4"))
        if name != "float32":
            with pytest.raises(InvalidInput, match="pairs is 4; expected dtype=") as caught:
                parse_octets(np.zeros(8 * 4, dtype=name).tobytes(), dim=4, n_left=None, pairs=4)
            assert caught.value.facts["field"] == "pairs"
    for X in (np.tile(rows, (8, 1)), np.arange(1.0, 257).reshape(64, 4)):
        with pytest.raises(InvalidInput, match="like float64; expected float32, or dtype=float64"):
            parse_octets(X.tobytes(), dim=4, n_left=None)
        parse_octets(X.astype("f4").tobytes(), dim=4, n_left=None)
    rng = np.random.default_rng(0)
    for X in (rng.normal(size=(256, 4)), rng.random((256, 4)), 100 * rng.normal(size=(256, 4))):
        with pytest.raises(InvalidInput, match="like float16; expected float32, or dtype=float16"):
            parse_octets(X.astype("f2").tobytes(), dim=4, n_left=None)
        # Numbers that were float16 once, and of any size, are float32 all the same.
        parse_octets(X.astype("f2").astype("f4").tobytes(), dim=4, n_left=None)
        parse_octets(np.exp(10 * rng.normal(size=(256, 4))).astype("f4").tobytes(), dim=4, n_left=None)
    with pytest.raises(InvalidInput, match="beyond float32"):
        parse_octets(np.full((2, 4), 1e300).tobytes(), dim=4, n_left=None, dtype="float64")


def _npz(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


def _npy(array: np.ndarray, **kwargs: bool) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **kwargs)
    return stream.getvalue()


def _header(shape: str, descr: str = "<f4") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


GOOD = _npy(np.ones((2, 2), np.float32))


@pytest.mark.parametrize(
    "body",
    [
        b"not a zip",
        GOOD,
        _npz(left=GOOD),
        _npz(left=GOOD, right=GOOD, extra=GOOD),
        _npz(left=GOOD, right=b"nonsense"),
        _npz(left=GOOD, right=_npy(np.array([{"a": 1}], dtype=object), allow_pickle=True)),
        _npz(left=GOOD, right=_npy(np.array(["a", "b"]))),
        _npz(left=GOOD, right=_npy(np.array([[1 + 2j]]))),
        _npz(left=GOOD, right=_npy(np.ones((2, 2, 2)))),
        _npz(left=GOOD, right=_npy(np.ones((0, 2)))),
        _npz(left=GOOD, right=_npy(np.array([[1.0, np.nan]]))),
        _npz(left=GOOD, right=_npy(np.array([[1.0, 1e300]]))),
        _npz(left=GOOD, right=_header("(99999999999, 99999999999)")),
        _npz(left=GOOD, right=_header("(-1, 4)") + bytes(16)),
        _npz(left=GOOD, right=_header("(1, 4)") + bytes(15)),
        _npz(left=GOOD, right=GOOD)[:-30],
    ],
)
def test_npz_that_is_not_two_arrays_of_numbers(body: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse_npz(body, max_bytes=1_000_000)


def test_a_zip_bomb_is_refused_before_it_unfolds() -> None:
    bomb = _npz(left=GOOD, right=bytes(50_000_000))
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge):
        parse_npz(bomb, max_bytes=1_000_000)
    # A bomb that lies about its size in the directory.
    lying = bomb.replace(struct.pack("<I", 50_000_000), struct.pack("<I", 1_000))
    with pytest.raises((TooLarge, InvalidInput)):
        parse_npz(lying, max_bytes=1_000_000)


def test_scores_are_read_and_checked() -> None:
    np.testing.assert_array_equal(parse_scores(b'{"scores": [0.1, 2]}'), np.array([0.1, 2], np.float32))
    for body, field in (
        (b'{"scores": []}', "scores"),
        (b'{"scores": [NaN]}', "scores[0]"),
        (b'{"scores": [1, "a"]}', "scores[1]"),
        (b'{"scores": [1, 1e39]}', "scores[1]"),
        (b'{"scores": 1}', "scores"),
        (b'{"scores": [1], "left": [1]}', "left"),
    ):
        with pytest.raises(InvalidInput) as caught:
            parse_scores(body)
        assert caught.value.facts["field"] == field
    assert holds_scores(b'{ "scores" : [1]}')
    assert not holds_scores(b'{"model": "scores", "left": [1], "right": [1]}')


ANA = {"given": "ana", "born": None, "home": [52.1, 4.3], "member": True, "weight": 61.5}


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"left": ANA}, "right", "right is missing"),
        ({"left": ANA, "right": ANA, "extra": 1}, "extra", "is not a field of this request"),
        ({"left": ANA, "right": ANA, "model": 5}, "model", "valid string"),
        ({"left": {"weight": 1e39}, "right": ANA}, "left.weight", "beyond float32"),
        ({"left": {"weight": float("nan")}, "right": ANA}, "left.weight", "NaN"),
        ({"left": [ANA, {"home": [1e39, 0]}], "right": ANA}, "left[1].home", "beyond float32"),
        ({"left": [ANA, [1, 2]], "right": ANA}, "left[1]", "expected an object"),
        ({"left": [ANA, 5], "right": ANA}, "left[1]", "expected an object"),
        ({"left": {**ANA, "indices": [1]}, "right": ANA}, "left", "expected these two"),
        ({"left": ANA, "right": {"samples": []}}, "right.samples", "no list of vectors"),
        ({"left": ANA, "right": {"samples": [[1]], "x": 1}}, "right.x", "not a field"),
        (
            {"left": [{"indices": [1], "values": [2]}, 5], "right": ANA},
            "left[1]",
            "expected an object",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_named(body: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_pairs(json.dumps(body).encode())
    assert refused.value.facts["field"] == field
    assert said in refused.value.detail


@pytest.mark.parametrize("model", [None, "people"])
def test_a_plain_pair_is_read_as_any_other(model: str | None) -> None:
    plain = {"left": ANA, "right": {"given": "a{b}"}, **({} if model is None else {"model": model})}
    for body in (plain, {**plain, "left": [ANA]}, {**plain, "refs": [["a", "b"]]}):
        pairs = parse_pairs(json.dumps(body).encode())
        assert isinstance(pairs.left, RecordRows)
        assert isinstance(pairs.right, RecordRows)
        assert (pairs.model, pairs.left.rows, pairs.right.rows) == (model, [ANA], [{"given": "a{b}"}])
        assert pairs.left.single == isinstance(body["left"], dict)


def test_what_is_no_json_is_refused() -> None:
    for body in (b'{"left": {}, "right": {}} x', b'{"left": {}, "right": {}'):
        with pytest.raises(InvalidInput, match="not JSON"):
            parse_pairs(body)


def test_a_record_without_a_cell_is_refused() -> None:
    table = {"name": [f"n{at // 2}" for at in range(40)], "city": ["graz", "lyon"] * 20}
    model = RecordSimilarity(random_state=0).fit(table, [at // 2 for at in range(40)])
    for nothing in ({}, {"name": None}, {"name": " ", "city": "N/A"}):
        for side, field in (
            (RecordRows([nothing], True), "left"),
            (RecordRows([{"name": "a"}, nothing], False), "left[1]"),
        ):
            with pytest.raises(InvalidInput, match="has no cell") as refused:
                to_rows(served(model), side, "left")
            assert refused.value.facts["field"] == field


def test_more_members_than_a_record_has_are_refused_before_they_are_read() -> None:
    many = "{" + ",".join(f'"c{number}":1' for number in range(100_000)) + "}"
    with pytest.raises(TooLarge, match="more than 16384 members"):
        parse_pairs(b'{"left": %b, "right": {"a": 1}}' % many.encode())
    with pytest.raises(InvalidInput, match="c0: is not a field"):
        parse_pairs(many.encode())
    marks = b'{"left": [%b], "right": [1]}' % b",".join([b"Infinity"] * 2_000)
    with pytest.raises(InvalidInput, match="NaN or Infinity"):
        parse_pairs(marks)


def test_rows_of_subjects_that_are_unlike_are_named_by_their_samples() -> None:
    rows, made = np.zeros((5, 2), dtype=np.float32), version(2, takes_sparse=False)
    samples = np.array([2, 1]), np.array([2])
    resolved = Resolved(made, rows[:3], rows[3:], samples)
    unlike = UnlikeRows(np.array([False, True, False, False, True]), resolved)
    assert [unlike.names(pair) for pair in unlike.pairs] == [["left[1]", "right[1]"], ["right[1]"]]
    of_left = UnlikeRows(np.array([False, False, True, False, False]), resolved)
    assert [(pair, of_left.names(pair)) for pair in of_left.pairs] == [(1, ["left[0]"])]


Ask = Callable[[np.ndarray], Awaitable[Any]]
"""Asks whether the first half of rows matches the second."""


def ask_served(deployment: Deployment, scenario: Callable[[Ask], Awaitable[None]]) -> None:
    """Run what asks a model of 300 people, all by one client."""
    deployment.upload("many", *people(300, 3))
    deployment.train(learner="plda", dataset="many", params={"random_state": 0})

    async def run() -> None:
        app = create_app(deployment.settings, warm=False)
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:

                async def ask(rows: np.ndarray) -> Any:
                    half = len(rows) // 2
                    sides = {"left": rows[:half].tolist(), "right": rows[half:].tolist()}
                    answer = await http.post("/match?fpr=0.1", json={"model": "faces", **sides})
                    assert answer.status_code == 200, answer.text
                    return answer.json()

                await scenario(ask)

    asyncio.run(run())


def test_a_request_in_another_unit_says_so_and_one_client_says_it_for_itself(deployment: Deployment) -> None:
    async def scenario(ask: Ask) -> None:
        new = people(1_200, 1, seed=1)[0]
        like = await ask(new)
        assert like["operating_point"]["guarantee"] == "finite-sample"
        assert "warnings" not in like
        said = await ask(0.5 * new)
        assert said["operating_point"]["guarantee"] == "none"
        assert [warning["code"] for warning in said["warnings"]] == ["inputs-moved"]
        assert "this request" in said["warnings"][0]["detail"]
        # It is said of that request alone.
        assert (await ask(new))["operating_point"]["guarantee"] == "finite-sample"

    ask_served(deployment, scenario)


def sizes_kept(rows: np.ndarray, directions: int) -> np.ndarray:
    """Rows on their first directions, as far from their middle as ever: no row by itself says it."""
    apart = rows - rows.mean(axis=0)
    axes = np.linalg.svd(apart, full_matrices=False)[2][:directions]
    flat = apart @ axes.T @ axes
    return rows.mean(axis=0) + flat * np.linalg.norm(apart, axis=1, keepdims=True) / np.linalg.norm(
        flat, axis=1, keepdims=True
    )


@pytest.mark.parametrize("directions", [1, 2])
def test_people_who_return_keep_the_guarantee_and_an_embedder_that_collapses_loses_it(
    deployment: Deployment, directions: int
) -> None:
    random = np.random.default_rng(3)

    async def scenario(ask: Ask) -> None:
        half_is_one = np.where(random.random(400) < 0.5, 0, np.arange(400))
        most_is_one = np.where(random.random(400) < 0.6, 0, np.arange(400))
        senders = np.arange(400), random.integers(0, 50, 400), random.zipf(1.5, 400), half_is_one, most_is_one
        for traffic, sender in enumerate(senders):
            who = np.unique(sender, return_inverse=True)[1]
            rows = people(who.max() + 1, 1, seed=20 + traffic)[0][who] + 0.5 * random.normal(size=(400, 6))
            for start in range(0, 400, 8):
                answer = await ask(rows[start : start + 8])
                assert answer["operating_point"]["guarantee"] == "finite-sample", f"traffic {traffic}"
        collapsed = sizes_kept(people(20_000, 1, seed=30)[0], directions)
        deadline, start = time.monotonic() + 60, 0
        # How many rows it takes is the monitor's; where requests come faster than it looks, it looks at some.
        while answer["operating_point"]["guarantee"] != "none" and time.monotonic() < deadline:
            answer = await ask(collapsed[start : start + 8])
            start += 8
        assert answer["operating_point"]["guarantee"] == "none"
        assert [warning["code"] for warning in answer["warnings"]] == ["inputs-moved"]
        # Of people like those who calibrated nothing is guaranteed any more, either.
        assert (await ask(people(8, 1, seed=1)[0]))["operating_point"]["guarantee"] == "none"

    ask_served(deployment, scenario)
