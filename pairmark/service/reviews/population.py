"""The population of a review: how many decisions, and a random sample of them to hand out."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from random import SystemRandom
from typing import Any, Final, NamedTuple

from sqlalchemy.orm import Session

from pairmark.schemas.reviews import Question, ReviewRequest, ReviewSource
from pairmark.service.decision_codes import DecisionCode
from pairmark.service.errors import InvalidInput, UnknownModel
from pairmark.service.reviews import repository
from pairmark.service.reviews.recorder import HOUR_S

MOST_DRAWN: Final = 5_000
"""Most pairs of a stratum that a review may hand out; the population may have any size."""
NEAR: Final = 10
"""One in so many decisions, those nearest the threshold, are a stratum of their own."""
KINDS: Final[dict[Question, tuple[DecisionCode, ...]]] = {
    "false-matches": (DecisionCode.MATCH,),
    "missed-matches": (DecisionCode.MATCH, DecisionCode.DIFFERENT),
    "uncertain": (DecisionCode.REVIEW,),
}
_RANDOM: Final = SystemRandom()
Item = dict[str, Any]
_BLANK: Final[Item] = {
    **dict.fromkeys(("left_ref", "right_ref", "subject", "score", "version", "sides")),
    "gallery": "",
    "erased": False,
}
"""What an item has that says no more than that it was decided."""


class Stratum(NamedTuple):
    """Decisions of one kind: how many there are, and items of a uniform sample of them in random order."""

    decision: int
    size: int
    items: list[Item]


def strata_of(session: Session, request: ReviewRequest, model_id: str | None) -> list[Stratum]:
    """The strata of a population; of missed matches the first one is of matches, the others of what is different."""
    source = request.source
    kinds = KINDS[request.question]
    strata: list[Stratum] = []
    if source.refs is not None:
        for kind in kinds:
            strata += _listed_strata(source, kind, split=_splits(request.question, kind))
    else:
        assert model_id is not None
        if not repository.lock_model(session, model_id)[0]:
            raise UnknownModel("the model was deleted", field="source")
        window = window_of(source, model_id)
        counts, chance = repository.decision_counts(session, window)
        for kind in kinds:
            sampled = repository.kept_decisions(session, window, kind, chance)
            size = counts.get(kind, 0)
            strata += _kept_strata(session, sampled, kind, size, split=_splits(request.question, kind))
    if not sum(stratum.size for stratum in strata):
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
    return strata


def window_of(source: ReviewSource, model_id: str) -> repository.DecisionWindow:
    """The decisions that a source is about, by hours since the epoch."""
    since = 0.0 if source.since is None else source.since.timestamp()
    until = time.time() + HOUR_S if source.until is None else source.until.timestamp() + HOUR_S - 1e-3
    first, end = int(since // HOUR_S), int(until // HOUR_S)
    if end <= first or not 0 <= end < 2**31:
        raise InvalidInput("until is not after since", field="source.until")
    return repository.DecisionWindow(model_id, (max(0, first), end), source.gallery, source.version)


def _splits(question: Question, kind: DecisionCode) -> bool:
    # How many matches are true takes few judgements anyway.
    return question == "false-matches" or kind == DecisionCode.DIFFERENT


def _listed_strata(source: ReviewSource, kind: DecisionCode, *, split: bool) -> list[Stratum]:
    assert source.refs is not None
    matches = source.matches or [True] * len(source.refs)
    indices = [index for index, match in enumerate(matches) if match == (kind == DecisionCode.MATCH)]
    scores = source.scores
    groups = [indices]
    if scores is not None and split:
        # Doubtful matches score low, and doubtful others high.
        groups = _near_and_far(
            indices, [scores[index] if kind == DecisionCode.MATCH else -scores[index] for index in indices]
        )

    def item(index: int) -> Item:
        left, right = source.refs[index]  # type: ignore[index]
        score = None if scores is None else scores[index]
        return {"left_ref": left, "right_ref": right, "score": score, "decision": kind}

    return [Stratum(kind, len(group), [item(index) for index in _sample(group)]) for group in groups]


def _kept_strata(
    session: Session, sampled: Sequence[Any], kind: DecisionCode, size: int, *, split: bool
) -> list[Stratum]:
    groups = [[row.id for row in sampled]]
    if split and len(sampled) == size:
        groups = _near_and_far(groups[0], [abs(row.score - row.threshold) for row in sampled])
    strata = []
    for group in groups:
        ids = _sample(group)
        rows = repository.decisions(session, ids)
        items = [{name: getattr(rows[id], name) for name in ("decision", *_BLANK)} for id in ids]
        strata.append(Stratum(kind, size if len(groups) == 1 else len(group), items))
    return strata


def _near_and_far(indices: Sequence[int], margins: Sequence[float]) -> list[list[int]]:
    order = [index for _, index in sorted(zip(margins, indices, strict=True))]
    near = math.ceil(len(order) / NEAR)
    return [order] if len(order) < 2 * NEAR else [order[:near], order[near:]]


def _sample(group: Sequence[int]) -> list[int]:
    return _RANDOM.sample(group, min(len(group), MOST_DRAWN))


def item_rows(review_id: str, strata: Sequence[Stratum]) -> list[dict[str, Any]]:
    """Rows of the items, under ids that tell nothing."""
    return [
        {
            **_BLANK,
            **item,
            "id": secrets.token_hex(12),
            "review_id": review_id,
            "stratum": number,
            "place": place,
            "draw": None,
            "needs_second": False,
            "holder": None,
            "held_until": None,
        }
        for number, stratum in enumerate(strata)
        for place, item in enumerate(stratum.items)
    ]
