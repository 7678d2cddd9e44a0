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

from prometheus_client import Counter

from pairmark.service.db import Database
from pairmark.service.reviews import repository
from pairmark.service.store.schemas import ReviewPolicy

MOST_BUFFERED: Final = 20_000
HOUR_S: Final = 3600
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


class DecisionRecorder:
    """Of one serving process. `take` and `swap` run on the event loop; `write` blocks."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._random = random.SystemRandom()
        # From the system's entropy: cheap, and no caller knows the state.
        self._key = random.Random(self._random.getrandbits(256)).random
        self._batch = Batch([], defaultdict(int), {})
        self._chance: dict[tuple[str, int], float] = {}

    def take(
        self,
        model_id: str,
        version: int,
        policy: ReviewPolicy,
        decisions: Sequence[tuple[int, float]],
        threshold: float,
        sides: Any,
        refs: Sequence[Sequence[str | None]] | None = None,
        *,
        gallery: str = "",
        subjects: Sequence[str | None] | None = None,
    ) -> None:
        """Count decisions, (0 different, 1 match, 2 review) and score each, and keep some.

        Parameters
        ----------
        sides : gives the two sides of the pair at a place, called for what is kept if the policy keeps sides.
        """
        batch = self._batch
        if len(batch.rows) >= MOST_BUFFERED:
            _DROPPED.inc(len(decisions))
            return
        at = time.time()
        hour = int(at // HOUR_S)
        chance = self._chance.get((model_id, hour), policy.share)
        batch.policies[model_id] = policy
        for place, (decision, score) in enumerate(decisions):
            batch.counts[model_id, hour, version, gallery, decision] += 1
            key = self._key()
            if key < chance:
                left, right = refs[place] if refs is not None else (None, None)
                batch.rows.append(
                    Kept(
                        model_id,
                        version,
                        gallery,
                        hour,
                        at,
                        key,
                        decision,
                        score,
                        threshold,
                        left,
                        right,
                        None if subjects is None else subjects[place],
                        sides(place) if policy.sides else None,
                    )
                )

    def swap(self) -> Batch | None:
        """What is to be written; None: nothing."""
        if not self._batch.counts:
            return None
        batch, self._batch = self._batch, Batch([], defaultdict(int), {})
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
                    chance = repository.chance_of(session, model_id, hour, policy.share)
                    repository.add_decisions(
                        session, [row for row in rows if row.key < chance], counts, chance
                    )
                    self._chance[model_id, hour] = repository.thin(session, model_id, hour, policy.per_hour)
                repository.forget_before(session, model_id, int((now - policy.days * 86_400) // HOUR_S))
        if len(self._chance) > 1_000:
            self._chance.clear()
