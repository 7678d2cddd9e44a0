"""Vectors as clients send them in JSON, checked and turned into float32 rows (`binary.py` reads the other forms)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from pairmark.models.core.json_rows import PlainForm
from pairmark.models.records.schema import RESERVED
from pairmark.service.errors import InvalidInput
from pairmark.service.runtime.diagnosis import (
    check_numbers,
    check_side,
    check_vectors,
    kind_of,
    raise_problem,
    raise_ragged,
)
from pairmark.service.runtime.growing_body import RequestBody
from pairmark.service.runtime.json_forms import (
    EXPECTED,
    FeaturesBody,
    PairsBody,
    ScoresBody,
    SparseVector,
    Subject,
)
from pairmark.service.runtime.vectors import Counts, Features, RecordRows, SideRows, SparseRows, VectorPairs

Form = TypeVar("Form", bound=BaseModel)
_SCORES_FIELD = re.compile(rb'"scores"\s*:')

_BYTE_S, _NUMBER_S = 5e-10, 2.4e-8
_STEP = 127
"""Of so many bytes of a body one is looked at for an estimate."""
_MOST_PLAIN, _PLAIN_BRACES, _PLAIN_MEMBERS = 65_536, 3, frozenset({"model", "left", "right"})
_PLAIN_PAIRS, _PLAIN_FEATURES = PlainForm("left", "right"), PlainForm("features")


def parse_request(form: type[Form], body: RequestBody, **checks: Callable[[Any, str], None]) -> Form:
    """A JSON body of that form, or `InvalidInput` that names the field and what was expected.

    Parameters
    ----------
    checks : of each field that must be there, what raises for the first thing wrong with its value.
    """
    if isinstance(body, mmap):
        body = body[:]
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        raise_problem(form, body, checks, error)


def plain_seconds(body: RequestBody) -> float:
    """About how long `plain_pairs` takes: short numbers take nearly as long as long ones."""
    return len(body) * _BYTE_S + body[::_STEP].count(b",") * _STEP * _NUMBER_S


def plain_pairs(body: RequestBody) -> VectorPairs | None:
    """Pairs of dense vectors; None for any other body, which `parse_pairs` reads or refuses."""
    plain = _PLAIN_PAIRS.read(body)
    if plain is None:
        return None
    model, (left, right) = plain
    return VectorPairs(left, right, None, model)


def parse_pairs(body: RequestBody) -> VectorPairs:
    """Pairs of any form, or `InvalidInput` that names the field and what was expected."""
    records = _plain_records(body)
    if records is not None:
        return records
    request = parse_request(PairsBody, body, left=check_side, right=check_side)
    left, right = request.left, request.right
    if _is_subjects(left) or _is_subjects(right):
        # Vectors beside subjects are subjects of one sample.
        (a, of_a), (b, of_b) = subjects_of(left, "left"), subjects_of(right, "right")
        counts = None if of_a.max() == of_b.max() == 1 else (of_a, of_b)
        return VectorPairs(a, b, counts, request.model, request.refs)
    return VectorPairs(side_of(left, "left"), side_of(right, "right"), None, request.model, request.refs)


def _plain_records(body: RequestBody) -> VectorPairs | None:
    """A record on either side, which most bodies of records are; None for any other body, also for one that is wrong.

    Cells are left to the model's schema, which names each that does not fit.
    """
    if (
        isinstance(body, mmap)
        or body.count(b"{", 0, _MOST_PLAIN + 1) != _PLAIN_BRACES
        or len(body) > _MOST_PLAIN
    ):
        return None
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(value, dict) or not value.keys() <= _PLAIN_MEMBERS:
        return None
    model, left, right = value.get("model"), value.get("left"), value.get("right")
    if (
        not isinstance(left, dict)
        or not isinstance(right, dict)
        or not (model is None or isinstance(model, str))
    ):
        return None
    if not (RESERVED.isdisjoint(left) and RESERVED.isdisjoint(right)):
        return None
    return VectorPairs(RecordRows([left], single=True), RecordRows([right], single=True), None, model)


def parse_features(body: RequestBody) -> Features:
    plain = _PLAIN_FEATURES.read(body)
    if plain is not None:
        model, (rows,) = plain
        return Features(rows, model)
    request = parse_request(FeaturesBody, body, features=check_vectors)
    return Features(side_of(request.features, "features"), request.model)


def parse_scores(body: RequestBody) -> NDArray[Any]:
    """Read a JSON body of scores made elsewhere: (n,) float32, or (n, n_systems) float64."""
    request = parse_request(ScoresBody, body, scores=_check_scores)
    if isinstance(request.scores[0], list):
        widths = {len(row) for row in request.scores if isinstance(row, list)}
        if len(widths) > 1:
            raise InvalidInput(
                "scores has lists of different lengths; expected one number a system", field="scores"
            )
        return np.array(request.scores, dtype=np.float64)
    return np.array(request.scores, dtype=np.float32)


def _check_scores(scores: Any, name: str) -> None:
    if not isinstance(scores, list) or not scores:
        problem = "is empty" if scores == [] else f"is {kind_of(scores)}"
        raise InvalidInput(f"{name} {problem}; expected a list of numbers", field=name)
    if not isinstance(scores[0], list):
        check_numbers(scores, name)
        return
    for index, row in enumerate(scores):
        at = f"{name}[{index}]"
        if not isinstance(row, list):
            raise InvalidInput(
                f"{at} is {kind_of(row)}; expected a list of numbers, as {name}[0] is", field=at
            )
        check_numbers(row, at)


def holds_scores(body: RequestBody) -> bool:
    """Whether a JSON body speaks of scores, not of vectors (a cheap look before the real parse)."""
    # Finding plain bytes is far cheaper than an expression, and vectors have none of them.
    return body.find(b'"scores"', 0, 4096) >= 0 and _SCORES_FIELD.search(body, 0, 4096) is not None


def _checked_record(value: dict[str, Any], name: str) -> dict[str, Any]:
    """A record; what has a reserved name was meant for something else, which is then said to be wrong."""
    if not RESERVED.isdisjoint(value):
        check_side(value, name)
    return value


def side_of(value: Any, name: str) -> SideRows:
    if isinstance(value, SparseVector):
        return SparseRows([value], single=True)
    if isinstance(value, dict):
        return RecordRows([_checked_record(value, name)], single=True)
    if not value:
        raise InvalidInput(f"{name} is empty; expected {EXPECTED}", field=name)
    first = value[0]
    if isinstance(first, SparseVector):
        return SparseRows(value, single=False)
    if isinstance(first, dict):
        return RecordRows(
            [_checked_record(row, f"{name}[{at}]") for at, row in enumerate(value)], single=False
        )
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


def subjects_of(side: Any, name: str) -> tuple[SideRows, Counts]:
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
    if isinstance(flat[0], dict):
        return RecordRows(flat, single=False), counts
    return np.array(flat, dtype=np.float32), counts


def _check_alike(samples: Sequence[Any], first: Any, name: str) -> None:
    """Refuse samples that are not of the kind and length of the side's first one."""
    if isinstance(first, dict):
        for number, row in enumerate(samples):
            if not isinstance(row, dict):
                at = f"{name}[{number}]"
                raise InvalidInput(
                    f"{at} is no record as the samples before it are; expected one kind", field=at
                )
            _checked_record(row, f"{name}[{number}]")
        return
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
