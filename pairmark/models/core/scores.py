"""Scores of pairs of rows of one matrix, and of subjects: people (or things) with several samples.

Rows are prepared once, however many pairs they are in. Every pair scorer compares subjects by the scores of their
samples, left with right: their ``mean``, the ``best`` or the ``median``. PLDA has an exact score of its own
(`pairmark.models.plda.estimator`). A subject of one sample scores as that sample does, to the last bit, and so do
subjects whose sides are swapped or whose samples come in another order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from pairmark.models.core.arrays import ArrayLike, Float32, Float64, Int64, NDArray

PairsOfRows = Callable[[Int64, Int64], Float32]
"""Scores of pairs of prepared rows, by row numbers."""

_ROW_CELLS = 16 * 1024 * 1024
"""Numbers of rows that are prepared at a time."""
_PAIR_CELLS = 8 * 1024 * 1024
_MOST_PAIRS, _LEAST_PAIRS = 65_536, 256

_MOST_MEANS, _MOST_BESIDE = 200, 500
AUC_PAIRS = 1_000_000
"""Most pairs of a kind that an AUC is worked out of."""


def scored_rows(
    prepare: Callable[[Any], PairsOfRows],
    X: Any,
    left: Int64,
    right: Int64,
    on_progress: Callable[[float], None] | None = None,
) -> Float32:
    """Scores of the pairs (X[left], X[right]), some rows and some pairs at a time, which bounds memory.

    Parameters
    ----------
    prepare : rows (m, d) -> scores of pairs of them.
    on_progress : called with the share done, 0 to 1, after each block.
    """
    width = max(1, int(X.shape[1]))
    step = min(_MOST_PAIRS, max(_LEAST_PAIRS, _PAIR_CELLS // width))
    scores = np.empty(left.size, dtype=np.float32)
    # So many pairs at a time that their rows fit, all of them where these are few enough.
    n_rows, most_rows = np.unique(np.concatenate([left, right])).size, _ROW_CELLS // width
    at_once = left.size if n_rows <= most_rows else max(_LEAST_PAIRS, most_rows // 2)
    for first in range(0, left.size, max(1, at_once)):
        last = min(first + at_once, left.size)
        numbers, place = np.unique(np.concatenate([left[first:last], right[first:last]]), return_inverse=True)
        score = prepare(X[numbers])
        a, b = place[: last - first], place[last - first :]
        for start in range(0, last - first, step):
            part = slice(start, start + step)
            scores[first:last][part] = score(a[part], b[part])
            if on_progress is not None:
                on_progress(min(1.0, (first + start + step) / left.size))
    return scores


def identity_auc(score: PairsOfRows, codes: Int64) -> float:
    """AUC of scores of pairs of rows with identities 0, 1, ...: of all of them, or of a million of either kind."""
    n = codes.size
    if n * (n - 1) // 2 <= AUC_PAIRS:
        left, right = np.triu_indices(n, 1)
        is_same = codes[left] == codes[right]
        sides = [(left[rows], right[rows]) for rows in (is_same, ~is_same)]
    else:
        random = np.random.default_rng(0)
        order = np.argsort(codes, kind="stable")
        starts, counts = np.searchsorted(codes[order], codes[order]), np.bincount(codes)[codes[order]]
        place = random.choice(n, AUC_PAIRS, p=(counts - 1) / (counts - 1).sum())
        mate = starts[place] + (place - starts[place] + random.integers(1, counts[place])) % counts[place]
        left, right = random.integers(0, n, (2, 2 * AUC_PAIRS))
        apart = np.flatnonzero(codes[left] != codes[right])[:AUC_PAIRS]
        sides = [(order[place], order[mate]), (left[apart], right[apart])]
    return _auc(*(score(*pairs) for pairs in sides))


def _auc(same: Float32, different: Float32) -> float:
    different = np.sort(different)
    below = [np.searchsorted(different, same, side=side).mean() for side in ("left", "right")]
    return float(sum(below) / (2 * different.size))


def identity_means(rows: Any, codes: Int64, identities: NDArray[Any]) -> tuple[Any, NDArray[Any]] | None:
    """Means of the rows of the first identities, and these; None where rows are no numbers."""
    if rows.dtype == object:
        return None
    share = (1.0 / np.bincount(codes)[codes]).astype(np.float32)
    shares = csr_array((share, (codes, np.arange(codes.size))), shape=(identities.size, codes.size))
    return shares[:_MOST_MEANS] @ rows, identities[:_MOST_MEANS]


def auc_beside_means(
    prepare: Callable[[Any], PairsOfRows],
    rows: Any,
    labels: NDArray[Any],
    means: Any,
    mean_labels: NDArray[Any],
) -> float:
    """AUC of pairs of rows, and of rows and means of known identities."""
    some = np.unique(np.linspace(0, labels.size - 1, _MOST_BESIDE).astype(int))
    stack: Any = vstack if bool(issparse(rows)) else np.vstack
    # Means of sparse rows are sparse, and a learner may take them as dense.
    beside = stack([rows[some], means if issparse(means) == issparse(rows) else means.toarray()])
    beside = beside.tocsr() if stack is vstack else beside.astype(np.float32)
    left, right = np.triu_indices(beside.shape[0], 1)
    left, right = left[left < some.size], right[left < some.size]
    names = np.concatenate([labels[some], mean_labels])
    same = names[left] == names[right]
    if same.all() or not same.any():
        raise ValueError(
            "y has no two rows of one identity, nor one that fit saw: use cv=GroupKFold() with groups=y, or "
            "StratifiedKFold for shared classes"
        )
    scores = scored_rows(prepare, beside, left, right)
    return _auc(scores[same], scores[~same])


Samples = Sequence[ArrayLike]
Aggregation = Literal["auto", "mean", "plda", "best", "median"]

AGGREGATIONS: Final = ("auto", "mean", "plda", "best", "median")
OF_SCORES: Final = ("mean", "best", "median")
"""Ways to make one score of those of samples, which every pair scorer has; the first is the usual one."""
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
    def of_rows(cls, rows: Any, counts: Int64 | None = None) -> "SampleSets":
        """Of rows that lie subject after subject; one sample a subject where no counts are given."""
        n = int(rows.shape[0])
        counts = np.ones(n, dtype=np.int64) if counts is None else np.asarray(counts, dtype=np.int64)
        return cls(rows=rows, index=np.arange(n, dtype=np.int64), counts=counts)

    def take(self, numbers: NDArray[Any]) -> "SampleSets":
        """Some of the subjects; rows are shared."""
        counts, starts = self.counts[numbers], (self.ends - self.counts)[numbers]
        index = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return SampleSets(rows=self.rows, index=self.index[index], counts=counts)


def join_samples(samples: Samples) -> tuple[Any, Int64]:
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
    if all(map(issparse, parts)):
        return csr_array(vstack(parts, format="csr")), counts
    return np.concatenate([part.toarray() if bool(issparse(part)) else part for part in parts]), counts


def checked_aggregation(aggregation: str, able: Sequence[str], name: str) -> str:
    """An aggregation, of ``auto`` the first; ``able`` are those that a learner has."""
    if aggregation not in AGGREGATIONS:
        raise ValueError(f"aggregation is {aggregation!r}; expected one of {', '.join(AGGREGATIONS)}")
    if aggregation not in ("auto", *able):
        raise ValueError(
            f"aggregation {aggregation!r} needs a PLDA model that scores log-likelihood ratios; {name} has "
            f"{', '.join(able)}"
        )
    return able[0] if aggregation == "auto" else aggregation


def sides_of(n: int, m: int) -> tuple[int, int, int]:
    """How many scores two sides make, and each side's step: 0 where its one subject meets all."""
    if n != m and 1 not in (n, m):
        raise ValueError(
            f"left has {n} subjects and right {m}: expected equal numbers, or a single one on one side"
        )
    return max(n, m), int(n > 1), int(m > 1)


def score_samples(
    score: Callable[[Any, Any], Float32], left: SampleSets, right: SampleSets, rule: str
) -> Float32:
    """Scores of subjects from scores of their samples.

    Parameters
    ----------
    score : rows of equal numbers -> their scores.
    rule : ``mean``, ``best`` or ``median``.
    """
    n, step_a, step_b = sides_of(len(left), len(right))
    numbers = np.arange(n)
    a, b = numbers * step_a, numbers * step_b
    starts_a, starts_b = (left.ends - left.counts)[a], (right.ends - right.counts)[b]
    m, out = right.counts[b], np.empty(n, dtype=np.float32)
    cells = left.counts[a] * m
    # About `_CELLS` pairs of samples at a time.
    for part in np.split(numbers, np.flatnonzero(np.diff(np.cumsum(cells) // _CELLS)) + 1):
        ends = np.cumsum(cells[part])
        cell = np.arange(ends[-1]) - np.repeat(ends - cells[part], cells[part])
        width = np.repeat(m[part], cells[part])
        rows_a = left.index[np.repeat(starts_a[part], cells[part]) + cell // width]
        rows_b = right.index[np.repeat(starts_b[part], cells[part]) + cell % width]
        out[part] = _combine_scores(score(left.rows[rows_a], right.rows[rows_b]), ends, rule)
    return out


def _combine_scores(scores: Float32, ends: Int64, rule: str) -> Float32:
    """One score from those of each ``scores[ends[i - 1]:ends[i]]``: one subject's samples by another's.

    They are sorted before they are summed: neither the order of samples nor which side is which changes a bit.
    """
    sizes = np.diff(ends, prepend=0)
    out = np.empty(sizes.size, dtype=np.float32)
    for size in np.unique(sizes).tolist():
        which = np.flatnonzero(sizes == size)
        values = np.sort(scores[(ends[which] - size)[:, None] + np.arange(size)].astype(np.float64), axis=1)
        if rule == "best":
            out[which] = values[:, -1]
        elif rule == "median":
            out[which] = 0.5 * (values[:, (size - 1) // 2] + values[:, size // 2])
        else:
            out[which] = np.cumsum(values, axis=1)[:, -1] / size
    return out


def sample_sums(values: Float32, sets: SampleSets) -> Float64:
    """(n, q) sum of each subject's rows of values, by coordinates; their order does not change a bit of it."""
    out = np.empty((len(sets), values.shape[1]))
    starts = sets.ends - sets.counts
    for size in np.unique(sets.counts).tolist():
        which = np.flatnonzero(sets.counts == size)
        step = max(1, _ROW_CELLS // (size * values.shape[1]))
        for first in range(0, which.size, step):
            some = which[first : first + step]
            rows = sets.index[starts[some][:, None] + np.arange(size)]
            out[some] = np.cumsum(np.sort(values[rows].astype(np.float64), axis=1), axis=1)[:, -1]
    return out
