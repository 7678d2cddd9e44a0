"""Exact search among subjects of several samples by log-likelihood ratios: one vector for each subject.

For subjects of k samples that sum to s and a query of p samples that sum to z, the ratio is, coordinate by coordinate,
``psi s z / ((k + p) psi + 1)`` plus a number of s and one of z (`kernels.score_subjects`). Subjects with equally many
samples are therefore searched by an inner product with s; those that may be among the best are scored exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.base import Float32, GalleryIndex
from pairmark.models.plda.subjects import Subjects
from pairmark.models.search.forms import SearchForm, lengths, same_measure, top_k_by_form
from pairmark.models.search.index import Best, Found, Rows, padded

Float64 = NDArray[np.float64]
_ROUNDED = 2.0**-21
"""Vectors and queries are rounded to float32 once each: no more than this share of their lengths' product."""


class SubjectScorer(Protocol):
    """What scores prepared subjects exactly."""

    def _subject_score(self, left: Any, right: Any, how: str) -> Float32: ...


@dataclass(frozen=True, kw_only=True)
class Group:
    """Subjects with equally many samples.

    Attributes
    ----------
    numbers : (n,) ascending, which subjects these are. subjects : their sums.
    vectors : (n, q) the sums in float32. longest : what `lengths` says of them.
    """

    numbers: NDArray[np.int64] = field(repr=False)
    subjects: Subjects = field(repr=False)
    vectors: Float32 = field(repr=False)
    longest: Float64 = field(repr=False)
    known: dict[int, Float32] = field(default_factory=dict, repr=False)

    def offsets(self, p: int) -> Float32:
        """What a query of p samples adds to each subject's inner product, whatever the query: (n,)."""
        found = self.known.get(p)
        if found is None:
            psi, sums = self.subjects.psi, self.subjects.sums
            k = int(self.subjects.counts[0])
            square = 0.5 * psi * (1.0 / ((k + p) * psi + 1.0) - 1.0 / (k * psi + 1.0))
            found = ((sums * sums) @ square).astype(np.float32)
            if len(self.known) >= 8:
                self.known.clear()
            self.known[p] = found
        return found


def grouped(subjects: Subjects) -> list[Group]:
    """Subjects by their number of samples."""
    found = []
    for count in np.unique(subjects.counts).tolist():
        numbers = np.flatnonzero(subjects.counts == count)
        some = subjects.take(numbers)
        vectors = np.ascontiguousarray(some.sums, dtype=np.float32)
        found.append(Group(numbers=numbers, subjects=some, vectors=vectors, longest=lengths(vectors)))
    return found


class _Rescorer:
    """Scores a few subjects of one group exactly, as `top_k_by_form` asks."""

    def __init__(self, scorer: SubjectScorer, queries: Subjects, group: Group) -> None:
        self._scorer, self._queries, self._group = scorer, queries, group

    def _score_rows(self, queries: Any, index: GalleryIndex, rows: Rows) -> Float32:
        some = self._group.subjects.take(np.arange(len(self._group.subjects))[rows])
        return np.stack(
            [
                self._scorer._subject_score(self._queries.take(queries[at : at + 1]), some, "plda")
                for at in range(len(queries))
            ]
        )


def best_of_groups(
    scorer: SubjectScorer,
    queries: Subjects,
    groups: list[Group],
    k: int,
    allowed: NDArray[np.bool_] | None,
    above: np.float32 | None,
    lift: float,
) -> Found:
    """The best subjects of each query.

    Parameters
    ----------
    lift : how much trees may have added to a ratio at most.
    """
    psi = queries.psi
    found = []
    for at, p in enumerate(queries.counts.tolist()):
        best = Best(k, above)
        z = queries.sums[at]
        for group in groups:
            mask = None if allowed is None else allowed[group.numbers]
            if mask is not None and not mask.any():
                continue
            count = int(group.subjects.counts[0])
            offsets = group.offsets(p)
            query: Float32 = np.ascontiguousarray(
                (psi * z / ((count + p) * psi + 1.0))[None], dtype=np.float32
            )
            own = 0.5 * psi * (1.0 / ((count + p) * psi + 1.0) - 1.0 / (p * psi + 1.0))
            logs = np.log(count * psi + 1.0) + np.log(p * psi + 1.0) - np.log((count + p) * psi + 1.0)
            constant = float((z * z) @ own + 0.5 * logs.sum())
            size = float(np.linalg.norm(query.astype(np.float64)))
            terms = float(np.abs(logs).sum() + (z * z) @ np.abs(own))
            form = SearchForm(
                measure="inner",
                queries=query,
                gallery=group.vectors,
                least_measure=lambda score, constant=constant: (  # type: ignore[misc]
                    same_measure(score) - lift * (1.0 + 2.0**-40) - constant - 2.0**-40 * abs(constant)
                ),
                slack=_ROUNDED * (size * float(group.longest.max()) + float(np.abs(offsets).max()))
                + 2.0**-40 * terms,
                lengths=group.longest,
                offsets=offsets,
            )
            floor = None if best.least == -np.inf else np.float32(best.least)
            if floor is not None and (above is None or floor > above):
                # Ties with the worst so far may come before it, by their numbers.
                floor = np.nextafter(floor, np.float32(-np.inf), dtype=np.float32)
            rows, scores = top_k_by_form(
                _Rescorer(scorer, queries, group),
                form,
                np.array([at]),
                _NO_INDEX,
                min(k, len(group.subjects)),
                mask,
                floor,
            )
            there = rows[0] >= 0
            best.offer(group.numbers[rows[0][there]].astype(np.intp), scores[0][there])
        found.append(best)
    return padded(found, k)


_NO_INDEX = GalleryIndex(vectors=np.empty((0, 0), dtype=np.float32))
