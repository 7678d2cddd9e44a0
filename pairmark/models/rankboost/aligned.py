"""A kernel learned by a network to be aligned with the perfect one (section 3.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy.sparse import csr_array, vstack
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import progress
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.base import EmbedderMixin, PairScorerMixin
from pairmark.models.core.inputs import csr_parts, one_of_equals
from pairmark.models.core.kernels import project_rows
from pairmark.models.core.search import GalleryIndex, Rows, SearchForm, encode, number_rows
from pairmark.models.core.spec import LearnerSpec, Seed, document_parameters, keep_arguments
from pairmark.models.core.state import Array, Fact, StoredState, refuse
from pairmark.models.rankboost.rows import KnownColumns, places_of, sparse_rows

MOST_ROWS, MOST_PAIRS = 1_024, 32_768
"""Rows, and pairs of them, that a step looks at."""
_BLOCK = 65_536
"""Pairs scored at a time."""
# Adam's, of the mean slopes and of their squares.
_MEAN_DECAY, _SQUARE_DECAY = 0.9, 0.999


@dataclass(kw_only=True)
class Network:
    """Layers of tanh units: ``weights[0]`` reads rows, or with ``both`` reads the left row and ``second`` the right."""

    weights: list[Float64]
    biases: list[Float64]
    second: Float64 | None

    @classmethod
    def random(cls, rows: csr_array, hidden: Sequence[int], psd: bool, rng: np.random.Generator) -> "Network":
        """Weights at random, scaled so that units start out neither flat nor saturated."""
        sizes = [int(rows.shape[1]), *hidden] + ([] if psd else [1])
        squares = float(rows.multiply(rows).sum()) / max(1, rows.shape[0])
        mean = np.asarray(rows.mean(axis=0)).ravel()
        weights = [rng.normal(size=(a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
        weights[0] *= np.sqrt(sizes[0] / max(squares, 1e-12))
        second = None if psd else rng.normal(size=weights[0].shape) / np.sqrt(max(squares, 1e-12))
        biases = [np.zeros(size) for size in sizes[1:]]
        # Rows often have no negative numbers; units start out centred on the mean row.
        biases[0] -= mean @ weights[0] if second is None else mean @ (weights[0] + second)
        return cls(weights=weights, biases=biases, second=second)

    @property
    def parts(self) -> list[Float64]:
        """All that is learned."""
        return [*self.weights, *self.biases, *([] if self.second is None else [self.second])]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows, and which pairs of them are to be learned: targets 1 or -1, and weights that sum to one."""

    rows: csr_array
    left: Int64
    right: Int64
    target: Float64
    weight: Float64


def batch_of_rows(rows: csr_array, codes: Int64, balanced: bool, rng: np.random.Generator) -> Batch:
    """All ordered pairs of some rows, or as many as a step looks at; a row with itself is a pair, as in equation 5."""
    n = codes.size
    if n * n <= MOST_PAIRS:
        left, right = np.repeat(np.arange(n), n), np.tile(np.arange(n), n)
    else:
        left, right = rng.integers(0, n, (2, MOST_PAIRS))
    return _batch(rows, left, right, codes[left] == codes[right], np.ones(left.size), balanced)


def batch_of_pairs(rows: csr_array, same: Bool, weight: Float64) -> Batch:
    """Listed pairs: the first half of the rows with the second."""
    n = same.size
    return _batch(rows, np.arange(n), n + np.arange(n), same, weight, False)


def _batch(rows: csr_array, left: Int64, right: Int64, same: Any, weight: Float64, balanced: bool) -> Batch:
    if balanced:
        # With many classes nearly all pairs differ; each kind then weighs one half.
        n_same = max(1, int(same.sum()))
        weight = np.where(same, 1.0 / n_same, 1.0 / max(1, same.size - n_same))
    total = float(weight.sum())
    return Batch(
        rows=rows,
        left=left,
        right=right,
        target=np.where(same, 1.0, -1.0),
        weight=weight / (total if total > 0 else 1.0),
    )


def loss_of(K: Float64, batch: Batch, loss: Literal["squared", "alignment"]) -> tuple[float, Float64]:
    """The loss of kernel values, and its gradient in them.

    ``squared`` is equation 10; ``alignment`` is one minus equation 5, normalisation and all.
    """
    t, w = batch.target, batch.weight
    if loss == "squared":
        return float(w @ (K - t) ** 2), 2.0 * w * (K - t)
    kt, kk, tt = float(w @ (K * t)), float(w @ (K * K)), float(w.sum())
    size = np.sqrt(max(kk * tt, 1e-24))
    return 1.0 - kt / size, -w * (t / size - kt * K / (max(kk, 1e-12) * size))


def values_of(network: Network, batch: Batch) -> tuple[Float64, Any]:
    """Kernel values of a batch's pairs, and what the gradient needs."""
    before = batch.rows @ network.weights[0]
    if network.second is not None:
        before = before[batch.left] + (batch.rows @ network.second)[batch.right]
    states = [np.tanh(before + network.biases[0])]
    for weight, bias in zip(network.weights[1:], network.biases[1:], strict=True):
        states.append(np.tanh(states[-1] @ weight + bias))
    phi = states[-1]
    if network.second is not None:
        return phi[:, 0], states
    return np.einsum("ij,ij->i", phi[batch.left], phi[batch.right]) / phi.shape[1], states


def gradients(
    network: Network, batch: Batch, loss: Literal["squared", "alignment"]
) -> tuple[float, list[Float64]]:
    """The loss, and its gradient in `Network.parts`."""
    K, states = values_of(network, batch)
    objective, slope = loss_of(K, batch, loss)
    n = batch.rows.shape[0]
    if network.second is None:
        phi = states[-1]
        # A pair's K is phi_i . phi_j / S: each side receives the slope times the other side's phi. A row may
        # be in many pairs, whose slopes add up.
        pairs = csr_array((slope / phi.shape[1], (batch.left, batch.right)), shape=(n, n))
        back = (pairs + pairs.T) @ phi
    else:
        back = slope[:, None]
    weights, biases = [], []
    for layer in range(len(states) - 1, 0, -1):
        # The derivative of tanh by its value.
        back = back * (1.0 - states[layer] ** 2)
        weights.append(states[layer - 1].T @ back)
        biases.append(back.sum(axis=0))
        back = back @ network.weights[layer].T
    back = back * (1.0 - states[0] ** 2)
    biases.append(back.sum(axis=0))
    if network.second is None:
        return objective, [batch.rows.T @ back, *weights[::-1], *biases[::-1]]
    # One state a pair, made of a left and a right row: each row collects what its pairs send back.
    ones, numbers = np.ones(slope.size), np.arange(slope.size)
    first, second = (
        batch.rows.T @ (csr_array((ones, (places, numbers)), shape=(n, slope.size)) @ back)
        for places in (batch.left, batch.right)
    )
    return objective, [first, *weights[::-1], *biases[::-1], second]


def train(
    network: Network,
    batch: Callable[[], Batch],
    loss: Literal["squared", "alignment"],
    rate: float,
    n_iter: int,
    on_progress: Callable[[float], None],
) -> list[float]:
    """Steps of Adam (Kingma and Ba 2015), each on a batch; the loss before each.

    Slopes are divided by the root mean square of a whole layer's, not by each weight's own: weights of rare columns,
    which have small slopes, stay small, which is what keeps sparse rows from being learned by heart.
    """
    means = [np.zeros_like(part) for part in network.parts]
    squares = np.zeros(len(means))
    curve = []
    for number in range(1, n_iter + 1):
        objective, slopes = gradients(network, batch(), loss)
        curve.append(objective)
        squares += (1.0 - _SQUARE_DECAY) * ([np.mean(slope**2) for slope in slopes] - squares)
        sizes = np.sqrt(squares / (1.0 - _SQUARE_DECAY**number)) + 1e-8
        for part, slope, mean, size in zip(network.parts, slopes, means, sizes, strict=True):
            mean += (1.0 - _MEAN_DECAY) * (slope - mean)
            part -= rate / (1.0 - _MEAN_DECAY**number) / size * mean
        on_progress(number / n_iter)
    return curve


def _draw_numbers(n: int, most: int, rng: np.random.Generator) -> Int64:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


@document_parameters
class AlignedKernel(KnownColumns, PairScorerMixin, EmbedderMixin, BaseEstimator):
    """Similarity by a network that is trained towards yy' (Sokolov, Urvoy and Ricard 2011, section 3.2).

    With ``psd``, tanh layers map each row to phi(x), and K(x, x') = <phi(x), phi(x')> / S, S being the last layer's
    size: the positive semi-definite form that the paper leaves open. Without, one network reads both rows, its last
    unit is K(x, x'), and both orders are averaged: the paper's own form. The perfect kernel is 1 for rows of one class
    and -1 for others; with more than two classes both kinds of pairs weigh the same. ``squared`` is the paper's loss
    (equation 10), ``alignment`` is one minus the kernel alignment itself (equation 5), normalisation included.

    Columns are scaled by their greatest absolute value. Sparse rows stay sparse. Columns never seen in training count
    nothing; where there are more of them than features, a `UnknownColumnsWarning` counts their values.

    Attributes
    ----------
    loss_curve_ : loss before each step.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import AlignedKernel
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = AlignedKernel().fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    """

    columns_: Annotated[Int64, Array(shape=("columns",), below="features", order="rising")]
    weights_: list[Float64]
    biases_: list[Float64]
    second_: Float64 | None
    loss_curve_: Annotated[list[float], Fact()]
    _layers: Annotated[int, Fact(), Field(ge=1, le=5)]
    _gone = frozenset({"learning_rate", "pivots_left", "pivots_right", "projection"})

    _accepts_sparse = True

    def __init__(
        self,
        hidden: Annotated[
            tuple[Annotated[int, Field(ge=1, le=4096)], ...],
            Field(min_length=1, max_length=4, description="sizes of the hidden layers of tanh units"),
        ] = (20, 20),
        psd: Annotated[
            bool,
            Field(
                description="a positive semi-definite kernel: the inner product of what both rows make of "
                "the network; false: one network reads both rows, and its two orders are averaged"
            ),
        ] = True,
        loss: Annotated[
            Literal["squared", "alignment"],
            Field(
                description="squared: (K - yy')^2; alignment: one minus the cosine between the kernel "
                "matrix and the perfect one"
            ),
        ] = "alignment",
        learning_rate: Annotated[
            float, Field(gt=0.0, le=1e3, description="size of a step of gradient descent (Adam)")
        ] = 0.01,
        n_iter: Annotated[
            int,
            Field(ge=1, le=10_000, description="steps, each on 32,768 random pairs of 1,024 rows at most"),
        ] = 200,
        random_state: Annotated[
            Seed, Field(description="seed of all random draws; null: differs each time")
        ] = 0,
    ) -> None:
        keep_arguments(self, locals())

    # ------------------------------------------------------------ learning

    def _learn_identities(self, rows: csr_array, codes: Int64, identities: NDArray[Any]) -> None:
        scaled, rng = self._scaled(rows), np.random.default_rng(self.random_state)

        def batch() -> Batch:
            part = _draw_numbers(codes.size, MOST_ROWS, rng)
            return batch_of_rows(scaled[part], codes[part], identities.size > 2, rng)

        self._train(scaled, batch, rng)

    def _learn_pairs(self, left: csr_array, right: csr_array, same: Bool, weight: Float64) -> None:
        n = same.size
        scaled = self._scaled(csr_array(vstack([left, right], format="csr")))
        rng = np.random.default_rng(self.random_state)

        def batch() -> Batch:
            part = _draw_numbers(n, MOST_PAIRS, rng)
            return batch_of_pairs(scaled[np.concatenate([part, n + part])], same[part], weight[part])

        self._train(scaled, batch, rng)

    def _train(self, scaled: csr_array, batch: Callable[[], Batch], rng: np.random.Generator) -> None:
        net = Network.random(scaled, self.hidden, self.psd, rng)
        self.loss_curve_ = train(
            net, batch, self.loss, float(self.learning_rate), self.n_iter,
            lambda share: progress.report(share, "training the network"),
        )  # fmt: skip
        # The scale of columns goes into the weights that read them.
        self.weights_ = [net.weights[0] / self._scale[:, None], *net.weights[1:]]
        self.biases_ = net.biases
        self.second_ = None if net.second is None else net.second / self._scale[:, None]
        self._layers = len(self.weights_)
        del self._scale

    def _scaled(self, rows: csr_array) -> csr_array:
        """Rows of the columns that hold anything, each divided by its greatest absolute value."""
        self.columns_ = np.unique(rows.indices).astype(np.int64)
        if not self.columns_.size:
            raise ValueError("X is zero everywhere; expected some column that holds anything")
        narrow = csr_array(
            (rows.data.astype(np.float64), np.searchsorted(self.columns_, rows.indices), rows.indptr),
            shape=(rows.shape[0], self.columns_.size),
        )
        self._scale: Float64 = np.zeros(self.columns_.size)
        np.maximum.at(self._scale, narrow.indices, np.abs(narrow.data))
        narrow.data /= self._scale[narrow.indices]
        return narrow

    # ------------------------------------------------------------ the kernel

    def transform(self, X: ArrayLike) -> Float32:
        """Embed rows.

        Returns
        -------
        (n, k) float32: phi(x), scaled so that inner products are the kernel.

        Raises
        ------
        ValueError
            Without ``psd``: such a kernel is no inner product.
        """
        check_is_fitted(self)
        if not self.psd:
            raise ValueError(
                "a kernel with psd=False embeds no rows: fit one with psd=True, or use pair_score"
            )
        return self._phi(self._validated(X, "X"))

    @property
    def unavailable_(self) -> frozenset[str]:
        """Capabilities that the kernel lacks."""
        return frozenset() if self.psd else frozenset({"embed"})

    def _phi(self, rows: Any) -> Float32:
        states = self._outputs(self._first(rows, self.weights_[0]))
        return np.asarray(states / np.sqrt(states.shape[1]), dtype=np.float32)

    def _outputs(self, inputs: Float64) -> Float64:
        """The last layer's states, from what the first one's weights made of rows or pairs."""
        states: Float64 = np.tanh(inputs + self.biases_[0])
        for weight, bias in zip(self.weights_[1:], self.biases_[1:], strict=True):
            out = np.empty((states.shape[0], weight.shape[1]))
            project_rows(states, np.zeros(weight.shape[0]), weight, out)
            states = np.tanh(out + bias)
        return states

    def _halves(self, rows: Any) -> tuple[Float64, Float64]:
        """What the first layer makes of rows as the left and as the right of a pair."""
        assert self.second_ is not None
        return self._first(rows, self.weights_[0]), self._first(rows, self.second_)

    def _first(self, rows: Any, weights: Float64) -> Float64:
        starts, columns, values = csr_parts(sparse_rows(rows))
        places = places_of(columns, self.columns_)
        known = places >= 0
        starts = np.append(0, np.cumsum(known))[starts]
        shape = (starts.size - 1, self.columns_.size)
        narrow = csr_array((values[known].astype(np.float64), places[known], starts), shape=shape)
        # SciPy adds up each row by itself, in the order of its columns.
        return np.asarray(narrow @ weights)

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        if self.psd:
            phi = self._phi(vectors)
            return {"phi": phi, **encode(phi)}
        return dict(zip(("first", "second"), self._halves(vectors), strict=True))

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        if not self.psd:
            return None
        return SearchForm(
            measure="inner",
            queries=self._phi(queries),
            gallery=index.arrays["phi"],
        )

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        n = left.shape[0]
        sides = one_of_equals(left), one_of_equals(right)
        places = [np.arange(n) if side.shape[0] == n else np.zeros(n, np.int64) for side in sides]
        return self._kernel_values(sides[0], self._index_arrays_of(sides[1]), places[0], places[1])

    def _index_arrays_of(self, rows: Matrix) -> tuple[Any, ...]:
        return (self._phi(rows),) if self.psd else self._halves(rows)

    def _kernel_values(self, queries: Matrix, gallery: tuple[Any, ...], left: Any, right: Any) -> Float32:
        out = np.empty(left.size, dtype=np.float32)
        query_parts = self._index_arrays_of(queries)
        for start in range(0, left.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            a, b = (
                [array[at[part]] for array in side] for side, at in ((query_parts, left), (gallery, right))
            )
            if self.psd:
                # einsum without BLAS: a pair's value does not depend on the pairs beside it.
                out[part] = np.einsum("ij,ij->i", *(side[0].astype(np.float64) for side in (a, b)))
            else:
                # The first layer is linear, so its two halves are worked out once a row and added pair by pair.
                both = self._outputs(a[0] + b[1]) + self._outputs(b[0] + a[1])
                out[part] = 0.5 * both[:, 0]
        return out

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        numbers = number_rows(rows).astype(np.int64, copy=False)
        names = ("phi",) if self.psd else ("first", "second")
        n = queries.shape[0]
        left, right = np.repeat(np.arange(n), numbers.size), np.tile(numbers, n)
        gallery = tuple(index.arrays[name] for name in names)
        scores = self._kernel_values(queries, gallery, left, right)
        return np.asarray(scores.reshape(n, numbers.size))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "biases_")

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        sizes = [file.length("columns"), *self.hidden, *([] if self.psd else [1])]
        if file.facts.layers != len(sizes) - 1:
            raise refuse(
                "layers",
                None,
                f"is {file.facts.layers} in the manifest",
                f"{len(sizes) - 1}, as parameters say",
            )
        if not sizes[0]:
            raise refuse("columns", None, "has no rows", "one or more")
        return {f"size {at}": size for at, size in enumerate(sizes)}

    def _parts(self) -> Mapping[str, Any]:
        parts = {f"weight_{at}": weight for at, weight in enumerate(self.weights_)}
        parts |= {f"bias_{at}": bias for at, bias in enumerate(self.biases_)}
        return parts if self.second_ is None else parts | {"second": self.second_}

    def _read_parts(self, file: StoredState) -> None:
        self.weights_, self.biases_, self.second_ = [], [], None
        for number in range(file.facts.layers):
            shape = f"size {number}", f"size {number + 1}"
            self.weights_.append(file.array(f"weight_{number}", Array(kind="float64", shape=shape)))
            self.biases_.append(file.array(f"bias_{number}", Array(kind="float64", shape=shape[1:])))
        if not self.psd:
            self.second_ = file.array("second", Array(kind="float64", shape=("columns", "size 1")))


ALIGNED = LearnerSpec(
    kind="aligned-kernel",
    title="Aligned kernel: similarity by a small network trained towards the perfect kernel; for sparse rows",
    estimator=AlignedKernel,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    retired=dict.fromkeys(("batch_size", "n_folds", "n_pivots", "n_components"), ...),
    renamed={("learning_rate", "auto"): 0.01},
)
