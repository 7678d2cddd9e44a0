"""The decisions that a review is about, and a random sample of them."""

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from random import SystemRandom
from typing import Any, Final, NamedTuple

from pydantic_core import to_json
from sqlalchemy.orm import Session

from pairmark.schemas.reviews import (
    ReviewRequest,
    ReviewSource,
)
from pairmark.service.errors import InvalidInput, UnknownModel
from pairmark.service.reviews import repository
from pairmark.service.reviews.recorder import HOUR_S
from pairmark.service.tables import DecisionCode, ReviewRow

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
    best_first: bool = False,
) -> Decisions:
    """Decisions of one kind, of which ``sample`` numbers a uniform sample (or all); ``items`` are those of numbers.
    ``best_first``: for labels, every other one is the next of the sample."""
    numbers = _RANDOM.sample(sample, min(len(sample), MOST_DRAWN))
    if best_first:
        numbers = [*dict.fromkeys(itertools.chain(*zip(sample, numbers, strict=False)))][:MOST_DRAWN]
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
