"""Vectors as clients send them in JSON, checked and turned into float32 rows (`binary.py` reads the other forms).

JSON is validated in one pass by pydantic. Only when something is wrong is the body walked again, slowly, to name
the field (``left[3][2]``) and what was expected there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from scipy.sparse import csr_array

from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.metrics import UNKNOWN_COLUMNS

Float32 = NDArray[np.float32]
Counts = NDArray[np.int64]

FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_DENSE_BYTES = 1024 * 1024 * 1024
"""Most memory that sparse vectors may unfold to, for learners that read dense rows only."""

_EXPECTED = 'a vector (a list of numbers), a list of vectors, or sparse {"indices": [..], "values": [..]}'
_SCORES_FIELD = re.compile(rb'"scores"\s*:')
_FAST = Field(fail_fast=True)


Number = Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
"""A number that float32 holds; NaN and infinities are outside these bounds."""


class SparseVector(BaseModel):
    """A vector by its non-zero entries; `indices` are 0-based and distinct."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    indices: list[int] = Field(examples=[[0, 17]])
    values: list[Number] = Field(examples=[[0.5, 2.0]])


Dense = Annotated[list[Number], _FAST]
Vectors = Annotated[
    Dense | Annotated[list[Dense], _FAST] | SparseVector | Annotated[list[SparseVector], _FAST],
    Field(union_mode="left_to_right"),
]


class Subject(BaseModel):
    """One person (or thing) by several samples; `aggregation` says how their scores become one."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    samples: Annotated[
        Annotated[list[Dense], _FAST] | Annotated[list[SparseVector], _FAST],
        Field(union_mode="left_to_right", examples=[[[0.1, 0.2, 0.3], [0.1, 0.25, 0.3]]]),
    ]


Side = Annotated[
    Dense
    | Annotated[list[Dense], _FAST]
    | SparseVector
    | Annotated[list[SparseVector], _FAST]
    | Subject
    | Annotated[list[Subject], _FAST],
    Field(union_mode="left_to_right"),
]
_EXPECTED_SIDE = f'{_EXPECTED}, or a subject {{"samples": [vector, ..]}} or a list of subjects'


class PairsBody(BaseModel):
    """Pairs to score: as many vectors (or subjects) left as right, or a single one on one side."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    model: str | None = Field(
        None, description="`name`, `name@alias` or `name:version`; may be left out if only one can serve"
    )
    left: Side = Field(description=_EXPECTED_SIDE, examples=[[0.1, 0.2, 0.3]])
    right: Side = Field(description=_EXPECTED_SIDE, examples=[[0.1, 0.25, 0.3]])


class FeaturesBody(BaseModel):
    """Points: one vector, or several."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    model: str | None = Field(
        None, description="`name`, `name@alias` or `name:version`; may be left out if only one can serve"
    )
    features: Vectors = Field(description=_EXPECTED, examples=[[[0.1, 0.2, 0.3]]])


class ScoresBody(BaseModel):
    """Scores made elsewhere, to be decided with `calibration=`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    scores: Annotated[
        Annotated[list[Number], Field(min_length=1), _FAST]
        | Annotated[list[Dense], Field(min_length=1), _FAST],
        Field(union_mode="left_to_right"),
    ] = Field(
        examples=[[0.91, 0.12]],
        description="one number a pair, or for a calibration that combines several systems one list a pair",
    )


@dataclass(slots=True)
class SparseRows:
    """Sparse vectors whose dimension is not known yet."""

    rows: list[SparseVector]
    single: bool

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class Pairs:
    """Two sides of vectors and the model they are meant for. Dense sides are (n, d), finite float32.

    Attributes
    ----------
    counts : where sides hold subjects of several samples, the number of samples of each subject of the left and the
        right side; vectors lie subject after subject.
    """

    model: str | None
    left: Float32 | SparseRows
    right: Float32 | SparseRows
    counts: tuple[Counts, Counts] | None = None

    @property
    def n_pairs(self) -> int:
        """How many pairs the two sides make."""
        if self.counts is not None:
            return max(self.counts[0].size, self.counts[1].size)
        return max(len(self.left), len(self.right))

    @property
    def n_scored(self) -> int:
        """How many pairs of samples that takes."""
        if self.counts is None:
            return self.n_pairs
        left, right = self.counts
        return int(np.sum(left * right)) if 1 in (left.size, right.size) else int(left @ right)

    @property
    def broadcast(self) -> bool:
        """Whether one of a side meets several of the other."""
        sides = (self.left, self.right) if self.counts is None else self.counts
        return 1 in (len(sides[0]), len(sides[1])) and self.n_pairs > 1

    def sample_class(self) -> tuple[int, int] | None:
        """Numbers of samples of the two subjects of every pair, the larger first; None for plain vectors.

        Raises
        ------
        InvalidInput
            When pairs differ in them: each has a calibration of its own.
        """
        if self.counts is None:
            return None
        a, b = np.broadcast_arrays(*self.counts)
        most, least = np.maximum(a, b), np.minimum(a, b)
        other = np.flatnonzero((most != most[0]) | (least != least[0]))
        if other.size:
            at = int(other[0])
            raise InvalidInput(
                f"pair 0 has {a[0]} and {b[0]} samples, and pair {at} {a[at]} and {b[at]}: a decision is calibrated "
                "for one class of samples at a time; send pairs of other classes in a request of their own",
                field="left",
                pair=at,
            )
        return int(most[0]), int(least[0])

    def check_sizes(self, max_pairs: int, max_samples: int = 100) -> None:
        """Refuse sizes that make no pairs, or too many."""
        counts = self.counts
        what = "vectors" if counts is None else "subjects"
        n_left, n_right = (len(self.left), len(self.right)) if counts is None else map(len, counts)
        if n_left != n_right and 1 not in (n_left, n_right):
            raise InvalidInput(
                f"left has {n_left} {what} and right {n_right}; expected equal numbers, or a single one on one side",
                field="right",
            )
        if counts is not None:
            for name, side in zip(("left", "right"), counts, strict=True):
                if side.max() > max_samples:
                    at = int(np.argmax(side > max_samples))
                    raise InvalidInput(
                        f"{name}[{at}] has {side[at]} samples; expected at most {max_samples} "
                        "(PAIRMARK_MAX_SUBJECT_SAMPLES)",
                        field=f"{name}[{at}].samples",
                        limit=max_samples,
                    )
            if self.n_scored > max_pairs:
                raise TooLarge(
                    f"the subjects make {self.n_scored} pairs of samples; at most {max_pairs} are taken at a time",
                    limit=max_pairs,
                )
        if self.n_pairs > max_pairs:
            raise TooLarge(
                f"the request has {self.n_pairs} pairs; at most {max_pairs} are taken at a time",
                limit=max_pairs,
            )


@dataclass(slots=True)
class Features:
    """Points and the model they are meant for. Dense ones are (n, d), finite float32."""

    model: str | None
    rows: Float32 | SparseRows

    def __len__(self) -> int:
        return len(self.rows)


# ---------------------------------------------------------------- JSON


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
        _diagnose_pairs(body, error)
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
            raise InvalidInput(f"features is missing; expected {_EXPECTED}", field="features") from error
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
        raise InvalidInput(f"{name} is empty; expected {_EXPECTED}", field=name)
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
                f"{at} has {len(row)} numbers and the first sample of its side {len(first)}; expected vectors of one "
                "length",
                field=at,
            )


def raise_ragged(rows: Sequence[Any], name: str) -> NoReturn:
    width = len(rows[0])
    if not width:
        raise InvalidInput(f"{name}[0] is empty; expected at least one number", field=f"{name}[0]")
    at = next(index for index, row in enumerate(rows) if len(row) != width)
    raise InvalidInput(
        f"{name}[{at}] has {len(rows[at])} numbers and {name}[0] has {width}; expected vectors of one length",
        field=f"{name}[{at}]",
    )


def json_object(body: bytes | bytearray) -> dict[str, Any]:
    try:
        value = from_json(body)
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}", field="body") from error
    if not isinstance(value, dict):
        raise InvalidInput(f"the body is {kind_of(value)}; expected a JSON object", field="body")
    return value


def _diagnose_pairs(body: bytes | bytearray, error: ValidationError) -> NoReturn:
    value = json_object(body)
    for name in ("left", "right"):
        if name not in value:
            raise InvalidInput(f"{name} is missing; expected {_EXPECTED_SIDE}", field=name) from error
        check_side(value[name], name)
    raise_first_error(error)


def check_side(value: Any, name: str) -> None:
    """As `check_vectors`, of a side that may hold subjects."""
    if isinstance(value, dict) and "samples" in value:
        _walk_subject(value, name)
    elif (
        isinstance(value, list) and value and any(isinstance(one, dict) and "samples" in one for one in value)
    ):
        for index, one in enumerate(value):
            at = f"{name}[{index}]"
            if not isinstance(one, dict) or "samples" not in one:
                raise InvalidInput(
                    f'{at} is {kind_of(one)}; expected a subject {{"samples": [vector, ..]}}, as others in its list',
                    field=at,
                )
            _walk_subject(one, at)
    else:
        check_vectors(value, name)


def _walk_subject(value: dict[str, Any], name: str) -> None:
    extra = sorted(set(value) - {"samples"})
    if extra:
        raise InvalidInput(f"{name} has the field {extra[0][:100]!r}; expected only samples", field=name)
    samples, at = value["samples"], f"{name}.samples"
    if not isinstance(samples, list):
        raise InvalidInput(f"{at} is {kind_of(samples)}; expected a list of vectors", field=at)
    if samples and not isinstance(samples[0], list | dict):
        raise InvalidInput(f"{at}[0] is {kind_of(samples[0])}; expected a vector", field=f"{at}[0]")
    check_vectors(samples, at)


def raise_first_error(error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    said = first["msg"]
    if first["type"] == "extra_forbidden":
        said = "is not a field of this request"
    raise InvalidInput(f"{field[:200] or 'body'}: {said}", field=field[:200] or "body") from error


def check_vectors(value: Any, name: str) -> None:
    """Raise for the first thing wrong with one side; return if nothing is."""
    if isinstance(value, dict):
        _walk_sparse(value, name)
        return
    if not isinstance(value, list):
        raise InvalidInput(f"{name} is {kind_of(value)}; expected {_EXPECTED}", field=name)
    if not value:
        raise InvalidInput(f"{name} is empty; expected {_EXPECTED}", field=name)
    if isinstance(value[0], list):
        for index, row in enumerate(value):
            if not isinstance(row, list):
                at = f"{name}[{index}]"
                raise InvalidInput(f"{at} is {kind_of(row)}; expected a vector, as {name}[0] is", field=at)
        if any(len(row) != len(value[0]) for row in value) or not value[0]:
            raise_ragged(value, name)
        for index, row in enumerate(value):
            check_numbers(row, f"{name}[{index}]")
    elif isinstance(value[0], dict):
        for index, row in enumerate(value):
            at = f"{name}[{index}]"
            if not isinstance(row, dict):
                raise InvalidInput(
                    f"{at} is {kind_of(row)}; expected a sparse vector, as {name}[0] is", field=at
                )
            _walk_sparse(row, at)
    else:
        check_numbers(value, name)


def _walk_sparse(value: dict[str, Any], name: str) -> None:
    for part in ("indices", "values"):
        if not isinstance(value.get(part), list):
            said = "is missing" if part not in value else f"is {kind_of(value[part])}"
            raise InvalidInput(f"{name}.{part} {said}; expected a list of numbers", field=f"{name}.{part}")
    extra = sorted(set(value) - {"indices", "values"})
    if extra:
        raise InvalidInput(
            f"{name} has the field {extra[0][:100]!r}; expected only indices and values", field=name
        )
    for index, number in enumerate(value["indices"]):
        if type(number) is not int:
            at = f"{name}.indices[{index}]"
            raise InvalidInput(f"{at} is {kind_of(number)}; expected a whole number from 0", field=at)
    check_numbers(value["values"], f"{name}.values")


def check_numbers(values: Sequence[Any], name: str) -> None:
    for index, number in enumerate(values):
        at = f"{name}[{index}]"
        if type(number) not in (int, float):
            raise InvalidInput(f"{at} is {kind_of(number)}; expected a finite number", field=at)
        # NaN fails every comparison.
        if not -FLOAT32_MAX <= number <= FLOAT32_MAX:
            raise InvalidInput(f"{at} is NaN, infinite or beyond float32; expected a finite number", field=at)


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "something else")


# ---------------------------------------------------------------- against a model


def to_rows(
    side: Float32 | SparseRows,
    name: str,
    n_features: int,
    *,
    accepts_sparse: bool,
    ignores_unknown: bool = False,
) -> Any:
    """Rows of the model's dimension: dense float32, or CSR for a learner that reads it.

    With ``ignores_unknown``, entries of sparse vectors in columns beyond the model's are dropped and counted.
    """
    if isinstance(side, SparseRows):
        if ignores_unknown:
            side = _known_columns(side, n_features)
        return _sparse_rows(side, name, n_features, accepts_sparse=accepts_sparse)
    if side.shape[1] != n_features:
        raise InvalidInput(
            f"{name} has vectors of {side.shape[1]} numbers; the model expects {n_features}",
            field=name,
            expected_dimension=n_features,
        )
    return side


def _known_columns(side: SparseRows, n_features: int) -> SparseRows:
    """Without the entries of columns that the model never saw; rows that are wrong otherwise stay as they are."""
    dropped = 0
    rows = []
    for row in side.rows:
        unknown = sum(column >= n_features for column in row.indices)
        if unknown and len(row.indices) == len(row.values) and len(set(row.indices)) == len(row.indices):
            dropped += unknown
            kept = [at for at, column in enumerate(row.indices) if column < n_features]
            row = SparseVector.model_construct(
                indices=[row.indices[at] for at in kept], values=[row.values[at] for at in kept]
            )
        rows.append(row)
    if dropped:
        UNKNOWN_COLUMNS.inc(dropped)
    return SparseRows(rows, side.single)


def _sparse_rows(side: SparseRows, name: str, n_features: int, *, accepts_sparse: bool) -> Any:
    if not accepts_sparse and 4 * n_features * len(side) > MAX_DENSE_BYTES:
        raise TooLarge(f"{name} unfolds to more than {MAX_DENSE_BYTES} bytes; send fewer vectors at a time")
    counts = []
    for index, row in enumerate(side.rows):
        at = name if side.single else f"{name}[{index}]"
        if len(row.indices) != len(row.values):
            raise InvalidInput(
                f"{at} has {len(row.indices)} indices and {len(row.values)} values; expected equal numbers",
                field=at,
            )
        seen: set[int] = set()
        for place, column in enumerate(row.indices):
            if not 0 <= column < n_features or column in seen:
                field = f"{at}.indices[{place}]"
                said = "occurs twice" if column in seen else f"is not in 0 to {n_features - 1}"
                raise InvalidInput(
                    f"{field} {said}; expected distinct columns of the model's {n_features}", field=field
                )
            seen.add(column)
        counts.append(len(row.indices))
    flat = [value for row in side.rows for value in row.values]
    values = np.array(flat, dtype=np.float32)
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    columns = np.array([column for row in side.rows for column in row.indices], dtype=np.int32)
    matrix = csr_array((values, columns, pointers), shape=(len(side), n_features))
    matrix.sort_indices()
    return matrix if accepts_sparse else matrix.toarray()
