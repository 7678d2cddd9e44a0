"""Searching galleries: what `index` makes, how results of blocks are chosen and merged, exactly.

A search returns the k best rows of a gallery for each query: best first, ties by row number. Whatever engine finds
them, rows and scores are those of scoring everything with `pair_score`.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from pairmark.models.core.arrays import Float32, Matrix
from pairmark.models.core.artefact import ArtefactError, read_artefact, write_artefact

Rows = slice | NDArray[np.intp]
TopK = tuple[NDArray[np.intp], Float32]
"""Rows (n_queries, k), padded with -1, and their float32 scores, padded with -inf."""

INDEX_KIND = "gallery-index"
INDEX_VERSION = 1
"""Part of every digest: raised when what any family keeps of a gallery changes, so that no old index is misread."""
_CSR_PARTS = ("data", "indices", "indptr")


@dataclass(frozen=True, kw_only=True, eq=False)
class GalleryIndex:
    """A gallery prepared for one model's searches. Never changes; many threads may search it at once.

    Attributes
    ----------
    vectors : (n, d) the gallery's rows, dense or CSR; kept, not copied, where they were float32 already.
    arrays : what the family prepared of them: n rows each, or facts of the whole.
    digest : of what the model's scores depend on, so that no other model searches this; None for models that cannot
        be saved.
    """

    vectors: Matrix = field(repr=False)
    arrays: Mapping[str, Matrix] = field(default_factory=dict, repr=False)
    digest: str | None = None

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, whether they are in memory or mapped."""
        return sum(_nbytes(array) for array in (self.vectors, *self.arrays.values()))

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Write the index as a folder of plain arrays and a small JSON, whole or not at all; returns its sha256.

        Raises
        ------
        ValueError
            When the model cannot be saved, and so could never be distinguished from another.
        """
        if self.digest is None:
            raise ValueError(
                "this index belongs to a model that cannot be saved, so nothing could open it again"
            )
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        sparse: dict[str, list[int]] = {}
        for name, array in {"vectors": self.vectors, **self.arrays}.items():
            if issparse(array):
                matrix: Any = array
                sparse[name] = [int(size) for size in matrix.shape]
                arrays.update({f"{name}.{part}": getattr(array, part) for part in _CSR_PARTS})
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
        arrays = {name: sealed(array) for name, array in artefact.arrays.items()}
        for name, shape in artefact.meta["sparse"].items():
            parts = tuple(arrays.pop(f"{name}.{part}") for part in _CSR_PARTS)
            arrays[name] = csr_array(parts, shape=tuple(shape), copy=False)
        vectors = arrays.pop("vectors")
        matches = vectors.shape[0] == n
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{folder} is not a complete index: index the gallery again") from error
    if not matches:
        raise ArtefactError(f"{folder} is not a complete index: index the gallery again")
    if owner != digest:
        raise ArtefactError(
            f"{folder} was made by another model, or by this one fitted otherwise: index the gallery again"
        )
    return GalleryIndex(vectors=vectors, arrays=arrays, digest=digest)


def state_digest(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """sha256 of JSON-able facts and named arrays."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=_plain).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {np.shape(arrays[name])}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def sealed(array: Any) -> Any:
    """A read-only plain view: kernels then meet one kind of array, whether it was made here or mapped."""
    if issparse(array):
        return array
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def checked_allowed(allowed: ArrayLike | None, n: int) -> NDArray[np.bool_] | None:
    """A mask of the rows to consider, from one or from row numbers; None for all.

    Raises
    ------
    ValueError
        When it is neither.
    """
    if allowed is None:
        return None
    candidates = np.asarray(allowed)
    if candidates.dtype == np.bool_ and candidates.shape == (n,):
        return None if candidates.all() else candidates
    numbers = candidates.astype(np.intp) if candidates.size == 0 else candidates
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"allowed has shape {candidates.shape} and dtype {candidates.dtype}; expected a boolean mask of shape "
            f"({n},) or a list of row numbers"
        )
    if numbers.size and (numbers.min() < 0 or numbers.max() >= n):
        raise ValueError(f"allowed holds row numbers outside 0 to {n - 1}")
    mask = np.zeros(n, dtype=np.bool_)
    mask[numbers] = True
    return mask


def checked_above(above: float | None) -> np.float32 | None:
    """The float32 that scores must be strictly above, or None."""
    if above is None:
        return None
    if np.isnan(above):
        raise ValueError("above is NaN; expected a score")
    with np.errstate(over="ignore"):
        return np.float32(above)


class SearchLimits(NamedTuple):
    """How many rows a search is asked for, which ones it looks at (None: all), and what scores have to be above."""

    k: int
    allowed: NDArray[np.bool_] | None = None
    above: np.float32 | None = None

    @classmethod
    def of(cls, k: int, n: int, allowed: ArrayLike | None, above: float | None) -> SearchLimits:
        """Of a search among n, or `ValueError`."""
        k = operator.index(k)
        if k < 1:
            raise ValueError(f"k is {k}; expected at least 1")
        return cls(min(k, n), checked_allowed(allowed, n), checked_above(above))


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
            candidates = candidates[line >= np.partition(line, line.size - self.k)[line.size - self.k]]
        if not candidates.size:
            return
        rows = np.concatenate([self.rows, rows[candidates]])
        scores = np.concatenate([self.scores, scores[candidates]])
        order = np.lexsort((rows, -scores))[: self.k]
        self.rows, self.scores = rows[order], scores[order]


def padded(best: Sequence[TopRows], k: int) -> TopK:
    """The results of several queries as arrays."""
    rows = np.full((len(best), k), -1, dtype=np.intp)
    scores = np.full((len(best), k), -np.inf, dtype=np.float32)
    for at, query_best in enumerate(best):
        rows[at, : query_best.rows.size], scores[at, : query_best.rows.size] = (
            query_best.rows,
            query_best.scores,
        )
    return rows, scores


def considered(start: int, stop: int, allowed: NDArray[np.bool_] | None) -> Rows:
    """The rows of a block that are to be looked at: a slice where that is all of them."""
    if allowed is None or allowed[start:stop].all():
        return slice(start, stop)
    return start + np.flatnonzero(allowed[start:stop])


def numbered(rows: Rows) -> NDArray[np.intp]:
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
    n_queries = parts[0][0].shape[0]
    part = np.full((n_queries, k), -1, dtype=np.intp)
    row, score = part.copy(), np.full((n_queries, k), -np.inf, dtype=np.float32)
    sources = np.concatenate([np.full(rows.shape[1], at) for at, (rows, _) in enumerate(parts)])
    rows = np.concatenate([candidates[0] for candidates in parts], axis=1)
    scores = np.concatenate([candidates[1] for candidates in parts], axis=1)
    for query in range(n_queries):
        there = np.flatnonzero(rows[query] >= 0)
        line = scores[query, there]
        if there.size > k:
            among_best = line >= np.partition(line, line.size - k)[line.size - k]
            there, line = there[among_best], line[among_best]
        candidates = [
            (-s, keys[sources[at]][rows[query, at]]) for at, s in zip(there, line.tolist(), strict=True)
        ]
        order = np.array(sorted(range(len(candidates)), key=candidates.__getitem__)[:k], dtype=np.intp)
        columns = there[order]
        part[query, : order.size], row[query, : order.size] = sources[columns], rows[query, columns]
        score[query, : order.size] = line[order]
    return Merged(part, row, score)


def _nbytes(array: Any) -> int:
    if issparse(array):
        return sum(int(getattr(array, part).nbytes) for part in _CSR_PARTS)
    return int(array.nbytes)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return repr(value)
