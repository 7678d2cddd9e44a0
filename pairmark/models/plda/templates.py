"""Exact search among subjects of several samples by log-likelihood ratios: one vector for each subject.

For subjects of k samples that sum to s and a query of p samples that sum to z, the ratio is, coordinate by coordinate,
``psi s z / ((k + p) psi + 1)`` plus a number of s and one of z (`kernels.score_subjects`). Subjects with equally many
samples are therefore searched by an inner product with s; those that may be among the best are scored exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core import kernels
from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.kernels import INNER, scan
from pairmark.models.core.scores import SampleSets
from pairmark.models.core.search import (
    BLOCK,
    SearchForm,
    SearchLimits,
    TopK,
    TopRows,
    lengths,
    limit,
    look_through,
    padded,
    same_measure,
)


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """Sufficient statistics of subjects in latent coordinates; new samples add to both.

    Attributes
    ----------
    counts : (n,) int64, samples of each.
    sums : (n, q) float64, sums of their latent coordinates.
    psi : (q,) the model's variances between identities.
    rows : (n, p) float32, means of prepared rows, whose differences boosted trees see; None where there are no trees.
    """

    counts: Int64
    sums: Float64 = field(repr=False)
    psi: Float64 = field(repr=False)
    rows: Float32 | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.counts.size)

    @classmethod
    def of(cls, sets: SampleSets, latent: Float32, rows: Float32 | None, psi: Float64) -> Subjects:
        """From the latent coordinates of all rows of `sets` and, where there are trees, their prepared rows."""
        sums = np.empty((len(sets), latent.shape[1]))
        kernels.sums(latent, sets.index, sets.ends, sums)
        if rows is not None:
            totals = np.empty((len(sets), rows.shape[1]))
            kernels.sums(rows, sets.index, sets.ends, totals)
            rows = (totals / sets.counts[:, None]).astype(np.float32)
        return cls(counts=sets.counts, sums=sums, psi=psi, rows=rows)

    def take(self, which: NDArray[Any]) -> Subjects:
        return Subjects(
            counts=self.counts[which],
            sums=self.sums[which],
            psi=self.psi,
            rows=None if self.rows is None else self.rows[which],
        )


_ROUNDED = 2.0**-21
"""Vectors, queries, offsets and constants are rounded to float32 once each, and added up in it: all of that changes an
estimate by no more than this share of the largest it can be."""


@dataclass(frozen=True, kw_only=True)
class Templates:
    """Subjects, those with equally many samples side by side.

    Attributes
    ----------
    numbers : (n,) which subjects these are, ascending among those with equally many samples.
    subjects : their sums. vectors : (n, q) the sums in float32. longest : what `lengths` says of them.
    counts, ends : (n_groups,) numbers of samples, ascending, and where the subjects with so many end.
    """

    numbers: Int64 = field(repr=False)
    subjects: Subjects = field(repr=False)
    vectors: Float32 = field(repr=False)
    longest: Float64 = field(repr=False)
    counts: Int64
    ends: Int64
    cache: dict[int, Offsets] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, subjects: Subjects) -> Templates:
        numbers = np.argsort(subjects.counts, kind="stable")
        batch = subjects.take(numbers)
        counts, sizes = np.unique(batch.counts, return_counts=True)
        vectors = np.ascontiguousarray(batch.sums, dtype=np.float32)
        return cls(
            numbers=numbers,
            subjects=batch,
            vectors=vectors,
            longest=lengths(vectors),
            counts=counts,
            ends=np.cumsum(sizes),
        )

    def offsets(self, p: int) -> Offsets:
        """What a query of p samples adds to each subject's inner product, whatever the query."""
        offsets = self.cache.get(p)
        if offsets is None:
            psi, values = self.subjects.psi, np.empty(self.numbers.size, dtype=np.float32)
            for first, last, count in self.groups(0, self.numbers.size):
                k, sums = int(self.counts[count]), self.subjects.sums[first:last]
                square = 0.5 * psi * (1.0 / ((k + p) * psi + 1.0) - 1.0 / (k * psi + 1.0))
                values[first:last] = (sums * sums) @ square
            offsets = Offsets(values=values, largest=float(np.abs(values).max()))
            if len(self.cache) >= 8:
                self.cache.clear()
            self.cache[p] = offsets
        return offsets

    def groups(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """First and last row and group of the parts of some rows that have equally many samples."""
        for group in range(int(np.searchsorted(self.ends, start, side="right")), self.ends.size):
            last = min(int(self.ends[group]), stop)
            yield start, last, group
            if last == stop:
                return
            start = last


@dataclass(frozen=True, kw_only=True)
class Offsets:
    """A number for each subject, (n,), and the largest by size."""

    values: Float32 = field(repr=False)
    largest: float


def best_templates(
    score: Callable[[Subjects, Subjects, str], Float32],
    queries: Subjects,
    templates: Templates,
    limits: SearchLimits,
    lift: float,
) -> TopK:
    """The best subjects of each query.

    Parameters
    ----------
    score : prepared subjects -> their ratios by the rule ``plda``, exact.
    lift : how much trees may have added to a ratio at most.
    """
    considered = None if limits.allowed is None else limits.allowed[templates.numbers]
    n, width = templates.vectors.shape
    estimates = np.empty((1, min(BLOCK, n)), dtype=np.float32)
    bests = []
    for at in range(len(queries)):
        best, query = TopRows(limits.k, limits.above), queries.take(np.array([at]))
        form, constants = _form(query, templates, lift)
        size = float(np.linalg.norm(form.queries.astype(np.float64), axis=1).max())
        for number, start in enumerate(range(0, n, BLOCK)):
            stop = min(start + BLOCK, n)
            places_of_block = None if considered is None else considered[start:stop]
            if places_of_block is not None and not places_of_block.any():
                continue
            for first, last, group in templates.groups(start, stop):
                line = estimates[:, first - start : last - start]
                scan(INNER, templates.vectors, first, last, form.queries[group : group + 1], line)
                line += constants[group]
            assert form.offsets is not None
            line = estimates[0, : stop - start]
            line += form.offsets[start:stop]

            def offer(
                places: NDArray[np.intp], best: TopRows = best, query: Subjects = query, start: int = start
            ) -> None:
                rows = places + start
                scores = score(query, templates.subjects.take(rows), "plda")
                best.offer(templates.numbers[rows].astype(np.intp), scores)

            look_through(
                offer,
                partial(limit, form, width, size * float(templates.longest[number])),
                line,
                places_of_block,
                best,
            )
        bests.append(best)
    return padded(bests, limits.k)


def _form(query: Subjects, templates: Templates, lift: float) -> tuple[SearchForm, Float32]:
    """How a query's ratios follow from inner products: one vector for each number of samples, and a constant."""
    psi, z, p = query.psi, query.sums[0], int(query.counts[0])
    count = templates.counts[:, None]
    vectors: Float32 = np.ascontiguousarray(psi * z / ((count + p) * psi + 1.0), dtype=np.float32)
    self_term = 0.5 * psi * (1.0 / ((count + p) * psi + 1.0) - 1.0 / (p * psi + 1.0))
    logs = np.log(count * psi + 1.0) + np.log(p * psi + 1.0) - np.log((count + p) * psi + 1.0)
    constants = self_term @ (z * z) + 0.5 * logs.sum(axis=1)
    terms = np.abs(self_term) @ (z * z) + np.abs(logs).sum(axis=1)
    size = float(np.linalg.norm(vectors.astype(np.float64), axis=1).max())
    offsets = templates.offsets(p)
    magnitude = size * float(templates.longest.max()) + offsets.largest + float(np.abs(constants).max())
    form = SearchForm(
        measure="inner",
        queries=vectors,
        gallery=templates.vectors,
        least_measure=lambda score: same_measure(score) - lift * (1.0 + 2.0**-40),
        slack=_ROUNDED * magnitude + 2.0**-40 * float(terms.max()),
        lengths=templates.longest,
        offsets=offsets.values,
    )
    return form, constants.astype(np.float32)
