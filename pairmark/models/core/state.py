"""Fitted state is declared once, where it is held: writing, reading and checking follow from annotated attributes.

    class DiagonalSimilarity(DeclaredState, PairScorerMixin, BaseEstimator):
        weights_: Annotated[Float32, Array(shape=("features",), positive=True)]
        rate_: Annotated[float, Fact(), Field(gt=0)]

An `Array` is a file of the artefact, a `Fact` stands in its JSON, a `StateRecord` is a dataclass or NamedTuple whose
attributes are declared likewise, an `Inner` another learner. ``X | None`` may be missing. Names are those of the
attributes without underscores at either end, unless they are stated. A record may have a classmethod
``relate(file, prefix)`` that checks what holds between its arrays.

Everything is checked as it is read. Compiled loops follow what arrays say without asking: which row, which feature,
which node comes next. So an array that says what no fit would have written is refused, by its name and row.

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


class InnerModel(BaseModel):
    """What is kept of an inner learner beside its arrays."""

    model_config = ConfigDict(strict=True)

    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """A state as a file holds it: parameters and facts are checked already, arrays are checked in ``sizes``' terms."""

    params: Mapping[str, Any]
    facts: Any
    arrays: Mapping[str, NDArray[Any]]
    sizes: dict[str, int] = field(default_factory=dict)

    def length(self, name: str, axis: int = 0) -> int:
        """How long an array is along an axis, 0 where there is none."""
        array = self.arrays.get(name)
        return int(array.shape[axis]) if array is not None and array.ndim > axis else 0


When = Callable[[StoredState], bool] | None
Each = Callable[[StoredState], Iterable[Any]] | None
Get = Callable[[Any], Any] | None


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
    when, each, get : as in `StateRecord`.
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
    when: When = None
    each: Each = None
    get: Get = None


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A value in the JSON, of the annotated type and what pydantic's ``Field`` beside it says.

    ``kind`` : its type there, where ``write`` and ``read`` change it. ``default`` : what stands for a missing one.
    """

    name: str | None = None
    kind: Any = None
    default: Any = ...
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same


@dataclass(frozen=True, kw_only=True)
class StateRecord:
    """A dataclass or NamedTuple whose attributes are declared.

    Attributes
    ----------
    prefix : of the names of its arrays; ``*`` in it stands for the name.
    fact : the JSON object that holds its facts, null where there is no such part; else they stand among the others.
    when : whether it is there, by parameters; otherwise its first array decides.
    each : the attribute is a list, or a dict by these keys: one record each. ``{0}`` in a name or prefix is its number,
        ``{1}`` that of the next, ``{key}`` its key. Facts are lists, one value a record.
    of : the record's class, by the file and the key, where it is not the annotated one.
    get : how it is taken from the object when it is written, where that keeps it elsewhere.
    """

    prefix: str = ""
    fact: str | None = None
    when: When = None
    each: Each = None
    of: Callable[[StoredState, Any], type] | None = None
    get: Get = None


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A fitted learner of one of ``specs``, its arrays under a prefix."""

    specs: Mapping[str, LearnerSpec]
    prefix: str
    fact: str


class _Attribute(NamedTuple):
    """One attribute: its type, without None or that of what it is a list or dict of, and its marker."""

    attribute: str
    hint: Any
    kind: Any
    optional: bool
    marker: Any
    constraints: tuple[Any, ...]

    @property
    def name(self) -> str:
        """What it is called in the file."""
        return getattr(self.marker, "name", None) or self.attribute.strip("_")

    def place(self, prefix: str, at: int, key: Any) -> str:
        """Name of its array, or prefix of its arrays, number ``at`` of those there are."""
        label = self.name if isinstance(self.marker, Array) else self.marker.prefix
        return _joined(prefix, label.format(at, at + 1, key=key))


def _joined(prefix: str, label: str) -> str:
    return prefix.replace("*", label) if "*" in prefix else prefix + label


@cache
def _declared(cls: Any) -> tuple[_Attribute, ...]:
    """What a class and its bases declare."""
    attributes: dict[str, _Attribute] = {}
    for base in reversed(cls.__mro__):
        # Other annotations need not be resolvable, e.g. those of a user's subclass.
        own = inspect.get_annotations(base).items()
        annotations = {name: hint for name, hint in own if "Annotated[" in str(hint)}
        scope = vars(sys.modules[base.__module__])
        hints = get_type_hints(SimpleNamespace(__annotations__=annotations), scope, include_extras=True)
        for attribute, annotation in hints.items():
            hint, *extras = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
            for marker in extras:
                if isinstance(marker, Array | Fact | StateRecord | Inner):
                    constraints = tuple(extra for extra in extras if extra is not marker)
                    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
                    kind = next(option for option in options if option is not NoneType)
                    if getattr(marker, "of", None) is not None:
                        # A class that the file decides has no facts.
                        kind = object
                    elif getattr(marker, "each", None) is not None:
                        kind = get_args(kind)[-1]
                    optional = NoneType in options
                    attributes[attribute] = _Attribute(attribute, hint, kind, optional, marker, constraints)
    return tuple(attributes.values())


@cache
def _facts_model(cls: Any, nested: bool = False) -> type[BaseModel]:
    config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid" if nested else "ignore")
    fields: Any = _fact_fields(cls)
    model: type[BaseModel] = create_model(f"{cls.__name__}Facts", __config__=config, **fields)
    return model


def _fact_fields(cls: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for entry in _declared(cls):
        marker = entry.marker
        if isinstance(marker, Fact):
            kind = marker.kind or entry.hint
            hint = Annotated[(kind, *entry.constraints)] if entry.constraints else kind
            fields[entry.name] = hint, marker.default
        elif isinstance(marker, Inner):
            fields[marker.fact] = (InnerModel, ...)
        elif isinstance(marker, StateRecord) and marker.fact is not None:
            model: Any = _facts_model(entry.kind, nested=True)
            fields[marker.fact] = (model | None if entry.optional else model, ...)
        elif isinstance(marker, StateRecord):
            for name, (hint, default) in _fact_fields(entry.kind).items():
                if marker.each is not None:
                    hint = list[hint]  # type: ignore[valid-type]
                elif entry.optional:
                    hint = hint | None
                fields[name] = hint, default
    return fields


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _write(record: Any, file: StoredState, prefix: str) -> dict[str, Any]:
    """Add a record's arrays to the file's, by name; returns its facts."""
    meta: dict[str, Any] = {}
    arrays: Any = file.arrays
    cls: Any = type(record)
    for entry in _declared(cls):
        marker = entry.marker
        get = getattr(marker, "get", None)
        value: Any = getattr(record, entry.attribute, None) if get is None else get(record)
        if getattr(marker, "when", None) is not None and not marker.when(file):
            value = None
        if isinstance(marker, Fact):
            meta[entry.name] = _plain(marker.write(value))
        elif isinstance(marker, Inner):
            spec = next(spec for spec in marker.specs.values() if type(value) is spec.estimator)
            inner, facts = value.to_state()
            arrays.update({f"{marker.prefix}{name}": array for name, array in inner.items()})
            meta[marker.fact] = {"kind": spec.kind, "params": jsonable_params(spec, value), "meta": facts}
        elif isinstance(marker, Array):
            arrays.update({name: _storable(part, marker) for name, part in _parts(entry, prefix, value)})
        else:
            rows = [_write(part, file, name) for name, part in _parts(entry, prefix, value)]
            names = _fact_fields(entry.kind)
            if marker.fact is not None:
                meta[marker.fact] = rows[0] if rows else None
            elif marker.each is not None:
                meta |= {name: [row[name] for row in rows] for name in names}
            else:
                meta |= rows[0] if rows else dict.fromkeys(names)
    return meta


def _parts(entry: _Attribute, prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an attribute holds, by name or prefix."""
    if value is None:
        return
    one = entry.marker.each is None
    items = {None: value} if one else value if isinstance(value, dict) else dict(enumerate(value))
    for at, (key, item) in enumerate(items.items()):
        if item is not None:
            yield entry.place(prefix, at, key), item


def _storable(value: Any, marker: Array) -> NDArray[Any]:
    array = np.asarray(value)
    # Words of any length instead of objects.
    words = marker.kind in ("labels", "text") and array.dtype.kind not in "biufSU"
    return array.astype(np.str_) if words else array


class _Reader:
    """Reads declared attributes of a file, and remembers what is to be checked once all sizes are known."""

    def __init__(self, file: StoredState, *, mapped: bool) -> None:
        self._file, self._mapped = file, mapped
        self._layout: dict[str, Array] = {}
        self._learners: list[str] = []
        self._records: list[tuple[Any, str]] = []

    def read(self, cls: Any, facts: Any, prefix: str) -> dict[str, Any]:
        """Values by attribute."""
        values: dict[str, Any] = {}
        for entry in _declared(cls):
            marker = entry.marker
            if isinstance(marker, Fact):
                values[entry.attribute] = marker.read(getattr(facts, entry.name))
            elif isinstance(marker, Inner):
                values[entry.attribute] = self._learner(marker, getattr(facts, marker.fact))
            else:
                there = marker.when is None or marker.when(self._file)
                each: Any = () if not there else [None] if marker.each is None else marker.each(self._file)
                items = {key: self._item(entry, facts, prefix, at, key) for at, key in enumerate(each)}
                if marker.each is not None and (items or not entry.optional):
                    is_dict = get_origin(entry.hint) is dict
                    values[entry.attribute] = items if is_dict else list(items.values())
                elif items or entry.optional:
                    values[entry.attribute] = items.get(None)
        return values

    def _item(self, entry: _Attribute, facts: Any, prefix: str, at: int, key: Any) -> Any:
        marker, place = entry.marker, entry.place(prefix, at, key)
        if isinstance(marker, Array):
            self._layout[place] = self._resolved(entry, prefix, at, key)
            array = self._file.arrays.get(place)
            # Copied where kernels are to meet one kind of array.
            return (
                array if array is None else np.asarray(array) if self._mapped else np.array(array, order="C")
            )
        record = entry.kind if marker.of is None else marker.of(self._file, key)
        if marker.fact is not None:
            facts = getattr(facts, marker.fact)
            if facts is None:
                return None
        elif marker.each is not None:
            facts = SimpleNamespace(**{name: getattr(facts, name)[at] for name in _fact_fields(entry.kind)})
        elif entry.optional and marker.when is None:
            first = next(part for part in _declared(record) if isinstance(part.marker, Array))
            if first.place(place, 0, None) not in self._file.arrays:
                return None
        if hasattr(record, "relate"):
            self._records.append((record, place))
        return record(**self.read(record, facts, place))

    def _resolved(self, entry: _Attribute, prefix: str, at: int, key: Any) -> Array:
        """An array's declaration with its dtype, and with sizes of this record and number."""
        marker: Array = entry.marker

        def size_of_record(size: Size) -> Size:
            if isinstance(size, int):
                return size
            size = size.format(at, at + 1, key=key)
            return size if _size_parts(size)[0] in self._file.sizes else _joined(prefix, size)

        kind: Any = marker.kind or np.dtype(get_args(get_args(entry.kind)[1])[0]).name
        return replace(
            marker,
            kind=kind,
            shape=tuple(size_of_record(size) for size in marker.shape),
            below=None if marker.below is None else size_of_record(marker.below),
            optional=marker.optional or (entry.optional and marker.when is None),
        )

    def _learner(self, marker: Inner, inner: InnerModel) -> Any:
        """The inner learner, by its own declaration; errors name parameters and arrays as they are in this file."""
        if inner.kind not in marker.specs:
            raise OutdatedModel(
                f"{marker.fact}.kind is {inner.kind[:80]!r}; expected one of {', '.join(marker.specs)}"
            )
        spec, prefix = marker.specs[inner.kind], marker.prefix
        self._learners.append(prefix)
        its_arrays = {
            name.removeprefix(prefix): array
            for name, array in self._file.arrays.items()
            if name.startswith(prefix)
        }
        model = spec.estimator(**current_params(spec, inner.params, f"{marker.fact}.params."))
        meta = {**inner.meta, "n_features_in": self._file.sizes["features"], "feature_names_in": None}
        try:
            return model.from_state(its_arrays, meta)
        except ArtefactError as error:
            raise type(error)(str(error).replace("array '", f"array '{prefix}")) from error

    def check(self, gone: frozenset[str]) -> None:
        """Check arrays against what was declared, and what holds between them."""
        inner = tuple(self._learners)
        own = {
            name: array
            for name, array in self._file.arrays.items()
            if name not in gone and not (inner and name.startswith(inner))
        }
        check_arrays(replace(self._file, arrays=own), self._layout)
        for record, prefix in self._records:
            record.relate(self._file, prefix)


class Stateful:
    """A learner whose fitted state is plain arrays and JSON-able facts: `DeclaredState` has all of it."""

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        raise NotImplementedError(f"{type(self).__name__} has no to_state: its state cannot be saved")

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave; an `ArtefactError` names the fact, or the array and its
        row, that no fit writes."""
        raise NotImplementedError(f"{type(self).__name__} has no from_state: its state cannot be loaded")

    def save(self, path: str | os.PathLike[str]) -> str:
        """Save this fitted learner as an artefact folder, which `pairmark.load` reads; returns its sha256."""
        # What kinds there are is known above the families only.
        import pairmark

        return pairmark.save(self, path)


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
        learner: Any = self
        arrays: Arrays = {}
        file = StoredState(params=learner.get_params(deep=False), facts=None, arrays=arrays)
        return arrays, _write(self, file, "")

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave; an `ArtefactError` names the fact, or the array and its
        row, that no fit writes."""
        learner: Any = self
        cls: Any = type(self)
        common, facts = checked_model(Facts, meta), checked_model(_facts_model(cls), meta)
        file = StoredState(params=learner.get_params(deep=False), facts=facts, arrays=arrays)
        file.sizes["features"] = self.n_features_in_ = common.n_features_in
        file.sizes.update({name: value for name, value in facts if type(value) is int})
        file.sizes.update(cls._sizes(file))
        reader = _Reader(file, mapped=self._keeps_mapped)
        values = reader.read(cls, facts, "")
        reader.check(cls._gone)
        cls._relate(file)
        vars(self).update(values)
        self._restored()
        return self


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
            base, extra = _size_parts(size)
            if n < extra:
                raise refuse(name, None, f"shape is {array.shape}", f"at least {extra} rows")
            if sizes.setdefault(base, n - extra) != n - extra:
                raise refuse(name, None, f"shape is {array.shape}", f"{sizes[base] + extra} for {size!r}")


def _size_parts(size: str) -> tuple[str, int]:
    """``name + 1`` as the name and the number."""
    base, _, extra = size.partition(" + ")
    return base, int(extra or 0)


def _length_of(size: Size, sizes: Mapping[str, int]) -> int | None:
    if isinstance(size, int):
        return size
    base, extra = _size_parts(size)
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
