"""What a learner is to the library: its kind, what it can serve, its parameters, how its state is saved.

A learner's parameters are the annotated arguments of its constructor: type, bounds and description stand there, and
`parameters_of` makes the pydantic model of them from which schema, help, form and validation come.
"""

import functools
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from sklearn.base import clone

Capability = Literal["similarity", "match", "search", "embed", "classify", "rank-labels"]

_UNIONS = (Union, UnionType)

Seed = Annotated[int, Field(ge=0, lt=2**32)] | None
"""A seed; the same one gives the same model."""
RandomState = Seed | np.random.RandomState
"""A seed, or scikit-learn's kind of generator."""


def _some_threads(threads: int | None) -> int | None:
    if threads == 0:
        raise PydanticCustomError("threads", "Input should be -1 (one per core), or a number from 1 on")
    return threads


Threads = Annotated[
    int | None,
    Field(ge=-64, le=1024, description="threads; -1: one per core"),
    AfterValidator(_some_threads),
]


MaxFeatures = Annotated[
    Literal["sqrt", "log2", "third"]
    | Annotated[int, Field(ge=1, le=1_000_000)]
    | Annotated[float, Field(gt=0.0, le=1.0)]
    | None,
    Field(
        description="features tried in each node: a number, a share, 'sqrt', 'log2', 'third', or null for all"
    ),
]


def n_features_tried(max_features: int | float | str | None, n_features: int) -> int:
    """Of so many, at least one; see `MaxFeatures`."""
    if max_features is None:
        return n_features
    if isinstance(max_features, int):
        return min(max_features, n_features)
    words = {"sqrt": math.isqrt(n_features), "log2": int(math.log2(n_features)), "third": -(-n_features // 3)}
    return max(1, words[max_features] if isinstance(max_features, str) else round(max_features * n_features))


@runtime_checkable
class Classifier(Protocol):
    """What scikit-learn calls a classifier."""

    def fit(self, X: Any, y: Any) -> Any: ...
    def predict(self, X: Any) -> Any: ...


@runtime_checkable
class PairLearner(Protocol):
    """What every similarity does, whatever it learns; `PairScorerMixin` gives most of it, and says more."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and their identities."""

    def fit_pairs(self, left: Any, right: Any, same: Any) -> Any:
        """Learn from pairs."""

    def pair_score(self, left: Any, right: Any) -> Any:
        """Similarity of each pair, symmetric to the last bit."""

    def score_pairs(self, X: Any, left: Any, right: Any) -> Any:
        """The same of pairs of rows by their numbers."""

    def subject_score(self, left: Any, right: Any) -> Any:
        """Similarity of subjects of several samples."""

    def index(self, gallery: Any) -> Any:
        """Prepare a gallery for searches."""

    def top_k(self, query: Any, gallery: Any, k: int) -> Any:
        """The best rows of a gallery, exactly."""

    def to_state(self) -> Any:
        """Fitted state, as `from_state` reads it."""


@runtime_checkable
class Explainer(Protocol):
    """A similarity that says why a pair scores what it does."""

    def explain(self, left: Any, right: Any, feature_names: Any = None) -> dict[str, Any]:
        """What each part adds to one pair's score."""


@runtime_checkable
class LabelRanker(Protocol):
    """What every ranker of labels does; `RankerBase` gives most of it."""

    def fit(self, X: Any, Y: Any) -> Any:
        """Learn from rows and the positions of labels."""

    def predict_scores(self, X: Any) -> Any:
        """Scores of the labels, higher is better."""

    def to_state(self) -> Any:
        """Fitted state, as `from_state` reads it."""


_PYTHON_ONLY = (np.random.RandomState, Classifier)
"""Types of parameters that are welcome in Python, though no JSON can carry them."""


class Params(BaseModel):
    """Base of every learner's parameter model: names are those of the estimator, unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


AnyEstimator = TypeVar("AnyEstimator")


@functools.cache
def parameters_of(estimator: Any) -> type[Params]:
    """The model of a constructor's arguments, with the types that JSON can carry."""
    fields: dict[str, Any] = {
        name: (_json_part(annotation), default)
        for name, (annotation, default) in _arguments(estimator).items()
    }
    return create_model(f"{estimator.__name__}Params", __base__=Params, **fields)


def document_parameters(estimator: type[AnyEstimator]) -> type[AnyEstimator]:
    """Class decorator: ``help()`` lists the constructor's arguments with their descriptions and plain types."""
    learner: Any = estimator
    init = learner.__init__
    signature, plain_types = inspect.signature(init), get_type_hints(init)
    section = ["Parameters", "----------"]
    for name, (annotation, default) in _arguments(learner).items():
        section += textwrap.wrap(
            f"{name} : {_description(annotation)} (default {default!r})",
            110,
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
    # scikit-learn reads names and defaults here too; `get_type_hints` still finds the whole annotations.
    init.__signature__ = signature.replace(
        parameters=[
            argument.replace(annotation=plain_types.get(name, argument.empty))
            for name, argument in signature.parameters.items()
        ]
    )
    prose, heading, attributes = inspect.cleandoc(estimator.__doc__ or "").partition(
        "Attributes\n----------\n"
    )
    estimator.__doc__ = "\n\n".join([prose.rstrip(), "\n".join(section), heading + attributes]).rstrip()
    return estimator


def keep_arguments(estimator: Any, given: Mapping[str, Any]) -> None:
    """Keep what a constructor was given, its ``locals()``, as attributes of these names, where scikit-learn looks."""
    for name, value in given.items():
        if name != "self":
            setattr(estimator, name, value)


@functools.cache
def _arguments(estimator: Any) -> dict[str, tuple[Any, Any]]:
    annotations = get_type_hints(estimator.__init__, include_extras=True)
    return {
        name: (annotations[name], argument.default)
        for name, argument in inspect.signature(estimator).parameters.items()
    }


def _description(annotation: Any) -> str:
    # Annotations of annotations are flat, the outermost last. What JSON calls null is None in Python.
    extras = reversed(annotation.__metadata__)
    text = next(extra.description for extra in extras if isinstance(extra, FieldInfo) and extra.description)
    return re.sub(r"\bnull\b", "None", text)


def _json_part(annotation: Any) -> Any:
    """An annotation without the types that no JSON can carry."""
    if get_origin(annotation) is Annotated:
        return Annotated[_json_part(annotation.__origin__), *annotation.__metadata__]
    if get_origin(annotation) in _UNIONS:
        return Union[tuple(member for member in get_args(annotation) if member not in _PYTHON_ONLY)]  # noqa: UP007
    return annotation


def _python_types(annotation: Any) -> tuple[type[Any], ...]:
    """The types of an annotation that no JSON can carry."""
    if get_origin(annotation) is Annotated:
        annotation = annotation.__origin__
    return tuple(member for member in get_args(annotation) if member in _PYTHON_ONLY)


@dataclass(frozen=True, kw_only=True)
class LearnerSpec:
    """Everything the library and the service need to know of a learner.

    Attributes
    ----------
    kind : public name, e.g. ``similarity-forest``.
    title : one line for people.
    estimator : the class, a `Stateful`, whose constructor's arguments are the parameters.
    capabilities : what a fitted one can serve.
    needs : what a training dataset must bring.
    accepts_sparse : whether CSR input is taken as it is.
    distributes : whether parallel parts of a fit may run in processes of other machines, through joblib.
    takes_unlabelled : whether ``fit`` and ``fit_pairs`` take ``unlabelled=`` rows.
    learns : parameters -> whether anything is learned from the training part. A plain metric learns nothing, so all
        data may calibrate it.
    retired : parameters that earlier versions had, which their artefacts still name: the only value with which such a
        model can be read, or ``...`` for those that mattered to training alone.
    renamed : (parameter, value) of earlier versions -> the value that stands for it now.
    takes_records : whether it reads cells of tables itself, so that no encoder stands before it.
    has_tree : whether a fitted one shows its trees (``tree_data``).
    facts : a fitted one and the names of its features -> what a version says of it.
    settled : a fitted one -> an unfitted one that learns again what this one chose.

    Raises
    ------
    TypeError
        Where the class lacks what `PairLearner`, or `LabelRanker`, asks for.
    """

    kind: str
    title: str
    estimator: type[Any]
    capabilities: frozenset[Capability]
    needs: Literal["identities", "rankings"] = "identities"
    accepts_sparse: bool = False
    distributes: bool = False
    takes_unlabelled: bool = False
    takes_records: bool = False
    has_tree: bool = False
    facts: Callable[[Any, Any], dict[str, Any]] = lambda estimator, feature_names: {}
    settled: Callable[[Any], Any] = clone
    retired: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[tuple[str, Any], Any] = field(default_factory=dict)
    learns: Callable[[Mapping[str, Any]], bool] = lambda params: True

    def __post_init__(self) -> None:
        protocol: Any = LabelRanker if self.needs == "rankings" else PairLearner
        if not issubclass(self.estimator, protocol):
            raise TypeError(f"{self.kind}: {self.estimator.__name__} is no {protocol.__name__}")

    @property
    def params(self) -> type[Params]:
        """The model of the JSON-able parameters; its JSON Schema is public."""
        learner: Any = self.estimator
        return parameters_of(learner)


def capabilities_of(spec: LearnerSpec, estimator: Any) -> frozenset[Capability]:
    """What this fitted learner can serve: of its kind's capabilities, all that it does not name as ``unavailable_``."""
    return spec.capabilities.difference(estimator.unavailable_)


def check_params(estimator: Any) -> None:
    """Hold an estimator's parameters against their model; generators and other objects of Python's are left out.

    A `ValueError` names each parameter that does not fit and what was expected.
    """
    cls: Any = type(estimator)
    annotations = _arguments(cls)
    values = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in estimator.get_params(deep=False).items()
        if not isinstance(value, _python_types(annotations[name][0]))
    }
    try:
        parsed = parameters_of(cls).model_validate(values)
        # Numbers written as text are numbers in JSON's model; here the learner would meet the text.
        messages = {
            name: f"Input should be the number {getattr(parsed, name)}, not text"
            for name, value in values.items()
            if isinstance(value, str) and not isinstance(getattr(parsed, name), str)
        }
    except ValidationError as error:
        messages = {str(line["loc"][0]): line["msg"] for line in error.errors()}
    for name, message in messages.items():
        types = [f", or a {python_type.__name__}" for python_type in _python_types(annotations[name][0])]
        messages[name] = f"{name} is {values.get(name)!r}: {''.join([message, *types])}"
    if messages:
        raise ValueError(f"{cls.__name__}: {'; '.join(messages.values())}")


def jsonable_params(spec: LearnerSpec, estimator: Any) -> dict[str, Any]:
    """Parameters as their model writes them; a `ValueError` where one is an object that JSON cannot carry."""
    return spec.params.model_validate(estimator.get_params(deep=False)).model_dump(mode="json")
