"""What the judgements of a review show so far, and which stratum is drawn from next."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import SystemRandom
from typing import Any, Final

from pairmark.models.reviews.evidence import (
    Judgements,
    exceeds,
    expected_judgements,
    missed_bound,
    next_group,
    share_bound,
)
from pairmark.service.tables import ReviewRow

_RANDOM: Final = SystemRandom()
_CURVE: Final = 200
MAX_PARTS: Final = 50
"""Parts in one breakdown."""


@dataclass
class Draw:
    """A drawn item: its stratum and, where it was judged (or erased), whether it counts as wrong. ``certain``: a
    reviewer said so; nobody could tell otherwise."""

    stratum: int
    wrong: bool | None
    certain: bool = True


def draws_of(review: ReviewRow, rows: Sequence[Any]) -> list[Draw]:
    """Drawn items in order, as `repository.drawn_items` gives them. What nobody could judge is wrong."""
    draws = []
    for stratum, is_erased, same, number, *_ in rows:
        # A match is right if it is the same; what was decided to be different, if it is not.
        right = review.question == "uncertain" or same is (
            review.question != "missed-matches" or stratum == 0
        )
        draws.append(Draw(stratum, None if number is None and not is_erased else not right, same is not None))
    return draws


def sizes_of(review: ReviewRow) -> list[int]:
    """How many decisions each stratum has."""
    return [int(stratum["size"]) for stratum in review.strata]


def counted_draws(draws: Sequence[Draw]) -> list[Draw]:
    """Those up to the first that is not judged. Hard pairs take longer: counting judgements as they come would count
    easy ones first."""
    for at, draw in enumerate(draws):
        if draw.wrong is None:
            return list(draws[:at])
    return list(draws)


def evidence_of(review: ReviewRow, draws: Sequence[Draw]) -> tuple[Judgements, Judgements | None]:
    """As statistics take them; of missed matches those of matches and those of the others."""
    sizes = sizes_of(review)
    stratum, wrong = [draw.stratum for draw in draws], [int(bool(draw.wrong)) for draw in draws]
    if review.question != "missed-matches":
        return Judgements.of(sizes, stratum, wrong, review.n_unstratified_draws), None
    first = [(0, w) for s, w in zip(stratum, wrong, strict=True) if s == 0]
    different = [(s - 1, w) for s, w in zip(stratum, wrong, strict=True) if s > 0]
    return (
        Judgements.of(sizes[:1], [s for s, _ in first], [w for _, w in first], 0),
        Judgements.of(sizes[1:] or [0], [s for s, _ in different], [w for _, w in different], 0),
    )


def progress_of(review: ReviewRow, draws: Sequence[Draw], curve: Sequence[Any] = ()) -> dict[str, Any]:
    prefix = counted_draws(draws)
    if review.question == "uncertain":
        nothing = {
            "waiting": 0,
            "wrong": 0,
            "bound": 1.0,
            "enough": False,
            "alarm": False,
            "expected_more": None,
        }
        return {"judged": sum(draw.wrong is not None for draw in draws), **nothing, "curve": []}
    first, different = evidence_of(review, prefix)
    eps, confidence = review.at_most, review.confidence
    alarm, n_expected = False, None
    if different is None:
        bound = share_bound(first, eps, confidence)
        # What nobody could tell may be right: it raises the bound, and no alarm.
        certain, _ = evidence_of(
            review, [replace(draw, wrong=draw.wrong and draw.certain) for draw in prefix]
        )
        alarm = exceeds(certain, eps, confidence)
        n_expected = expected_judgements(first, eps, confidence)
    else:
        bound = missed_bound(first, different, eps, confidence)
    is_enough = bound <= eps
    points = [point for point in curve if point[0] < len(prefix)] + [[len(prefix), bound]]
    if len(points) > _CURVE:
        points = points[::2] if len(points) % 2 else [*points[::2], points[-1]]
    return {
        "judged": len(prefix),
        "waiting": sum(draw.wrong is not None for draw in draws) - len(prefix),
        "wrong": sum(bool(draw.wrong) for draw in prefix),
        "bound": bound,
        "enough": is_enough,
        "alarm": alarm,
        "expected_more": 0 if is_enough else n_expected,
        "curve": points,
    }


def breakdown(draws: Sequence[Draw], keys: Sequence[Any]) -> list[dict[str, Any]]:
    """Judged and wrong ones by key, in order of the keys, of those `MAX_PARTS` with most judgements; what has no key is
    left out."""
    parts: dict[Any, list[int]] = {}
    for draw, key in zip(draws, keys, strict=True):
        if draw.wrong is not None and key is not None:
            entry = parts.setdefault(key, [0, 0])
            entry[0] += 1
            entry[1] += draw.wrong
    largest = sorted(parts, key=lambda key: (-parts[key][0], key))[:MAX_PARTS]
    return [{"of": str(key), "judged": parts[key][0], "wrong": parts[key][1]} for key in sorted(largest)]


def score_ranges(scores: Sequence[float | None]) -> list[str | None]:
    """The fifth of all drawn scores that each is in, as its range."""
    ordered = sorted(score for score in scores if score is not None)
    if not ordered:
        return [None] * len(scores)
    edges = [ordered[round(fifth * (len(ordered) - 1) / 5)] for fifth in range(6)]
    names = [f"{n + 1}: {low:.4g} to {high:.4g}" for n, (low, high) in enumerate(pairwise(edges))]
    return [
        None if score is None else names[min(4, max(0, bisect_left(edges, score) - 1))] for score in scores
    ]


def groups_of(sides: Sequence[dict[str, Any] | None], field: str) -> list[str | None]:
    """The value of a field on both sides of each pair of records, "a / b" where they differ; None without records."""
    groups: list[str | None] = []
    for pair in sides:
        records = [pair.get(side) for side in ("left", "right")] if pair else []
        cells = [record.get(field) for record in records if isinstance(record, dict)]
        values = sorted(
            {cell if isinstance(cell, str) else json.dumps(cell) for cell in cells if cell is not None}
        )
        groups.append(" / ".join(values) or None)
    return groups


def next_stratum(review: ReviewRow, draws: Sequence[Draw]) -> int | None:
    """The stratum of the next draw; None: all is drawn. It depends on draws and judgements before it only.

    Sets `ReviewRow.n_unstratified_draws` when draws turn to strata. What is still with a reviewer counts as drawn and
    right.
    """
    if review.question == "missed-matches":
        first, different = evidence_of(review, draws)
        assert different is not None
        if len(draws) >= sum(sizes_of(review)):
            return None
        is_match, stratum = next_group(first, different, review.at_most)
        return 0 if is_match else 1 + stratum
    if review.question == "uncertain":
        return 0 if len(draws) < int(review.strata[0]["items"]) else None
    judgements, _ = evidence_of(review, counted_draws(draws))
    if review.n_unstratified_draws is None and not judgements.draws_alike():
        review.n_unstratified_draws = len(draws)
    sizes = sizes_of(review)
    undrawn = list(sizes)
    for draw in draws:
        undrawn[draw.stratum] -= 1
    if not sum(undrawn):
        return None
    if review.n_unstratified_draws is None:
        rank = _RANDOM.randrange(sum(undrawn))
        for stratum, n in enumerate(undrawn):
            if rank < n:
                return stratum
            rank -= n
    judgements, _ = evidence_of(review, draws)
    return judgements.next_stratum(review.at_most)
