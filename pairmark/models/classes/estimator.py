"""Agreement of what a classifier says of two rows."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.classes import kernels
from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int32, Int64, Matrix, NDArray
from pairmark.models.core.progress import one_blas_thread
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import GalleryIndex, Rows
from pairmark.models.core.spec import (
    LearnerSpec,
    RandomState,
    document_parameters,
    keep_arguments,
    n_features_tried,
)
from pairmark.models.core.state import Array, Fact, StoredState, refuse, require
from pairmark.models.evaluation.validation import GroupedRows, dealt_units, row_units
from pairmark.models.pairs.lists import labeled_rows_of_pairs

ClassifierName = Literal["logistic", "svc", "extra-trees", "pool", "quick-pool"]
_POOLS = {"pool": ("logistic", "svc", "extra-trees"), "quick-pool": ("logistic", "extra-trees")}
_FOLDS = 3
"""Parts that rows are dealt into."""
_SHARPNESS = tuple(2.0 ** np.arange(-6, 6.5, 0.5))
_SMOOTHING = (1e-4, 0.01, 0.1)
_STRENGTHS = {"logistic": (1.0,), "svc": (1.0, 10.0, 100.0), "extra-trees": (1.0,)}
"""What is tried of scikit-learn's ``C``, the default first."""
MOST_VECTORS = 5_000
"""Rows that support vectors are chosen from at most: the square of their kernel values is held in memory."""
_EVEN_ROWS, _STEPS = 2.0, 100
"""Rows that speak for each classifier of a pool before any is seen; steps to its weights."""
_CHANCES, _NEVER = "chances", -20.0
_JOINED = (
    "{}, but a class that joins later has no probability: fit with rows of every class (closed-set), or use a learner "
    "for identities that are new, such as Plda"
)


class _Plane(NamedTuple):
    """Linear in the features or, where there are vectors, in Gaussian kernels with them.

    Attributes
    ----------
    weights : (d or m, k). intercepts : (k,). vectors : (m, d), of standardized features.
    """

    weights: Annotated[Float64, Array(shape=("inputs", "n_classes"))]
    intercepts: Annotated[Float64, Array(shape=("n_classes",))]
    vectors: Annotated[Float64 | None, Array(shape=("inputs", "features"))]

    def margins(self, points: Float64, n_classes: int) -> Float64:
        if self.vectors is not None:
            points = _kernel(points, self.vectors)
        # einsum without BLAS: a row's answer does not depend on the rows beside it.
        return np.asarray(np.einsum("nd,dk->nk", points, self.weights) + self.intercepts)


class _Forest(NamedTuple):
    """Extremely randomized trees end to end.

    Attributes
    ----------
    roots : first node of each tree. feature, threshold : of each node; values at most the threshold go low, feature -1
        is a leaf. children : the low child of a node, before the high one; of a leaf its class.
    """

    roots: Annotated[Int64, Array(shape=("trees",), below="nodes")]
    feature: Annotated[Int32, Array(shape=("nodes",), low=-1, below="features")]
    threshold: Annotated[Float32, Array(shape=("nodes",))]
    children: Annotated[Int32, Array(shape=("nodes",), low=0)]

    @classmethod
    def grown(cls, points: Float32, codes: Int64, n_classes: int, n_trees: int, seed: int) -> "_Forest":
        """Trees of standardized rows (n, d) with classes 0 to ``n_classes`` - 1."""
        states = np.random.default_rng(seed).integers(2**63, size=n_trees).astype(np.uint64)
        # Memory that no node is written to is none.
        feature, children = np.empty((2, n_trees * 2 * codes.size), dtype=np.int32)
        roots, threshold = np.empty(n_trees, dtype=np.int64), np.empty(feature.size, dtype=np.float32)
        nodes, n_tried = (feature, threshold, children), n_features_tried("sqrt", points.shape[1])
        end = kernels.grow_forest(points, codes, n_classes, n_tried, states, roots, *nodes)
        return cls(roots, feature[:end].copy(), threshold[:end].copy(), children[:end].copy())

    def relate(self, prefix: str) -> None:
        """Refuse a forest without a tree, and children of nodes that no walk down may come to."""
        if not self.roots.size:
            raise refuse(f"{prefix}roots", None, "has no rows", "one tree at least")
        n = self.feature.size
        falls = (self.children > np.arange(n)) & (self.children < n - 1)
        require((self.feature < 0) | falls, f"{prefix}children", self.children, "a node after its parent")

    def margins(self, points: Float64, n_classes: int) -> Float64:
        # One more tree knows nothing: no class is impossible.
        votes = np.full((points.shape[0], n_classes), 1 / n_classes)
        kernels.add_votes(points.astype(np.float32), *self, votes)
        return np.asarray(np.log(votes / (self.roots.size + 1)))


@document_parameters
class SimilarityClasses(GroupedRows, BaseEstimator):
    """Whether two rows are of one class, by a classifier: the sum over classes k of ``p_k(x) p_k(y)``.

    A score is the log-odds of that agreement. Probabilities are calibrated on rows that the classifier did not learn
    from (``deals`` into three folds; equal rows, and rows of one of ``groups``, stay together): by their sharpness
    (temperature scaling, Guo et al. 2017) and a share that any class has, the softest of those that fit as well. So a
    few wrong labels do not make it sure of itself. A pool's probabilities are the weighted mean of several classifiers'
    (Genest and Zidek 1986, section 3.1), by the weights under which those rows' classes are the most probable, evenly
    where they tell little.

    It is for classes that are all there are (closed-set): one that joins later has no probability. Of listed pairs,
    rows that positive ones join are a class.

    Attributes
    ----------
    classes_ : (k,) the classes; None of listed pairs, which name none. n_classes_ : how many. weights_ : (m,) of the
        classifiers. sharpness_, smoothing_ : (m,) their calibration. strength_ : (m,) their ``C``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pairmark import SimilarityClasses
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SimilarityClasses().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.95  # the AUC of pairs of other flowers of these kinds
    True
    """

    classes_: Annotated[NDArray[Any] | None, Array(kind="labels", shape=("n_classes",))]
    n_classes_: Annotated[int, Fact(), Field(ge=2)]
    weights_: Annotated[Float64, Array(shape=("parts",), low=0, high=1)]
    sharpness_: Annotated[Float64, Array(shape=("parts",), positive=True, high=1e3)]
    smoothing_: Annotated[Float64, Array(shape=("parts",), positive=True, high=0.5)]
    strength_: Annotated[Float64, Array(shape=("parts",), positive=True)]
    _mean: Annotated[Float64, Array(shape=("features",))]
    _deviation: Annotated[Float64, Array(shape=("features",), positive=True)]
    _missing = "median"
    _models: list[_Plane | _Forest]

    def __init__(
        self,
        *,
        classifier: Annotated[
            ClassifierName,
            Field(
                description="logistic: multinomial logistic regression; svc: support vectors with Gaussian kernels; "
                "extra-trees: extremely randomized trees; pool: all three, weighted; quick-pool: the first and the last"
            ),
        ] = "logistic",
        n_estimators: Annotated[
            int, Field(ge=_FOLDS, le=10_000, description="trees, where there are some")
        ] = 100,
        deals: Annotated[
            int,
            Field(
                ge=1,
                le=10,
                description="how often rows are dealt into folds to calibrate: of few, one decides by luck",
            ),
        ] = 1,
        protocol: Annotated[
            Literal["auto", "open-set", "closed-set"],
            Field(description="what rows to come are of; open-set, identities that are new, is refused"),
        ] = "auto",
        random_state: Annotated[RandomState, Field(description="seed of folds and trees")] = 0,
    ) -> None:
        keep_arguments(self, locals())

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """See `PairScorerMixin.score`; a `ValueError` names a class that `fit` did not see."""
        check_is_fitted(self)
        check_classes(self.classes_, y)
        return super().score(X, y)

    def _check_params(self) -> None:
        super()._check_params()
        if self.protocol == "open-set":
            raise ValueError(_JOINED.format("protocol is 'open-set'"))

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        self._learn(rows, codes, identities, row_units(rows, self._groups))

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Float64) -> None:
        rows, codes = labeled_rows_of_pairs(left, right, same, weight)
        self._learn(rows, codes, None, np.arange(codes.size))

    def _learn(self, rows: Float32, codes: Int64, classes: NDArray[Any] | None, units: Int64) -> None:
        if "svc" in self._parts_named and codes.size > MOST_VECTORS:
            raise ValueError(
                f"classifier is {self.classifier!r} and X has {codes.size:,} rows; expected at most {MOST_VECTORS:,}: "
                "draw as many, or use 'quick-pool'"
            )
        seed = int(check_random_state(self.random_state).randint(2**31))
        self.classes_, self.n_classes_ = classes, int(codes.max()) + 1
        self._mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        self._deviation = np.where(deviation > 0, deviation, 1.0)
        points, shown = self._points(rows), np.eye(self.n_classes_)[codes]
        random = np.random.default_rng(seed)
        deals = [dealt_units(units, codes, _FOLDS, random) for _ in range(self.deals)]
        self._models, settings, right = [], [], []
        # What scikit-learn would look at again is checked.
        with one_blas_thread(), config_context(assume_finite=True, skip_parameter_validation=True):
            for name in self._parts_named:
                trials: list[tuple[float, Float64, tuple[float, ...]]] = []
                for strength in _STRENGTHS[name]:
                    margins = np.zeros(shown.shape)
                    parts = [deal == number for deal in deals for number in np.unique(deal)]
                    for test in (part for part in parts if not part.all()):
                        learned = _learn_classifier(
                            name, points[~test], shown[~test], strength, self.n_estimators // _FOLDS, seed
                        )
                        margins[test] += learned.margins(points[test], self.n_classes_) / self.deals
                    loss, *calibration = _calibrate_margins(margins, codes)
                    # A strength that is not the default must fit better by as much as a row tells.
                    trials.append((loss + bool(trials) / codes.size, margins, (*calibration, strength)))
                _, margins, setting = min(trials, key=lambda trial: trial[0])
                right.append(_chances(margins, *setting[:2])[np.arange(codes.size), codes])
                settings.append(setting)
                self._models.append(
                    _learn_classifier(name, points, shown, setting[2], self.n_estimators, seed)
                )
        self.sharpness_, self.smoothing_, self.strength_ = np.array(settings, dtype=np.float64).T.copy()
        self.weights_ = _weights(np.array(right))

    def _points(self, rows: Matrix) -> Float64:
        return np.asarray((rows - self._mean) / self._deviation)

    def _chances(self, rows: Matrix) -> Float64:
        """(n, k) calibrated probabilities."""
        points = self._points(rows)
        settings = zip(self._models, self.weights_, self.sharpness_, self.smoothing_, strict=True)
        parts = [
            weight * _chances(model.margins(points, self.n_classes_), *how)
            for model, weight, *how in settings
        ]
        return np.asarray(np.sum(parts, axis=0))

    @property
    def _parts_named(self) -> tuple[str, ...]:
        return _POOLS.get(self.classifier, (self.classifier,))

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        return _log_odds(self._chances(left) * self._chances(right))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        chances = self._chances(rows)
        return lambda left, right: _log_odds(chances[left] * chances[right])

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        return {_CHANCES: self._chances(vectors)}

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        gallery = np.asarray(index.arrays[_CHANCES])[rows]
        return np.stack([_log_odds(chances * gallery) for chances in self._chances(queries)])

    def _parts(self) -> Mapping[str, Any]:
        return {f"{name}-": model for name, model in zip(self._parts_named, self._models, strict=True)}

    def _read_parts(self, file: StoredState) -> None:
        self._models = [
            file.record(_Forest if name == "extra-trees" else _Plane, f"{name}-")
            for name in self._parts_named
        ]

    def _relate(self, file: StoredState) -> None:
        if self.weights_.size != len(self._models):
            raise refuse(
                "weights", None, f"has {self.weights_.size} rows", f"{len(self._models)}, one a classifier"
            )
        if abs(self.weights_.sum() - 1) > 1e-6:
            raise refuse("weights", None, f"add up to {self.weights_.sum():.4g}", "1")
        for model in self._models:
            if isinstance(model, _Forest):
                is_class = (model.feature >= 0) | (model.children < self.n_classes_)
                require(is_class, "extra-trees-children", model.children, "the number of a class at a leaf")
            elif model.vectors is None and len(model.weights) != self.n_features_in_:
                n_rows, requirement = len(model.weights), f"{self.n_features_in_}, one a feature"
                raise refuse("logistic-weights", None, f"has {n_rows} rows", requirement)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")


def check_classes(known: NDArray[Any] | None, y: ArrayLike) -> None:
    """Refuse classes, (n,), that are not among the known ones; None: these have no names."""
    unknown = np.setdiff1d(y, y if known is None else known)
    if unknown.size:
        raise ValueError(_JOINED.format(f"class {str(unknown[0])[:80]!r} was not in training"))


def _learn_classifier(
    name: str, points: Float64, shown: Float64, strength: float, n_trees: int, seed: int
) -> _Plane | _Forest:
    """A classifier of standardized rows (n, d) and their classes (n, k); one without rows gets no chance."""
    codes, k = shown.argmax(axis=1), shown.shape[1]
    if name == "extra-trees":
        return _Forest.grown(points.astype(np.float32), codes, k, n_trees, seed)
    vectors = points if name == "svc" else None
    inputs = points if vectors is None else _kernel(points, points)
    weights, intercepts = np.zeros((inputs.shape[1], k)), np.full(k, _NEVER)
    there = np.flatnonzero(shown.any(axis=0))
    if there.size == 1:
        intercepts[there] = 0.0
    elif vectors is None:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=strength, max_iter=200).fit(points, codes)
        # Of two classes there is one plane.
        both = np.array([-0.5, 0.5]) if there.size == 2 else 1.0
        weights[:, there], intercepts[there] = model.coef_.T * both, model.intercept_ * both
    else:
        from sklearn.svm import SVC

        for label in there[there.size == 2 :]:
            machine = SVC(C=strength, kernel="precomputed").fit(inputs, shown[:, label])
            weights[machine.support_, label] = machine.dual_coef_[0]
            intercepts[label] = machine.intercept_[0]
        if there.size == 2:
            # Of two classes one machine tells both.
            weights[:, there[0]], intercepts[there[0]] = -weights[:, there[1]], -intercepts[there[1]]
        used = weights.any(axis=1)
        weights, vectors = weights[used], points[used]
    return _Plane(weights=weights, intercepts=intercepts, vectors=vectors)


def _kernel(points: Float64, vectors: Float64) -> Float64:
    """Gaussian kernels (n, m), of a width that suits standardized features."""
    return np.asarray(np.exp(-cdist(points, vectors, "sqeuclidean") / vectors.shape[1]))


def _log_odds(products: Float64) -> Float32:
    """Of agreements, from products of probabilities by class on the last axis."""
    agreement = products.sum(axis=-1)
    return np.asarray(np.log(agreement / (1.0 - agreement)), dtype=np.float32)


def _chances(margins: Float64, sharpness: float, smoothing: float) -> Float64:
    chances = softmax(sharpness * margins, axis=1)
    return np.asarray((1 - smoothing) * chances + smoothing / chances.shape[1])


def _calibrate_margins(margins: Float64, codes: Int64) -> tuple[float, float, float]:
    """Loss, sharpness and smoothing: the softest that fit rows of these codes as well as any, up to one row's say."""
    rows, found = np.arange(codes.size), []
    for sharpness in _SHARPNESS:
        chances = softmax(sharpness * margins, axis=1)[rows, codes]
        for smoothing in _SMOOTHING:
            losses = -np.log((1 - smoothing) * chances + smoothing / margins.shape[1])
            found.append((float(losses.mean()), sharpness, smoothing))
    least = min(found)[0] + 1 / codes.size
    return next(trial for trial in found if trial[0] <= least)


def _weights(right: Float64) -> Float64:
    """(m,) of classifiers by their probabilities (m, n) of held-out rows' classes: of greatest likelihood, by EM."""
    m, n = right.shape
    weights = np.full(m, 1 / m)
    for _ in range(_STEPS):
        shares = weights[:, None] * right
        weights = ((shares / shares.sum(axis=0)).sum(axis=1) + _EVEN_ROWS) / (n + m * _EVEN_ROWS)
    return weights


CLASSES = LearnerSpec(
    kind="similarity-classes",
    title="Agreement of a classifier's probabilities, for classes that are all there are",
    estimator=SimilarityClasses,
    capabilities=frozenset({"similarity", "match", "search"}),
)
