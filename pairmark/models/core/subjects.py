"""Subjects: people (or things) with several samples, compared with one score.

Every pair scorer compares subjects by the scores of their samples, left with right: their ``mean``, the ``best`` or
the ``median``. PLDA has an exact score of its own (`pairmark.models.plda.templates`). A subject of one sample scores as
that sample does, to the last bit, and so do subjects whose sides are swapped or whose samples come in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, vstack

from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.kernels import subjects as kernels
from pairmark.models.core.search import index as search
from pairmark.models.core.search.index import GalleryIndex, SearchLimits, TopK, TopRows, padded

Samples = Sequence[ArrayLike]
Aggregation = Literal["auto", "mean", "plda", "best", "median"]

AGGREGATIONS: Final = ("auto", "mean", "plda", "best", "median")
OF_SCORES: Final = ("mean", "best", "median")
"""Ways to make one score of those of samples, which every pair scorer has; the first is the usual one."""
_CODES: Final = {"mean": kernels.MEAN, "best": kernels.BEST, "median": kernels.MEDIAN}
_CELLS: Final = 65_536
"""Pairs of samples scored at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SampleSets:
    """Samples of subjects.

    Attributes
    ----------
    rows : (n_rows, d) samples, dense or CSR. index : (n_samples,) rows of all subjects, subject after subject.
    counts : (n,) int64, samples of each subject, at least 1.
    """

    rows: Any = field(repr=False)
    index: Int64 = field(repr=False)
    counts: Int64

    def __len__(self) -> int:
        return int(self.counts.size)

    @property
    def ends(self) -> Int64:
        """(n,) where each subject's samples end in `index`."""
        return np.cumsum(self.counts)

    @classmethod
    def of_rows(cls, rows: Any, counts: Int64 | None = None) -> SampleSets:
        """Of rows that lie subject after subject; one sample a subject where no counts are given."""
        n = int(rows.shape[0])
        counts = np.ones(n, dtype=np.int64) if counts is None else np.asarray(counts, dtype=np.int64)
        return cls(rows=rows, index=np.arange(n, dtype=np.int64), counts=counts)

    def take(self, numbers: NDArray[Any]) -> SampleSets:
        """Some of the subjects; rows are shared."""
        counts, starts = self.counts[numbers], (self.ends - self.counts)[numbers]
        ends = np.cumsum(counts)
        index = np.repeat(starts - (ends - counts), counts) + np.arange(int(ends[-1]) if ends.size else 0)
        return SampleSets(rows=self.rows, index=self.index[index], counts=counts)


def joined(samples: Samples) -> tuple[Any, Int64]:
    """All samples in one matrix, and how many each subject has."""
    parts: list[Any] = [part if issparse(part) else np.asarray(part) for part in samples]
    if not parts:
        raise ValueError("samples names no subject; expected one (k, d) array of samples for each subject")
    for number, part in enumerate(parts):
        if part.ndim != 2 or part.shape[0] < 1:
            raise ValueError(
                f"subject {number} has samples of shape {part.shape}; expected (k, d) with at least one row"
            )
    if len({part.shape[1] for part in parts}) > 1:
        raise ValueError("subjects have samples of different numbers of features; expected the same number")
    counts = np.array([part.shape[0] for part in parts], dtype=np.int64)
    sparse = [bool(issparse(part)) for part in parts]
    if all(sparse):
        return csr_array(vstack(parts, format="csr")), counts
    dense = [part.toarray() if is_sparse else part for part, is_sparse in zip(parts, sparse, strict=True)]
    return np.concatenate(dense), counts


def checked_aggregation(aggregation: str, able: Sequence[str], name: str) -> str:
    """An aggregation other than ``auto``; ``able`` are those that a learner has."""
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation is {aggregation!r}; expected one of {', '.join(AGGREGATIONS)}")
    if aggregation not in able:
        raise ValueError(
            f"aggregation {aggregation!r} needs a PLDA model that scores log-likelihood ratios; {name} has "
            f"{', '.join(able)}"
        )
    return aggregation


def common_samples(left: Int64, right: Int64) -> tuple[int, int] | None:
    """Numbers of samples of the two subjects of every pair, the larger first; None where pairs differ in them.

    Parameters
    ----------
    left, right : (n,) and (m,) samples of the subjects of both sides; n = m, or one of them is 1.
    """
    if left.size != right.size and 1 not in (left.size, right.size):
        return None
    larger, smaller = np.maximum(left, right), np.minimum(left, right)
    if (larger != larger[0]).any() or (smaller != smaller[0]).any():
        return None
    return int(larger[0]), int(smaller[0])


def sides_of(n: int, m: int) -> tuple[int, int, int]:
    """How many scores two sides make, and each side's step: 0 where its one subject meets all."""
    if n != m and 1 not in (n, m):
        raise ValueError(
            f"left has {n} subjects and right {m}: expected equal numbers, or a single one on one side"
        )
    return max(n, m), int(n > 1), int(m > 1)


def scored(score: Callable[[Any, Any], Float32], left: SampleSets, right: SampleSets, rule: str) -> Float32:
    """Scores of subjects from scores of their samples.

    Parameters
    ----------
    score : rows of equal numbers -> their scores.
    rule : ``mean``, ``best`` or ``median``.
    """
    n, step_a, step_b = sides_of(len(left), len(right))
    at = np.arange(n)
    a, b = at * step_a, at * step_b
    k, m = left.counts[a], right.counts[b]
    starts_a, starts_b = (left.ends - left.counts)[a], (right.ends - right.counts)[b]
    cells = k * m
    out = np.empty(n, dtype=np.float32)
    for first, last in _blocks(cells):
        part = slice(first, last)
        ends = np.cumsum(cells[part])
        cell = np.arange(ends[-1]) - np.repeat(ends - cells[part], cells[part])
        width = np.repeat(m[part], cells[part])
        rows_a = left.index[np.repeat(starts_a[part], cells[part]) + cell // width]
        rows_b = right.index[np.repeat(starts_b[part], cells[part]) + cell % width]
        kernels.combine(score(left.rows[rows_a], right.rows[rows_b])[None, :], ends, _CODES[rule], out[part])
    return out


def _blocks(cells: Int64) -> Iterator[tuple[int, int]]:
    """Ranges of pairs of subjects with about `_CELLS` pairs of samples, at least one pair of subjects each."""
    ends = np.cumsum(cells)
    first = 0
    while first < cells.size:
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _CELLS, side="right")))
        yield first, last
        first = last


@dataclass(frozen=True, kw_only=True, eq=False)
class SubjectIndex:
    """Subjects prepared for one model's searches.

    Attributes
    ----------
    aggregation : how a score is made. n : subjects.
    index : of all samples, subject after subject; None where a family keeps something smaller.
    ends : (n,) where each subject's samples end. own : what a family keeps instead.
    """

    aggregation: str
    n: int
    index: GalleryIndex | None = field(default=None, repr=False)
    ends: Int64 | None = field(default=None, repr=False)
    own: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return self.n


def best_subjects(
    score: Callable[[Any, GalleryIndex, slice], Float32],
    queries: SampleSets,
    index: SubjectIndex,
    limits: SearchLimits,
) -> TopK:
    """The best subjects of each query by scoring all their samples.

    Parameters
    ----------
    score : (query rows, index, rows of the index) -> (n_rows, n) scores.
    """
    assert index.index is not None
    assert index.ends is not None
    counts = np.diff(index.ends, prepend=0)
    ends = queries.ends
    bests = []
    for at, count in enumerate(queries.counts.tolist()):
        samples = queries.rows[queries.index[int(ends[at]) - count : int(ends[at])]]
        best = TopRows(limits.k, limits.above)
        for first, last in _blocks(counts):
            start = int(index.ends[first - 1]) if first else 0
            scores = np.ascontiguousarray(
                score(samples, index.index, slice(start, int(index.ends[last - 1])))
            )
            block: Float32 = np.empty(last - first, dtype=np.float32)
            kernels.combine(scores, index.ends[first:last] - start, _CODES[index.aggregation], block)
            numbers = search.numbered(search.considered(first, last, limits.allowed))
            if numbers.size:
                best.offer(numbers, block[numbers - first])
        bests.append(best)
    return padded(bests, limits.k)
