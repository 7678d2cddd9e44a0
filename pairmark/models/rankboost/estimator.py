"""RankBoost kernels as a scikit-learn estimator: similarity, classes, and the embedding ("kernels as features")."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.sparse import csr_array, vstack
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import progress
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.base import EmbedderMixin, PairScorerMixin
from pairmark.models.core.inputs import checked_matrix, one_of_equals
from pairmark.models.core.scores import identity_means
from pairmark.models.core.search import GalleryIndex, Rows
from pairmark.models.core.spec import LearnerSpec, Seed, document_parameters, keep_arguments
from pairmark.models.core.state import Array, StateRecord, StoredState, refuse, require
from pairmark.models.rankboost.boosting import (
    BoostSettings,
    FeatureMap,
    RankingTask,
    Rules,
    boost,
    class_tasks,
    pair_task,
)
from pairmark.models.rankboost.rows import KnownColumns, bin_rows, sparse_rows

_CENTRE_ROWS: Final = 20_000
"""Rows whose mean is the kernel's centre, at most."""
_BAGS: Final = 60
_BAGGED_ROWS: Final = 600_000
"""Rows that all bags hold together by default, at most."""
_BLOCK: Final = 16_384
"""Rows mapped at a time: a million rows never stand in the kernel's space at once."""
DEFAULT_PIVOTS = 1_000
_CANDIDATES_EACH = 10
"""Rows looked at for each pivot that is learned."""
_MOST_CANDIDATES = 20_000

_Size = Annotated[int, Field(ge=1, le=100_000)]


@document_parameters
class RankBoostKernel(KnownColumns, PairScorerMixin, EmbedderMixin, BaseEstimator):
    """Similarity by the weak rankers that two rows share (Sokolov, Urvoy and Ricard 2011).

    RankBoost learns H(x) = sum of alpha_t h_t(x) from labels (section 3.1), h_t being 1 where one feature (``stump``)
    or two (``grid``) lie in a range, and 0 elsewhere. The kernel is K(x, x') = <Phi(x), Phi(x')>, Phi(x) = (alpha_t
    h_t(x)): positive semi-definite by construction, and the score of a pair; Phi is centred at its mean first, unless
    ``center`` is false. Rows may be sparse, and are never made
    dense; a zero, stored or not, is an absent value, on which every ranker abstains. With more than two classes each is
    ranked against the rest, beyond 32 random halves of the classes are; their rankers stand side by side in Phi.

    For two classes and more features than rows the default averages rankings of bootstrap samples, each on a random
    half of the features (bagging; not in the paper): one ranking of stumps looks at few features, which costs AUC on
    wide sparse rows.

    From explicit pairs, rankers are learned that fire on both rows of same pairs more than on both of different ones:
    K(x, x') = sum of alpha_t h_t(x) h_t(x'), alpha_t > 0.

    Sparse rows may have more columns than the rows learned from: those were never seen, are ignored, and a
    `UnknownColumnsWarning` counts them.

    Attributes
    ----------
    rules_ : the rankers of all tasks. task_ : (T,) which task each belongs to.
    classes_ : distinct labels in order; None when learned from pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import RankBoostKernel
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = RankBoostKernel(n_estimators=50).fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    """

    rules_: Annotated[Rules, StateRecord()]
    task_: Annotated[Int64, Array(shape=("rankers",), low=0, high=2**31)]
    value_: Annotated[Float64, Array(shape=("rankers",))]
    _centre: Annotated[Float64, Array(shape=("coordinates",))]
    projection_: Annotated[Float64 | None, Array(shape=("coordinates", "components"))]
    classes_: Annotated[NDArray[Any] | None, Array(kind="labels", shape=("classes",))]
    _gone = frozenset({"svm_coef", "svm_intercept"})

    _accepts_sparse = True

    def __init__(
        self,
        n_estimators: Annotated[
            int,
            Field(
                ge=1,
                le=50_000,
                description="rounds of boosting: in each bag, for each class if more than two",
            ),
        ] = 300,
        n_bags: Annotated[
            int | None,
            Field(
                ge=1,
                le=1_000,
                description="rankings learned on bootstrap samples of the rows, each on a random half of "
                "the features, and averaged; 1: one ranking of all rows and features, as in the paper; "
                "null: 60 for two classes with more features than rows (fewer beyond 10,000 rows), else 1",
            ),
        ] = None,
        weak: Annotated[
            Literal["stump", "grid"],
            Field(description="stump: one feature above a threshold; grid: two such conditions together"),
        ] = "stump",
        criterion: Annotated[
            Literal["r", "z"],
            Field(
                description="how weak rankers are chosen: r, the approximation of Freund's third method, "
                "or z, the exact normalisation factor"
            ),
        ] = "z",
        center: Annotated[
            bool,
            Field(
                description="take the kernel between differences from the mean row in the rankers' space: "
                "what most rows share makes no two of them similar; false: the paper's plain inner product"
            ),
        ] = True,
        chain: Annotated[
            Literal["A", "A-B", "A-C", "A-B-C"],
            Field(
                description="stages of the embedding. A: outputs of the weak rankers; B: kernel with "
                "pivots; C: random projection"
            ),
        ] = "A-B-C",
        n_pivots: Annotated[
            _Size | None,
            Field(
                description="pivots of stage B; null: as many as there are rows to draw from, at most 1000"
            ),
        ] = None,
        pivots: Annotated[
            Literal["random", "kmeans"],
            Field(description="random rows, or k-means centres"),
        ] = "random",
        whiten: Annotated[
            bool,
            Field(
                description="project orthogonally onto the span of the pivots (Cholesky factor of their kernel matrix)"
            ),
        ] = False,
        n_components: Annotated[
            _Size, Field(description="dimensions after the random projection of stage C")
        ] = 100,
        random_state: Annotated[
            Seed, Field(description="seed of all random draws; null: differs each time")
        ] = 0,
    ) -> None:
        keep_arguments(self, locals())

    # ------------------------------------------------------------ learning

    def fit(self, X: ArrayLike, y: ArrayLike, unlabelled: ArrayLike | None = None) -> Self:
        """Learn the kernel from labelled rows, and its embedding from unlabelled ones.

        Parameters
        ----------
        X : (n, d) finite numbers, dense or sparse. Duplicate entries of sparse rows are added up.
        y : (n,) classes or identities.
        unlabelled : (m, d) rows to draw pivots from; X when None. Read in blocks, so it may be a memory map.

        Raises
        ------
        ValueError
            On anything else, on parameters out of bounds, when no feature separates the labels, and when more pivots
            are asked for than there are rows.
        """
        rows, codes, labels = self._checked_identities(X, y)
        pool = self._pool(unlabelled, rows)
        rng = np.random.default_rng(self.random_state)
        tasks = class_tasks(codes, labels.size, rng)
        self.classes_ = labels
        self._learn(rows, tasks, rng)
        self._embed(pool, rng)
        self._identity_means = identity_means(rows, codes, labels)
        return self

    def fit_pairs(
        self,
        left: ArrayLike,
        right: ArrayLike,
        same: ArrayLike,
        sample_weight: ArrayLike | None = None,
        unlabelled: ArrayLike | None = None,
    ) -> Self:
        """Learn the kernel from explicit pairs: RankBoost ranks same pairs above different ones.

        Parameters
        ----------
        left, right : (n, d) finite numbers, dense or sparse.
        same : (n,) 0 or 1; both must occur.
        sample_weight : (n,) numbers >= 0, the pairs' weights before the first round.
        unlabelled : as in `fit`; the pairs' rows when None.

        Raises
        ------
        ValueError
            As `fit`.
        """
        a, b, flags, weight = self._checked_pairs(left, right, same, sample_weight)
        points = csr_array(vstack([a, b], format="csr"))
        pool = self._pool(unlabelled, points)
        rng = np.random.default_rng(self.random_state)
        self.classes_ = None
        rules = pair_task(points, flags, weight, self._settings(), _progress(0.0, 0.8))
        self._keep(rules, np.zeros(len(rules), np.int64), np.sqrt(rules.alpha))
        self._embed(pool, rng)
        self._identity_means = None
        return self

    def _learn(self, rows: csr_array, tasks: list[RankingTask], rng: np.random.Generator) -> None:
        bags = self._bags(len(tasks), rows.shape[0])
        bag_rules: list[Rules] = []
        ranked: list[int] = []
        data = bin_rows(rows) if bags == 1 else None
        for number in range(len(tasks) * bags):
            task = tasks[number // bags]
            on_progress = _progress(0.8 * number / (len(tasks) * bags), 0.8 / (len(tasks) * bags))
            sample = np.arange(rows.shape[0]) if data else _bootstrap(task.upper, rng)
            rules = boost(
                data or bin_rows(_half_of_features(rows[sample], rng)),
                RankingTask(upper=task.upper[sample], weight=task.weight[sample]),
                self._settings(alternate=len(tasks) == 1),
                on_progress=on_progress,
            )
            bag_rules.append(replace(rules, alpha=rules.alpha / bags))
            ranked += [number // bags] * len(rules)
        rules = Rules.concatenate(bag_rules)
        self._keep(rules, np.asarray(ranked, dtype=np.int64), rules.alpha)

    def _bags(self, n_tasks: int, n_rows: int) -> int:
        if self.n_bags is not None:
            return int(self.n_bags)
        wide = self.n_features_in_ > n_rows
        return max(1, min(_BAGS, _BAGGED_ROWS // n_rows)) if wide and n_tasks == 1 else 1

    def _keep(self, rules: Rules, task: Int64, value: Float64) -> None:
        if not len(rules):
            raise ValueError(
                "no feature separates the labels: every weak ranker ranks as many pairs wrong as right; "
                "expected some column whose values, or presence, depend on the label"
            )
        self.rules_, self.task_, self.value_ = rules, task, value
        self._centre = np.zeros(len(rules))
        self._restored()

    def _settings(self, *, alternate: bool = False) -> BoostSettings:
        return BoostSettings(
            n_estimators=self.n_estimators, weak=self.weak, criterion=self.criterion, alternate=alternate
        )

    def _pool(self, unlabelled: Any, rows: csr_array) -> Any:
        """Rows to draw pivots from. Not validated as a whole: only the rows that are drawn are read."""
        pool = rows if unlabelled is None else unlabelled
        pool = pool if hasattr(pool, "shape") else np.asarray(pool, dtype=np.float32)
        if len(pool.shape) != 2 or pool.shape[1] != self.n_features_in_ or pool.shape[0] == 0:
            raise ValueError(
                f"unlabelled has shape {tuple(pool.shape)}; expected rows of {self.n_features_in_} features, as X"
            )
        if "B" in self.chain:
            # Whether there are enough is known before anything is learned.
            number_of_pivots(self.n_pivots, pool.shape[0])
        return pool

    def _drawn_rows(self, pool: Any, numbers: Int64) -> csr_array:
        """Some rows of a pool, in the space of the kernel."""
        rows = checked_matrix(self, pool[numbers], "unlabelled", accept_sparse=True)
        return self._map(sparse_rows(rows))

    def _embed(self, pool: Any, rng: np.random.Generator) -> None:
        """Learn centre, pivots and projection from a pool of rows."""
        progress.report(0.8, "choosing pivots")
        n_rows = int(pool.shape[0])

        if self.center:
            sample = np.sort(rng.choice(n_rows, min(n_rows, _CENTRE_ROWS), replace=False))
            mean = self._drawn_rows(pool, sample).mean(axis=0)
            self._centre = np.asarray(mean, dtype=np.float64).ravel()
        pivots = None
        if "B" in self.chain:
            n = number_of_pivots(self.n_pivots, n_rows)
            rows = self._drawn_rows(pool, candidate_rows(self.pivots, n, n_rows, rng))
            pivots = chosen_pivots(self.pivots, rows, n, int(rng.integers(2**31)))
        self.projection_ = compose(self.chain, pivots, self._map.width, self.whiten, self.n_components, rng)

    # ------------------------------------------------------------ the ranking and the classes

    def decision_function(self, X: ArrayLike) -> Float64:
        """The ranking score H(x), equation 6.

        Returns
        -------
        (n,) for two classes; (n, classes) when each class was ranked against the rest, and (n, 32)
        for the random halves of more than 32 classes.

        Raises
        ------
        ValueError
            When it was learned from pairs, which rank no single rows.
        """
        check_is_fitted(self)
        if self.classes_ is None:
            raise ValueError("learned from pairs, which give no ranking score: use fit with labels")
        rows = self._validated(X, "X")
        n_tasks = int(self.task_.max()) + 1
        by_task = np.eye(n_tasks)[self.task_]
        scores = np.concatenate([mapped @ by_task for mapped in self._blocks(rows)])
        return scores[:, 0] if n_tasks == 1 else scores

    # ------------------------------------------------------------ the kernel

    def transform(self, X: ArrayLike) -> Float32:
        """Embed rows by the stages of ``chain``.

        Returns
        -------
        (n, k) float32: the outputs of the weak rankers (A), their kernel with each pivot (A-B), or a random projection
        of either to ``n_components`` (A-C, A-B-C).
        """
        check_is_fitted(self)
        blocks = [
            mapped.toarray() if self.projection_ is None else mapped @ self.projection_
            for mapped in self._blocks(self._validated(X, "X"))
        ]
        return np.concatenate(blocks).astype(np.float32)

    def map_rows(self, X: ArrayLike) -> csr_array:
        """Phi(x), (n, coordinates), sparse: the kernel is its inner product."""
        check_is_fitted(self)
        return self._map(sparse_rows(self._validated(X, "X")))

    def _blocks(self, rows: Any) -> Iterator[csr_array]:
        for start in range(0, rows.shape[0], _BLOCK):
            yield self._map(sparse_rows(rows[start : start + _BLOCK]))

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        mapped = self._map(sparse_rows(vectors))
        return {"mapped": mapped, "means": mapped @ self._centre}

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        a, b = (self._map(sparse_rows(one_of_equals(side))) for side in (left, right))
        if a.shape[0] == 1:
            products = b @ a.toarray()[0]
        elif b.shape[0] == 1:
            products = a @ b.toarray()[0]
        else:
            products = a.multiply(b) @ np.ones(self._map.width)
        return self._centred(products, a @ self._centre, b @ self._centre)

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        mapped = self._map(sparse_rows(queries))
        products = (index.arrays["mapped"][rows] @ mapped.toarray().T).T
        return self._centred(products, (mapped @ self._centre)[:, None], index.arrays["means"][rows])

    def _centred(self, products: Float64, left: Float64, right: Float64) -> Float32:
        """Kernel of mapped rows: (a - c)(b - c) = ab - ac - bc + cc, c being the centre.

        SciPy adds up the entries that two rows share in ascending order, so a value is the same to the last bit in
        either order of its rows, in a pair or a grid.
        """
        centred = products - (left + right) + float(np.sum(self._centre**2))
        return np.asarray(centred, dtype=np.float32)

    def _restored(self) -> None:
        self._map = FeatureMap(self.rules_, self.value_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "projection_")

    def _relate(self, file: StoredState) -> None:
        n = len(self.rules_)
        if not n:
            raise refuse("features", None, "has no rows", "one or more")
        features = self.rules_.features
        require(features[:, 0] >= 0, "features", features[:, 0], "a feature: only the second may be -1")
        if self._centre.size != n:
            raise refuse("centre", None, f"has {self._centre.size} rows", f"{n}, one a coordinate")
        if self.projection_ is None and {"B", "C"} & set(self.chain):
            raise refuse("projection", None, "is missing", "it with pivots or a projection in the chain")


def number_of_pivots(n_pivots: int | None, n_rows: int) -> int:
    """How many pivots to take.

    Raises
    ------
    ValueError
        When more are asked for than there are rows.
    """
    if n_pivots is None:
        return min(DEFAULT_PIVOTS, n_rows)
    if n_pivots > n_rows:
        raise ValueError(
            f"n_pivots is {n_pivots} and there are {n_rows} rows to draw pivots from: expected at most as many "
            "pivots as rows; ask for fewer or bring more unlabelled rows"
        )
    return n_pivots


def candidate_rows(rule: str, n_pivots: int, n_rows: int, rng: np.random.Generator) -> Int64:
    """Rows to draw, ascending: the pivots themselves, or what learned pivots are learned from."""
    most = min(n_rows, max(n_pivots, min(_MOST_CANDIDATES, _CANDIDATES_EACH * n_pivots)))
    return np.sort(rng.choice(n_rows, n_pivots if rule == "random" else most, replace=False))


def chosen_pivots(
    rule: Literal["random", "kmeans"], candidates: csr_array, n_pivots: int, seed: int
) -> Float64:
    """Pivots in the space of the kernel, (n_pivots, width), from candidates in that space: the rows, or centres."""
    if rule == "random":
        return np.asarray(candidates.toarray(), dtype=np.float64)
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    size = max(1024, 2 * n_pivots)
    with warnings.catch_warnings():
        # Fewer distinct rows than centres is no harm here: the rest are copies.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = MiniBatchKMeans(
            n_pivots, n_init=1, init="random", batch_size=size, max_iter=20, random_state=seed
        ).fit(candidates)
    return np.asarray(means.cluster_centers_, dtype=np.float64)


def whitening(pivots: Float64) -> Float64:
    """W, (r, rank), such that b W has the inner products of the orthogonal projections onto the pivots' span.

    b is a row's kernel with each of the r pivots; with the kernel matrix of the pivots U^T U (Cholesky, U upper
    triangular), b W = U^-T b. Of pivots that depend on others only a basis is kept (pivoted factorisation), so the
    kernel matrix may be singular.

    Parameters
    ----------
    pivots : (r, width), in the space of the kernel.
    """
    from scipy.linalg import lapack, solve_triangular

    gram = pivots @ pivots.T
    size = float(np.trace(gram)) / max(1, gram.shape[0])
    if size <= 0.0:
        return np.zeros((gram.shape[0], 1))
    upper, order, rank, _ = lapack.dpstrf(gram / size, tol=1e-10)
    basis = np.asarray(order[:rank], dtype=np.int64) - 1
    triangle = np.triu(upper[:rank, :rank])
    weights = np.zeros((gram.shape[0], int(rank)))
    weights[basis] = solve_triangular(triangle, np.eye(int(rank)), lower=False) / np.sqrt(size)
    return weights


def binary_projection(n_in: int, n_out: int, rng: np.random.Generator) -> Float64:
    """(n_in, n_out) of +-1/sqrt(n_out), each with probability one half (Achlioptas 2003, theorem 1.1)."""
    signs = 2.0 * rng.integers(0, 2, (n_in, n_out)) - 1.0
    return np.asarray(signs / np.sqrt(n_out))


def compose(
    chain: str, pivots: Float64 | None, width: int, whiten: bool, n_components: int, rng: np.random.Generator
) -> Float64 | None:
    """The whole way from the kernel's space to the embedding as one matrix, (width, k); None: no change.

    Every stage is linear there: B multiplies by the pivots, whitening and C by theirs.
    """
    matrix: Float64 | None = None
    if "B" in chain:
        assert pivots is not None
        matrix = pivots.T
        if whiten:
            matrix = matrix @ whitening(pivots)
    if "C" in chain:
        n_in = width if matrix is None else matrix.shape[1]
        projection = binary_projection(n_in, n_components, rng)
        matrix = projection if matrix is None else matrix @ projection
    return None if matrix is None else np.ascontiguousarray(matrix)


def _progress(start: float, share: float) -> Any:
    return lambda part: progress.report(start + share * part, "choosing weak rankers")


def _bootstrap(upper: Bool, rng: np.random.Generator) -> Int64:
    """As many rows, drawn with replacement within each kind, so that neither is missing."""
    parts = [rng.choice(np.flatnonzero(kind), np.count_nonzero(kind)) for kind in (~upper, upper)]
    return np.sort(np.concatenate(parts))


def _half_of_features(rows: csr_array, rng: np.random.Generator) -> csr_array:
    """The rows with a random half of the columns emptied."""
    in_half = np.zeros(rows.shape[1], dtype=np.bool_)
    in_half[rng.permutation(rows.shape[1])[: (rows.shape[1] + 1) // 2]] = True
    stays = in_half[rows.indices]
    starts = np.concatenate([[0], np.cumsum(stays)])[rows.indptr]
    return csr_array((rows.data[stays], rows.indices[stays], starts), shape=rows.shape)


KERNEL = LearnerSpec(
    kind="rankboost-kernel",
    title="RankBoost kernel: similarity by shared weak rankers; for sparse, huge feature spaces, with unlabelled rows",
    estimator=RankBoostKernel,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    takes_unlabelled=True,
    retired={"ranking": "classes", "preference": None, "coordinates": "rankers"},
    renamed={("chain", f"{stages}-D"): stages for stages in ("A", "A-B", "A-C", "A-B-C")},
)
