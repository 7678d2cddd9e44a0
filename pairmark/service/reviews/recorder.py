"""Keeps a random sample of served decisions, and counts all of them.

Each decision draws a key between 0 and 1, and is kept if that is below the chance of its hour. The chance depends on
how many decisions the hour has, and on nothing else: beyond the policy's number it is halved, and what has a larger key
is deleted. So what is kept is at any time a uniform sample of what is counted. Both are committed together; what a
killed process had not written yet is in neither.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
from prometheus_client import Counter

from pairmark.schemas.models import ReviewPolicy
from pairmark.service.db import Database
from pairmark.service.errors import PairmarkError
from pairmark.service.reviews import repository
from pairmark.service.reviews.repository import Deciding

log = logging.getLogger(__name__)

HOUR_S: Final = 3600
DAY_S: Final = 86_400
CALLS_A_WRITE: Final = 3
"""Every third call of `DecisionRecorder.drain` gives what there is. When must not depend on what is kept: else what a
killed process loses would be no random part."""
_DROPPED = Counter(
    "pairmark_decisions_uncounted_total", "decisions that no review is about: the database was away"
)


KeptRow = dict[str, Any]
"""A decision that is kept, by columns of its table; ``sides`` is what gives them when it is written."""


@dataclass(slots=True)
class Hour:
    """Decisions of one model in one hour that are not written yet."""

    model_id: str
    number: int
    policy: ReviewPolicy
    chance: float
    decided: int
    """How many decisions of the hour this process has counted, written ones included."""
    counts: dict[Deciding, list[int]] = field(default_factory=dict)
    """Different, match, review."""
    rows: list[KeptRow] = field(default_factory=list)

    def lower_chance(self, chance: float) -> None:
        """Lower the hour's chance, and drop what it does not keep."""
        self.chance = chance
        self.rows = [row for row in self.rows if row["key"] < chance]


class DecisionRecorder:
    """Of one serving process. All but `write`, which blocks, run on the event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._open: dict[str, Hour] = {}
        """The hour of each model that decisions go to now."""
        self._ended: list[Hour] = []
        # From the system's entropy: no caller knows the state.
        self._keys = np.random.default_rng().random
        self._calls = 0
        self._forgot = -math.inf

    def record(
        self,
        deciding: Deciding,
        policy: ReviewPolicy,
        counts: Sequence[int],
        decisions: Callable[[], Any],
        scores: Any,
        threshold: float,
        *,
        sides: Callable[[int], dict[str, Any] | None] | None = None,
        refs: Sequence[Sequence[str | None]] | None = None,
        subjects: Sequence[str | None] | None = None,
    ) -> None:
        """Count decisions, and keep some.

        Parameters
        ----------
        counts : how many are different, a match, or to be reviewed.
        decisions : gives what was decided, (n,) of 0, 1 and 2 in that order; called if one of them is kept.
        sides : the two sides of a pair as they were sent, which are kept if the policy says so.
        """
        n = sum(counts)
        now = time.time()
        hour = self._open.get(deciding.model_id)
        # Policies are compared by identity, which costs nothing a decision.
        if hour is None or now >= (hour.number + 1) * HOUR_S or policy is not hour.policy:
            hour = self._hour(deciding.model_id, now, policy, hour)
        # 1. All decisions are counted: the counts are the population that reviews draw from.
        hour.decided += n
        earlier = hour.counts.get(deciding, [0] * len(counts))
        hour.counts[deciding] = [total + more for total, more in zip(earlier, counts, strict=True)]
        if hour.decided * hour.chance > policy.per_hour:
            hour.lower_chance(lowered_chance(hour.chance, hour.decided, policy.per_hour))
        # 2. Each has a random key; those below the hour's chance are kept, and stay a uniform sample as it is lowered.
        keys = self._keys(n)
        sampled = np.flatnonzero(keys < hour.chance).tolist()
        codes = decisions() if sampled else ()
        for row_index in sampled:
            left, right = (None, None) if refs is None else refs[row_index]
            hour.rows.append(
                {
                    **deciding._asdict(),
                    "hour": hour.number,
                    "at": now,
                    "key": float(keys[row_index]),
                    "decision": int(codes[row_index]),
                    "score": float(scores[row_index]),
                    "threshold": threshold,
                    "left_ref": left,
                    "right_ref": right,
                    "subject": None if subjects is None else subjects[row_index],
                    "sides": partial(sides, row_index) if policy.sides and sides is not None else None,
                }
            )

    def _hour(self, model_id: str, now: float, policy: ReviewPolicy, last: Hour | None) -> Hour:
        """Begin an hour of a model, or go on under a changed policy.

        A new hour begins with a chance near that of the last, so that little is kept in vain. The chance of an hour
        never rises.
        """
        number, chance, decided = int(now // HOUR_S), policy.share, 0
        if last is not None:
            if last.number == number and last.policy == policy:
                last.policy = policy
                return last
            chance = min(chance, last.chance if last.number == number else 4 * last.chance)
            decided = last.decided if last.number == number else 0
            if last.counts:
                self._ended.append(last)
        hour = self._open[model_id] = Hour(model_id, number, policy, chance, decided)
        return hour

    async def flush(self, *, closing: bool = False) -> None:
        """Write what there is. While the database is away, it is lost, in sample and count alike."""
        hours = self.drain(closing=closing)
        try:
            if hours:
                self.apply_chances(await asyncio.to_thread(self.write, hours))
            if time.monotonic() - self._forgot > HOUR_S:
                await asyncio.to_thread(self.forget)
                self._forgot = time.monotonic()
        except PairmarkError as error:
            _DROPPED.inc(sum(sum(map(sum, hour.counts.values())) for hour in hours))
            log.warning("decisions could not be kept for reviews: %s", error.detail)

    def drain(self, *, closing: bool = False) -> list[Hour]:
        """What is to be written now; ``closing``: all there is."""
        self._calls += 1
        if self._calls % CALLS_A_WRITE and not closing:
            return []
        hours, self._ended = self._ended, []
        for model_id, hour in self._open.items():
            if hour.counts:
                hours.append(hour)
                self._open[model_id] = replace(hour, counts={}, rows=[])
        return hours

    def write(self, hours: Sequence[Hour]) -> list[tuple[Hour, float]]:
        """Commit hours, and thin out those that have too many decisions. Returns the chance of each, 0 where the model
        is gone or keeps none any more: for `apply_chances`."""
        settled = []
        with self._db.write() as session:
            for hour in sorted(hours, key=lambda hour: hour.model_id):
                model_id, policy = hour.model_id, hour.policy
                if not all(repository.lock_model(session, model_id)):
                    settled.append((hour, 0.0))
                    continue
                # The model's row is locked: what other processes counted of this hour is all there, and the smallest
                # chance of any of them becomes that of the hour.
                total, earlier = repository.hour_total(session, model_id, hour.number)
                chance = hour.chance if earlier is None else min(earlier, hour.chance)
                chance = lowered_chance(chance, total + sum(map(sum, hour.counts.values())), policy.per_hour)
                rows = [
                    {**row, "sides": None if row["sides"] is None else row["sides"]()}
                    for row in hour.rows
                    if row["key"] < chance
                ]
                repository.add_decisions(session, rows, hour.number, hour.counts, chance)
                if earlier is not None and chance < earlier:
                    repository.lower_chance(session, model_id, hour.number, chance)
                settled.append((hour, chance))
        return settled

    def forget(self) -> None:
        """Delete what is older than its model's policy says."""
        with self._db.write() as session:
            now = self._db.now(session)
            for model_id, policy in repository.policies(session):
                days = ReviewPolicy.model_validate(policy).days
                repository.forget_before(session, model_id, int((now - days * DAY_S) // HOUR_S))

    def apply_chances(self, settled: Sequence[tuple[Hour, float]]) -> None:
        """Go on with the chances that `write` returned, which the decisions of all processes make."""
        for hour, chance in settled:
            current = self._open.get(hour.model_id)
            if not chance:
                self._open.pop(hour.model_id, None)
            elif current is not None and current.number == hour.number and chance < current.chance:
                current.lower_chance(chance)


def lowered_chance(chance: float, decided: int, limit: int) -> float:
    """A chance, halved until at most so many are kept on average."""
    while decided * chance > limit:
        chance /= 2
    return chance
