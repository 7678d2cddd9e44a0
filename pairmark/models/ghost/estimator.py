"""GHOST: a sparse, non-negative weighting of distances of any order, as a learner of similarity and of classes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.artefact import OutdatedModel
from pairmark.models.core.base import EmbedderMixin, PairScorerMixin
from pairmark.models.core.inputs import LISTED, feature_names_of, one_of_equals
from pairmark.models.core.progress import report
from pairmark.models.core.scaling import fitted_sharpness
from pairmark.models.core.search import GalleryIndex, Rows, SearchForm
from pairmark.models.core.spec import LearnerSpec, RandomState, document_parameters, keep_arguments
from pairmark.models.core.state import Array, Fact, StateRecord, StoredState, refuse
from pairmark.models.ghost import kernels
from pairmark.models.ghost.classify import (
    STRATEGIES,
    GhostClasses,
    balanced_accuracy,
    class_distances,
    describe,
    distances,
    weighing_of,
)
from pairmark.models.ghost.learning import (
    MAX_PAIRS,
    GhostWeights,
    learn,
    learn_from_pairs,
    training_sets,
    withheld_rows,
)
from pairmark.models.ghost.space import (
    MAX_POINTS,
    PATH,
    Attachment,
    GhostPoints,
    Graph,
    MetaFeatures,
    Scales,
    Space,
    choose,
    given_graph,
    known_names,
    nearest_graph,
    scales_of,
)
from pairmark.models.pairs.lists import some_pairs


def _score(distance: Float64) -> Float32:
    """Minus the distance, finite; and 0.0, never -0.0, of no distance."""
    return (0.0 - np.minimum(distance, np.finfo(np.float32).max)).astype(np.float32)


def _reach(coordinates: Float32) -> Float64:
    """The greatest sum of absolute coordinates of a row, (1,), with headroom for coordinates too small for float32."""
    sums = np.abs(coordinates).sum(axis=1, dtype=np.float64)
    return np.array([sums.max(initial=0.0) + coordinates.shape[1] * 2.0**-120])


_Strategy = Literal["center", "average", "knn", "minimum", "maximum"]


_MOST_JUDGED = 1_000
"""Learning rows that take part in the choice of the strategy."""


def _known_meta_features(names: list[str] | str) -> list[str] | str:
    unknown = [] if isinstance(names, str) else [name for name in names if name not in known_names()]
    if unknown:
        raise ValueError(f"names {unknown[0]!r}; known: {', '.join(known_names())}")
    return names


@document_parameters
class Ghost(PairScorerMixin, EmbedderMixin, ClassifierMixin, BaseEstimator):
    """Graph higher-order similarity transformation (Battistella et al. 2022, hal-03563705).

    Learns weights >= 0 of distance features so that in every training set the true clusters, each around its best
    exemplar, cost less than any other assignment by the error it makes: a max-margin conditional random field, solved
    by dual decomposition (sections 3.2 to 3.8; where the printed formulas fail, docs/ghost.md derives). The learned
    distance of two points is the weighted sum of their meta-features; a pair scores its negative.

    Explicit pairs are each a training set of two points, in one cluster or two; when ``balanced``, both kinds weigh the
    same in sum. They say nothing of larger sets or of classes: meta-features of those get no weight, and `predict` has
    no classes to tell.

    Attributes
    ----------
    weights_ : (n_weights,) learned weights, of meta-features divided by their mean: comparable with each other.
    meta_feature_names_ : (n_weights,) what each weighs.
    exemplar_price_ : learned price of one more exemplar, in the learned distance (the paper's).
    classes_, exemplars_ : the classes and the training row that is each one's center.
    strategy_ : the strategy in use; validation_: balanced accuracy of each on withheld rows and on
        learning rows, each judged without itself.
    loss_curve_ : the regularised loss of each iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import Ghost
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = Ghost(max_iter=10).fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    """

    weights_: Annotated[Float64, Array(shape=("weights",), low=0)]
    meta_feature_names_: Annotated[NDArray[Any], Array(name="names", kind="text", shape=("weights",))]
    other_scales_: Annotated[Float64, Array(shape=("others",), low=0)]
    exemplar_price_: Annotated[float, Fact()]
    loss_curve_: Annotated[list[float], Fact()]
    strategy_: Annotated[Any, Fact(kind=_Strategy | None)]
    temperature_: Annotated[Any, Fact(kind=Annotated[float, Field(gt=0.0)] | None)]
    validation_: Annotated[Any, Fact(kind=dict[str, float] | None)]
    classes_: Annotated[NDArray[Any] | None, Array(kind="labels", shape=("classes",))]
    _classes: Annotated[GhostClasses | None, StateRecord()]
    _scales: Annotated[Scales, StateRecord()]
    _graph: Annotated[Graph | None, StateRecord()]
    _rows: Annotated[Float32 | None, Array(shape=("rows", "features"))]

    _gone = frozenset({"variances"})
    score = ClassifierMixin.score

    def __init__(
        self,
        order: Annotated[
            int, Field(ge=2, le=3, description="number of points in the largest sets; 2: pairs only")
        ] = 2,
        meta_features: Annotated[
            Literal["auto"] | list[Annotated[str, Field(min_length=1, max_length=100)]],
            Field(
                description="what is weighed: 'features' (the distance in each feature), distances of whole rows "
                "(euclidean, minkowski, cityblock, chebyshev, braycurtis, cosine, correlation, pearson, spearman, "
                "kendall, hamming, jaccard, matching, yule, dice, kulsinski, russellrao), with a graph 'path', and for "
                "order 3 perimeter, area, and with a graph eccentricity, hub, cliques, "
                "resilience; 'auto': features, and what graph and order allow"
            ),
            AfterValidator(_known_meta_features),
        ] = "auto",
        graph: Annotated[
            Literal["knn"] | None,
            Field(
                description="'knn' links each point to its five nearest by features, which gives paths; null: no graph"
            ),
        ] = None,
        cluster_metric: Annotated[
            bool,
            Field(
                description="also weight metrics between a point and a whole class (used to classify, not for pairs)"
            ),
        ] = False,
        balanced: Annotated[
            bool,
            Field(
                description="weight errors by class size, so that small classes count; false: every error counts "
                "the same"
            ),
        ] = True,
        strategy: Annotated[
            Literal["auto", "average", "minimum", "maximum", "center", "knn"],
            Field(
                description="how the distance to a class is read: average, minimum or maximum over its points, to its "
                "center, or by the k nearest; 'auto': whatever was most accurate on rows judged without themselves"
            ),
        ] = "auto",
        max_iter: Annotated[int, Field(ge=1, le=100_000, description="maximum number of iterations")] = 50,
        tau: Annotated[
            float,
            Field(
                ge=0.0,
                le=1e9,
                description="strength of the penalty on weights, their sum: it selects features",
            ),
        ] = 0.5,
        subset_size: Annotated[
            int,
            Field(
                ge=2,
                le=4_096,
                description="rows in a training set; more rows make several sets, used in turn",
            ),
        ] = 1_024,
        random_state: Annotated[RandomState, Field(description="seed of all random draws")] = 0,
    ) -> None:
        keep_arguments(self, locals())

    def fit(self, X: ArrayLike, y: ArrayLike, *, edges: ArrayLike | None = None) -> Self:
        """Learn from points and their classes (or identities).

        Parameters
        ----------
        X : (n, d) finite numbers.
        y : (n,) classes; at least two, one of them with two rows or more.
        edges : (m, 2) row numbers that are linked, or (m, 3) with lengths, instead of ``graph``. Do not make them of
            the labels, unless you have the labels of whatever you will classify.

        Raises
        ------
        ValueError
            On anything else, and when no weight is left.
        """
        self._learn(*self._checked_identities(X, y), edges)
        return self

    def _learn(self, X: Float32, codes: Int64, labels: NDArray[Any], edges: ArrayLike | None) -> None:
        seed = self._seed()
        # The rows become part of the model, which must not follow what is done to the caller's.
        self._space = self._new_space(np.array(X, order="C"), edges, keep=True)
        points = self._space.training_points
        rng = np.random.default_rng(seed)
        learning, withheld = withheld_rows(codes, rng)
        report(0.05, "meta-features")
        sets, scales = training_sets(
            self._space, codes, learning, seed, rng,
            balanced=self.balanced, subset_size=self.subset_size, max_iter=self.max_iter,
        )  # fmt: skip
        n_features = X.shape[1] if self._space.meta_features.features else 0
        start = GhostWeights(features=np.ones(n_features), meta_features=np.ones(scales.size))
        start.features[self._space.inverse[:n_features] == 0] = 0.0
        start.meta_features[scales <= 0] = 0.0
        self._check_alive(start, "every meta-feature is 0 for all training rows, which are alike under them")
        weights, curve = learn(
            sets, start, max_iter=self.max_iter, tau=self.tau,
            on_progress=lambda share: report(0.1 + 0.7 * share, "weights"),
        )  # fmt: skip
        self._set_weights(weights, scales, curve, sets[0].exemplar)
        report(0.85, "classes")
        self.classes_ = labels
        members = points.take(learning)
        classes = describe(self._space, self._weighing, members, codes[learning], labels.size, seed)
        self._calibrate(classes, members, points, codes, learning, withheld, seed)
        if withheld.size:
            classes = describe(self._space, self._weighing, points, codes, labels.size, seed)
        self._classes = classes

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        self._learn(rows, codes, identities, None)

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Float64) -> None:
        numbers = some_pairs(same, weight, MAX_PAIRS, np.random.default_rng(self._seed()))
        left, right, same, weight = left[numbers], right[numbers], same[numbers], weight[numbers]
        for kind in (same, ~same):
            if self.balanced and kind.any():
                weight[kind] *= same.size / (2.0 * weight[kind].sum())
        self._space = self._new_space(np.unique(np.vstack([left, right]), axis=0), None, keep=False)
        meta_features = self._space.meta_features
        A, B = self._space.points(left), self._space.points(right)
        n_features = left.shape[1] if meta_features.features else 0
        values = [self._space.pair_values(name, A, B) for name in meta_features.pairs]
        pair_scales = np.array([column.mean() for column in values])
        n_rest = len(meta_features.names) - len(meta_features.pairs)
        columns = [np.abs(A.scaled - B.scaled)] if meta_features.features else []
        columns += [
            column[:, None] / (scale if scale > 0 else 1.0)
            for column, scale in zip(values, pair_scales, strict=True)
        ]
        if not columns:
            raise ValueError("meta_features names nothing of pairs; expected 'features' or a distance")
        table = np.hstack(columns).astype(np.float32)
        if not np.isfinite(table).all():
            raise ValueError("left, right: differences are too large for float32: scale the features down")
        weights, curve = learn_from_pairs(
            table, n_features, same, weight, balanced=self.balanced, max_iter=self.max_iter, tau=self.tau
        )
        weights.meta_features = np.concatenate([weights.meta_features, np.zeros(n_rest)])
        self._set_weights(weights, np.concatenate([pair_scales, np.zeros(n_rest)]), curve, 1.0)
        self._classes = self.classes_ = None
        self.strategy_ = self.temperature_ = self.validation_ = None

    @property
    def exemplars_(self) -> Int64:
        """The training row that is each class's center."""
        return self._known_classes().exemplars

    def predict(self, X: ArrayLike, *, edges: ArrayLike | None = None) -> NDArray[Any]:
        """The class of each row: the one at the least distance.

        Parameters
        ----------
        X : (n, d).
        edges : (m, 2) links (row of X, training row), or (m, 3) with lengths; rows without any, and all by default,
            are linked to their nearest by features.

        Returns
        -------
        (n,) of ``classes_``.
        """
        table = self.class_distances(X, edges=edges)
        labels: Any = self.classes_
        return labels[table.argmin(axis=1)]  # type: ignore[no-any-return]

    def predict_proba(self, X: ArrayLike, *, edges: ArrayLike | None = None) -> Float64:
        """Probability of each class, (n, n_classes): a softmin of `class_distances`, calibrated on withheld rows."""
        return np.asarray(softmax(-self.class_distances(X, edges=edges) / self.temperature_, axis=1))

    def class_distances(
        self, X: ArrayLike, *, edges: ArrayLike | None = None, strategy: str | None = None
    ) -> Float64:
        """Distance of each row to each class, (n, n_classes), under a strategy (``strategy_`` when None)."""
        classes = self._known_classes()
        strategy = self.strategy_ if strategy is None else strategy
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy is {strategy!r}; expected one of {', '.join(STRATEGIES)}")
        points = self._space.points(self._validated(X, "X"), edges)
        members = self._space.training_points
        return class_distances(self._space, self._weighing, classes, members, points, (strategy,))[strategy]

    @property
    def unavailable_(self) -> frozenset[str]:
        """What this model cannot serve, though others of its kind can."""
        lacking = set() if self._classes is not None else {"classify"}
        if self._weighing.pairs or self._weighing.columns.size == 0:
            lacking.add("embed")
        return frozenset(lacking)

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What each meta-feature contributes to one pair's distance.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to use; those of training when None.

        Returns
        -------
        ``distance``; ``contributions``, the largest first: ``meta_feature``, its ``weight`` (of the meta-feature
        divided by its mean), and the ``contribution`` to the score, never above 0; ``rest`` is what all others add.
        """
        a, b = self._one_pair(left, right)
        features, weighing, space = feature_names_of(self, feature_names), self._weighing, self._space
        gaps = np.abs(a[0].astype(np.float64) - b[0])
        entries: list[dict[str, Any]] = [
            {
                "meta_feature": features[column],
                "weight": float(self.weights_[column]),
                "left": float(a[0, column]),
                "right": float(b[0, column]),
                "contribution": 0.0 - float(weight * gaps[column]),
            }
            for column, weight in zip(weighing.columns, weighing.features, strict=True)
        ]
        A, B = space.points(a), space.points(b)
        by_name = dict(zip(self.meta_feature_names_.tolist(), self.weights_.tolist(), strict=True))
        entries += [
            {
                "meta_feature": name,
                "weight": by_name[name],
                "left": None,
                "right": None,
                "contribution": 0.0 - weight * float(space.pair_values(name, A, B)[0]),
            }
            for name, weight in weighing.pairs.items()
        ]
        entries.sort(key=lambda entry: (entry["contribution"], entry["meta_feature"]))
        return {
            "distance": 0.0 - float(self._pair_score(a, b)[0]),
            "contributions": entries[:LISTED],
            "rest": float(sum(entry["contribution"] for entry in entries[LISTED:])),
        }

    def model_facts(self, feature_names: Sequence[str] | None = None) -> dict[str, Any]:
        """What the model's page shows: the weights that are left, the largest first, read as a selection of features.

        Returns
        -------
        ``weights``: the `LISTED` largest, ``meta_feature`` and ``weight``; ``n_weights`` of ``n_meta_features`` are not
        0; ``exemplar_price``; and of a classifier ``strategy`` and ``validation``, each strategy's balanced accuracy on
        withheld rows.
        """
        check_is_fitted(self)
        names, d = self.meta_feature_names_.tolist(), self.n_features_in_
        if feature_names is not None and self._space.meta_features.features and len(feature_names) == d:
            names[:d] = [str(name) for name in feature_names]
        positive = [int(at) for at in np.argsort(-self.weights_, kind="stable") if self.weights_[at] > 0]
        weights = [
            {"meta_feature": names[at], "weight": float(self.weights_[at])} for at in positive[:LISTED]
        ]
        classes = {"strategy": self.strategy_, "validation": dict(self.validation_ or {})}
        return {
            "weights": weights,
            "n_weights": len(positive),
            "n_meta_features": len(names),
            "exemplar_price": self.exemplar_price_,
            **({} if self._classes is None else classes),
        }

    def _new_space(self, X: Float32, edges: ArrayLike | None, *, keep: bool) -> Space:
        has_graph = self.graph is not None or edges is not None
        space = Space(self._weighed(has_graph), scales_of(X), X if keep or has_graph else None)
        if has_graph:
            if X.shape[0] > MAX_POINTS:
                raise ValueError(
                    f"X has {X.shape[0]} different rows; a graph takes at most {MAX_POINTS}: train on "
                    "fewer, or graph=None"
                )
            points = space.points(X)
            space.graph = (
                nearest_graph(space.graph_distances(points, points))
                if edges is None
                else given_graph(edges, X.shape[0])
            )
        return space

    def _weighed(self, graph: bool) -> MetaFeatures:
        """What the parameters say is weighed."""
        return choose(self.meta_features, order=self.order, graph=graph, cluster_metric=self.cluster_metric)

    def _calibrate(
        self,
        classes: GhostClasses,
        members: GhostPoints,
        points: GhostPoints,
        codes: Int64,
        learning: Int64,
        withheld: Int64,
        seed: int,
    ) -> None:
        """Choose the strategy and the temperature.

        Withheld rows alone are few in small data, and the best of five strategies on a few rows is chance: learning
        rows, each judged without itself, take part in the choice. Probabilities are calibrated on withheld rows.
        """
        strategies = STRATEGIES if self.strategy == "auto" else (self.strategy,)
        sample = learning
        if sample.size > _MOST_JUDGED:
            sample = np.sort(np.random.default_rng([seed, 98]).choice(sample, _MOST_JUDGED, replace=False))
        rows = np.concatenate([withheld, sample])
        tables = class_distances(self._space, self._weighing, classes, members, points.take(rows), strategies)
        self.validation_ = {
            strategy: balanced_accuracy(codes[rows], table.argmin(axis=1), classes.n_classes)
            for strategy, table in tables.items()
        }
        self.strategy_ = max(strategies, key=lambda strategy: self.validation_[strategy])
        by = slice(0, withheld.size or None)
        self.temperature_ = 1.0 / fitted_sharpness(-tables[self.strategy_][by], codes[rows[by]])

    def _set_weights(self, weights: GhostWeights, scales: Float64, curve: list[float], unit: float) -> None:
        self._check_alive(
            weights,
            "all weights were projected to zero: no meta-feature separates the classes at this penalty; "
            "use a smaller tau or other meta_features",
        )
        meta_features = self._space.meta_features
        self.weights_ = weights.flat
        self.meta_feature_names_ = np.array(
            [*(feature_names_of(self) if meta_features.features else []), *meta_features.names], dtype=np.str_
        )
        self.other_scales_ = scales
        self.exemplar_price_ = float(weights.exemplar) * unit
        self.loss_curve_ = curve
        self._scales, self._rows, self._graph = self._space.scales, self._space.rows, self._space.graph
        self._weighing = weighing_of(self._space, self.weights_, scales, self.n_features_in_)

    def _check_alive(self, weights: GhostWeights, reason: str) -> None:
        if not (weights.flat > 0).any():
            raise ValueError(reason)

    def _known_classes(self) -> GhostClasses:
        check_is_fitted(self)
        if self._classes is None:
            raise ValueError("this model learned from pairs and knows no classes: train it with fit(X, y)")
        return self._classes

    def _seed(self) -> int:
        seed: Any = self.random_state
        if seed is None or isinstance(seed, np.random.RandomState):
            seed = check_random_state(seed).randint(2**31 - 1)
        return int(seed)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_weighing")

    def _restored(self) -> None:
        meta_features = self._weighed(self._graph is not None)
        self._space = Space(meta_features, self._scales, self._rows, self._graph)
        self._weighing = weighing_of(self._space, self.weights_, self.other_scales_, self.n_features_in_)

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        if "cluster-spread" in file.arrays.get("names", ()):
            raise OutdatedModel("meta-features name 'cluster-spread', which this version no longer has")
        meta_features = self._weighed(file.facts.graph is not None)
        n_features = file.sizes["features"] if meta_features.features else 0
        n_others = len(meta_features.names)
        return {
            "weights": n_features + n_others,
            "others": n_others,
            "rows": file.length("rows"),
            "classes": file.length("classes"),
        }

    def _relate(self, file: StoredState) -> None:
        arrays, facts, n = file.arrays, file.facts, file.sizes["rows"]
        if "rows" not in arrays and (facts.graph is not None or "classes" in arrays):
            raise refuse("rows", None, "is missing", "the rows of the graph and of the classes")
        if "rows" in arrays and not (n >= 1 and (facts.graph is None or n <= MAX_POINTS)):
            raise refuse("rows", None, f"has {n} rows", f"1 or more, with a graph at most {MAX_POINTS}")
        if "classes" not in arrays:
            return
        if "codes" not in arrays or None in (facts.strategy, facts.temperature, facts.validation):
            raise refuse(
                "classes", None, "stands alone", "codes, strategy, temperature and validation with it"
            )
        counts = np.bincount(arrays["codes"], minlength=file.sizes["classes"])
        if not counts.all():
            raise refuse(
                "codes", None, f"hold no row of class {int(np.argmin(counts))}", "some of every class"
            )
        meta_features = self._weighed(facts.graph is not None)
        n_features = file.sizes["weights"] - file.sizes["others"]
        in_use = (arrays["weights"][n_features:] > 0) & (arrays["other_scales"] > 0)
        start = len(meta_features.pairs)
        weighed = in_use[start : start + len(meta_features.sets)]
        if weighed.any() and "sets3_rows" not in arrays:
            name = meta_features.sets[int(weighed.argmax())]
            raise refuse("sets3_rows", None, "is missing", f"it, since {name} has a weight")

    def transform(self, X: ArrayLike) -> Float32:
        """Coordinates whose city-block distance is the learned distance: the selected features, weighted.

        Returns
        -------
        (n, n_selected) float32.

        Raises
        ------
        ValueError
            When the distance holds meta-features that no coordinates can express, or no feature has a weight.
        """
        check_is_fitted(self)
        rows = self._validated(X, "X")
        if self._weighing.pairs:
            raise ValueError(
                f"the learned distance weighs {', '.join(self._weighing.pairs)}, which no vectors express: train "
                "with meta_features=['features'] to embed"
            )
        if self._weighing.columns.size == 0:
            raise ValueError("no single feature has a weight, so there are no coordinates to give")
        weighted = rows[:, self._weighing.columns].astype(np.float64) * self._weighing.features
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(weighted, dtype=np.float32)

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        self._check_pairs()
        a, b = (np.require(one_of_equals(side), requirements=["C", "W"]) for side in (left, right))
        out = np.zeros(left.shape[0])
        kernels.add_weighted_distances(
            a, b, False, self._weighing.columns, self._weighing.features, out[:, None]
        )
        if self._weighing.pairs:
            A, B = self._space.points(a), self._space.points(b)
            for name, weight in self._weighing.pairs.items():
                out += weight * self._space.pair_values(name, A, B)
        return _score(out)

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        self._check_pairs()
        block = np.require(index.vectors[rows], requirements=["C", "W"])
        A = self._space.points(np.require(queries, requirements=["C", "W"]))
        B = self._space.points(block)
        if PATH in self._weighing.pairs:
            # What links the gallery to the graph was worked out once.
            B.attached = Attachment(
                places=np.require(index.arrays["places"][rows], requirements=["C", "W"]),
                lengths=np.require(index.arrays["lengths"][rows], requirements=["C", "W"]),
            )
        return _score(distances(self._space, self._weighing, A, B))

    def _check_pairs(self) -> None:
        if self._weighing.columns.size == 0 and not self._weighing.pairs:
            raise ValueError(
                "only meta-features of sets and classes have a weight, so all pairs would score alike: use a smaller "
                "tau, or meta_features of pairs"
            )

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        if not self._weighing.pairs:
            coordinates = np.asarray(self.transform(vectors))
            return {"coordinates": coordinates, "reach": _reach(coordinates)}
        if PATH not in self._weighing.pairs:
            return {}
        attached = self._space.points(np.require(vectors, requirements=["C", "W"])).attached
        return {"places": attached.places, "lengths": attached.lengths}

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        if "coordinates" not in index.arrays:
            return None
        coordinates = np.asarray(self.transform(queries))
        # Pairs are scored from the rows in float64; the coordinates are rounded, each by half a unit of its last place.
        slack = float(index.arrays["reach"][0] + _reach(coordinates)[0]) * 2.0**-23
        if not np.isfinite(slack):
            return None
        return SearchForm(
            measure="manhattan", queries=coordinates, gallery=index.arrays["coordinates"], slack=slack
        )


GHOST = LearnerSpec(
    kind="ghost",
    title="GHOST: a sparse weighting of distances, graph paths and larger sets; selects features and classifies",
    estimator=Ghost,
    capabilities=frozenset({"similarity", "match", "search", "embed", "classify"}),
    facts=Ghost.model_facts,
)
