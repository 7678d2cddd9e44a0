"""What a learner's saved state must look like. It is checked at every load, before anything reads it.

Compiled loops follow what arrays say without asking: which row, which feature, which node comes next. So an array that
says what no fit would have written is refused here, by its name and row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pairmark.models.core.arrays import Bool
from pairmark.models.core.artefact import ArtefactError

Arrays = dict[str, np.ndarray[Any, Any]]
State = tuple[Arrays, dict[str, Any]]
Kind = Literal["float32", "float64", "int32", "int64", "uint8", "uint16", "bool", "text", "labels"]
Size = int | str

AnyModel = TypeVar("AnyModel", bound=BaseModel)
MAX_FEATURES = 2**24
_BLOCK = 1 << 20
"""Numbers looked at a time: checks of mapped arrays take little memory."""


class Facts(BaseModel):
    """The JSON facts of every learner, beside its own. Numbers are finite, types are exact."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")

    n_features_in: int = Field(ge=1, le=MAX_FEATURES)
    feature_names_in: list[str] | None = None

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = self.feature_names_in
        if names is not None and len(names) != self.n_features_in:
            raise ValueError(f"feature_names_in has {len(names)} names for {self.n_features_in} features")
        return self


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """A state as a file holds it: parameters and facts are checked already, arrays are checked in ``sizes``' terms.

    ``mapped`` : whether arrays are used as they are read, memory-mapped, instead of copied.
    """

    params: Mapping[str, Any]
    facts: Any
    arrays: Mapping[str, NDArray[Any]]
    sizes: dict[str, int] = field(default_factory=dict)
    mapped: bool = False

    def length(self, name: str, axis: int = 0) -> int:
        """How long an array is along an axis, 0 where there is none."""
        array = self.arrays.get(name)
        return int(array.shape[axis]) if array is not None and array.ndim > axis else 0


@dataclass(frozen=True, kw_only=True)
class Array:
    """What one array must be; as an annotation of an attribute it declares how that is stored, see `core.state`.

    Attributes
    ----------
    kind : its dtype, that of the annotated type when None; ``labels`` are numbers or words, ``text`` words.
    shape : of each axis a number, or the name of a size: the first array that has it says how large it is.
        ``name + 1`` is one more than a size.
    low, high : least and greatest value, inclusive.
    below : all values are less than this number or size, and none is negative unless ``low`` says so.
    positive : all values are above 0.
    nan, infinite : whether NaN and infinities are allowed.
    order : ``rising`` (each value above the one before) or ``never-falling``.
    optional : whether it may be missing.
    name : that of the file, of the attribute when None.
    when, each, get : as in `core.state.StateRecord`.
    """

    kind: Kind | None = None
    shape: tuple[Size, ...]
    low: float | None = None
    high: float | None = None
    below: Size | None = None
    positive: bool = False
    nan: bool = False
    infinite: bool = False
    order: Literal["rising", "never-falling"] | None = None
    optional: bool = False
    name: str | None = None
    when: Callable[[StoredState], bool] | None = None
    each: Callable[[StoredState], Iterable[Any]] | None = None
    get: Callable[[Any], Any] | None = None


class Stateful:
    """A learner whose fitted state is plain arrays and JSON-able facts: `core.state.DeclaredState` has all of it."""

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        raise NotImplementedError(f"{type(self).__name__} has no to_state: its state cannot be saved")

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave. What comes from a file is checked before."""
        raise NotImplementedError(f"{type(self).__name__} has no from_state: its state cannot be loaded")

    def save(self, path: str | os.PathLike[str]) -> str:
        """Save this fitted learner as an artefact folder, which `pairmark.load` reads; returns its sha256."""
        # What kinds there are is known above the families only.
        import pairmark

        return pairmark.save(self, path)

    @classmethod
    def check_state(
        cls, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Check what a file holds; an `ArtefactError` names the fact, or the array and its row."""
        raise NotImplementedError(f"{cls.__name__} has no check_state: its state cannot be loaded")


def checked_model(model: type[AnyModel], content: Mapping[str, Any], before: str = "") -> AnyModel:
    """What a file says, by its model; an `ArtefactError` names the field that is wrong, with ``before`` in front."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        line = error.errors(include_url=False, include_context=False)[0]
        field_name, value = ".".join(map(str, line["loc"])) or "meta", repr(line["input"])
        raise ArtefactError(
            f"{before}{field_name} is {value if len(value) < 80 else value[:80] + '...'}: {line['msg']}"
        ) from None


def refuse(name: str, row: int | None, actual: str, requirement: str) -> ArtefactError:
    """The error that names an array, its row, what is there and what was expected."""
    place = f"array {name!r}" if row is None else f"array {name!r}, row {row}"
    return ArtefactError(f"{place}: {actual}; expected {requirement}. Restore the artefact or train again")


def require(valid: Bool, name: str, values: NDArray[Any], requirement: str, *, first_row: int = 0) -> None:
    """Refuse an array at the first place where ``valid``, of the shape of ``values``, is false."""
    if valid.all():
        return
    at = np.unravel_index(int(np.argmin(valid)), valid.shape)
    raise refuse(name, first_row + int(at[0]), f"is {values[at]}", requirement)


def require_offsets(name: str, offsets: NDArray[Any], total: int, of: str) -> None:
    """Refuse offsets that do not begin at 0, fall, or do not end where what they divide ends."""
    if offsets[0] != 0:
        raise refuse(name, 0, f"is {offsets[0]}", "0")
    if offsets[-1] != total:
        raise refuse(name, offsets.size - 1, f"is {offsets[-1]}", f"{total}, as there are rows of {of!r}")


def check_arrays(file: StoredState, layout: Mapping[str, Array]) -> None:
    """Check arrays against a layout; fills ``file.sizes``."""
    stray = sorted(file.arrays.keys() - layout.keys())
    if stray:
        raise ArtefactError(f"array {stray[0]!r} is none of this learner's: {', '.join(sorted(layout))}")
    present = {name: spec for name, spec in layout.items() if name in file.arrays}
    for name, spec in layout.items():
        if name not in present and not spec.optional:
            raise ArtefactError(f"array {name!r} is missing")
    for name, spec in present.items():
        _check_form(name, file.arrays[name], spec, file.sizes)
    for name, spec in present.items():
        _check_values(name, file.arrays[name], spec, file.sizes)


def _check_form(name: str, array: NDArray[Any], spec: Array, sizes: dict[str, int]) -> None:
    kind = array.dtype
    matches = {"text": kind.kind == "U", "labels": kind.kind in "biufSU"}.get(
        str(spec.kind), kind.name == spec.kind and kind.isnative
    )
    if not matches:
        raise refuse(name, None, f"dtype is {kind}", str(spec.kind))
    shape = tuple(_resolved(size, sizes) for size in spec.shape)
    if array.ndim != len(shape) or any(w not in (None, n) for w, n in zip(shape, array.shape, strict=True)):
        shape_text = ", ".join(str(w if w is not None else s) for w, s in zip(shape, spec.shape, strict=True))
        raise refuse(name, None, f"shape is {array.shape}", f"({shape_text})")
    for size, n in zip(spec.shape, array.shape, strict=True):
        if isinstance(size, str):
            base, extra = size_parts(size)
            if n < extra:
                raise refuse(name, None, f"shape is {array.shape}", f"at least {extra} rows")
            if sizes.setdefault(base, n - extra) != n - extra:
                raise refuse(name, None, f"shape is {array.shape}", f"{sizes[base] + extra} for {size!r}")


def size_parts(size: str) -> tuple[str, int]:
    """``name + 1`` as the name and the number."""
    base, _, extra = size.partition(" + ")
    return base, int(extra or 0)


def _resolved(size: Size, sizes: Mapping[str, int]) -> int | None:
    if isinstance(size, int):
        return size
    base, extra = size_parts(size)
    return sizes[base] + extra if base in sizes else None


def _check_values(name: str, array: NDArray[Any], spec: Array, sizes: Mapping[str, int]) -> None:
    if array.dtype.kind not in "iuf" or not array.size:
        return
    below = None if spec.below is None else _resolved(spec.below, sizes)
    if spec.below is not None and below is None:
        raise refuse(
            name, None, "has no bound", f"values below {spec.below!r}, which nothing in the file states"
        )
    low = 0 if spec.low is None and below is not None else spec.low
    for start, block in _blocks(array):
        if block.dtype.kind == "f":
            if not spec.nan:
                require(~np.isnan(block), name, block, "a number", first_row=start)
            if not spec.infinite:
                require(~np.isinf(block), name, block, "a finite number", first_row=start)
        if spec.positive:
            require(~(block <= 0), name, block, "a number above 0", first_row=start)
        if low is not None:
            require(~(block < low), name, block, f"at least {low:g}", first_row=start)
        if spec.high is not None:
            require(~(block > spec.high), name, block, f"at most {spec.high:g}", first_row=start)
        if below is not None:
            require(~(block >= below), name, block, f"less than {below}", first_row=start)
    if spec.order is not None and array.shape[0] > 1:
        valid = array[1:] > array[:-1] if spec.order == "rising" else array[1:] >= array[:-1]
        words = "more than" if spec.order == "rising" else "at least as much as"
        require(valid, name, array[1:], f"{words} the row before it", first_row=1)


def _blocks(array: NDArray[Any]) -> Iterable[tuple[int, NDArray[Any]]]:
    if array.ndim == 0:
        yield 0, array[None]
        return
    rows = max(1, _BLOCK // max(1, prod(array.shape[1:])))
    for start in range(0, array.shape[0], rows):
        yield start, array[start : start + rows]
