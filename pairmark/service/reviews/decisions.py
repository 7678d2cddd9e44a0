"""Keeps a random sample of served decisions, counts all of them, and draws from them what a review is about.

Each decision draws a key between 0 and 1, and is kept if that is below the chance of its hour. The chance depends on
how many decisions the hour has, and on nothing else: beyond the policy's number it is halved, and what has a larger key
is deleted. So what is kept is at any time a uniform sample of what is counted. Both are committed together; what a
killed process had not written yet is in neither.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import SystemRandom
from typing import Any, Final, NamedTuple

import numpy as np
from prometheus_client import Counter
from pydantic_core import to_json
from sqlalchemy.orm import Session

from pairmark.schemas.models import ReviewPolicy
from pairmark.schemas.reviews import (
    ReviewRequest,
    ReviewSource,
)
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, PairmarkError, UnknownModel
from pairmark.service.reviews import repository
from pairmark.service.reviews.repository import Deciding
from pairmark.service.tables import DecisionCode, ReviewRow

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


_RANDOM: Final = SystemRandom()


def sizes_of(review: ReviewRow) -> list[int]:
    """How many decisions of each kind there are."""
    return [int(kind["size"]) for kind in review.strata]


MOST_DRAWN: Final = 5_000
"""Most pairs of a kind that a review may hand out; the population may have any size."""
MOST_SAMPLED: Final = 100_000
"""Kept decisions of a kind, about, that these are drawn from."""
MAX_SIDES_BYTES: Final = 16 * 2**20
"""Of the sides that are stored of a kind, as JSON: what is drawn later is left out, which is as random."""
KINDS: Final[dict[str, tuple[DecisionCode, ...]]] = {
    "false-matches": (DecisionCode.MATCH,),
    "missed-matches": (DecisionCode.MATCH, DecisionCode.DIFFERENT),
    "label": (DecisionCode.MATCH, DecisionCode.DIFFERENT),
    "recall": (DecisionCode.MATCH,),
}
Item = dict[str, Any]
BLANK: Final[Item] = {
    **dict.fromkeys(("left_ref", "right_ref", "subject", "score", "version", "sides")),
    "gallery": "",
    "erased": False,
}
"""What an item has that says no more than that it was decided."""


class Decisions(NamedTuple):
    """Decisions of one kind: how many there are, and items of a uniform sample of them in random order.

    Where recall is asked, ``size`` counts records, and ``items`` are the pairs of the drawn ones, one record after
    another: ``records`` has a digit for each pair of each of them, 1 where it is linked.
    """

    decision: DecisionCode
    size: int
    items: list[Item]
    records: Sequence[str] = ()


def population_of(session: Session, request: ReviewRequest, model_id: str | None) -> list[Decisions]:
    """The decisions that a question is about, by kind."""
    source = request.source
    kinds = KINDS[request.question]
    if source.refs is not None:
        population = [_list_decisions(source, kind) for kind in kinds]
    else:
        assert model_id is not None
        if not repository.lock_model(session, model_id)[0]:
            raise UnknownModel("the model was deleted", field="source")
        window = window_of(source, model_id)
        counts, chance = repository.decision_counts(session, window)
        population = []
        for kind in kinds:
            size = counts.get(kind, 0)
            ids = repository.kept_decisions(session, window, kind, min(chance, MOST_SAMPLED / max(size, 1)))
            population.append(drawn_from(kind, size, ids, partial(_kept_items, session)))
    if not sum(decisions.size for decisions in population):
        if source.refs is not None:
            relation = "matched" if request.question == "false-matches" else "is asked about"
            raise InvalidInput(
                f"source.refs holds no pair that {relation}; expected at least one", field="source.refs"
            )
        raise InvalidInput(
            "there is no such decision to review; expected a window with some. Decisions are kept from when the "
            "model's policy says so (PUT /models/NAME/policy)",
            field="source",
        )
    return population


def window_of(source: ReviewSource, model_id: str) -> repository.DecisionWindow:
    """The decisions that a source is about, by hours since the epoch."""
    since = 0.0 if source.since is None else source.since.timestamp()
    until = time.time() + HOUR_S if source.until is None else source.until.timestamp() + HOUR_S - 1e-3
    first, end = int(since // HOUR_S), int(until // HOUR_S)
    if end <= first or not 0 <= end < 2**31:
        raise InvalidInput("until is not after since", field="source.until")
    return repository.DecisionWindow(model_id, (max(0, first), end), source.gallery, source.version)


def drawn_from(
    decision: DecisionCode,
    size: int,
    sample: Sequence[int],
    items: Callable[[list[int]], Iterable[Item]],
    *,
    in_order: bool = False,
) -> Decisions:
    """Decisions of one kind, of which ``sample`` numbers a uniform sample (or all); ``items`` are those of numbers.
    ``in_order``: labels bound nothing, so that nobody need draw them."""
    n = min(len(sample), MOST_DRAWN)
    numbers = list(sample[:n]) if in_order else _RANDOM.sample(sample, n)
    n_bytes = 0
    stored: list[Item] = []
    for item in items(numbers):
        n_bytes += len(to_json(item.get("sides")))
        if stored and n_bytes > MAX_SIDES_BYTES:
            break
        stored.append(item)
    return Decisions(decision, size, stored)


def _list_decisions(source: ReviewSource, kind: DecisionCode) -> Decisions:
    assert source.refs is not None
    refs, scores = source.refs, source.scores
    matches = source.matches or [True] * len(refs)
    indices = [index for index, match in enumerate(matches) if match == (kind == DecisionCode.MATCH)]

    def items(numbers: list[int]) -> Iterator[Item]:
        for index in numbers:
            left, right = refs[index]
            score = None if scores is None else scores[index]
            yield {"left_ref": left, "right_ref": right, "score": score, "decision": kind}

    return drawn_from(kind, len(indices), indices, items)


def _kept_items(session: Session, ids: list[int]) -> Iterator[Item]:
    for start in range(0, len(ids), 100):
        part = ids[start : start + 100]
        rows = repository.decisions(session, part)
        yield from ({name: getattr(rows[id], name) for name in ("decision", *BLANK)} for id in part)
