"""Dense vectors read from JSON by a kernel: to the last bit as a complete parser reads them, or left to it."""

from __future__ import annotations

import json
import math
import random
from mmap import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models.core.json_rows import PlainForm
from pairmark.models.core.kernels.json_rows import read_rows

PAIRS = PlainForm("left", "right")
FEATURES = PlainForm("features")
FLOAT32_MAX = float(np.finfo(np.float32).max)

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
digits = st.text("0123456789", min_size=1, max_size=17)
decimals = st.builds(
    lambda sign, whole, part, power: f"{sign}{int(whole)}{part}{power}",
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda text: f".{text}")),
    st.one_of(st.just(""), st.builds(lambda e, n: f"{e}{n}", st.sampled_from("eE"), st.integers(-70, 60))),
)


def number_of(text: str) -> np.float32 | None:
    answer = FEATURES.read(f'{{"features": [{text}]}}'.encode())
    return None if answer is None else answer[1][0][0, 0]


def strictly_parsed(body: bytes) -> object:
    """What Python's parser reads, keys that stand twice and constants refused."""

    def refuse(constant: str) -> float:
        raise ValueError(constant)

    def unlike(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a key stands twice")
        return dict(pairs)

    try:
        return json.loads(body, parse_constant=refuse, object_pairs_hook=unlike)
    except ValueError:
        return None


@given(decimals)
def test_decimals_are_rounded_as_python_rounds_them(text: str) -> None:
    value = number_of(text)
    if value is None:
        n_digits = len(text.lower().partition("e")[0].strip("-").replace(".", "").lstrip("0"))
        assert n_digits > 19 or abs(float(text)) > FLOAT32_MAX
    else:
        expected = np.float32(float(text))
        assert value == expected
        assert math.copysign(1.0, value) == math.copysign(1.0, expected)


@given(st.floats(-FLOAT32_MAX, FLOAT32_MAX))
def test_floats_as_python_writes_them_are_all_read(value: float) -> None:
    assert number_of(repr(value)) == np.float32(value)


def test_halves_are_rounded_to_even() -> None:
    generator = random.Random(0)
    for _ in range(20_000):
        # Halfway between two float64 of which the even one is halfway between two float32: one unit more is too much.
        even = ((generator.getrandbits(22) | 1 << 22) << 30) + (1 << 28)
        for text in (f"{5 * (2 * even + 1)}e-1", f"{25 * (2 * even + 1)}e-2"):
            assert number_of(text) == np.float32(float(text)), text
    # Halfway between two float32: the float64 in between is rounded, not the decimal.
    for text in ("16777217", "16777219.0", "1.00000005960464477539", "3.4028235677973366e38"):
        value = number_of(text)
        assert value is None or value == np.float32(float(text))


@pytest.mark.parametrize(
    "text",
    [
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "-",
        "NaN",
        "Infinity",
        "0x1",
        "1_0",
        '"1"',
        "null",
        "true",
        "1 2",
        "--1",
        "",
    ],
)
def test_what_is_no_number_is_not_read(text: str) -> None:
    assert number_of(text) is None


@pytest.mark.parametrize(
    "body",
    [
        "", "{", "[]", "{}", "null", '{"left": [1]}', '{"left": [], "right": [1]}', '{"left": [[]], "right": [[]]}',
        '{"left": [1], "right": [1], "more": 1}', '{"left": [1], "left": [1], "right": [1]}',
        '{"left": [1], "right": [1]} x', '{"left": [1], "right": [1],}', '{"left": [1,], "right": [1]}',
        '{"left": [[1], 2], "right": [1]}', '{"left": [1, [2]], "right": [1]}', '{"left": [[1], [2, 3]], "right": [1]}',
        '{"left": "1", "right": [1]}', '{"left": [1], "right": [1], "model": [1]}',
        '{"left": [1], "right": [1], "model": null}', '{"left": [1], "right": [1], "model": "a\\u0062"}',
        '{"left": [1], "right": [1], "model": "\u00e4"}', '{"left": {"indices": [0], "values": [1]}, "right": [1]}',
        "{'left': [1], 'right': [1]}", '{"left": [1] "right": [1]}', '{"left" [1], "right": [1]}',
    ],
)  # fmt: skip
def test_other_bodies_are_left_to_the_complete_parser(body: str) -> None:
    assert PAIRS.read(body.encode()) is None


@given(
    left=st.lists(st.tuples(*[finite32] * 3).map(list), min_size=1),
    model=st.none() | st.text("abz/@:-_ 019", max_size=9),
    indent=st.sampled_from([None, 0, 2]),
    order=st.permutations(["left", "right", "model"]),
)  # fmt: skip
def test_bodies_are_read_as_they_were_written(left, model, indent, order) -> None:
    whole = {"left": left, "right": left[0], "model": model}
    body = json.dumps(
        {name: whole[name] for name in order if whole[name] is not None}, indent=indent
    ).encode()
    for form in (body, bytearray(body)):
        name, (many, one) = PAIRS.read(form)
        assert name == model
        np.testing.assert_array_equal(many, np.array(left, dtype=np.float32))
        np.testing.assert_array_equal(one, np.array(left[:1], dtype=np.float32))
        assert many.flags.c_contiguous
        assert many.dtype == np.float32


def test_damaged_bodies_are_read_only_where_they_still_mean_that() -> None:
    body = b'{"model": "a", "left": [[1.5, -2e3], [0, 7]], "right": [3.25, 1e-3]}'
    generator = random.Random(0)
    damaged = [body[:at] for at in range(len(body))]
    for _ in range(20_000):
        broken = bytearray(body)
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(broken))
            broken[at] = (
                generator.choice(b'0123456789.-+eE[]{}",: \n\\amodel')
                if generator.random() < 0.9
                else generator.randrange(256)
            )
        damaged.append(bytes(broken))
    n_read = 0
    for text in damaged:
        answer = PAIRS.read(text)
        if answer is None:
            continue
        n_read += 1
        parsed = strictly_parsed(text)
        assert isinstance(parsed, dict), text
        assert parsed.keys() <= {"model", "left", "right"}
        assert answer[0] == parsed.get("model")
        for name, rows in zip(("left", "right"), answer[1], strict=True):
            np.testing.assert_array_equal(rows, np.atleast_2d(np.array(parsed[name], dtype=np.float32)))
    assert n_read > 500


def test_nothing_behind_a_body_is_read() -> None:
    """Bytes of which memory holds more are read as bytes that end there."""
    whole = b'{"features": [0.12345678, 0.1234567890123, 1234567890.5e-10], "model": "a"} ' + b"1" * 16
    for size in range(len(whole)):
        names = np.frombuffer(b"modelfeatures", dtype=np.uint8), np.array([5, 13])
        answers = []
        for text in (np.frombuffer(whole, np.uint8)[:size], np.frombuffer(whole[:size], np.uint8)):
            values, places = np.zeros(size, dtype=np.float32), np.full((2, 3), -1)
            answers.append((read_rows(text, *names, values, places), values.tolist(), places.tolist()))
        assert answers[0] == answers[1], size


@pytest.mark.parametrize("n_digits", range(1, 24))
def test_numbers_of_any_length_are_read_to_the_last_digit(n_digits: int) -> None:
    generator = random.Random(n_digits)
    for _ in range(300):
        fraction = f"{generator.randrange(10**n_digits):0{n_digits}}"
        text = f"{generator.choice(['', '-'])}{generator.choice([0, generator.randrange(1000)])}.{fraction}"
        value = number_of(text)
        if value is None:
            assert len(text.strip("-").replace(".", "").lstrip("0")) > 19
        else:
            assert value == np.float32(float(text)), text


def test_bodies_of_any_kind_are_read_by_one_kernel() -> None:
    """A second type of array would have a request wait for the compiler."""
    text = b'{"features": [[0.5, 1.0]]}'
    large = mmap(-1, len(text))
    large[:] = text
    for body in (text, bytearray(text), large):
        assert PlainForm("features").read(body) is not None
    assert len(read_rows.signatures) == 1
