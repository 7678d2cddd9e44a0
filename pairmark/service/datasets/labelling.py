"""Which pairs of a table's records to label next, and what becomes of the answers.

The command line keeps answers in a file, the console in the browser: whoever asks sends all of them each time.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pairmark.models.calibration.promises import units_needed
from pairmark.models.pairs.splits import TEST_FRACTION
from pairmark.models.records.labelling import LabellingPool
from pairmark.schemas.datasets import DatasetOut
from pairmark.service.datasets.data import DatasetPairs, LabelledData, row_name, rows_of_ids, vector_of
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.errors import InvalidInput, TooLarge

_KEPT_POOLS = 2
_MAX_ROWS = 100_000
_AT_A_TIME = 10
"""Pairs that are chosen before the labels so far are learned from again."""


class LabelledPair(NamedTuple):
    """An answer: rows, whether they are the same, and how many pairs it was drawn from; 0: it was chosen."""

    left: int
    right: int
    same: bool
    drawn_from: int


class PairAnswer(Protocol):
    """What was said of a pair, by the ids of its rows; None: nobody can tell."""

    left: str
    right: str
    same: bool | None
    drawn_from: int


class Labels:
    """The answers so far; ``keep`` is called with all of them after each change."""

    def __init__(
        self, pairs: Sequence[LabelledPair], keep: Callable[[list[LabelledPair]], None] = lambda pairs: None
    ) -> None:
        self.pairs, self._keep = list(pairs), keep

    def write(self) -> None:
        """Keep the answers."""
        self._keep(self.pairs)

    def arrays(self, *, drawn: bool) -> tuple[Any, Any, Any]:
        """Rows and answers of the pairs that were chosen, or drawn."""
        pairs = [pair for pair in self.pairs if (pair.drawn_from > 0) == drawn]
        left, right = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
        return left, right, np.array([pair.same for pair in pairs], dtype=np.bool_)

    def count(self, *, drawn: bool) -> tuple[int, int]:
        """How many were chosen, or drawn, and how many of these are the same."""
        same = self.arrays(drawn=drawn)[2]
        return int(same.size), int(same.sum())

    def forget_draws(self) -> int:
        """Make all drawn pairs chosen ones, and say how many."""
        n = self.count(drawn=True)[0]
        self.pairs = [pair._replace(drawn_from=0) for pair in self.pairs]
        return n


class Labelling:
    """What to ask next.

    Parameters
    ----------
    choose : pairs to choose. different : pairs marked different that the draw has to come to.
    skipped : chosen pairs that nobody could tell.
    """

    def __init__(
        self,
        pool: LabellingPool,
        labels: Labels,
        choose: int,
        different: int,
        skipped: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.pool, self.labels, self.choose, self.different = pool, labels, choose, different
        rows = np.array(skipped, dtype=np.int64).reshape(-1, 2)
        self._skipped: list[int] = pool.codes(rows[:, 0], rows[:, 1]).tolist()
        self._queue: list[tuple[int, int]] = []
        # What was drawn of another list, before the table changed or more was chosen, is no sample of this one.
        self.stale = 0 if self._is_sample() else labels.forget_draws()

    def _is_sample(self) -> bool:
        left, right, _ = self.labels.arrays(drawn=True)
        order, sample = self._draws(), set(zip(left.tolist(), right.tolist(), strict=True))
        lengths = {pair.drawn_from for pair in self.labels.pairs} - {0}
        n = len(sample)
        return lengths <= {len(order)} and {(int(a), int(b)) for a, b in order[:n]} == sample

    def _draws(self) -> np.ndarray:
        left, right, _ = self.labels.arrays(drawn=False)
        return self.pool.draws(left, right)

    def next(self) -> tuple[int, int, int] | None:
        """Rows of the next pair and how many it is drawn from, 0 if it is chosen; None when all is asked."""
        n_chosen = self.labels.count(drawn=False)[0]
        n_drawn, n_same = self.labels.count(drawn=True)
        if n_chosen < self.choose and not n_drawn:
            if not self._queue:
                chosen = self.pool.choose(
                    min(_AT_A_TIME, self.choose - n_chosen), *self.labels.arrays(drawn=False), self._skipped
                )
                self._queue = [(int(left), int(right)) for left, right in chosen]
            if self._queue:
                return (*self._queue[0], 0)
        if n_drawn - n_same >= self.different:
            return None
        order = self._draws()
        return (int(order[n_drawn, 0]), int(order[n_drawn, 1]), len(order)) if n_drawn < len(order) else None

    def upcoming(self, n: int) -> list[tuple[int, int, int]]:
        """As `next`, of several pairs that may be asked one after the other."""
        first = self.next()
        if first is None or not first[2]:
            return [] if first is None else [(left, right, 0) for left, right in self._queue[:n]]
        order, (n_drawn, n_same) = self._draws(), self.labels.count(drawn=True)
        # All of them may be different, and then they are enough.
        last = n_drawn + min(n, self.different - (n_drawn - n_same))
        return [(int(left), int(right), len(order)) for left, right in order[n_drawn:last]]

    def counts(self) -> dict[str, Any]:
        """How far the labelling is, as JSON shows it."""
        (n_chosen, n_same), (n_drawn, n_drawn_same) = (
            self.labels.count(drawn=drawn) for drawn in (False, True)
        )
        return {
            "candidates": len(self.pool),
            "chosen": {"labelled": n_chosen, "same": n_same, "wanted": self.choose},
            "drawn": {"labelled": n_drawn, "same": n_drawn_same, "different_wanted": self.different},
        }

    def answer(self, left: int, right: int, drawn_from: int, same: bool | None) -> None:
        """Keep an answer; None, cannot tell: a chosen pair is passed over, a drawn one counts as different."""
        if self._queue:
            self._queue.pop(0)
        if same is None and not drawn_from:
            self._skipped += self.pool.codes(np.array([left]), np.array([right])).tolist()
            return
        self.labels.pairs.append(LabelledPair(left, right, bool(same), drawn_from))
        self.labels.write()

    def undo(self) -> bool:
        """Take the last answer back, if there is one."""
        if not self.labels.pairs:
            return False
        self._queue = []
        self.labels.pairs.pop()
        self.labels.write()
        return True


def drawn_different(fpr: float, confidence: float) -> int:
    """Different pairs to draw, so that those which calibrate support a rate."""
    need = units_needed(fpr, confidence, rows_independent=True)["finite-sample"]
    assert need is not None
    n = math.ceil(need / (1 - TEST_FRACTION))
    while n - max(1, round(TEST_FRACTION * n)) < need:
        n += 1
    return n


class PairQueue:
    """Proposes pairs of stored tables to label, and stores tables with the answers (all blocking)."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._pools: OrderedDict[str, LabellingPool] = OrderedDict()
        self._lock = threading.Lock()

    def propose(
        self,
        reference: str,
        answers: Sequence[PairAnswer],
        *,
        choose: int,
        fpr: float,
        confidence: float,
        n: int,
    ) -> dict[str, Any]:
        """The next pairs to label, with both records of each, and how far the labelling is."""
        data = self._table(reference)
        with self._lock:
            # A pool is made once, and draws from its own generator.
            labels, skipped = _labels(data, answers)
            pool = self._pool(data)
            labelling = Labelling(pool, labels, choose, drawn_different(fpr, confidence), skipped)
            upcoming = labelling.upcoming(n)
        return {
            "items": [
                {
                    "left": vector_of(data, left),
                    "right": vector_of(data, right),
                    "refs": [row_name(data, left), row_name(data, right)],
                    "drawn_from": drawn_from,
                }
                for left, right, drawn_from in upcoming
            ],
            **labelling.counts(),
            "stale": labelling.stale,
        }

    def add(self, reference: str, name: str, answers: Sequence[PairAnswer]) -> DatasetOut:
        """Store the table, or the two, with the answers as their pairs."""
        data = self._table(reference)
        labels, _ = _labels(data, answers)
        same = np.array([pair.same for pair in labels.pairs], dtype=np.bool_)
        if same.all() or not same.any():
            raise InvalidInput(
                "expected answers of both kinds: some same pairs and some different", field="answers"
            )
        left, right, drawn = (
            np.array([getattr(pair, field) for pair in labels.pairs], dtype=np.int64)
            for field in ("left", "right", "drawn_from")
        )
        if drawn.any() and (np.unique(drawn[drawn > 0]).size > 1 or drawn.max() < np.count_nonzero(drawn)):
            raise InvalidInput("answers: expected drawn pairs of one list, at least as long", field="answers")
        pairs = DatasetPairs(left=left, right=right, same=same, weight=None, drawn_from=drawn)
        return self._datasets.with_pairs(data.dataset_id, name, pairs)

    def _table(self, reference: str) -> LabelledData:
        data = self._datasets.load(self._datasets.get(reference).id)
        if data.schema is None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} holds vectors; expected a table of records: name the "
                "types of its columns in `columns` (--column)",
                field="dataset",
            )
        if len(data) > _MAX_ROWS:
            raise TooLarge(
                f"the table has {len(data)} rows; pairs of at most {_MAX_ROWS} are proposed", limit=_MAX_ROWS
            )
        return data

    def _pool(self, data: LabelledData) -> LabellingPool:
        pool = self._pools.get(data.dataset_id)
        if pool is None:
            assert data.schema is not None
            pool = LabellingPool(data.schema, np.asarray(data.X), data.n_left)
            while len(self._pools) >= _KEPT_POOLS:
                self._pools.popitem(last=False)
        if not len(pool):
            raise InvalidInput(
                "no two rows share a rare word or cell, so no pair may be the same", field="dataset"
            )
        self._pools[data.dataset_id] = pool
        self._pools.move_to_end(data.dataset_id)
        return pool


def _labels(data: LabelledData, answers: Sequence[PairAnswer]) -> tuple[Labels, list[tuple[int, int]]]:
    """Answers as rows, and the pairs that nobody could tell."""
    sides, pairs, skipped = rows_of_ids(data), [], []
    for at, answer in enumerate(answers):
        rows = []
        for of, name, side in zip(sides, (answer.left, answer.right), ("left", "right"), strict=True):
            row = of.get(name)
            if row is None:
                raise InvalidInput(
                    f"answers[{at}].{side} is {name[:100]!r}, which is not a row of the table",
                    field=f"answers[{at}].{side}",
                )
            rows.append(row)
        left, right = rows if data.n_left is not None else sorted(rows)
        if left == right:
            raise InvalidInput(f"answers[{at}] is one row twice; expected two rows", field=f"answers[{at}]")
        if answer.same is None and not answer.drawn_from:
            skipped.append((left, right))
        else:
            pairs.append(LabelledPair(left, right, bool(answer.same), answer.drawn_from))
    return Labels(pairs), skipped
