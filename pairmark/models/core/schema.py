"""What a learner's saved state must look like. It is checked at every load, before anything reads it.

Compiled loops follow what arrays say without asking: which row, which feature, which node comes next. So an array that
says what no fit would have written is refused here, by its name and row.
"""

from __future__ import annotations

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
    """The JSON facts of every learner; a family adds its own fields. Numbers are finite, types are exact."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")

    n_features_in: int = Field(ge=1, le=MAX_FEATURES)
    feature_names_in: list[str] | None = None

    @model_validator(mode="after")
    def _named(self) -> Self:
        names = self.feature_names_in
        if names is not None and len(names) != self.n_features_in:
            raise ValueError(f"feature_names_in has {len(names)} names for {self.n_features_in} features")
        return self


@dataclass(frozen=True, kw_only=True)
class Array:
    """What one array must be.

    Attributes
    ----------
    kind : its dtype; ``labels`` are numbers or words, ``text`` words.
    shape : of each axis a number, or the name of a size: the first array that has it says how large it is.
        ``name + 1`` is one more than a size.
    low, high : least and greatest value, inclusive.
    below : all values are less than this number or size, and none is negative unless ``low`` says so.
    positive : all values are above 0.
    nan, infinite : whether NaN and infinities are allowed.
    order : ``rising`` (each value above the one before) or ``never-falling``.
    optional : whether it may be missing.
    """

    kind: Kind
    shape: tuple[Size, ...]
    low: float | None = None
    high: float | None = None
    below: Size | None = None
    positive: bool = False
    nan: bool = False
    infinite: bool = False
    order: Literal["rising", "never-falling"] | None = None
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What was read: parameters and facts are checked already, arrays are once they are in ``sizes``' terms."""

    params: Mapping[str, Any]
    facts: Any
    arrays: Mapping[str, NDArray[Any]]
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        """Columns of the input."""
        return int(self.facts.n_features_in)

    def length(self, name: str, axis: int = 0) -> int:
        """How long an array is along an axis, 0 where there is none: for arrays whose shape says what others are."""
        array = self.arrays.get(name)
        return int(array.shape[axis]) if array is not None and array.ndim > axis else 0


@dataclass(frozen=True, kw_only=True)
class StateSchema:
    """The schema of a learner's state.

    Attributes
    ----------
    facts : model of the JSON facts.
    layout : every array that there may be, by name; what parameters and facts decide, it reads from them.
    relations : checks between arrays, made after those of each; they call `refuse`.
    """

    facts: type[Facts] = Facts
    layout: Callable[[Loaded], Mapping[str, Array]]
    relations: tuple[Callable[[Loaded], None], ...] = ()

    def check(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Hold a state against the schema; an `ArtefactError` names the fact, or the array and its row."""
        loaded = Loaded(params=params, facts=checked_model(self.facts, meta), arrays=arrays)
        check_arrays(loaded, self.layout(loaded))
        for relation in self.relations:
            relation(loaded)


def checked_model(model: type[AnyModel], given: Mapping[str, Any], before: str = "") -> AnyModel:
    """What a file says, by its model; an `ArtefactError` names the field that is wrong, with ``before`` in front."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        line = error.errors(include_url=False, include_context=False)[0]
        where, said = ".".join(map(str, line["loc"])) or "meta", repr(line["input"])
        raise ArtefactError(
            f"{before}{where} is {said if len(said) < 80 else said[:80] + '...'}: {line['msg']}"
        ) from None


class Stateful:
    """A learner whose fitted state is plain arrays and JSON-able facts.

    Subclasses of a family's estimators inherit both methods, and with them galleries and digests.
    """

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        raise NotImplementedError(f"{type(self).__name__} has no to_state: its state cannot be saved")

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave. What comes from a file is checked before."""
        raise NotImplementedError(f"{type(self).__name__} has no from_state: its state cannot be loaded")


def refuse(name: str, row: int | None, found: str, expected: str) -> ArtefactError:
    """The error that names an array, its row, what is there and what was expected."""
    where = f"array {name!r}" if row is None else f"array {name!r}, row {row}"
    return ArtefactError(f"{where}: {found}; expected {expected}. Restore the artefact or train again")


def require(good: Bool, name: str, values: NDArray[Any], expected: str, *, first_row: int = 0) -> None:
    """Refuse an array at the first place where ``good``, of the shape of ``values``, is false."""
    if good.all():
        return
    at = np.unravel_index(int(np.argmin(good)), good.shape)
    raise refuse(name, first_row + int(at[0]), f"is {values[at]}", expected)


def require_offsets(name: str, offsets: NDArray[Any], total: int, of: str) -> None:
    """Refuse offsets that do not begin at 0, fall, or do not end where what they divide ends."""
    if offsets[0] != 0:
        raise refuse(name, 0, f"is {offsets[0]}", "0")
    if offsets[-1] != total:
        raise refuse(name, offsets.size - 1, f"is {offsets[-1]}", f"{total}, as there are rows of {of!r}")


def check_arrays(loaded: Loaded, layout: Mapping[str, Array]) -> None:
    """Hold arrays against a layout; fills ``loaded.sizes``."""
    stray = sorted(loaded.arrays.keys() - layout.keys())
    if stray:
        raise ArtefactError(f"array {stray[0]!r} is none of this learner's: {', '.join(sorted(layout))}")
    there = {name: spec for name, spec in layout.items() if name in loaded.arrays}
    for name, spec in layout.items():
        if name not in there and not spec.optional:
            raise ArtefactError(f"array {name!r} is missing")
    for name, spec in there.items():
        _check_form(name, loaded.arrays[name], spec, loaded.sizes)
    for name, spec in there.items():
        _check_values(name, loaded.arrays[name], spec, loaded.sizes)


def _check_form(name: str, array: NDArray[Any], spec: Array, sizes: dict[str, int]) -> None:
    kind = array.dtype
    fits = {"text": kind.kind == "U", "labels": kind.kind in "biufSU"}.get(
        spec.kind, kind.name == spec.kind and kind.isnative
    )
    if not fits:
        raise refuse(name, None, f"dtype is {kind}", spec.kind)
    wanted = tuple(_known(size, sizes) for size in spec.shape)
    if array.ndim != len(wanted) or any(w not in (None, n) for w, n in zip(wanted, array.shape, strict=True)):
        said = ", ".join(str(w if w is not None else s) for w, s in zip(wanted, spec.shape, strict=True))
        raise refuse(name, None, f"shape is {array.shape}", f"({said})")
    for size, n in zip(spec.shape, array.shape, strict=True):
        if isinstance(size, str):
            base, more = _parted(size)
            if n < more:
                raise refuse(name, None, f"shape is {array.shape}", f"at least {more} rows")
            if sizes.setdefault(base, n - more) != n - more:
                raise refuse(name, None, f"shape is {array.shape}", f"{sizes[base] + more} for {size!r}")


def _parted(size: str) -> tuple[str, int]:
    base, _, more = size.partition(" + ")
    return base, int(more or 0)


def _known(size: Size, sizes: Mapping[str, int]) -> int | None:
    if isinstance(size, int):
        return size
    base, more = _parted(size)
    return sizes[base] + more if base in sizes else None


def _check_values(name: str, array: NDArray[Any], spec: Array, sizes: Mapping[str, int]) -> None:
    if array.dtype.kind not in "iuf" or not array.size:
        return
    below = None if spec.below is None else _known(spec.below, sizes)
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
        good = array[1:] > array[:-1] if spec.order == "rising" else array[1:] >= array[:-1]
        words = "more than" if spec.order == "rising" else "at least as much as"
        require(good, name, array[1:], f"{words} the row before it", first_row=1)


def _blocks(array: NDArray[Any]) -> Iterable[tuple[int, NDArray[Any]]]:
    if array.ndim == 0:
        yield 0, array[None]
        return
    rows = max(1, _BLOCK // max(1, prod(array.shape[1:])))
    for start in range(0, array.shape[0], rows):
        yield start, array[start : start + rows]
