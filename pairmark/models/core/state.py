"""Fitted state is declared once, where it is held: writing, reading and checking follow from annotated attributes.

    class DiagonalSimilarity(DeclaredState, PairScorerMixin, BaseEstimator):
        weights_: Annotated[Float32, Array(shape=("features",), positive=True)]
        rate_: Annotated[float, Fact(), Field(gt=0)]

An `Array` is a file of the artefact, a `Fact` stands in its JSON, a `StateRecord` is a dataclass or NamedTuple whose
attributes are declared likewise, an `Inner` another learner. ``X | None`` may be missing. Names are those of the
attributes without underscores at either end, unless they are stated. A record may have a classmethod
``relate(file, prefix)`` that checks what holds between its arrays.

Sizes in shapes are names: ``features``, every integer fact, what `DeclaredState._sizes` adds, else the length of the
first array that has it. Names of the last kind belong to the record that they occur in.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from pairmark.models.core.arrays import Bool
from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.spec import LearnerSpec, jsonable_params

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
    shape = tuple(_length_of(size, sizes) for size in spec.shape)
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


def _length_of(size: Size, sizes: Mapping[str, int]) -> int | None:
    if isinstance(size, int):
        return size
    base, extra = size_parts(size)
    return sizes[base] + extra if base in sizes else None


def _check_values(name: str, array: NDArray[Any], spec: Array, sizes: Mapping[str, int]) -> None:
    if array.dtype.kind not in "iuf" or not array.size:
        return
    below = None if spec.below is None else _length_of(spec.below, sizes)
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


class InnerModel(BaseModel):
    """What is kept of the inner learner beside its arrays."""

    model_config = ConfigDict(strict=True)

    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]


def inner_facts(specs: Mapping[str, LearnerSpec], model: Any) -> dict[str, Any]:
    spec = next(spec for spec in specs.values() if type(model) is spec.estimator)
    return {"kind": spec.kind, "params": jsonable_params(spec, model), "meta": model.to_state()[1]}


def inner_model(specs: Mapping[str, LearnerSpec], facts: InnerModel, file: StoredState, prefix: str) -> Any:
    spec = specs[facts.kind]
    model = spec.estimator(**current_params(spec, facts.params))
    width = {"n_features_in": file.sizes["features"]} if "features" in file.sizes else {}
    return model.from_state(_inner_arrays(file.arrays, prefix), facts.meta | width)


def _inner_arrays(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


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


def check_inner(
    spec: LearnerSpec, inner: InnerModel, n_features: int, arrays: Mapping[str, NDArray[Any]], prefix: str
) -> None:
    """Check the inner learner's state by its own schema; errors name parameters and arrays as they are in the file."""
    params = current_params(spec, inner.params, "model.params.")
    facts = {**inner.meta, "n_features_in": n_features, "feature_names_in": None}
    try:
        spec.estimator.check_state(params, facts, _inner_arrays(arrays, prefix))
    except ArtefactError as error:
        raise ArtefactError(str(error).replace("array '", f"array '{prefix}")) from error


When = Callable[[StoredState], bool] | None
Each = Callable[[StoredState], Iterable[Any]] | None
Get = Callable[[Any], Any] | None


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value in the JSON, of the annotated type and what pydantic's ``Field`` beside it says.

    ``kind`` : its type there, where ``write`` and ``read`` change it. ``default`` : what stands for a missing one.
    ``get`` : as in `StateRecord`.
    """

    name: str | None = None
    kind: Any = None
    default: Any = ...
    get: Get = None
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same


@dataclass(frozen=True, kw_only=True)
class StateRecord:
    """A dataclass or NamedTuple whose attributes are declared.

    Attributes
    ----------
    prefix : of the names of its arrays; ``*`` in it stands for the name.
    fact : the JSON object that holds its facts, null where there is no such part; else they stand among the others.
    omit : whether the fact is left out instead of null.
    when : whether it is there; otherwise arrays decide.
    each : the attribute is a list, or a dict by these keys: one record each. ``{0}`` in a name or prefix is its number,
        ``{1}`` that of the next, ``{key}`` its key. Facts are lists, one value a record.
    of : the record's class, by the file and the key, where it is not the annotated one.
    get : how it is taken from the object when it is written, where that keeps it elsewhere.
    write, read : between the attribute and the record.
    """

    prefix: str = ""
    fact: str | None = None
    omit: bool = False
    when: When = None
    each: Each = None
    of: Callable[[StoredState, Any], type] | None = None
    get: Get = None
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A fitted learner of one of ``specs``, its arrays under a prefix; with ``each`` a list, perhaps with None."""

    specs: Mapping[str, LearnerSpec]
    prefix: str
    fact: str
    each: Each = None
    when: When = None


class StateAttribute(NamedTuple):
    """One attribute: its type without None, or that of what it is a list or dict of, and its marker."""

    attribute: str
    hint: Any
    kind: Any
    optional: bool
    marker: Any
    constraints: tuple[Any, ...]

    def of(self, record: Any) -> Any:
        """The value to be written."""
        get = getattr(self.marker, "get", None)
        return getattr(record, self.attribute) if get is None else get(record)

    @property
    def name(self) -> str:
        """What it is called in the file."""
        return getattr(self.marker, "name", None) or self.attribute.strip("_")


class DeclaredState(Stateful):
    """A learner whose annotated attributes are its fitted state; see the module."""

    _keeps_mapped: ClassVar[bool] = False
    """Whether arrays of a mapped file are used as they are; else copied, so that kernels meet one kind of array."""
    _gone: ClassVar[frozenset[str]] = frozenset()
    """Arrays of earlier versions that are left unread."""
    n_features_in_: int

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        """Sizes that parameters, facts or other arrays decide."""
        return {}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        """Check what holds between arrays, each of which is as declared; raise `refuse`."""

    def _restored(self) -> None:
        """Work out what follows from the state, once it is read."""

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        cls: Any = type(self)
        meta = _facts(self, cls)
        return _arrays(self, cls, self._stored_state({}, meta), ""), meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave."""
        file = self._stored_state(arrays, meta)
        if "n_features_in" in meta:
            self.n_features_in_ = file.sizes["features"] = int(meta["n_features_in"])
        for attribute, value in _attributes(type(self), file, file.facts, "").items():
            setattr(self, attribute, value)
        self._restored()
        return self

    def _stored_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> StoredState:
        learner: Any = self
        cls: Any = type(self)
        return StoredState(
            params=learner.get_params(deep=False),
            facts=facts_model(cls).model_validate(meta),
            arrays=arrays,
            mapped=self._keeps_mapped,
        )

    @classmethod
    def check_state(
        cls, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Check what a file holds; an `ArtefactError` names the fact, or the array and its row."""
        declared: Any = cls
        common, facts = checked_model(Facts, meta), checked_model(facts_model(declared), meta)
        file = StoredState(params=params, facts=facts, arrays=arrays)
        file.sizes["features"] = common.n_features_in
        file.sizes.update({name: value for name, value in facts if type(value) is int})
        file.sizes.update(cls._sizes(file))
        layout = _Layout().add(declared, file, facts, "")
        inner = tuple(prefix for _, _, prefix in layout.learners)
        own_arrays = {
            name: array
            for name, array in arrays.items()
            if name not in cls._gone and not (inner and name.startswith(inner))
        }
        check_arrays(replace(file, arrays=own_arrays), layout.arrays)
        for record, prefix in layout.records:
            record.relate(file, prefix)
        cls._relate(file)
        for specs, model, prefix in layout.learners:
            if model.kind not in specs:
                raise OutdatedModel(f"model.kind is {model.kind[:80]!r}; expected one of {', '.join(specs)}")
            check_inner(specs[model.kind], model, common.n_features_in, arrays, prefix)


@cache
def state_attributes(cls: Any) -> tuple[StateAttribute, ...]:
    """What a class and its bases declare."""
    entries: dict[str, StateAttribute] = {}
    for base in reversed(cls.__mro__):
        # Other annotations need not be resolvable, e.g. those of a user's subclass.
        annotations = {
            name: hint for name, hint in inspect.get_annotations(base).items() if "Annotated[" in str(hint)
        }
        scope = vars(sys.modules[base.__module__])
        hints = get_type_hints(SimpleNamespace(__annotations__=annotations), scope, include_extras=True)
        for attribute, annotation in hints.items():
            if get_origin(annotation) is Annotated:
                hint, *extras = get_args(annotation)
                markers = [extra for extra in extras if isinstance(extra, Array | Fact | StateRecord | Inner)]
                if markers:
                    constraints = tuple(extra for extra in extras if extra is not markers[0])
                    entries[attribute] = _state_attribute(attribute, hint, markers[0], constraints)
    return tuple(entries.values())


def _state_attribute(attribute: str, hint: Any, marker: Any, constraints: tuple[Any, ...]) -> StateAttribute:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [option for option in options if option is not NoneType]
    kind = kinds[0]
    if not isinstance(marker, Fact) and marker.each is not None:
        kind = get_args(kind)[-1]
    return StateAttribute(attribute, hint, kind, len(kinds) < len(options), marker, constraints)


@cache
def facts_model(cls: Any, nested: bool = False) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for entry in state_attributes(cls):
        fields |= _fields(entry)
    config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid" if nested else "ignore")
    model: type[BaseModel] = create_model(f"{cls.__name__}Facts", __config__=config, **fields)
    return model


def _fields(entry: StateAttribute) -> dict[str, Any]:
    marker = entry.marker
    if isinstance(marker, Fact):
        kind = marker.kind or entry.hint
        hint = Annotated[(kind, *entry.constraints)] if entry.constraints else kind
        return {entry.name: (hint, marker.default)}
    if isinstance(marker, Inner):
        return {marker.fact: (InnerModel if marker.each is None else list[InnerModel | None], ...)}
    if isinstance(marker, Array) or marker.of is not None:
        return {}
    model: Any = facts_model(entry.kind, nested=True)
    if marker.fact is not None:
        default = None if marker.omit else ...
        return {marker.fact: (model | None if entry.optional else model, default)}
    fields = {}
    for part in state_attributes(entry.kind):
        for name, (hint, default) in _fields(part).items():
            if marker.each is not None:
                hint = list[hint]  # type: ignore[valid-type]
            elif entry.optional:
                hint = hint | None
            fields[name] = hint, default
    return fields


def _facts(record: Any, cls: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    for entry in state_attributes(cls):
        marker = entry.marker
        if isinstance(marker, Array) or (isinstance(marker, StateRecord) and marker.of is not None):
            continue
        value = entry.of(record)
        if value is None and isinstance(marker, StateRecord) and marker.omit:
            continue
        if isinstance(marker, Fact):
            meta[entry.name] = _plain(marker.write(value))
        elif isinstance(marker, Inner):
            models = [value] if marker.each is None else value
            facts = [None if model is None else inner_facts(marker.specs, model) for model in models]
            meta[marker.fact] = facts[0] if marker.each is None else facts
        elif marker.each is not None:
            rows = [_facts(marker.write(item), entry.kind) for item in _items(value)]
            meta |= {name: [row[name] for row in rows] for name in facts_model(entry.kind).model_fields}
        elif value is None:
            names = facts_model(entry.kind).model_fields if marker.fact is None else [marker.fact]
            meta |= dict.fromkeys(names)
        else:
            part_facts = _facts(marker.write(value), entry.kind)
            meta |= part_facts if marker.fact is None else {marker.fact: part_facts}
    return meta


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _places(entry: StateAttribute, file: StoredState, prefix: str) -> Iterator[tuple[str, Any, int]]:
    """Names or prefixes of what an attribute holds, with its key and number; none where it is not there."""
    marker = entry.marker
    if marker.when is not None and not marker.when(file):
        return
    label = entry.name if isinstance(marker, Array) else marker.prefix
    if marker.each is None:
        yield name_of(prefix, label), None, 0
        return
    for at, key in enumerate(marker.each(file)):
        yield name_of(prefix, label.format(at, at + 1, key=key)), key, at


def name_of(prefix: str, label: str) -> str:
    return prefix.replace("*", label) if "*" in prefix else prefix + label


def _arrays(record: Any, cls: Any, file: StoredState, prefix: str) -> Arrays:
    arrays: Arrays = {}
    for entry in state_attributes(cls):
        marker = entry.marker
        for name, key, at in () if isinstance(marker, Fact) else _places(entry, file, prefix):
            item = entry.of(record)
            if marker.each is not None and item is not None:
                item = item[key if isinstance(item, dict) else at]
            if item is None:
                continue
            if isinstance(marker, Array):
                array = np.asarray(item)
                # Words of any length instead of objects.
                words = marker.kind in ("labels", "text") and array.dtype.kind not in "biufSU"
                arrays[name] = array.astype(np.str_) if words else array
            elif isinstance(marker, Inner):
                arrays |= {f"{name}{inner}": array for inner, array in item.to_state()[0].items()}
            else:
                part = marker.write(item)
                arrays |= _arrays(part, type(part), file, name)
    return arrays


def _attributes(cls: Any, file: StoredState, facts: Any, prefix: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in state_attributes(cls):
        marker, attribute = entry.marker, entry.attribute
        if isinstance(marker, Fact):
            values[attribute] = marker.read(getattr(facts, entry.name))
            continue
        places = _places(entry, file, prefix)
        items = {key: _item(entry, file, facts, name, key, at) for name, key, at in places}
        if marker.each is not None and (items or not entry.optional):
            values[attribute] = items if get_origin(entry.hint) is dict else list(items.values())
        elif items or entry.optional:
            values[attribute] = items.get(None)
    return values


def _item(entry: StateAttribute, file: StoredState, facts: Any, name: str, key: Any, at: int) -> Any:
    marker = entry.marker
    if isinstance(marker, Array):
        array = file.arrays.get(name)
        return array if array is None else np.asarray(array) if file.mapped else np.array(array, order="C")
    if isinstance(marker, Inner):
        model = _inner_of(marker, facts, at)
        return None if model is None else inner_model(marker.specs, model, file, name)
    record, part_facts = _part(entry, file, facts, name, key, at)
    return None if record is None else marker.read(record(**_attributes(record, file, part_facts, name)))


def _inner_of(marker: Inner, facts: Any, at: int) -> InnerModel | None:
    model = getattr(facts, marker.fact)
    inner: InnerModel | None = model if marker.each is None else model[at]
    return inner


def _part(
    entry: StateAttribute, file: StoredState, facts: Any, name: str, key: Any, at: int
) -> tuple[Any, Any]:
    """The class and the facts of a part; twice None where there is none."""
    marker, record = entry.marker, entry.kind
    if marker.of is not None:
        record = marker.of(file, key)
    elif marker.fact is not None:
        facts = getattr(facts, marker.fact)
    elif marker.each is not None:
        names = facts_model(record).model_fields
        facts = SimpleNamespace(**{field_name: getattr(facts, field_name)[at] for field_name in names})
    if entry.optional and marker.when is None and marker.fact is None:
        layout = _Layout().add(record, file, facts, name)
        facts = facts if layout.arrays.keys() & file.arrays.keys() else None
    return (None, None) if facts is None else (record, facts)


@dataclass
class _Layout:
    """Every array that there may be by name, and the records and learners among them with their prefixes."""

    arrays: dict[str, Array] = field(default_factory=dict)
    records: list[tuple[Any, str]] = field(default_factory=list)
    learners: list[tuple[Mapping[str, LearnerSpec], InnerModel, str]] = field(default_factory=list)

    def add(self, cls: Any, file: StoredState, facts: Any, prefix: str) -> Self:
        for entry in state_attributes(cls):
            marker = entry.marker
            for name, key, at in () if isinstance(marker, Fact) else _places(entry, file, prefix):
                if isinstance(marker, Array):
                    self.arrays[name] = _resolved(entry, file, prefix, at, key)
                elif isinstance(marker, Inner):
                    model = _inner_of(marker, facts, at)
                    self.learners += [] if model is None else [(marker.specs, model, name)]
                else:
                    record, part_facts = _part(entry, file, facts, name, key, at)
                    if record is not None:
                        self.add(record, file, part_facts, name)
                        self.records += [(record, name)] if hasattr(record, "relate") else []
        return self


def _resolved(entry: StateAttribute, file: StoredState, prefix: str, at: int, key: Any) -> Array:
    """An array's declaration with its dtype, and with sizes of this record and number."""
    marker: Array = entry.marker

    def size_of_record(size: Size) -> Size:
        if isinstance(size, int):
            return size
        size = size.format(at, at + 1, key=key)
        return size if size_parts(size)[0] in file.sizes else name_of(prefix, size)

    kind: Any = marker.kind or np.dtype(get_args(get_args(entry.kind)[1])[0]).name
    return replace(
        marker,
        kind=kind,
        shape=tuple(size_of_record(size) for size in marker.shape),
        below=None if marker.below is None else size_of_record(marker.below),
        optional=marker.optional or (entry.optional and marker.when is None),
    )
