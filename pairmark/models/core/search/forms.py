"""Exact search for similarities that are an increasing function of an inner product, or of an L1 or L2 distance.

A scan in float32 estimates the measure of every row. How far an estimate can be from the measure itself is known
(Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: gamma_n = n u / (1 - n u), for any order of
summation), so rows that cannot be among the best are left out for certain; the others, a handful, are scored as
`pair_score` does. Ids and scores are therefore those of scoring everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.search.index import GalleryIndex, Rows, SearchLimits, TopK, TopRows, padded, sealed
from pairmark.models.core.search.kernels import scan as search_kernels

BLOCK = 65_536
"""Rows scanned at a time: their estimates stay in the cache until they are looked through."""
LENGTHS = "search_lengths"
"""Name of the index array that `lengths` makes; needed for inner products."""

Measure = Literal["inner", "sqeuclidean", "manhattan"]
_CODES: Final = {
    "inner": search_kernels.INNER,
    "sqeuclidean": search_kernels.SQEUCLIDEAN,
    "manhattan": search_kernels.MANHATTAN,
}
_UNIT = 2.0**-24
_TINY = 2.0**-120
_HUGE = 1e37
"""Measures beyond this could overflow float32 on the way: such rows are scored exactly at once."""
_GATHERED = 4
"""A row copied before it is scanned costs about as much as so many that are scanned where they are."""
_COPIED_ROWS = 8_192
"""Rows copied at a time: vectors may be wide."""
_SURE = 32
_FIRST = 4_096
_QUERIES = 32


def same_measure(score: float) -> float:
    """The least inner product, or minus distance, that can score this much when the measure is the score."""
    return score - abs(score) * 2.0**-22 - _TINY


def root_measure(score: float) -> float:
    """The least minus squared distance that can score this much when the score is minus its root."""
    return -(score * score) * (1.0 + 2.0**-20) - _TINY if score < 0.0 else -_TINY


@dataclass(frozen=True, kw_only=True)
class SearchForm:
    """How a model's score follows from a measure of two vectors.

    Attributes
    ----------
    measure : ``inner``: the inner product; ``sqeuclidean`` or ``manhattan``: minus that distance. The score must not
        decrease where the measure increases.
    queries : (n_queries, m) float32, the queries' vectors.
    gallery : (n, m) float32, the gallery's; best made once, in `PairScorerMixin._index_arrays`.
    least_measure : a score -> the least measure with which a pair can score as much, rounding and all; -inf where that
        is unknown (then everything is scored).
    slack : how far, beyond 2^-40 of its size, the measure that `pair_score` computes may be from the measure of these
        float32 vectors; for families whose scores do not come from these very vectors.
    lengths : what `lengths` found of the gallery, for inner products.
    offsets : (n,) float32, a number of each gallery row that is added to the measure; `slack` covers its rounding.
    """

    measure: Measure
    queries: Float32 = field(repr=False)
    gallery: Float32 = field(repr=False)
    least_measure: Callable[[float], float] = same_measure
    slack: float = 0.0
    lengths: NDArray[np.float64] | None = field(default=None, repr=False)
    offsets: Float32 | None = field(default=None, repr=False)


class Scorer(Protocol):
    """The part of a pair scorer that is needed here."""

    def _score_rows(self, queries: Any, index: GalleryIndex, rows: Rows) -> Float32: ...


def lengths(gallery: Float32) -> NDArray[np.float64]:
    """The greatest length of the rows of each block, which bounds the error of their inner products."""
    rows = sealed(np.ascontiguousarray(gallery, dtype=np.float32))
    n = rows.shape[0]
    return np.array(
        [search_kernels.longest(rows, start, min(start + BLOCK, n)) for start in range(0, n, BLOCK)]
    )


def top_k_by_form(
    scorer: Scorer, form: SearchForm, queries: Any, index: GalleryIndex, limits: SearchLimits
) -> TopK:
    """`PairScorerMixin.top_k` by scanning; see `SearchForm`."""
    gallery = sealed(np.ascontiguousarray(form.gallery, dtype=np.float32))
    vectors = np.ascontiguousarray(form.queries, dtype=np.float32)
    n, width = gallery.shape
    longest = form.lengths if form.lengths is not None or form.measure != "inner" else lengths(gallery)
    best = [TopRows(limits.k, limits.above) for _ in range(vectors.shape[0])]
    for first in range(0, vectors.shape[0], _QUERIES):
        batch = slice(first, first + _QUERIES)
        norms = np.linalg.norm(vectors[batch].astype(np.float64), axis=1)
        estimates = np.empty((norms.size, min(BLOCK, n)), dtype=np.float32)
        for rows, block, mask in _blocks(gallery, limits.allowed):
            size = block.shape[0]
            search_kernels.scan(_CODES[form.measure], block, 0, size, vectors[batch], estimates)
            if form.offsets is not None:
                estimates[:, :size] += form.offsets[rows]
            # Gathered rows come from many blocks: the greatest length of all bounds them.
            part = (
                slice(rows.start // BLOCK, rows.start // BLOCK + 1)
                if isinstance(rows, slice)
                else slice(None)
            )
            for at in range(norms.size):
                scale = math.nan if longest is None else norms[at] * longest[part].max()
                query, query_best = queries[first + at : first + at + 1], best[first + at]

                def offer(
                    places: NDArray[np.intp],
                    query: Any = query,
                    query_best: TopRows = query_best,
                    rows: Rows = rows,
                ) -> None:
                    places = np.sort(places)
                    numbers = places + rows.start if isinstance(rows, slice) else rows[places]
                    query_best.offer(numbers, scorer._score_rows(query, index, numbers)[0])

                look_through(
                    offer, partial(limit, form, width, scale), estimates[at, :size], mask, query_best
                )
    return padded(best, limits.k)


def _blocks(
    gallery: Float32, allowed: NDArray[np.bool_] | None
) -> Iterator[tuple[Rows, Float32, NDArray[np.bool_] | None]]:
    """Row numbers, rows and mask of each block to scan: few allowed rows are copied side by side, without a mask."""
    n = gallery.shape[0]
    if allowed is not None and _GATHERED * np.count_nonzero(allowed) <= n:
        numbers = np.flatnonzero(allowed)
        for at in range(0, numbers.size, _COPIED_ROWS):
            copied = numbers[at : at + _COPIED_ROWS]
            yield copied, sealed(gallery[copied]), None
        return
    for start in range(0, n, BLOCK):
        block = slice(start, min(start + BLOCK, n))
        mask = None if allowed is None else allowed[block]
        if mask is None or mask.any():
            yield block, gallery[block], mask


def look_through(
    offer: Callable[[NDArray[np.intp]], None],
    least_estimate: Callable[[float], np.float32],
    estimates: Float32,
    allowed: NDArray[np.bool_] | None,
    best: TopRows,
) -> None:
    """Score exactly what might be among the best of one block; the most promising first, which rules out the rest.

    Parameters
    ----------
    offer : scores rows of the block, by their places in it, and offers them to `best`.
    least_estimate : a score -> the estimate below which no row of the block can reach it, as `limit`.
    estimates, allowed : (n,) of the block's rows.
    """
    sure = max(_SURE, 2 * best.k)
    first = max(_FIRST, 2 * sure)
    bound = least_estimate(float(best.floor))
    scored: NDArray[np.intp] = np.empty(0, dtype=np.intp)
    if bound == -math.inf and allowed is None and estimates.size > first:
        # Nothing is known yet: the best of a few rule out nearly all others before those are listed.
        scored = np.argpartition(-estimates[:first], sure)[:sure]
        offer(scored)
        bound = least_estimate(float(best.floor))
    places: NDArray[np.intp] = search_kernels.at_least(estimates, bound)
    if scored.size:
        places = np.setdiff1d(places, scored, assume_unique=True)
    if allowed is not None:
        places = places[allowed[places]]
    for looked_at in (first, places.size):
        if places.size <= 2 * sure:
            break
        order = np.argpartition(-estimates[places[:looked_at]], sure)[:sure]
        offer(places[order])
        places = np.delete(places, order)
        bound = least_estimate(float(best.floor))
        places = places[~(estimates[places] < bound)]
    for at in range(0, places.size, BLOCK):
        offer(places[at : at + BLOCK])


def limit(form: SearchForm, width: int, scale: float, score: float) -> np.float32:
    """A row estimated below this cannot reach ``score``."""
    if score == -math.inf:
        return np.float32(-math.inf)
    measure = form.least_measure(score)
    measure -= form.slack + abs(measure) * 2.0**-40
    gamma = (width + 8) * _UNIT / (1.0 - (width + 8) * _UNIT)
    if form.measure == "inner":
        error = gamma * scale + 2 * width * _TINY
        unsafe = not scale < _HUGE
    else:
        # Sums of numbers of one sign: the error is a share of the sum.
        error = gamma * abs(measure) * 1.01 + 2 * width * _TINY
        unsafe = not abs(measure) < _HUGE
    if unsafe or not math.isfinite(measure):
        return np.float32(-math.inf)
    return np.float32(np.nextafter(np.float32(measure - error), np.float32(-math.inf)))
