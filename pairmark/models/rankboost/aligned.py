"""A kernel learned by a network to be aligned with the perfect one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import Field
from scipy.sparse import csr_array, vstack
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import progress
from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.base import EmbedderMixin, GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.inputs import one_of_equals
from pairmark.models.core.search import LENGTHS, Rows, SearchForm, lengths, numbered, sealed
from pairmark.models.core.spec import Seed, document_parameters
from pairmark.models.rankboost import embedding, network
from pairmark.models.rankboost.binning import parts, sparse_rows
from pairmark.models.rankboost.kernels import aligned as kernels
from pairmark.models.rankboost.sparse_input import KnownColumns
from pairmark.models.rankboost.state import NetworkState

_BLOCK: Final = 16_384
_COMPONENTS: Final = 100
"""Dimensions of the embedding without ``psd``, as in the paper."""
_FOLDS: Final = 5
_WATCHED: Final = 64
"""Rows whose pairs tell whether training makes anything better."""


@document_parameters
class AlignedKernel(NetworkState, KnownColumns, PairScorerMixin, EmbedderMixin, BaseEstimator):
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
    learning_rate_ : the rate used. rates_ : with ``auto``, each rate's loss on the folds; infinite where it diverged.
    loss_curve_ : mean loss of each pass.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import AlignedKernel
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = AlignedKernel(learning_rate=0.1, n_iter=20).fit(X[:80], y[:80])
    >>> same, different = model.pair_score(X[[80, 80]], X[[81, 84]])
    >>> bool(same > different)
    True
    """

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
            Literal["auto"] | Annotated[float, Field(gt=0.0, le=1e3)],
            Field(description="step of gradient descent; auto: chosen on folds"),
        ] = "auto",
        n_iter: Annotated[int, Field(ge=1, le=10_000, description="passes over the rows (or pairs)")] = 30,
        random_state: Annotated[
            Seed, Field(description="seed of all random draws; null: differs each time")
        ] = 0,
    ) -> None:
        self.hidden = hidden
        self.psd = psd
        self.loss = loss
        self.learning_rate = learning_rate
        self.n_iter = n_iter
        self.random_state = random_state

    # ------------------------------------------------------------ learning

    def fit(self, X: ArrayLike, y: ArrayLike, unlabelled: ArrayLike | None = None) -> Self:
        """Learn from rows and their classes.

        Parameters
        ----------
        X : (n, d) finite numbers, dense or sparse.
        y : (n,) classes or identities.
        unlabelled : (m, d) rows to draw pivots from, without ``psd``; X when None.

        Raises
        ------
        ValueError
            On anything else, on parameters out of bounds, and when training diverges.
        """
        rows, codes, labels = self._checked_identities(X, y)
        pool = self._pool(unlabelled, rows)
        scaled = self._scaled(rows)
        rng = np.random.default_rng(self.random_state)
        balanced = labels.size > 2

        def batch(part: Int64, rng: np.random.Generator) -> network.Batch:
            return network.batch_of_rows(scaled[part], codes[part], balanced, rng)

        self._train(scaled, rows.shape[0], batch, _WATCHED, rng, smallest=2)
        return self._finish(pool, rng)

    def fit_pairs(
        self,
        left: ArrayLike,
        right: ArrayLike,
        same: ArrayLike,
        sample_weight: ArrayLike | None = None,
        unlabelled: ArrayLike | None = None,
    ) -> Self:
        """Learn from explicit pairs: the target of a pair is 1 or -1, its weight as given.

        Parameters
        ----------
        left, right : (n, d) finite numbers, dense or sparse.
        same : (n,) 0 or 1; both must occur.
        sample_weight : (n,) numbers >= 0.
        unlabelled : as in `fit`.

        Raises
        ------
        ValueError
            As `fit`.
        """
        a, b, flags, weight = self._checked_pairs(left, right, same, sample_weight)
        points = csr_array(vstack([a, b], format="csr"))
        n, pool = flags.size, self._pool(unlabelled, points)
        scaled = self._scaled(points)
        rng = np.random.default_rng(self.random_state)

        def batch(part: Int64, rng: np.random.Generator) -> network.Batch:
            return network.batch_of_pairs(scaled[np.concatenate([part, n + part])], flags[part], weight[part])

        self._train(scaled, n, batch, _WATCHED**2, rng)
        return self._finish(pool, rng)

    def _train(
        self,
        scaled: csr_array,
        n: int,
        batch: Callable[[Int64, np.random.Generator], network.Batch],
        n_watched: int,
        rng: np.random.Generator,
        *,
        smallest: int = 1,
    ) -> None:
        """Train on batches of numbers below ``n``. A last batch of fewer than ``smallest`` is left out."""

        def batches_of(numbers: Int64) -> network.Batches:
            def batches(rng: np.random.Generator) -> Iterator[network.Batch]:
                order = rng.permutation(numbers)
                size = network.batch_size(order.size)
                for at in range(0, order.size, size):
                    part = order[at : at + size]
                    if part.size >= min(smallest, order.size):
                        yield batch(part, rng)

            return batches

        def watched(numbers: Int64) -> network.Batch:
            return batch(numbers[:n_watched], np.random.default_rng(0))

        seed = int(rng.integers(2**31))
        self.rates_: dict[float, float] = {}
        rate = self.learning_rate
        if rate == "auto":
            sample = rng.permutation(n)[: network.SEARCH_ROWS]
            folds = np.array_split(sample, min(_FOLDS, max(2, n // 4)))

            def fold(number: int) -> tuple[csr_array, network.Batches, network.Batch, network.Batch]:
                training = np.concatenate([part for at, part in enumerate(folds) if at != number])
                return scaled, batches_of(training), watched(training), watched(folds[number])

            progress.report(0.0, "searching for a learning rate")
            rate, self.rates_ = network.searched_rate(
                fold, len(folds), self.hidden, self.psd, self.loss, self.n_iter, seed
            )
        everything = rng.permutation(n)
        net = network.Network.random(scaled, self.hidden, self.psd, rng)
        while True:
            try:
                self.loss_curve_ = network.train(
                    net, batches_of(everything), watched(everything), self.loss, float(rate), self.n_iter, rng,
                    lambda share: progress.report(0.4 + 0.5 * share, "training the network"),
                )  # fmt: skip
                break
            except network.Diverged:
                # A rate that held on folds may not hold for longer; one that was asked for is the user's to change.
                if self.learning_rate != "auto" or float(rate) < network.RATES[0] / 10:
                    raise ValueError(
                        f"training diverged at learning_rate={rate:g}: the loss grew; use a smaller one, or 'auto'"
                    ) from None
                rate = float(rate) / 3.0
                net = network.Network.random(scaled, self.hidden, self.psd, rng)
        self.learning_rate_ = float(rate)
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

    def _finish(self, pool: Any, rng: np.random.Generator) -> Self:
        self._restored()
        self._pivots_left = self._pivots_right = self.projection_ = None
        if not self.psd:
            progress.report(0.95, "drawing pivots")
            n = embedding.number_of_pivots(None, pool.shape[0])
            at = embedding.candidate_rows("random", n, pool.shape[0], rng)
            self._pivots_left, self._pivots_right = self._halves(self._pool_rows(pool, at))
            if n > _COMPONENTS:
                self.projection_ = np.ascontiguousarray(embedding.binary_projection(n, _COMPONENTS, rng))
        return self

    def _restored(self) -> None:
        flat = [self.biases_[0]]
        for weight, bias in zip(self.weights_[1:], self.biases_[1:], strict=True):
            flat += [weight.ravel(), bias]
        self._flat = np.concatenate(flat)
        self._sizes_of_layers = np.array([bias.size for bias in self.biases_], dtype=np.int64)

    # ------------------------------------------------------------ the kernel

    def transform(self, X: ArrayLike) -> Float32:
        """Embed rows.

        Returns
        -------
        (n, k) float32: with ``psd`` phi(x), scaled so that inner products are the kernel; without, the kernel with each
        pivot (equation 3), projected at random to 100 numbers where there are more pivots than that.
        """
        check_is_fitted(self)
        rows = self._validated(X, "X")
        if self.psd:
            return self._phi(rows)
        pivots: Any = (self._pivots_left, self._pivots_right)
        n_pivots = pivots[0].shape[0]
        blocks = []
        for start in range(0, rows.shape[0], _BLOCK):
            halves = self._halves(rows[start : start + _BLOCK])
            n = halves[0].shape[0]
            K = np.empty(n * n_pivots)
            places = np.repeat(np.arange(n), n_pivots), np.tile(np.arange(n_pivots), n)
            kernels.symmetrised(*halves, *pivots, *places, self._sizes_of_layers, self._flat, K)
            K = K.reshape(n, n_pivots)
            if self.projection_ is not None:
                out = np.empty((n, self.projection_.shape[1]))
                kernels.product(K, self.projection_, out)
                K = out
            blocks.append(K.astype(np.float32))
        return np.concatenate(blocks)

    def _phi(self, rows: Any) -> Float32:
        activations = self._first(rows, self.weights_[0])
        kernels.squashed(activations, self.biases_[0])
        for weight, bias in zip(self.weights_[1:], self.biases_[1:], strict=True):
            out = np.empty((activations.shape[0], weight.shape[1]))
            kernels.product(activations, weight, out)
            kernels.squashed(out, bias)
            activations = out
        scaled: Float32 = (activations / np.sqrt(activations.shape[1])).astype(np.float32)
        return scaled

    def _halves(self, rows: Any) -> tuple[Float64, Float64]:
        """What the first layer makes of rows as the left and as the right of a pair."""
        assert self.second_ is not None
        return self._first(rows, self.weights_[0]), self._first(rows, self.second_)

    def _first(self, rows: Any, weights: Float64) -> Float64:
        sparse = sparse_rows(rows)
        out = np.empty((sparse.shape[0], weights.shape[1]))
        kernels.first_layer(*parts(sparse), self.columns_, weights, out)
        return out

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        if self.psd:
            phi = self._phi(vectors)
            return {"phi": phi, LENGTHS: lengths(phi)}
        return dict(zip(("first", "second"), self._halves(vectors), strict=True))

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        if not self.psd:
            return None
        return SearchForm(
            measure="inner",
            queries=self._phi(queries),
            gallery=index.arrays["phi"],
            lengths=index.arrays[LENGTHS],
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
        # Read-only views, as galleries have: one compiled form serves both.
        query_parts = tuple(sealed(part) for part in self._index_arrays_of(queries))
        gallery = tuple(sealed(part) for part in gallery)
        if self.psd:
            kernels.inner(*query_parts, *gallery, left, right, out)
        else:
            kernels.symmetrised(*query_parts, *gallery, left, right, self._sizes_of_layers, self._flat, out)
        return out

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        numbers = numbered(rows).astype(np.int64, copy=False)
        names = ("phi",) if self.psd else ("first", "second")
        n = queries.shape[0]
        left, right = np.repeat(np.arange(n), numbers.size), np.tile(numbers, n)
        gallery = tuple(index.arrays[name] for name in names)
        scores = self._kernel_values(queries, gallery, left, right)
        return np.asarray(scores.reshape(n, numbers.size))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_flat")
