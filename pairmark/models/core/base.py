"""The mixin that every learner of pairs builds on.

A pair scorer implements `_pair_score` on two validated arrays of equal length; everything else (broadcasting,
blocks, search) is here once. Scores are float32 and symmetric to the last bit.
"""

import inspect
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, is_classifier
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import scores as subject_scores
from pairmark.models.core import search
from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, NDArray
from pairmark.models.core.arrays import Matrix as Matrix
from pairmark.models.core.inputs import (
    Missing,
    checked_identities,
    checked_matrix,
    checked_pairs,
    codes_by_appearance,
    fill_missing,
    fill_values,
    identity_codes,
    row_numbers,
)
from pairmark.models.core.scores import (
    OF_SCORES,
    PairsOfRows,
    Samples,
    SampleSets,
    auc_beside_means,
    identity_auc,
    identity_means,
    scored_rows,
)
from pairmark.models.core.search import GalleryIndex as GalleryIndex
from pairmark.models.core.search import SearchForm, SearchLimits, TopK, top_k_by_form
from pairmark.models.core.spec import check_params
from pairmark.models.core.state import Array, Stateful

SCORE_BLOCK = 65_536
"""Pairs scored at a time when a query meets a whole gallery: bounds the memory of `score_against`."""


_NOT_SCORED = frozenset({"n_jobs", "verbose", "random_state"})
"""Parameters that no score of a fitted model depends on."""


class PairScorerMixin(Stateful):
    """A learned, symmetric similarity: higher is more similar."""

    n_features_in_: int
    fill_: Annotated[Float32 | None, Array(name="missing-fill", shape=("features",))] = None
    """What stands for missing values; None where training rows had none."""
    _accepts_sparse: bool = False
    _identity_means: tuple[Any, NDArray[Any]] | None = None
    """What `score` stands beside rows of one identity. Not saved."""
    _missing: Missing | None = None
    """How missing values (NaN) are filled; None: they are refused."""

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.input_tags.sparse = self._accepts_sparse
        tags.input_tags.allow_nan = self._missing is not None
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from points and their identities.

        Parameters
        ----------
        X : (n, d) finite numbers, dense; or CSR, where the learner takes sparse rows. Dense rows may hold NaN for what
            is missing, where the learner takes it (scikit-learn's tag ``allow_nan``): it is filled, then and from then
            on, by medians, of trees by numbers below all others.
        y : (n,) identities or classes; at least two, one of them with at least two rows.

        Raises
        ------
        ValueError
            On anything else, on parameters out of bounds, and where the learner finds nothing to learn.
        """
        rows, codes, identities = self._checked_identities(X, y)
        if not is_classifier(self):
            # What identities are called plays no part.
            numbers, first = codes_by_appearance(codes)
            identities, codes = identities[codes[first]], numbers
        self._learn_identities(rows, codes, identities)
        self._identity_means = identity_means(rows, codes, identities)
        return self

    def fit_pairs(
        self, left: ArrayLike, right: ArrayLike, same: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from explicit pairs.

        Parameters
        ----------
        left, right : (n, d) finite numbers, as X of `fit`.
        same : (n,) 0 or 1; both must occur.
        sample_weight : (n,) numbers >= 0; pairs of weight 0 are left out. What others mean is the learner's: see there.

        Raises
        ------
        ValueError
            As `fit`.
        """
        self._learn_pairs(*self._checked_pairs(left, right, same, sample_weight))
        self._identity_means = None
        return self

    # What a family gives: the learning of checked rows; and checks of parameters beyond their annotations.

    def _check_params(self) -> None:
        check_params(self)

    @abstractmethod
    def _learn_identities(self, rows: Any, codes: Int64, identities: NDArray[Any]) -> None:
        """Learn from rows (n, d) with codes into ``identities``, (n,)."""

    @abstractmethod
    def _learn_pairs(self, left: Any, right: Any, same: Bool, weight: Float64) -> None: ...

    def _training_rows(self, X: Any, name: str, *, reset: bool = False) -> Any:
        return checked_matrix(
            self,
            X,
            name,
            accept_sparse=self._accepts_sparse,
            reset=reset,
            missing=self._missing is not None,
        )

    def _filled_sides(self, *sides: Any) -> tuple[Any, ...]:
        """Training rows without missing values; what fills them, where there are any, is part of the model."""
        vars(self).pop("fill_", None)
        dense = [side for side in sides if isinstance(side, np.ndarray)]
        if self._missing is None or not any(np.isnan(side).any() for side in dense):
            return sides
        self.fill_ = fill_values(np.concatenate(dense), self._missing)
        return tuple(
            fill_missing(side, self.fill_) if isinstance(side, np.ndarray) else side for side in sides
        )

    def _checked_identities(self, X: ArrayLike, y: ArrayLike) -> tuple[Any, Int64, NDArray[Any]]:
        self._check_params()
        (rows,) = self._filled_sides(self._training_rows(X, "X", reset=True))
        identities, codes = checked_identities(y, rows.shape[0])
        return rows, codes, identities

    def _checked_pairs(
        self, left: ArrayLike, right: ArrayLike, same: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, Any, Bool, Float64]:
        self._check_params()
        a, b = self._filled_sides(
            self._training_rows(left, "left", reset=True), self._training_rows(right, "right")
        )
        if a.shape[0] != b.shape[0]:
            raise ValueError(
                f"left has {a.shape[0]} rows and right {b.shape[0]}: expected one of each a pair"
            )
        return a, b, *self._checked_labels(a.shape[0], same, sample_weight)

    def _checked_labels(
        self, n: int, same: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Bool, Float64]:
        """What n pairs are, and their weights."""
        return checked_pairs(n, same, sample_weight)

    @abstractmethod
    def _pair_score(self, left: Matrix, right: Matrix) -> Float32: ...

    def pair_score(self, left: ArrayLike, right: ArrayLike) -> Float32:
        """Similarity of each pair.

        Parameters
        ----------
        left, right : (n, d) arrays; one side may have a single row, which then meets every row of the other.

        Returns
        -------
        (n,) float32; ``pair_score(a, b)`` equals ``pair_score(b, a)`` to the last bit.

        Raises
        ------
        ValueError
            On NaN, infinities, a wrong dimension or lengths that do not fit.
        """
        check_is_fitted(self)
        a, b = self._validated(left, "left"), self._validated(right, "right")
        if a.shape[0] != b.shape[0] and 1 not in (a.shape[0], b.shape[0]):
            raise ValueError(
                f"left has {a.shape[0]} rows and right {b.shape[0]}: expected equal numbers, or a single row on one "
                "side"
            )
        return score_checked(self, a, b)

    def score_pairs(
        self,
        X: ArrayLike,
        left: ArrayLike,
        right: ArrayLike,
        on_progress: Callable[[float], None] | None = None,
    ) -> Float32:
        """Similarity of pairs of rows of one matrix: much faster than `pair_score` where rows are in many pairs.

        Parameters
        ----------
        X : (n, d) rows.
        left, right : (n_pairs,) row numbers, 0 to n - 1.
        on_progress : called with the share done, 0 to 1, after each block.

        Returns
        -------
        (n_pairs,) float32, equal to ``pair_score(X[left], X[right])`` to the last bit.

        Raises
        ------
        ValueError
            On numbers that are no rows or do not fit, and as `pair_score`.
        """
        check_is_fitted(self)
        rows: Any = X if issparse(X) or isinstance(X, np.ndarray) else np.asarray(X)
        a, b = row_numbers(left, rows.shape[0], "left"), row_numbers(right, rows.shape[0], "right")
        if a.size != b.size:
            raise ValueError(f"left names {a.size} rows and right {b.size}: expected one of each a pair")
        return scored_rows(lambda part: self._pairs_of(self._validated(part, "X")), rows, a, b, on_progress)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """AUC of the pairs of rows: how often a same pair scores higher than a different one, ties counting half.

        What `sklearn.model_selection` judges by. For people or things that new ones will join, rows to judge on must be
        of identities that training did not see: ``GroupKFold().split(X, y, groups=y)``, or ``groups=y`` with
        ``cv=GroupKFold()``. Other splitters hold rows of trained identities out, as is right for shared classes. Where
        the rows are all of one identity, or no two of one (``cv=3`` cuts sorted ``y`` so), they are paired with the
        means of identities that `fit` saw, too.

        Parameters
        ----------
        X : (n, d) rows. y : (n,) their identities; all pairs count, of over a million those that are drawn.

        Raises
        ------
        ValueError
            Where no two rows share an identity, or all do, and `fit` saw none to stand beside them; and as
            `score_pairs`.
        """
        identities, codes = identity_codes(y, np.asarray(y).shape[0])
        if identities.size > 1 and np.bincount(codes).max() > 1:
            return identity_auc(lambda left, right: self.score_pairs(X, left, right), codes)
        if self._identity_means is None:
            checked_identities(y, codes.size)
        means: Any = self._identity_means
        return auc_beside_means(self._pairs_of, self._validated(X, "X"), identities[codes], *means)

    @property
    def n_candidates(self) -> int | None:
        """Rows of a large gallery that a search scores; None: all of them."""
        return None

    @property
    def aggregations(self) -> tuple[str, ...]:
        """Ways in which the model compares subjects of several samples; the first is its usual one."""
        return OF_SCORES

    def subject_score(self, left: Samples, right: Samples, *, aggregation: str = "auto") -> Float32:
        """Similarity of subjects of several samples on either side.

        Parameters
        ----------
        left, right : one (k, d) array for each subject, k >= 1; equally many subjects, or one on a side.
        aggregation : ``mean``, ``best`` or ``median`` of the scores of all samples of the left side with all of the
            right; ``plda``, exact, where the model has it; ``auto``: the first of `aggregations`.

        Returns
        -------
        (n,) float32; of single samples the same as `pair_score`. Swapped sides, and samples in another order, give
        the same to the last bit.

        Raises
        ------
        ValueError
            On bad samples, numbers that do not fit, and an aggregation that the model does not have.
        """
        check_is_fitted(self)
        a, b = self._sets(left, "left"), self._sets(right, "right")
        how = subject_scores.checked_aggregation(aggregation, self.aggregations, type(self).__name__)
        return self._subject_score(a, b, how)

    def _sets(self, samples: Samples, name: str) -> SampleSets:
        rows, counts = subject_scores.join_samples(samples)
        return SampleSets.of_rows(self._validated(rows, name), counts)

    # What a family with a score of its own for subjects replaces.

    def _prepared_subjects(self, sets: SampleSets, how: str) -> Any:
        return sets

    def _subject_score(self, left: Any, right: Any, how: str) -> Float32:
        return subject_scores.score_samples(self._pair_score, left, right, how)

    def index(self, gallery: ArrayLike) -> GalleryIndex:
        """Prepare a gallery, (n, d), for repeated searches.

        Returns
        -------
        GalleryIndex : never changes, whatever becomes of ``gallery``; ``save(folder)`` writes it, `open_index` maps it
            again.
        """
        check_is_fitted(self)
        rows = self._validated(gallery, "gallery")
        are_arrays = isinstance(rows, np.ndarray) and isinstance(gallery, np.ndarray)
        own_rows = rows.copy() if are_arrays and np.shares_memory(rows, gallery) else rows
        return self._indexed(own_rows, self._search_digest())

    def open_index(self, folder: str | os.PathLike[str], *, verify: bool = False) -> GalleryIndex:
        """Open a saved index of this model, memory-mapped: galleries larger than memory work, processes share pages.

        Parameters
        ----------
        verify : whether every file is read and held against its sha256 (else: names, types and shapes only).

        Raises
        ------
        ArtefactError
            When the folder is no whole index, or belongs to another model.
        """
        check_is_fitted(self)
        return search.open_index(folder, self._search_digest(), verify=verify)

    def score_against(self, query: ArrayLike, gallery: ArrayLike | GalleryIndex) -> Float32:
        """Score every query against every gallery row.

        Returns
        -------
        (n_queries, n_gallery) float32, each entry equal to `pair_score` of that pair to the last bit.
        """
        check_is_fitted(self)
        queries, index = self._validated(query, "query"), self._as_index(gallery)
        scores = np.empty((queries.shape[0], len(index)), dtype=np.float32)
        for start in range(0, len(index), SCORE_BLOCK):
            rows = slice(start, min(start + SCORE_BLOCK, len(index)))
            scores[:, rows] = self._score_rows(queries, index, rows)
        return scores

    def top_k(
        self,
        query: ArrayLike,
        gallery: ArrayLike | GalleryIndex,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        above: float | None = None,
    ) -> TopK:
        """The k most similar gallery rows of each query, exactly; best first, ties by row number.

        Parameters
        ----------
        query : (n_queries, d).
        gallery : (n_gallery, d), or what `index` made of it.
        k : at least 1; more than the gallery holds is no error.
        allowed : (n_gallery,) booleans, the rows that are considered; all when None.
        above : only scores strictly above this float32 are returned.

        Returns
        -------
        ids : (n_queries, min(k, n_gallery)) row numbers, padded with -1 where fewer are to be had.
        scores : the same shape, float32, padded with -inf; equal to `pair_score` to the last bit.

        Raises
        ------
        ValueError
            On bad numbers, and when the index is another model's.
        """
        check_is_fitted(self)
        queries, index = self._validated(query, "query"), self._as_index(gallery)
        return self._top_k(queries, index, SearchLimits.of(k, len(index), allowed, above))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        """Scores of pairs of rows by number; a family that maps rows does so here, once for all pairs."""
        return lambda left, right: self._pair_score(rows[left], rows[right])

    # What a family may replace: columns it works out once a gallery, how it scores them, how it searches.

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        """What to keep of a gallery beside its vectors; `GalleryIndex.arrays`, saved and mapped with it."""
        return {}

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: search.Rows) -> Float32:
        """Scores of some rows of a gallery, (n_queries, n_rows): equal to `pair_score` to the last bit."""
        block = index.vectors[rows]
        lines = (_repeat_row(queries[at : at + 1], block.shape[0]) for at in range(queries.shape[0]))
        return np.stack([self._pair_score(line, block) for line in lines])

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        """How the score follows from an inner product or a distance, where it does: search is then a scan."""
        return None

    def _top_k(self, queries: Matrix, index: GalleryIndex, limits: SearchLimits) -> TopK:
        """By the form of the score where it has one; else score everything, block by block, and keep the best."""
        form = self._search_form(queries, index)
        if form is not None:
            return top_k_by_form(self._score_rows, form, queries, index, limits)
        bests = []
        for query in range(queries.shape[0]):
            best = search.TopRows(limits.k, limits.above)
            for start in range(0, len(index), SCORE_BLOCK):
                rows = search.select_rows(start, min(start + SCORE_BLOCK, len(index)), limits.allowed)
                numbers = search.number_rows(rows)
                if numbers.size:
                    best.offer(numbers, self._score_rows(queries[query : query + 1], index, rows)[0])
            bests.append(best)
        return search.pad_results(bests, limits.k)

    def _as_index(self, gallery: Any) -> GalleryIndex:
        if not isinstance(gallery, GalleryIndex):
            return self._indexed(self._validated(gallery, "gallery"), None)
        if gallery.digest != self._search_digest():
            raise ValueError(
                "the index was made by another model, or by this one before it was fitted again: index the gallery "
                "with this model"
            )
        return gallery

    def _indexed(self, vectors: Matrix, digest: str | None) -> GalleryIndex:
        vectors = search.seal_array(vectors)
        arrays = {name: search.seal_array(array) for name, array in self._index_arrays(vectors).items()}
        return GalleryIndex(vectors=vectors, arrays=arrays, digest=digest)

    def _search_digest(self) -> str:
        """Digest of what scores depend on: parameters and fitted state."""
        now = {name: value for name, value in vars(self).items() if name != "_digested"}
        before, digest = vars(self).get("_digested", ({}, ""))
        if before.keys() == now.keys() and all(before[name] is value for name, value in now.items()):
            return str(digest)
        learner: Any = self
        params = {
            name: value for name, value in learner.get_params(deep=False).items() if name not in _NOT_SCORED
        }
        arrays, meta = self.to_state()
        if "scaling_" in now:
            arrays = {**arrays, "scaling": np.stack(now["scaling_"])}
        facts = {
            "index": search.INDEX_VERSION,
            "learner": type(self).__name__,
            "params": params,
            "meta": meta,
            "width": self.n_features_in_,
        }
        # Kept with what it was worked out from: fitting again replaces that, and so is noticed.
        self._digested = (now, search.state_digest(facts, arrays))
        return self._digested[1]

    def _validated(self, X: Any, name: str) -> Matrix:
        fill = self.fill_
        rows = checked_matrix(self, X, name, accept_sparse=self._accepts_sparse, missing=fill is not None)
        return rows if fill is None or issparse(rows) else fill_missing(rows, fill)

    def _one_pair(self, left: Any, right: Any) -> tuple[Matrix, Matrix]:
        """The two checked rows of a pair to explain, each given as (d,) or (1, d)."""
        check_is_fitted(self)
        a, b = (
            self._validated(side if issparse(side) else np.atleast_2d(np.asarray(side)), name)
            for side, name in ((left, "left"), (right, "right"))
        )
        if a.shape[0] != 1 or b.shape[0] != 1:
            raise ValueError(f"explain takes one pair; left has {a.shape[0]} rows and right {b.shape[0]}")
        return a, b


class EmbedderMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A learner with a vector space of its own: `set_output` and `get_feature_names_out` are scikit-learn's."""

    @property
    def _n_features_out(self) -> int:
        learner: Any = self
        # Not what gives data frames, which ask for the names of their columns.
        transform = inspect.unwrap(type(learner).transform)
        row = np.zeros((1, learner.n_features_in_), dtype=np.float32)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            return int(transform(learner, row).shape[1])

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags

    def fit_transform(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Float32:
        """``fit(X, y)``, then ``transform(X)``."""
        learner: Any = self
        return np.asarray(learner.fit(X, y, **fit_params).transform(X))

    @abstractmethod
    def transform(self, X: ArrayLike) -> Float32:
        """Embed points, (n, d) -> (n, n_components) float32."""


# What serves checks rows as they come in, and need not have them checked again.


def score_checked(learner: PairScorerMixin, left: Any, right: Any) -> Float32:
    """`PairScorerMixin.pair_score` of rows that were checked already."""
    if left.shape[0] != right.shape[0]:
        n = max(left.shape[0], right.shape[0])
        left, right = (side if side.shape[0] == n else _repeat_row(side, n) for side in (left, right))
    return learner._pair_score(left, right)


def prepare_subjects(learner: PairScorerMixin, sets: SampleSets, aggregation: str) -> Any:
    """Subjects as the learner compares them, for many pairs of them."""
    return learner._prepared_subjects(sets, aggregation)


def score_subjects(learner: PairScorerMixin, left: Any, right: Any, aggregation: str) -> Float32:
    """`PairScorerMixin.subject_score` of checked or prepared subjects; ``aggregation`` is not ``auto``."""
    return learner._subject_score(left, right, aggregation)


def _repeat_row(row: Any, n: int) -> Any:
    if isinstance(row, np.ndarray):
        return np.broadcast_to(row, (n, row.shape[1]))
    return row[np.zeros(n, dtype=np.intp)]
