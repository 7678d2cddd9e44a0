"""Vectors as clients send them in JSON, checked and turned into float32 rows (`binary.py` reads the other forms)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from pairmark.service.errors import InvalidInput
from pairmark.service.runtime.bodies import (
    EXPECTED,
    FeaturesBody,
    PairsBody,
    ScoresBody,
    SparseVector,
    Subject,
)
from pairmark.service.runtime.diagnosis import (
    check_numbers,
    check_vectors,
    json_object,
    kind_of,
    raise_first_error,
    raise_of_pairs,
    raise_ragged,
)
from pairmark.service.runtime.vectors import Counts, Features, Float32, Pairs, SparseRows

_SCORES_FIELD = re.compile(rb'"scores"\s*:')


def parse_pairs(body: bytes | bytearray) -> Pairs:
    """Read a JSON body of pairs.

    Raises
    ------
    InvalidInput
        Naming the field and what was expected.
    """
    try:
        given = PairsBody.model_validate_json(body)
    except ValidationError as error:
        raise_of_pairs(body, error)
    left, right = given.left, given.right
    if _is_subjects(left) or _is_subjects(right):
        return _subject_pairs(given.model, left, right)
    if (
        isinstance(left, list)
        and isinstance(right, list)
        and len(left) == len(right) > 0
        and isinstance(left[0], float)
        and isinstance(right[0], float)
    ):
        # Two vectors of one length, the most frequent request by far: one array for both.
        rows = np.array((left, right), dtype=np.float32)
        return Pairs(given.model, rows[:1], rows[1:])
    return Pairs(given.model, side_of(left, "left"), side_of(right, "right"))


def parse_features(body: bytes | bytearray) -> Features:
    """Read a JSON body of points; errors as `parse_pairs`."""
    try:
        given = FeaturesBody.model_validate_json(body)
    except ValidationError as error:
        value = json_object(body)
        if "features" not in value:
            raise InvalidInput(f"features is missing; expected {EXPECTED}", field="features") from error
        check_vectors(value["features"], "features")
        raise_first_error(error)
    return Features(given.model, side_of(given.features, "features"))


def parse_scores(body: bytes | bytearray) -> NDArray[Any]:
    """Read a JSON body of scores made elsewhere: (n,) float32, or (n, n_systems) float64."""
    try:
        given = ScoresBody.model_validate_json(body)
    except ValidationError as error:
        value = json_object(body)
        scores = value.get("scores")
        if isinstance(scores, list):
            if not scores:
                raise InvalidInput("scores is empty; expected a list of numbers", field="scores") from error
            if isinstance(scores[0], list):
                for index, row in enumerate(scores):
                    if not isinstance(row, list):
                        at = f"scores[{index}]"
                        raise InvalidInput(
                            f"{at} is {kind_of(row)}; expected a list of numbers, as scores[0] is", field=at
                        ) from error
                    check_numbers(row, f"scores[{index}]")
            check_numbers(scores, "scores")
        elif "scores" in value:
            raise InvalidInput(
                f"scores is {kind_of(scores)}; expected a list of numbers", field="scores"
            ) from error
        raise_first_error(error)
    if isinstance(given.scores[0], list):
        widths = {len(row) for row in given.scores if isinstance(row, list)}
        if len(widths) > 1:
            raise InvalidInput(
                "scores has lists of different lengths; expected one number a system", field="scores"
            )
        return np.array(given.scores, dtype=np.float64)
    return np.array(given.scores, dtype=np.float32)


def holds_scores(body: bytes | bytearray) -> bool:
    """Whether a JSON body speaks of scores, not of vectors (a cheap look before the real parse)."""
    # Finding plain bytes is far cheaper than an expression, and vectors have none of them.
    return body.find(b'"scores"', 0, 4096) >= 0 and _SCORES_FIELD.search(body, 0, 4096) is not None


def side_of(value: Any, name: str) -> Float32 | SparseRows:
    if isinstance(value, SparseVector):
        return SparseRows([value], single=True)
    if not value:
        raise InvalidInput(f"{name} is empty; expected {EXPECTED}", field=name)
    first = value[0]
    if isinstance(first, SparseVector):
        return SparseRows(value, single=False)
    if isinstance(first, list):
        width = len(first)
        if not width or any(len(row) != width for row in value):
            raise_ragged(value, name)
        return np.array(value, dtype=np.float32)
    return np.array(value, dtype=np.float32).reshape(1, -1)


def _is_subjects(side: Any) -> bool:
    return isinstance(side, Subject) or (
        isinstance(side, list) and bool(side) and isinstance(side[0], Subject)
    )


def _subject_pairs(model: str | None, left: Any, right: Any) -> Pairs:
    """Pairs of which a side at least holds subjects; vectors are subjects of one sample."""
    (a, of_a), (b, of_b) = subjects_of(left, "left"), subjects_of(right, "right")
    if of_a.max() == of_b.max() == 1:
        return Pairs(model, a, b)
    return Pairs(model, a, b, (of_a, of_b))


def subjects_of(side: Any, name: str) -> tuple[Float32 | SparseRows, Counts]:
    """All samples of a side, subject after subject, and how many each has."""
    if not _is_subjects(side):
        rows = side_of(side, name)
        return rows, np.ones(len(rows), dtype=np.int64)
    subjects: list[Subject] = side if isinstance(side, list) else [side]
    flat: list[Any] = []
    for number, subject in enumerate(subjects):
        at = f"{name}[{number}].samples" if isinstance(side, list) else f"{name}.samples"
        if not subject.samples:
            raise InvalidInput(f"{at} is empty; expected at least one vector", field=at)
        flat += subject.samples
        _check_alike(subject.samples, flat[0], at)
    counts = np.array([len(subject.samples) for subject in subjects], dtype=np.int64)
    if isinstance(flat[0], SparseVector):
        return SparseRows(flat, single=False), counts
    return np.array(flat, dtype=np.float32), counts


def _check_alike(samples: Sequence[Any], first: Any, name: str) -> None:
    """Refuse samples that are not of the kind and length of the side's first one."""
    sparse = isinstance(first, SparseVector)
    for number, row in enumerate(samples):
        at = f"{name}[{number}]"
        if isinstance(row, SparseVector) != sparse:
            kind = "sparse" if sparse else "dense"
            raise InvalidInput(
                f"{at} is not {kind} as the samples before it are; expected one kind", field=at
            )
        if not sparse and not row:
            raise InvalidInput(f"{at} is empty; expected at least one number", field=at)
        if not sparse and len(row) != len(first):
            raise InvalidInput(
                f"{at} has {len(row)} numbers and the first sample of its side {len(first)}; expected vectors of "
                "the same length",
                field=at,
            )
