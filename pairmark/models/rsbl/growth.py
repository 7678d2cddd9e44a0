"""The growing space: Gaussian similarities to neighbors, layer on layer (Maszczyk & Duch, Algorithm 1).

Which k each layer keeps is chosen by errors on training rows or inner folds, of linear machines or nearest rows.

A row that is the neighbor of c training rows gives c equal features. They are kept as one, multiplied by sqrt(c):
inner products and Euclidean distances, and so linear SVMs and nearest rows, are the same to rounding.
"""

import warnings
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import numpy as np

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.state import Array
from pairmark.models.rsbl import kernels

# Prepared inputs stay within it.
_LARGEST = 1e30


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """How a row becomes a point of the space of depth 0: (d,) float64 each. A constant feature has scale 1."""

    mean: Annotated[Float64, Array(shape=("width of 0",))]
    scale: Annotated[Float64, Array(shape=("width of 0",), positive=True)]

    @classmethod
    def of_rows(cls, X: Float32) -> "Inputs":
        """Learn from training rows, (n, d)."""
        deviations = X.std(axis=0, dtype=np.float64)
        # Equal numbers can have a spread by rounding: what does not vary is left as it is.
        varies = (X.max(axis=0) > X.min(axis=0)) & (deviations > 0)
        return cls(mean=X.mean(axis=0, dtype=np.float64), scale=np.where(varies, deviations, 1.0))

    def transform(self, X: Float32) -> Float32:
        """Rows in the space of depth 0, (n, d) float32; a row's point does not depend on the rows beside it."""
        return np.clip((X - self.mean) / self.scale, -_LARGEST, _LARGEST).astype(np.float32)


CODES: Final = {
    "euclidean": kernels.SQUARES,
    "manhattan": kernels.ABSOLUTES,
    "cosine": kernels.DOT,
}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one layer adds to the space.

    Attributes
    ----------
    columns : (p,) numbers of the references whose similarities are the new features.
    counts : (p,) how many equal features each stands for.
    beta : of the Gaussians.
    """

    columns: Int64 = field(repr=False)
    counts: Float64 = field(repr=False)
    beta: float


class Distances:
    """Distances of rows to references in a space that gains features: nothing is added up twice.

    Parameters
    ----------
    metric : one of `CODES`.
    n, u : numbers of rows and references.
    """

    def __init__(self, metric: str, n: int, u: int) -> None:
        self._code = CODES[metric]
        self._acc = np.zeros((n, u), dtype=np.float32)
        self._squares, self._ref_squares = np.zeros(n), np.zeros(u)

    def extend(self, rows: Float32, refs: Float32, counts: Float64) -> None:
        """Add features, each already multiplied by the root of its count.

        Parameters
        ----------
        rows : (n, p). refs : (p, u). counts : (p,) how many equal features each stands for.
        """
        # Rows and references carry the root r of a feature's count c = r^2. Squared differences and products so count c
        # times by themselves; absolute differences take another r.
        of_root = self._code == kernels.ABSOLUTES
        factor = (np.sqrt(counts) if of_root else np.ones_like(counts)).astype(np.float32)
        rows, scaled = np.ascontiguousarray(rows), np.ascontiguousarray(refs * factor[:, None])
        kernels.accumulate(self._code, rows, factor, scaled, self._acc)
        if self._code == kernels.DOT:
            kernels.add_squares(rows, self._squares)
            kernels.add_squares(np.ascontiguousarray(refs.T), self._ref_squares)

    def squared(self) -> Float32:
        """Squared distances in the space so far, (n, u)."""
        if self._code == kernels.SQUARES:
            return self._acc
        out = np.empty_like(self._acc)
        kernels.squared_distances(self._code, self._acc, self._squares, self._ref_squares, out)
        return out


class Growth:
    """A space that grows over some rows, of which some train and some are references.

    Parameters
    ----------
    rows : (n, d) prepared inputs, the space of depth 0.
    train : rows whose neighbors become features.
    references : rows (among ``train``) that can be neighbors.
    beta : of the Gaussians; ``median``: one over the median squared distance, anew for each layer.
    """

    def __init__(
        self,
        rows: Float32,
        train: Int64,
        references: Int64,
        *,
        metric: str,
        k_max: int,
        beta: float | Literal["median"],
    ) -> None:
        self.train, self.references = train, references
        self.blocks: list[Float32] = [rows]
        self.layers: list[Layer] = []
        # No more neighbors than there are.
        self.k_max = min(k_max, references.size - 1)
        self._beta = beta
        self._distances = Distances(metric, rows.shape[0], references.size)
        # The last layer's features are asked for no distances, which would cost as much as all others together.
        self._pending: list[tuple[Float32, Float64]] = [(rows, np.ones(rows.shape[1]))]
        self._looked: tuple[Float32, Int64, float] | None = None

    @property
    def distances(self) -> Distances:
        """Of all rows to the references, in the space so far."""
        for rows, counts in self._pending:
            self._distances.extend(rows, np.ascontiguousarray(rows[self.references].T), counts)
        self._pending.clear()
        return self._distances

    def look(self) -> tuple[Float32, Int64, float]:
        """Squared distances (n, u), the neighbors of the training rows (n_train, k_max), and the width."""
        if self._looked is None:
            squared = self.distances.squared()
            near = squared if self.train.size == squared.shape[0] else squared[self.train]
            # The reference that each training row is itself, so that it is not its own neighbor; -1 for none.
            place_of = np.full(int(self.train.max()) + 1, -1, dtype=np.int64)
            place_of[self.references] = np.arange(self.references.size)
            places = place_of[self.train]
            neighbors = np.empty((self.train.size, self.k_max), dtype=np.int64)
            kernels.nearest(near, places, self.k_max, neighbors)
            beta = 1.0 / typical(near) if self._beta == "median" else float(self._beta)
            self._looked = squared, neighbors, beta
        return self._looked

    def counts(self, k: int) -> Float64:
        """How many new features the ``k``-th neighbors give each reference, (u,)."""
        _, neighbors, _ = self.look()
        return np.bincount(neighbors[:, k - 1], minlength=self.references.size).astype(np.float64)

    def features(self, columns: Int64, scale: Float64) -> Float32:
        """Gaussian features of all rows to some references, multiplied by ``scale``."""
        squared, _, beta = self.look()
        block = np.empty((squared.shape[0], columns.size), dtype=np.float32)
        kernels.gaussians(beta, squared, columns, scale, block)
        return block

    def commit(self, k: int) -> None:
        """Keep the features of the first ``k`` neighbors as a layer."""
        total = np.sum([self.counts(at) for at in range(1, min(k, self.k_max) + 1)], axis=0)
        columns = np.flatnonzero(total).astype(np.int64)
        layer = Layer(columns=columns, counts=total[columns], beta=self.look()[2])
        block = self.features(columns, np.sqrt(layer.counts))
        self.layers.append(layer)
        self.blocks.append(block)
        self._pending.append((block, layer.counts))
        self._looked = None


def typical(squared: Float32) -> float:
    """The median squared distance of different rows; 1 where all are equal."""
    positive = squared[:: max(1, squared.shape[0] // 1_000)]
    positive = positive[positive > 0]
    return float(np.median(positive)) if positive.size else 1.0


def walk_layers(rows: Float32, refs: list[Float32], layers: list[Layer], metric: str) -> list[Float32]:
    """Rows in the space that was grown: their inputs and each layer's features.

    Parameters
    ----------
    rows : (n, d) prepared inputs.
    refs : for each layer, what the space gained before it, at the references: (p, u).
    """
    blocks = [rows]
    counts = np.ones(rows.shape[1])
    if not layers:
        return blocks
    distances = Distances(metric, rows.shape[0], refs[0].shape[1])
    for block, layer in zip(refs, layers, strict=True):
        distances.extend(blocks[-1], block, counts)
        features = np.empty((rows.shape[0], layer.columns.size), dtype=np.float32)
        kernels.gaussians(layer.beta, distances.squared(), layer.columns, np.sqrt(layer.counts), features)
        blocks.append(features)
        counts = layer.counts
    return blocks


MAX_EXACT_CLASSES = 20
"""One exact machine a class; with more classes all are solved together, iteratively."""
_MAX_STEPS = 200_000
"""What no plane separates can take libsvm many millions; the machine that it has by then serves."""
_CACHE_MB = 200
_SHARE = 0.8
"""Of a fit's time that choosing takes."""


def exact_dual(gram: Float64, codes: Int64, n_classes: int, C: float) -> tuple[Float64, Float64]:
    """Machines of one class against the rest, hinge loss, with free intercepts (libsvm).

    Parameters
    ----------
    gram : (n, n) inner products. codes : (n,) classes.

    Returns
    -------
    weights (n_machines, n) of the rows, and intercepts: decisions are ``gram @ weights.T + intercepts``. Two classes
    take one machine, positive for class 1. A class without rows never wins.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import SVC

    machines = [1] if n_classes == 2 else list(range(n_classes))
    weights, intercepts = np.zeros((len(machines), gram.shape[0])), np.zeros(len(machines))
    for number, positive in enumerate(machines):
        is_it = codes == positive
        if is_it.all() or not is_it.any():
            intercepts[number] = 1.0 if is_it.any() else -1.0
            continue
        # Its bound on steps ends what does not settle; the machine at hand then serves.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine = SVC(kernel="precomputed", C=C, cache_size=_CACHE_MB, max_iter=_MAX_STEPS).fit(
                gram, is_it
            )
        weights[number, machine.support_] = machine.dual_coef_[0]
        intercepts[number] = machine.intercept_[0]
    return weights, intercepts


def iterative_primal(rows: Float32, codes: Int64, C: float) -> tuple[Float64, Float64]:
    """Machines of one class against the rest, squared hinge loss (liblinear): for many rows or classes.

    Returns
    -------
    coefficients (n_machines, p) and intercepts, which are hardly regularised.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # More steps change next to no answer.
        machines = LinearSVC(C=C, dual=False, tol=1e-2, intercept_scaling=10.0).fit(rows, codes)
    return machines.coef_.astype(np.float64), machines.intercept_.astype(np.float64)


def by_class(decisions: Float64, n_classes: int) -> Float64:
    """Decisions (n, n_classes) from those of the machines."""
    return np.hstack([-decisions, decisions]) if n_classes == 2 else decisions


class Judge:
    """A growth, and how well what it makes classifies the rows that judge it.

    Parameters
    ----------
    growth : its references are all of its training rows.
    codes : (n,) classes of all its rows.
    judged : rows whose errors count: those held out, or the training rows themselves (each row's nearest other row
        is then asked, since a row is its own nearest).
    """

    def __init__(
        self, growth: Growth, codes: Int64, n_classes: int, judged: Int64, *, final: str, C: float
    ) -> None:
        self.growth = growth
        self.judged, self.truth = judged, codes[judged]
        self._codes, self._n_classes, self._C = codes, n_classes, C
        self._by_rows = final == "1nn" or n_classes > MAX_EXACT_CLASSES
        self._gram = np.zeros((0, 0))
        if not self._by_rows:
            rows = growth.blocks[0].astype(np.float64)
            self._gram = rows @ rows[growth.train].T
        self._trial = self._gram
        self._trial_rows: Distances | None = None

    def error(self) -> float:
        """Errors in the space as it stands."""
        return self._errors(self._gram, self.growth.distances if self._by_rows else None)

    def start(self) -> None:
        """Begin trying k = 1, 2, ... for the next layer."""
        if self._by_rows:
            self._trial_rows = deepcopy(self.growth.distances)
        else:
            self._trial = self._gram.copy()

    def try_next(self, k: int) -> float:
        """Errors with the features of the first ``k`` neighbors; k - 1 was tried before."""
        growth = self.growth
        counts = growth.counts(k) if k <= growth.k_max else np.zeros(growth.references.size)
        columns = np.flatnonzero(counts).astype(np.int64)
        if columns.size:
            columns_of_k = growth.features(columns, np.sqrt(counts[columns]))
            if self._trial_rows is not None:
                refs = np.ascontiguousarray(columns_of_k[growth.references].T)
                self._trial_rows.extend(columns_of_k, refs, counts[columns])
            else:
                wide = columns_of_k.astype(np.float64)
                self._trial += wide @ wide[growth.train].T
        return self._errors(self._trial, self._trial_rows)

    def commit(self, k: int) -> None:
        """Keep the first ``k`` neighbors' features."""
        self.growth.commit(k)
        if not self._by_rows:
            wide = self.growth.blocks[-1].astype(np.float64)
            self._gram += wide @ wide[self.growth.train].T

    def decisions(self) -> Float64:
        """Decisions of the judged rows in the space as it stands, (n_judged, n_classes)."""
        if not self._by_rows:
            return self._linear(self._gram)[self.judged]
        squared = self.growth.distances.squared()[self.judged]
        return class_distances(squared, self._codes[self.growth.train], self._n_classes)

    def _linear(self, gram: Float64) -> Float64:
        train = self.growth.train
        weights, intercepts = exact_dual(gram[train], self._codes[train], self._n_classes, self._C)
        return by_class(gram @ weights.T + intercepts, self._n_classes)

    def _errors(self, gram: Float64, distances: Distances | None) -> float:
        if distances is None:
            return float((self._linear(gram)[self.judged].argmax(axis=1) != self.truth).sum())
        train, squared = self.growth.train, distances.squared()
        places = np.full(squared.shape[0], -1, dtype=np.int64)
        places[train] = np.arange(train.size)
        neighbors = np.zeros((self.judged.size, 1), dtype=np.int64)
        kernels.nearest(squared[self.judged], places[self.judged], 1, neighbors)
        return float((self._codes[train][neighbors[:, 0]] != self.truth).sum())


def class_distances(squared: Float32, codes: Int64, n_classes: int) -> Float64:
    """Minus the squared distance to the nearest row of each class, (n, n_classes); far for a class without rows."""
    out = np.full((squared.shape[0], n_classes), -np.inf)
    for code in range(n_classes):
        members = squared[:, codes == code]
        if members.shape[1]:
            out[:, code] = -members.min(axis=1)
    lowest = np.where(np.isfinite(out), out, 0.0).min(axis=1) - 1.0
    return np.where(np.isfinite(out), out, 2.0 * lowest[:, None])


def choose(judges: list[Judge], *, depth: int, k_max: int) -> tuple[list[int], list[list[float]]]:
    """Grow all spaces together, layer by layer; each layer keeps the k whose errors, summed over them, are fewest.

    Ties keep the smallest k, and no errors at all end the search: no larger k can do better.

    Returns
    -------
    the k of each layer, and the share of errors of each k that was tried.
    """
    total = sum(judge.judged.size for judge in judges)
    ks: list[int] = []
    errors: list[list[float]] = []
    for layer in range(depth):
        errors_of_k: list[float] = []
        for judge in judges:
            judge.start()
        limit = min(k_max, max(judge.growth.k_max for judge in judges))
        for k in range(1, limit + 1):
            errors_of_k.append(sum(judge.try_next(k) for judge in judges) / total)
            report(
                _SHARE * (layer + k / limit) / depth,
                f"layer {layer + 1} of {depth}: {k} neighbors",
            )
            if errors_of_k[-1] == 0.0:
                break
        ks.append(int(np.argmin(errors_of_k)) + 1)
        for judge in judges:
            judge.commit(ks[-1])
        errors.append(errors_of_k)
    return ks, errors


def folds(codes: Int64, n_folds: int, rng: np.random.Generator) -> list[tuple[Int64, Int64]]:
    """Training and held-out rows of each fold, classes spread evenly; a class's only row always trains."""
    fold = np.full(codes.size, -1, dtype=np.int64)
    offset = 0
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        if members.size > 1:
            fold[members] = (offset + np.arange(members.size)) % n_folds
            offset += members.size
    parts = [(np.flatnonzero(fold != at), np.flatnonzero(fold == at)) for at in range(n_folds)]
    return [(train, held_out) for train, held_out in parts if held_out.size and train.size > 1]
