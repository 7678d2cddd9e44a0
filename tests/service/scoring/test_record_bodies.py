"""JSON bodies of records: what is wrong with one is named where it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pairmark import RecordSimilarity
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.scoring.json import RecordRows
from pairmark.service.scoring.requests import parse_pairs
from pairmark.service.scoring.score import to_rows
from tests.service.galleries.gallery_cases import served

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
def test_what_is_wrong_is_named(body: dict[str, Any], field: str, said: str) -> None:
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
