"""Searching galleries: what `index` makes, how results of blocks are chosen and merged, and scans, all exact.

A search returns the k best rows of a gallery for each query: best first, ties by row number. Whatever engine finds
them, rows and scores are those of scoring everything with `pair_score`.

Where the score is an increasing function of an inner product, or of an L1 or L2 distance, a scan in float32 estimates
the measure of every row. How far an estimate can be from the measure itself is known (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1: gamma_n = n u / (1 - n u), for any order of summation), so rows that cannot be among
the best are left out for certain; the others, a handful, are scored as `pair_score` does.
"""

import hashlib
import json
import math
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array, issparse

from pairmark.models.core import kernels as search_kernels
from pairmark.models.core.arrays import ArrayLike, Float32, Matrix, NDArray
from pairmark.models.core.artefact import ArtefactError, read_artefact, release_pages, write_artefact

Rows = slice | NDArray[np.intp]
TopK = tuple[NDArray[np.intp], Float32]
"""Rows (n_queries, k), padded with -1, and their float32 scores, padded with -inf."""

INDEX_KIND = "gallery-index"
INDEX_VERSION = 4
"""Part of every digest: raised when what any family keeps of a gallery changes, so that no old index is misread."""
_CSR_PARTS = ("data", "indices", "indptr")


@dataclass(frozen=True, kw_only=True, eq=False)
class GalleryIndex:
    """A gallery prepared for one model's searches. Never changes; many threads may search it at once.

    Attributes
    ----------
    vectors : (n, d) the gallery's rows, dense or CSR; kept, not copied, where they were float32 already.
    arrays : what the family prepared of them: n rows each, or facts of the whole.
    digest : of what the model's scores depend on, so that no other model searches this; None of a gallery that is
        searched once.
    """

    vectors: Matrix = field(repr=False)
    arrays: Mapping[str, Matrix] = field(default_factory=dict, repr=False)
    digest: str | None = None

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Write the index as a folder of plain arrays and a small JSON, whole or not at all; returns its sha256."""
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        sparse: dict[str, list[int]] = {}
        for name, array in {"vectors": self.vectors, **self.arrays}.items():
            if issparse(array):
                sparse[name] = [int(size) for size in array.shape]
                arrays |= {f"{name}.{part}": getattr(array, part) for part in _CSR_PARTS}
            else:
                arrays[name] = array
        return write_artefact(
            folder,
            kind=INDEX_KIND,
            params={},
            meta={"digest": self.digest, "rows": len(self), "sparse": sparse},
            arrays=arrays,
        )


def open_index(folder: str | os.PathLike[str], digest: str, *, verify: bool = False) -> GalleryIndex:
    """Open what `GalleryIndex.save` wrote: memory-mapped, so that worker processes share its pages.

    Parameters
    ----------
    digest : of the model that is to search it.
    verify : whether every file is read and held against its sha256.

    Raises
    ------
    ArtefactError
        When the folder is no whole index, or one of another model.
    """
    artefact = read_artefact(folder, verify=verify)
    if artefact.kind != INDEX_KIND:
        raise ArtefactError(
            f"{folder} holds a {artefact.kind!r}; expected an index written by index(...).save()"
        )
    try:
        owner, n = artefact.meta["digest"], int(artefact.meta["rows"])
        arrays = {name: seal_array(array) for name, array in artefact.arrays.items()}
        for name, shape in artefact.meta["sparse"].items():
            parts = tuple(arrays.pop(f"{name}.{part}") for part in _CSR_PARTS)
            arrays[name] = csr_array(parts, shape=tuple(shape), copy=False)
        vectors = arrays.pop("vectors")
        if vectors.shape[0] != n:
            raise ValueError("not as many rows as there are said to be")
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{folder} is not a complete index: index the gallery again") from error
    if owner != digest:
        raise ArtefactError(
            f"{folder} was made by another model, by this one fitted otherwise, or by another version: "
            "index the gallery again"
        )
    return GalleryIndex(vectors=vectors, arrays=arrays, digest=digest)


def state_digest(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """sha256 of JSON-able facts and named arrays."""
    text = json.dumps(
        facts,
        sort_keys=True,
        default=lambda value: value.item() if isinstance(value, np.generic) else repr(value),
    )
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def seal_array(array: Any) -> Any:
    """A read-only plain view: kernels then meet one kind of array, whether it was made here or mapped."""
    # Of an array the class says it at once: most rows are arrays.
    if not isinstance(array, np.ndarray) and issparse(array):
        return array
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


class SearchLimits(NamedTuple):
    """How many rows a search is asked for, which ones it looks at (None: all), and what scores have to be above."""

    k: int
    allowed: NDArray[np.bool_] | None = None
    above: np.float32 | None = None

    @classmethod
    def of(cls, k: int, n: int, allowed: ArrayLike | None, above: float | None) -> "SearchLimits":
        """Of a search among n, or `ValueError`."""
        k = operator.index(k)
        if k < 1:
            raise ValueError(f"k is {k}; expected at least 1")
        mask = None if allowed is None else np.asarray(allowed)
        if mask is not None and (mask.dtype != np.bool_ or mask.shape != (n,)):
            raise ValueError(
                f"allowed is {mask.shape} of {mask.dtype}; expected a boolean mask of shape ({n},)"
            )
        if above is not None and np.isnan(above):
            raise ValueError("above is NaN; expected a score")
        with np.errstate(over="ignore"):
            floor = None if above is None else np.float32(above)
        return cls(min(k, n), None if mask is None or mask.all() else mask, floor)


class TopRows:
    """The k best of what was offered so far, with scores strictly above a floor; ties by row number."""

    def __init__(self, k: int, above: np.float32 | None = None) -> None:
        self.k, self._above = k, above
        self.rows = np.empty(0, dtype=np.intp)
        self.scores = np.empty(0, dtype=np.float32)

    @property
    def floor(self) -> np.float32:
        """A row scored below this can no longer be among the best."""
        if self.rows.size >= self.k:
            return np.float32(self.scores[-1])
        return np.float32(-np.inf) if self._above is None else self._above

    def offer(self, rows: NDArray[np.intp], scores: Float32) -> None:
        """Consider these rows too; none may be offered twice."""
        keep = scores >= self.floor
        if self._above is not None:
            keep &= scores > self._above
        candidates = np.flatnonzero(keep)
        if candidates.size > 4 * self.k:
            line = scores[candidates]
            # All that tie with the k-th: among those the rows decide, below.
            candidates = candidates[line >= np.partition(line, line.size - self.k)[line.size - self.k]]
        if not candidates.size:
            return
        rows = np.concatenate([self.rows, rows[candidates]])
        scores = np.concatenate([self.scores, scores[candidates]])
        order = np.lexsort((rows, -scores))[: self.k]
        self.rows, self.scores = rows[order], scores[order]


def pad_results(best: Sequence[TopRows], k: int) -> TopK:
    """The results of several queries as arrays."""
    rows = np.full((len(best), k), -1, dtype=np.intp)
    scores = np.full((len(best), k), -np.inf, dtype=np.float32)
    for query, found in enumerate(best):
        rows[query, : found.rows.size], scores[query, : found.rows.size] = found.rows, found.scores
    return rows, scores


def select_rows(start: int, stop: int, allowed: NDArray[np.bool_] | None) -> Rows:
    """The rows of a block that are to be looked at: a slice where that is all of them."""
    if allowed is None or allowed[start:stop].all():
        return slice(start, stop)
    return start + np.flatnonzero(allowed[start:stop])


def number_rows(rows: Rows) -> NDArray[np.intp]:
    """Row numbers, from those or a slice."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


class Merged(NamedTuple):
    """Results of several blocks, merged.

    Attributes
    ----------
    part : (n_queries, k) intp, number of the block, -1 where there are no more.
    row : (n_queries, k) intp, row within it, -1 where there are no more.
    score : (n_queries, k) float32, -inf where there are no more.
    """

    part: NDArray[np.intp]
    row: NDArray[np.intp]
    score: Float32


def merge_top_k(parts: Sequence[TopK], k: int, keys: Sequence[Any]) -> Merged:
    """Merge the `top_k` of a gallery's blocks into that of the whole gallery.

    Exact where each block's rows are in ascending order of their keys.

    Parameters
    ----------
    parts : for each block, what ``top_k(queries, block, k)`` returned, for the same queries and at least this k.
    k : how many to keep.
    keys : for each block, a sequence by row of what ties are ordered by (ids, say), unique over all blocks; only the
        keys of returned rows are looked up.
    """
    rows, scores = (np.concatenate(side, axis=1) for side in zip(*parts, strict=True))
    n_queries = rows.shape[0]
    part = np.full((n_queries, k), -1, dtype=np.intp)
    row, score = part.copy(), np.full((n_queries, k), -np.inf, dtype=np.float32)
    sources = np.repeat(np.arange(len(parts)), [each.shape[1] for each, _ in parts])
    for query in range(n_queries):
        there = np.flatnonzero(rows[query] >= 0)
        line = scores[query, there]
        if there.size > k:
            among_best = line >= np.partition(line, line.size - k)[line.size - k]
            there, line = there[among_best], line[among_best]
        ranked = sorted(
            (-s, keys[sources[number]][rows[query, number]], number)
            for number, s in zip(there.tolist(), line.tolist(), strict=True)
        )
        columns = np.array([number for *_, number in ranked[:k]], dtype=np.intp)
        part[query, : columns.size], row[query, : columns.size] = sources[columns], rows[query, columns]
        score[query, : columns.size] = scores[query, columns]
    return Merged(part, row, score)


BLOCK = 65_536
"""Rows scanned at a time: their estimates stay in the cache until they are looked through."""
Measure = Literal["inner", "sqeuclidean", "manhattan"]
# u of float32; and far more than a product loses where float32 has no smaller number.
_UNIT = 2.0**-24
_TINY = 2.0**-120
_HUGE = 1e37
"""Measures beyond this could overflow float32 on the way: such rows are scored exactly at once."""
_GATHERED = 4
"""A row copied before it is scanned costs about as much as so many that are scanned where they are."""
_COPIED_ROWS = 8_192
"""Rows copied at a time: vectors may be wide."""
# Rows scored before others are listed, estimates among which they are looked for, and queries scanned at a time.
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
    gallery : (n, m) float32, the gallery's; best made once, in `PairScorerMixin._index_arrays`, and for inner products
        with what `encode` makes of it.
    least_measure : a score -> the least measure with which a pair can score as much, rounding and all; -inf where that
        is unknown (then everything is scored).
    slack : how far, beyond 2^-40 of its size, the measure that `pair_score` computes may be from the measure of these
        float32 vectors; for families whose scores do not come from these very vectors.
    """

    measure: Measure
    queries: Float32 = field(repr=False)
    gallery: Float32 = field(repr=False)
    least_measure: Callable[[float], float] = same_measure
    slack: float = 0.0


class Codes(NamedTuple):
    """Rows of a gallery in 8 bits a number.

    Attributes
    ----------
    rows : (n, m) int8; steps : (n,) float32: a row is its codes times its step, but for a residual.
    lengths, residuals : the greatest length of a row and of a residual of each block. By Cauchy and Schwarz an inner
        product with a query is no farther from that with the codes than the query's length times the residual's.
    """

    rows: NDArray[np.int8]
    steps: Float32
    lengths: NDArray[np.float64]
    residuals: NDArray[np.float64]


_CODED = [f"search_{name}" for name in Codes._fields]
"""Names of the index arrays that make `Codes`."""


def encode(gallery: Float32) -> dict[str, NDArray[Any]]:
    """What an index keeps of rows whose inner products are scanned."""
    rows, n = seal_array(np.ascontiguousarray(gallery, dtype=np.float32)), gallery.shape[0]
    codes, steps, norms = np.empty(gallery.shape, np.int8), np.empty(n, np.float32), np.empty((2, n))
    search_kernels.encode(rows, codes, steps, norms)
    # A little more, for the roundings of the lengths themselves.
    longest = np.maximum.reduceat(norms, np.arange(0, n, BLOCK), axis=1) * (1.0 + 2.0**-20)
    return dict(zip(_CODED, (codes, steps, *longest), strict=True))


def top_k_by_form(
    score_rows: Callable[[Any, GalleryIndex, Rows], Float32],
    form: SearchForm,
    queries: Any,
    index: GalleryIndex,
    limits: SearchLimits,
) -> TopK:
    """`PairScorerMixin.top_k` by scanning; see `SearchForm`. ``score_rows`` : `PairScorerMixin._score_rows`."""
    vectors = np.ascontiguousarray(form.queries, dtype=np.float32)
    n, width = form.gallery.shape
    gallery = seal_array(np.ascontiguousarray(form.gallery, dtype=np.float32))
    codes = Codes(*(index.arrays[name] for name in _CODED)) if form.measure == "inner" else None
    # Codes are added up before a step multiplies the sum, which could overflow: none is longer than this.
    longest_code = 128.0 * math.sqrt(width)
    best = [TopRows(limits.k, limits.above) for _ in range(vectors.shape[0])]
    for first in range(0, vectors.shape[0], _QUERIES):
        batch = vectors[first : first + _QUERIES]
        norms = np.linalg.norm(batch.astype(np.float64), axis=1)
        estimates = np.empty((norms.size, min(BLOCK, n)), dtype=np.float32)
        for rows, mask in _blocks(n, limits.allowed):
            if codes is None:
                block = seal_array(gallery[rows])
                search_kernels.scan(block, form.measure == "manhattan", batch, estimates)
            else:
                block, steps = seal_array(codes.rows[rows]), seal_array(codes.steps[rows])
                search_kernels.scan_codes(block, steps, batch, estimates)
            # Gathered rows come from many blocks: the greatest of all bounds them.
            at = rows.start // BLOCK if isinstance(rows, slice) else 0
            part = slice(at, at + 1 if isinstance(rows, slice) else None)
            for i in range(norms.size):
                scale = residual = 0.0
                if codes is not None:
                    residual = float(norms[i] * codes.residuals[part].max())
                    scale = norms[i] * codes.lengths[part].max() + residual
                if not norms[i] * longest_code < _HUGE:
                    scale = math.inf
                query, query_best = queries[first + i : first + i + 1], best[first + i]

                def offer(
                    places: NDArray[np.intp],
                    query: Any = query,
                    query_best: TopRows = query_best,
                    rows: Rows = rows,
                ) -> None:
                    places = np.sort(places)
                    numbers = places + rows.start if isinstance(rows, slice) else rows[places]
                    query_best.offer(numbers, score_rows(query, index, numbers)[0])

                least_estimate = partial(limit, form, width, scale, residual)
                look_through(offer, least_estimate, estimates[i, : len(block)], mask, query_best)
    if codes is not None:
        # A handful of these was read.
        release_pages(index.vectors)
        release_pages(form.gallery)
    return pad_results(best, limits.k)


def _blocks(n: int, allowed: NDArray[np.bool_] | None) -> Iterator[tuple[Rows, NDArray[np.bool_] | None]]:
    """Rows and mask of each block to scan: few allowed rows are named, to be copied side by side, without a mask."""
    if allowed is not None and _GATHERED * np.count_nonzero(allowed) <= n:
        numbers = np.flatnonzero(allowed)
        yield from ((numbers[at : at + _COPIED_ROWS], None) for at in range(0, numbers.size, _COPIED_ROWS))
        return
    for start in range(0, n, BLOCK):
        block = slice(start, min(start + BLOCK, n))
        mask = None if allowed is None else allowed[block]
        if mask is None or mask.any():
            yield block, mask


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
    # What is not a number is looked at, too.
    places = np.flatnonzero(~(estimates < bound))
    if scored.size:
        places = np.setdiff1d(places, scored, assume_unique=True)
    if allowed is not None:
        places = places[allowed[places]]
    # Twice the most promising are scored, of the first few and of all: what they raise the floor to rules out most
    # others.
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


def limit(form: SearchForm, width: int, scale: float, residual: float, score: float) -> np.float32:
    """A row estimated below this cannot reach ``score``.

    Parameters
    ----------
    scale : of inner products, at most the length of the query times that of a row as it is scanned.
    residual : how far the inner product with a row as it is scanned may be from the one with the row.
    """
    if score == -math.inf:
        return np.float32(-math.inf)
    measure = form.least_measure(score)
    measure -= form.slack + residual + abs(measure) * 2.0**-40
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
