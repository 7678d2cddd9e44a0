"""Keeps a random sample of served decisions, and counts all of them.

A decision draws a key, uniform on (0, 1), and is kept if that is below the chance of its hour. Where an hour has more
than the policy's most, its chance is halved and what has a larger key is deleted. So what is kept of an hour is at any
time a uniform sample of what is counted: both are committed together, and what a killed process had not written yet
is in neither.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Counter

from pairmark.service.db import Database
from pairmark.service.reviews import repository
from pairmark.service.store.schemas import ReviewPolicy

MOST_BUFFERED: Final = 20_000
HOUR_S: Final = 3600
Codes = NDArray[np.uint8] | Sequence[int]
_DROPPED = Counter(
    "pairmark_decisions_uncounted_total", "decisions that no review is about: the database was away"
)


class Kept(NamedTuple):
    """A decision that is kept; columns of its table."""

    model_id: str
    version: int
    gallery: str
    hour: int
    at: float
    key: float
    decision: int
    score: float
    threshold: float
    left_ref: str | None
    right_ref: str | None
    subject: str | None
    sides: dict[str, Any] | None


CountKey = tuple[str, int, int, str, int]
"""model_id, hour, version, gallery, decision."""


class Batch(NamedTuple):
    """What one process has to write."""

    rows: list[Kept]
    counts: dict[CountKey, int]
    policies: dict[str, ReviewPolicy]
    chances: dict[tuple[str, int], float]
    """By model and hour: no decision with a larger key is among the rows."""


class DecisionRecorder:
    """Of one serving process. `take` and `swap` run on the event loop; `write` blocks."""

    def __init__(self, db: Database) -> None:
        self._db = db
        seeds = random.SystemRandom()
        # From the system's entropy: cheap, and no caller knows the state.
        self._key = random.Random(seeds.getrandbits(256)).random
        self._keys = np.random.default_rng(seeds.getrandbits(256)).random
        self._batch = Batch([], defaultdict(int), {}, {})
        self._chance: dict[str, tuple[int, float]] = {}
        """The last hour of each model, and its chance."""

    def take(
        self,
        model_id: str,
        version: int,
        policy: ReviewPolicy,
        decisions: Codes,
        scores: Any,
        threshold: float,
        sides: Any,
        refs: Sequence[Sequence[str | None]] | None = None,
        *,
        gallery: str = "",
        subjects: Sequence[str | None] | None = None,
    ) -> None:
        """Count decisions, and keep some.

        Parameters
        ----------
        decisions, scores : (n,) arrays; a decision is 0 different, 1 match or 2 review.
        sides : gives the two sides of the pair at a place, called for what is kept if the policy keeps sides.
        """
        batch, n = self._batch, len(decisions)
        if len(batch.rows) >= MOST_BUFFERED:
            _DROPPED.inc(n)
            return
        at = time.time()
        hour = int(at // HOUR_S)
        chance = self._chance_of(model_id, hour, policy)
        batch.policies[model_id] = policy
        batch.chances[model_id, hour] = chance
        if n == 1:
            # An array costs more than one number does.
            batch.counts[model_id, hour, version, gallery, int(decisions[0])] += 1
            key = self._key()
            keep = [(0, key)] if key < chance else []
        else:
            for decision, count in enumerate(np.bincount(decisions, minlength=3).tolist()):
                if count:
                    batch.counts[model_id, hour, version, gallery, decision] += count
            keys = self._keys(n)
            places = np.flatnonzero(keys < chance)
            keep = list(zip(places.tolist(), keys[places].tolist(), strict=True))
        for place, key in keep:
            left, right = refs[place] if refs is not None else (None, None)
            batch.rows.append(
                Kept(
                    model_id,
                    version,
                    gallery,
                    hour,
                    at,
                    key,
                    int(decisions[place]),
                    float(scores[place]),
                    threshold,
                    left,
                    right,
                    None if subjects is None else subjects[place],
                    sides(place) if policy.sides else None,
                )
            )

        if keep and len(batch.rows) > 2 * policy.per_hour:
            self._thin(model_id, hour, chance / 2)

    def _chance_of(self, model_id: str, hour: int, policy: ReviewPolicy) -> float:
        """Of this hour as last known; a new one begins near that of the last, so that little is kept in vain."""
        known = self._chance.get(model_id)
        if known is None:
            return policy.share
        return min(policy.share, known[1] if known[0] == hour else 4 * known[1])

    def _thin(self, model_id: str, hour: int, chance: float) -> None:
        batch = self._batch
        self._chance[model_id] = hour, chance
        batch.chances[model_id, hour] = chance
        batch.rows[:] = [
            row for row in batch.rows if (row.model_id, row.hour) != (model_id, hour) or row.key < chance
        ]

    def swap(self) -> Batch | None:
        """What is to be written; None: nothing."""
        if not self._batch.counts:
            return None
        batch, self._batch = self._batch, Batch([], defaultdict(int), {}, {})
        return batch

    def write(self, batch: Batch) -> None:
        """Commit a batch, thin out hours that have too many, and forget what is too old."""
        with self._db.write() as session:
            now = self._db.now(session)
            for model_id, policy in sorted(batch.policies.items()):
                if not repository.lock_model(session, model_id):
                    continue  # Deleted meanwhile.
                hours = {key[1] for key in batch.counts if key[0] == model_id}
                for hour in sorted(hours):
                    counts = {key: n for key, n in batch.counts.items() if key[:2] == (model_id, hour)}
                    rows = [row for row in batch.rows if row.model_id == model_id and row.hour == hour]
                    chance = repository.chance_of(session, model_id, hour, batch.chances[model_id, hour])
                    repository.add_decisions(
                        session, [row for row in rows if row.key < chance], counts, chance
                    )
                    self._chance[model_id] = hour, repository.thin(session, model_id, hour, policy.per_hour)
                repository.forget_before(session, model_id, int((now - policy.days * 86_400) // HOUR_S))
