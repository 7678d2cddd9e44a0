"""Which pairs of records to label: chosen ones to learn from, and ones drawn at random to calibrate on.

Candidates are pairs that share a key which few rows have. A pair is chosen by its score, and its label may train and
calibrate nothing. When enough are chosen, pairs are drawn at random from all candidates that were not: they are a
random sample of one stated list, whatever the model has learned, so they calibrate a promise about that list
(`docs/fixed-populations.md`). Choosing again afterwards turns what was drawn into pairs to learn from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.records.blocking import Postings, RowKeys, blocking_keys, candidates, pairs_within
from pairmark.models.records.fellegi_sunter import FellegiSunter
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import declaration
from pairmark.models.trees.boosted import TreeSettings, fit_trees

MAX_CANDIDATES = 2_000_000
"""Pairs of the list; keys are held to fewer rows where there would be more."""
_FREQUENCIES = (50, 20, 10, 5, 2)
_SCORED = 20_000
"""Candidates that are compared in order to choose some."""
_LEAST_LABELS = 4
"""Labels of either kind from which on trees score; before that the model without labels does."""
_TREES = TreeSettings(n_boosted=100, n_forest=100, learning_rate=0.1, max_depth=4)


class LabellingPool:
    """The candidate pairs of a table or of two, and which of them to label next.

    Parameters
    ----------
    schema, records : of all rows.
    n_left : rows of the left table, which come first; None: pairs are of one table.
    random_state : seed of what is chosen. What is drawn follows from the candidates alone.

    Attributes
    ----------
    left, right : (c,) rows of each candidate pair, ascending; of one table the lower row is left.
    """

    def __init__(
        self, schema: Schema, records: Records, n_left: int | None = None, random_state: int = 0
    ) -> None:
        self._model = FellegiSunter(columns=declaration(schema), random_state=random_state).fit(records)
        self._prepared = self._model._comparators.prepare(records)
        keys = blocking_keys(self._model._comparators, self._prepared)
        for frequency in _FREQUENCIES:
            self.left, self.right = _pairs_of(keys, n_left, frequency)
            if self.left.size <= MAX_CANDIDATES:
                break
        self._random = np.random.default_rng(random_state)
        self._width = len(records)
        scored = np.arange(self.left.size)
        if scored.size > _SCORED:
            scored = np.sort(self._random.choice(scored.size, _SCORED, replace=False))
        self._pool = self.left[scored], self.right[scored]
        self._features = self._compared(*self._pool)

    def __len__(self) -> int:
        return int(self.left.size)

    def codes(self, left: Int64, right: Int64) -> Int64:
        return np.asarray(left * self._width + right, dtype=np.int64)

    def chances(self, left: Int64, right: Int64, same: Bool) -> Float64:
        """The chance that each pair to choose from is the same, by the labels so far; without enough, by none."""
        n_same = int(same.sum())
        if min(n_same, same.size - n_same) < _LEAST_LABELS:
            scores = self._model.compared(self._prepared, self._pool[0], self._prepared, self._pool[1])
            prior = self._model.prior_
            logit = np.log(prior / (1 - prior)) + scores.astype(np.float64)
            return np.asarray(1 / (1 + np.exp(-np.clip(logit, -500, 500))))
        features = self._compared(left, right)
        trees = fit_trees(features, same, np.ones(same.size), _TREES, np.random.default_rng(0))
        return trees.score(self._features).astype(np.float64)

    def choose(self, n: int, left: Int64, right: Int64, same: Bool, skipped: Sequence[int] = ()) -> Int64:
        """Pairs to label next in order to learn: half the most uncertain, half from even parts of all scores.

        Households and namesakes can look surer than any true pair, so until some of both kinds are labelled, the first
        half comes from the end of the scores where the missing kind should be.

        Parameters
        ----------
        left, right, same : (m,) the labels so far. skipped : `codes` of pairs that nobody could tell.

        Returns
        -------
        (n, 2) rows; fewer where candidates run out. No record is in two of them, as long as there are others.
        """
        chance = self.chances(left, right, same)
        codes = self.codes(*self._pool)
        judged_codes = np.concatenate([self.codes(left, right), np.array(skipped, dtype=np.int64)])
        free = np.flatnonzero(~np.isin(codes, judged_codes))
        n_same = int(same.sum())
        # Before there are some of both kinds, the ends of the scores are where the missing kind is.
        sought = 1.0 if n_same < _LEAST_LABELS else 0.0 if same.size - n_same < _LEAST_LABELS else 0.5
        uncertain = free[np.argsort(np.abs(chance[free] - sought), kind="stable")]
        # A pair of each part in turn, the parts of even width between the scores 0 and 1.
        shuffled = self._random.permutation(free)
        part = np.minimum((chance[shuffled] * max(n // 2, 1)).astype(np.int64), max(n // 2, 1) - 1)
        order = np.argsort(part, kind="stable")
        first = np.ones(order.size, dtype=np.bool_)
        first[1:] = part[order][1:] != part[order][:-1]
        spread = shuffled[order[first]][: n // 2]
        queue = [*spread.tolist(), *uncertain[: n * 20].tolist()]
        picked: list[int] = []
        rows: set[int] = set()
        for others_first in (True, False):
            for at in queue:
                pair = {int(self._pool[0][at]), int(self._pool[1][at])}
                if len(picked) < n and at not in picked and not (others_first and rows & pair):
                    picked.append(at)
                    rows |= pair
        return np.stack([self._pool[0][picked], self._pool[1][picked]], axis=1)

    def draws(self, left: Int64, right: Int64) -> Int64:
        """All candidates but the chosen ones, (N, 2) rows, in the random order in which they are drawn.

        The order follows from what the list holds: stopping, going on and starting again draw the same pairs.

        Parameters
        ----------
        left, right : rows of the chosen pairs.
        """
        not_chosen = ~np.isin(self.codes(self.left, self.right), self.codes(left, right))
        pairs = np.stack([self.left[not_chosen], self.right[not_chosen]], axis=1)
        digest = hashlib.blake2b(pairs.astype("<i8").tobytes(), digest_size=16).digest()
        seed = int.from_bytes(digest, "little")
        return np.asarray(pairs[np.random.default_rng(seed).permutation(len(pairs))])

    def expected_same(self) -> float:
        """The share of same pairs among the candidates, as the model without labels has it."""
        nobody = np.empty(0, dtype=np.int64)
        chance = self.chances(nobody, nobody, np.empty(0, dtype=np.bool_))
        return float(chance.mean()) if chance.size else 0.0

    def _compared(self, left: Int64, right: Int64) -> np.ndarray:
        return self._model._comparators.compare(self._prepared, left, self._prepared, right)


def _pairs_of(keys: RowKeys, n_left: int | None, frequency: int) -> tuple[Int64, Int64]:
    if n_left is None:
        return pairs_within(keys, frequency)
    of_left = keys.rows < n_left
    left, right = (RowKeys(keys.keys[side], keys.rows[side]) for side in (of_left, ~of_left))
    return candidates(Postings.of(right, frequency), left)
