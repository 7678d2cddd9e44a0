"""Fitted state is declared once, where it is held: writing, reading and checking follow from annotated attributes.

    class DiagonalSimilarity(PairScorerMixin, BaseEstimator):
        weights_: Annotated[Float32, Array(shape=("features",), positive=True)]
        rate_: Annotated[float, Fact(), Field(gt=0)]

An `Array` is a file of the artefact, a `Fact` stands in its JSON, a `StateRecord` is a dataclass or NamedTuple whose
attributes are declared likewise. ``X | None`` may be missing. Names are those of the attributes without underscores at
either end, unless they are stated. A record may have a method ``relate(prefix)`` that checks what holds between its
arrays. What a file holds by number, or by a parameter, is written by `Stateful._parts` and read by
`Stateful._read_parts`.

Everything is checked as it is read. Compiled loops follow what arrays say without asking: which row, which feature,
which node comes next. So an array that says what no fit would have written is refused, by its name and row.

Sizes in shapes are names: ``features``, every integer fact, what `Stateful._sizes` adds, else the length of the first
array that has it. Names of the last kind belong to the record that they occur in.
"""

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from types import NoneType, SimpleNamespace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_args, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from pairmark.models.core.arrays import Bool, NDArray
from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.spec import LearnerSpec

Arrays = dict[str, np.ndarray[Any, Any]]
State = tuple[Arrays, dict[str, Any]]
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
class Array:
    """What one array must be; as an annotation of an attribute it declares how that is stored.

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
    """

    kind: str | None = None
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


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value in the JSON, of the annotated type and what pydantic's ``Field`` beside it says; ``kind``: of another."""

    name: str | None = None
    kind: Any = None


@dataclass(frozen=True)
class StateRecord:
    """A dataclass or NamedTuple whose attributes are declared; ``prefix`` stands before their names in the file."""

    prefix: str = ""


class _Declared(NamedTuple):
    """One attribute, its name (of a record: prefix) in the file, and the type that a fact or record has."""

    attribute: str
    name: str
    kind: Any
    optional: bool
    marker: Array | Fact | StateRecord


@cache
def _declarations_of(cls: Any) -> tuple[_Declared, ...]:
    """What a class and its bases declare."""
    entries: dict[str, _Declared] = {}
    for base in reversed(cls.__mro__):
        # Other annotations need not be resolvable, e.g. those of a user's subclass.
        own = inspect.get_annotations(base).items()
        annotations = {name: hint for name, hint in own if "Annotated[" in str(hint)}
        scope = vars(sys.modules[base.__module__])
        hints = get_type_hints(SimpleNamespace(__annotations__=annotations), scope, include_extras=True)
        for attribute, hint in hints.items():
            for marker in getattr(hint, "__metadata__", ()):
                if isinstance(marker, Array | Fact | StateRecord):
                    entries[attribute] = _entry(attribute, hint, marker)
    return tuple(entries.values())


def _entry(attribute: str, hint: Any, marker: Array | Fact | StateRecord) -> _Declared:
    members = get_args(hint.__origin__)
    optional = NoneType in members
    kind = members[0] if optional else hint.__origin__
    if isinstance(marker, StateRecord):
        return _Declared(attribute, marker.prefix, kind, optional, marker)
    if isinstance(marker, Fact):
        kind = marker.kind or hint
    else:
        dtype = marker.kind or np.dtype(get_args(get_args(kind)[1])[0]).name
        marker = replace(marker, kind=dtype, optional=optional)
    return _Declared(attribute, marker.name or attribute.strip("_"), kind, optional, marker)


@cache
def _facts_model(cls: Any) -> type[Facts]:
    return create_model(f"{cls.__name__}Facts", __base__=Facts, **_fact_fields(cls))


def _fact_fields(cls: Any, prefix: str = "", *, optional: bool = False) -> dict[str, Any]:
    """Type and default of each fact, those of records included."""
    fields: dict[str, Any] = {}
    for entry in _declarations_of(cls):
        name = prefix + entry.name
        if isinstance(entry.marker, Fact):
            fields[name] = (entry.kind | None, None) if optional else (entry.kind, ...)
        elif isinstance(entry.marker, StateRecord):
            fields |= _fact_fields(entry.kind, name, optional=optional or entry.optional)
    return fields


def _write(record: Any, prefix: str, arrays: Arrays, facts: dict[str, Any]) -> None:
    """Add a record's arrays and facts to the file's, by name."""
    cls: Any = type(record)
    for entry in _declarations_of(cls):
        name, value = prefix + entry.name, getattr(record, entry.attribute, None)
        if isinstance(entry.marker, Fact):
            facts[name] = value
        elif isinstance(entry.marker, StateRecord):
            facts.update(dict.fromkeys(_fact_fields(entry.kind, name)))
            _write(value, name, arrays, facts)
        elif value is not None:
            array = np.asarray(value)
            # Words of any length instead of objects.
            arrays[name] = array.astype(np.str_) if array.dtype.kind not in "biufSU" else array


@dataclass(kw_only=True)
class StoredState:
    """A state as a file holds it: facts are checked already, arrays are once all of them are read."""

    facts: Any
    arrays: Mapping[str, NDArray[Any]]
    sizes: dict[str, int]
    mapped: bool
    layout: dict[str, Array] = field(default_factory=dict)
    records: list[tuple[Any, str]] = field(default_factory=list)

    def length(self, name: str, axis: int = 0) -> int:
        """How long an array is along an axis, 0 where there is none."""
        array = self.arrays.get(name)
        return int(array.shape[axis]) if array is not None and array.ndim > axis else 0

    def array(self, name: str, declared: Array, prefix: str = "") -> Any:
        """An array as it is declared, sizes being those of the record with that prefix; None where it is missing."""
        shape = tuple(self._scoped(size, prefix) for size in declared.shape)
        self.layout[name] = replace(declared, shape=shape, below=self._scoped(declared.below, prefix))
        array = self.arrays.get(name)
        if array is None or self.mapped:
            return array if array is None else np.asarray(array)
        # Kernels are to meet one kind of array.
        return np.array(array, order="C")

    def _scoped(self, size: Any, prefix: str) -> Any:
        if not isinstance(size, str):
            return size
        name = size.partition(" + ")[0]
        return size if name in self.sizes and prefix + name not in self.sizes else prefix + size

    def record(self, cls: Any, prefix: str) -> Any:
        """A record of that class, its arrays under that prefix."""
        record = cls(**self.values(cls, prefix))
        if hasattr(cls, "relate"):
            self.records.append((record, prefix))
        return record

    def values(self, cls: Any, prefix: str = "") -> dict[str, Any]:
        """What a class declares, by attribute."""
        values: dict[str, Any] = {}
        for entry in _declarations_of(cls):
            name = prefix + entry.name
            if isinstance(entry.marker, Fact):
                values[entry.attribute] = getattr(self.facts, name)
            elif isinstance(entry.marker, Array):
                values[entry.attribute] = self.array(name, entry.marker, prefix)
            else:
                there = not entry.optional or self._has(entry.kind, name)
                values[entry.attribute] = self.record(entry.kind, name) if there else None
        return values

    def _has(self, cls: Any, prefix: str) -> bool:
        """Whether a record that may be missing is there, all of it."""
        first = next(
            prefix + entry.name for entry in _declarations_of(cls) if isinstance(entry.marker, Array)
        )
        facts = _fact_fields(cls, prefix)
        there = {first in self.arrays, *(getattr(self.facts, name) is not None for name in facts)}
        if len(there) > 1:
            raise ArtefactError(f"array {first!r} and {', '.join(facts)}: expected all of them, or none")
        return there.pop()


class Stateful:
    """A learner whose annotated attributes are its fitted state; see the module."""

    _keeps_mapped: ClassVar[bool] = False
    """Whether arrays of a mapped file are used as they are; else copied, so that kernels meet one kind of array."""
    _gone: ClassVar[frozenset[str]] = frozenset()
    """Arrays of earlier versions that are left unread."""
    n_features_in_: int
    encoder_: Any = None
    """Makes vectors of records, where training put one before the learner."""

    @property
    def schema_(self) -> Any:
        """The columns of records that the learner itself compares; None: it takes vectors."""
        return None

    @property
    def unavailable_(self) -> frozenset[str]:
        """Capabilities of its kind that this fitted learner lacks."""
        return frozenset()

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        """Sizes that parameters, facts or other arrays decide."""
        return {}

    def _parts(self) -> Mapping[str, Any]:
        """What is stored beside declared attributes: arrays by name, records by prefix."""
        return {}

    def _read_parts(self, file: StoredState) -> None:
        """Read what `_parts` gave, by `StoredState.array` and `StoredState.record`; nothing is checked yet."""

    def _relate(self, file: StoredState) -> None:
        """Check what holds between arrays, each of which is as declared; raise `refuse`."""

    def _restored(self) -> None:
        """Work out what follows from the state, once it is read."""

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        cls: Any = type(self)
        arrays: Arrays = {}
        facts: dict[str, Any] = {}
        _write(self, "", arrays, facts)
        for name, part in self._parts().items():
            if isinstance(part, np.ndarray):
                arrays[name] = part
            else:
                _write(part, name, arrays, facts)
        stored = _facts_model(cls).model_construct(**facts)
        # Numbers of NumPy become Python's.
        return arrays, stored.model_dump(
            mode="json", include=set(facts), fallback=lambda value: value.tolist(), warnings=False
        )

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave; an `ArtefactError` names the fact, or the array and its
        row, that no fit writes."""
        cls: Any = type(self)
        facts = checked_model(_facts_model(cls), meta)
        sizes = {name: value for name, value in facts if type(value) is int}
        file = StoredState(
            facts=facts,
            arrays=arrays,
            sizes={**sizes, "features": facts.n_features_in},
            mapped=self._keeps_mapped,
        )
        file.sizes.update(self._sizes(file))
        values = file.values(cls)
        self._read_parts(file)
        own = {name: array for name, array in arrays.items() if name not in self._gone}
        check_arrays(own, file.layout, file.sizes)
        for record, prefix in file.records:
            record.relate(prefix)
        vars(self).update(values, n_features_in_=facts.n_features_in)
        if facts.feature_names_in is not None:
            self.feature_names_in_ = np.asarray(facts.feature_names_in, dtype=object)
        self._relate(file)
        self._restored()
        return self

    def save(self, path: str | os.PathLike[str]) -> str:
        """Save this fitted learner as an artefact folder, which `pairmark.load` reads; returns its sha256."""
        # What kinds there are is known above the families only.
        import pairmark

        return pairmark.save(self, path)


def current_params(spec: LearnerSpec, stored: Mapping[str, Any], before: str = "params.") -> dict[str, Any]:
    """Parameters of an artefact of any version as this one has them; an `OutdatedModel` names one that it no longer
    has."""
    params = dict(stored)
    for name in spec.retired.keys() & params.keys():
        value = params.pop(name)
        if spec.retired[name] is not ... and value != spec.retired[name]:
            raise OutdatedModel(
                f"{before}{name} is {value!r}, which this version no longer has; expected {spec.retired[name]!r}"
            )
    for (name, value), current in spec.renamed.items():
        if params.get(name) == value:
            params[name] = current
    try:
        return checked_model(spec.params, params, before).model_dump()
    except ArtefactError as error:
        raise OutdatedModel(str(error)) from None


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


def add_prefix(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Arrays with the prefix before their names."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def without_prefix(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those arrays that have the prefix, by their names behind it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


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


def require_offsets(name: str, offsets: NDArray[Any], total: int, owner: str) -> None:
    """Refuse offsets that do not begin at 0, fall, or do not end where what they divide ends."""
    if offsets[0] != 0:
        raise refuse(name, 0, f"is {offsets[0]}", "0")
    if offsets[-1] != total:
        raise refuse(name, offsets.size - 1, f"is {offsets[-1]}", f"{total}, as there are rows of {owner!r}")


def check_arrays(
    arrays: Mapping[str, NDArray[Any]], layout: Mapping[str, Array], sizes: dict[str, int]
) -> None:
    """Check arrays against a layout; fills ``sizes``."""
    stray = sorted(arrays.keys() - layout.keys())
    if stray:
        raise ArtefactError(f"array {stray[0]!r} is none of this learner's: {', '.join(sorted(layout))}")
    for name, declared in layout.items():
        if name in arrays:
            _check_form(name, arrays[name], declared, sizes)
        elif not declared.optional:
            raise ArtefactError(f"array {name!r} is missing")
    for name, array in arrays.items():
        if array.dtype.kind in "iuf":
            _check_values(name, np.atleast_1d(array), layout[name], sizes)


def _check_form(name: str, array: NDArray[Any], declared: Array, sizes: dict[str, int]) -> None:
    dtype = array.dtype
    matches = {"text": dtype.kind == "U", "labels": dtype.kind in "biufSU"}.get(
        str(declared.kind), dtype.name == declared.kind and dtype.isnative
    )
    if not matches:
        raise refuse(name, None, f"dtype is {dtype}", str(declared.kind))
    if array.ndim != len(declared.shape):
        raise refuse(name, None, f"shape is {array.shape}", f"{declared.shape}")
    for size, n in zip(declared.shape, array.shape, strict=True):
        base, _, more = str(size).partition(" + ")
        extra = int(more or 0)
        expected = size if isinstance(size, int) else sizes.setdefault(base, max(n - extra, 0))
        if n != expected + extra:
            raise refuse(name, None, f"shape is {array.shape}", f"{expected + extra} for {size!r}")


def _check_values(name: str, array: NDArray[Any], declared: Array, sizes: Mapping[str, int]) -> None:
    below = sizes.get(declared.below, 0) if isinstance(declared.below, str) else declared.below
    low = 0 if declared.low is None and below is not None else declared.low
    # What breaks each rule, the bound of it, None where it does not hold, and the rule in words.
    bounds: tuple[tuple[Any, Any, str], ...] = (
        (np.less_equal, 0 if declared.positive else None, "a number above 0"),
        (np.less, low, f"at least {low:g}" if low is not None else ""),
        (np.greater, declared.high, f"at most {declared.high:g}" if declared.high is not None else ""),
        (np.greater_equal, below, f"less than {below}"),
    )
    rows = max(1, _BLOCK // max(1, prod(array.shape[1:])))
    for start in range(0, array.shape[0], rows):
        block = array[start : start + rows]
        if not declared.nan:
            require(~np.isnan(block), name, block, "a number", first_row=start)
        if not declared.infinite:
            require(~np.isinf(block), name, block, "a finite number", first_row=start)
        for breaks, bound, words in bounds:
            if bound is not None:
                require(~breaks(block, bound), name, block, words, first_row=start)
    if declared.order is not None:
        valid = array[1:] > array[:-1] if declared.order == "rising" else array[1:] >= array[:-1]
        relation = "more than" if declared.order == "rising" else "at least as much as"
        require(valid, name, array[1:], f"{relation} the row before it", first_row=1)
