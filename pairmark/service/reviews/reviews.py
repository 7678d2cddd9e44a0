"""Reviews: made, handed out, judged. Every change locks the review's row, so reviewers never see the same draw."""

from __future__ import annotations

import csv
import io
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import SystemRandom
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Counter
from pydantic_core import to_json
from sqlalchemy.orm import Session
from starlette.datastructures import UploadFile

from pairmark.models.reviews.evidence import (
    Judgements,
    exceeds,
    expected_judgements,
    missed_bound,
    next_group,
    share_bound,
)
from pairmark.schemas.base import iso
from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.schemas.reviews import (
    ElsewhereOut,
    ElsewhereRequest,
    ItemsToJudge,
    ItemToJudge,
    JudgedDatasetRequest,
    Outcome,
    OutcomesDatasetRequest,
    Question,
    RefsErased,
    ReviewOut,
    ReviewPage,
    ReviewRequest,
    ReviewSource,
)
from pairmark.service.audit.log import record
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, UnknownGallery, UnknownModel, UnknownReview
from pairmark.service.names import VisibleNames
from pairmark.service.pagination import page_of, start_of
from pairmark.service.reviews import repository
from pairmark.service.reviews.recorder import HOUR_S
from pairmark.service.tables import DECISIONS, DecisionCode, ReviewItem, ReviewJudgement, ReviewRow

_RANDOM: Final = SystemRandom()
_CURVE: Final = 200


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
    for stratum, is_erased, same, number in rows:
        # A match is right if it is the same; what was decided to be different, if it is not.
        right = same is (review.question != "missed-matches" or stratum == 0)
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


MOST_DRAWN: Final = 5_000
"""Most pairs of a stratum that a review may hand out; the population may have any size."""
MOST_SAMPLED: Final = 100_000
"""Kept decisions of a kind, about, that these are drawn from."""
MAX_SIDES_BYTES: Final = 16 * 2**20
"""Of the sides that a stratum keeps, as JSON: what is drawn later is left out, which is as random."""
NEAR: Final = 10
"""One in so many decisions, those nearest the threshold, are a stratum of their own."""
KINDS: Final[dict[Question, tuple[DecisionCode, ...]]] = {
    "false-matches": (DecisionCode.MATCH,),
    "missed-matches": (DecisionCode.MATCH, DecisionCode.DIFFERENT),
}
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
            size = counts.get(kind, 0)
            sampled = repository.kept_decisions(
                session, window, kind, min(chance, MOST_SAMPLED / max(size, 1))
            )
            margins = [abs(row.score - row.threshold) for row in sampled]
            items = partial(_kept_items, session, [row.id for row in sampled])
            strata += strata_of_kind(kind, size, margins, items, split=_splits(request.question, kind))
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


def strata_of_kind(
    decision: DecisionCode,
    size: int,
    margins: Sequence[float] | NDArray[Any],
    items: Callable[[list[int]], Iterable[Item]],
    *,
    split: bool = True,
) -> list[Stratum]:
    """The strata of the decisions of one kind, of which a uniform sample (or all) is at hand.

    Parameters
    ----------
    size : how many decisions there are. margins : how far those at hand are from the threshold.
    items : those of places among ``margins``. split : whether the nearest are a stratum, where all are at hand.
    """
    order = np.argsort(np.asarray(margins), kind="stable")
    near = math.ceil(order.size / NEAR) if split and size == order.size >= 2 * NEAR else 0
    strata = []
    for group in [order[:near], order[near:]] if near else [order]:
        drawn = _RANDOM.sample(range(group.size), min(group.size, MOST_DRAWN))
        stored = _within_bounds(items(group[drawn].tolist()))
        strata.append(Stratum(decision, group.size if near else size, stored))
    return strata


def _within_bounds(items: Iterable[Item]) -> list[Item]:
    n_bytes = 0
    first_items: list[Item] = []
    for item in items:
        n_bytes += len(to_json(item.get("sides")))
        if first_items and n_bytes > MAX_SIDES_BYTES:
            break
        first_items.append(item)
    return first_items


def _listed_strata(source: ReviewSource, kind: DecisionCode, *, split: bool) -> list[Stratum]:
    assert source.refs is not None
    refs, scores = source.refs, source.scores
    matches = source.matches or [True] * len(refs)
    indices = [index for index, match in enumerate(matches) if match == (kind == DecisionCode.MATCH)]
    # Doubtful matches score low, and doubtful others high.
    sign = 1.0 if kind == DecisionCode.MATCH else -1.0
    margins = [0.0 if scores is None else sign * scores[index] for index in indices]

    def items(places: list[int]) -> Iterator[Item]:
        for index in (indices[place] for place in places):
            left, right = refs[index]
            score = None if scores is None else scores[index]
            yield {"left_ref": left, "right_ref": right, "score": score, "decision": kind}

    return strata_of_kind(kind, len(indices), margins, items, split=split and scores is not None)


def _kept_items(session: Session, ids: Sequence[int], places: list[int]) -> Iterator[Item]:
    for start in range(0, len(places), 100):
        wanted = [ids[place] for place in places[start : start + 100]]
        rows = repository.decisions(session, wanted)
        yield from ({name: getattr(rows[id], name) for name in ("decision", *_BLANK)} for id in wanted)


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
            "holder": None,
            "held_until": None,
        }
        for number, stratum in enumerate(strata)
        for place, item in enumerate(stratum.items)
    ]


log = logging.getLogger(__name__)

_SHOWN: Final = (
    "id", "name", "model", "gallery", "source", "question", "at_most", "confidence", "created_at", "enough_at",
    "alarm_at",
)  # fmt: skip
"""Columns of a review that its answer has too."""
HELD_S: Final = 600.0
"""How long a pair is a reviewer's alone."""
_ALARMS = Counter(
    "pairmark_review_alarms_total", "reviews that showed more wrong decisions than allowed", ["model"]
)
_CONTRADICTED = Counter(
    "pairmark_outcomes_contradicting_total",
    "outcomes from elsewhere that contradict a kept decision",
    ["model"],
)


class Reviews:
    """Draws decisions at random, takes judgements, and says what they show of all decisions."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def model_of(self, request: ReviewRequest) -> str | None:
        """The model that a review is about, whose rights it takes; None: a list that names none."""
        source = request.source
        if source.gallery is None:
            return source.model
        with self._db.read() as session:
            return _gallery_model(session, source.gallery)[1]

    def create(self, request: ReviewRequest) -> ReviewOut:
        """Draw the sample of a population, before anything is judged."""
        source = request.source
        with self._db.write() as session:
            model_id, model = None, source.model
            if source.gallery is not None:
                model_id, model = _gallery_model(session, source.gallery)
            elif source.model is not None:
                model_id = repository.model_id_of(session, source.model)
                if model_id is None:
                    raise UnknownModel(f"there is no model {source.model!r}", field="source.model")
            strata = strata_of(session, request, model_id)
            now = self._db.now(session)
            facts = source.model_dump(mode="json", exclude={"refs", "scores", "matches"}, exclude_none=True)
            if source.refs is not None:
                facts["refs"] = len(source.refs)
            elif model_id is not None:
                facts["versions"] = repository.deciding_versions(session, window_of(source, model_id))
            return _out(open_review(session, now, request, strata, model=model, source=facts))

    def get(self, review_id: str) -> ReviewOut:
        """A review and what it has shown so far, or `UnknownReview`."""
        with self._db.read() as session:
            return _out(_existing(session, review_id))

    def delete(self, review_id: str) -> None:
        """Delete a review with what it holds of people, or `UnknownReview`. The audit log still says that it was."""
        with self._db.write() as session:
            review = _existing(session, review_id, lock=True)
            facts = {name: review.progress[name] for name in ("judged", "wrong", "bound")}
            record(session, self._db.now(session), "review.delete", f"review:{review_id}", before=facts)
            repository.delete_review(session, review_id)
        self._db.truncate_log()

    def statements_of_version(self, model: str, version: int) -> list[str]:
        """What reviews of decisions of this version alone have shown, newest first."""
        with self._db.read() as session:
            rows = repository.finished_reviews(session, model, 100)
            return [_statement(row) for row in rows if row.source.get("versions") == [version]]

    def page(self, limit: int, cursor: str | None, models: VisibleNames) -> ReviewPage:
        """Reviews of these models, newest first; those of lists where every name is seen."""
        before = start_of(limit, cursor, float, str)
        with self._db.read() as session:
            rows = repository.page(session, limit + 1, before, models)
            return page_of(ReviewPage, rows, limit, lambda row: (row.created_at, row.id), _out)

    def next(self, review_id: str, reviewer: str, n: int) -> ItemsToJudge:
        """Pairs for a reviewer: those they have already, those that nobody has any more, then new draws."""
        with self._db.write() as session:
            review = _existing(session, review_id, lock=True)
            now = self._db.now(session)
            # The review's row is locked, so that no two reviewers are handed the same draw.
            items = repository.held_items(session, review_id, reviewer, now, n)
            if len(items) < n:
                items += repository.free_items(session, review_id, now, n - len(items))
            if len(items) < n and not review.progress["enough"]:
                items += _draw(session, review, n - len(items))
            for item in items:
                item.holder, item.held_until = reviewer, now + HELD_S
            return ItemsToJudge(items=[_item_out(item) for item in items])

    def judge(self, review_id: str, outcomes: Sequence[Outcome], caller: str) -> ReviewOut:
        """Take judgements. One by the same reviewer on the same pair replaces the earlier one; one by another is kept
        and does not count."""
        with self._db.write() as session:
            review = _existing(session, review_id, lock=True)
            now = self._db.now(session)
            for index, outcome in enumerate(outcomes):
                item = (
                    repository.item(session, review_id, outcome.item) if "\x00" not in outcome.item else None
                )
                if item is None:
                    raise InvalidInput(
                        f"outcomes[{index}].item was not handed out by this review; expected an item of "
                        f"GET /reviews/{review_id}/next",
                        field=f"outcomes[{index}].item",
                    )
                reviewer = outcome.by or caller
                _judge(session, item, reviewer, outcome.same, now)
            session.flush()
            draws = draws_of(review, repository.drawn_items(session, review_id))
            review.progress = progress_of(review, draws, review.progress["curve"])
            ended = review.progress["enough"] and review.enough_at is None
            alarmed = review.progress["alarm"] and review.alarm_at is None
            if ended:
                review.enough_at = now
            if alarmed:
                review.alarm_at = now
            for happened, action in ((ended, "review.enough"), (alarmed, "review.alarm")):
                if happened:
                    facts = {name: review.progress[name] for name in ("judged", "wrong", "bound")}
                    record(session, now, action, f"review:{review_id}", after=facts)
            answer = _out(review)
        if alarmed:
            _ALARMS.labels(review.model or "").inc()
            facts = {
                "review": answer.id,
                "model": answer.model,
                "judged": answer.judged,
                "wrong": answer.wrong,
            }
            log.warning("a review shows more wrong decisions than allowed", extra=facts)
        return answer

    def report_outcomes(self, request: ElsewhereRequest, caller: str) -> ElsewhereOut:
        """Keep outcomes that nobody drew: chosen as they are, they bound nothing."""
        with self._db.write() as session:
            model_id = repository.model_id_of(session, request.model)
            if model_id is None:
                raise UnknownModel(f"there is no model {request.model!r}", field="model")
            now = self._db.now(session)
            contradicted = 0
            rows = []
            for outcome in request.outcomes:
                decision = repository.decided_as(session, model_id, outcome.left, outcome.right)
                contradicted += (
                    decision is not None
                    and decision != DecisionCode.REVIEW
                    and (decision == DecisionCode.MATCH) != outcome.same
                )
                rows.append(
                    {
                        "model": request.model,
                        "left_ref": outcome.left,
                        "right_ref": outcome.right,
                        "same": outcome.same,
                        "reporter": caller,
                        "at": now,
                    }
                )
            repository.add_outcomes(session, rows)
            if contradicted:
                facts = {"contradicted": contradicted, "of": len(rows)}
                record(session, now, "outcomes.contradict", f"model:{request.model}", after=facts)
        _CONTRADICTED.labels(request.model).inc(contradicted)
        return ElsewhereOut(model=request.model, stored=len(rows), contradicted=contradicted)

    def erase(self, model: str, refs: Sequence[str]) -> RefsErased:
        with self._db.write() as session:
            model_id = repository.model_id_of(session, model)
            if model_id is None:
                raise UnknownModel(f"there is no model {model!r}", field="model")
            counts = repository.erase_refs(session, model, model_id, list(refs))
            facts = {"decisions": counts[0], "items": counts[1], "outcomes": counts[2]}
            record(session, self._db.now(session), "review.erase", f"model:{model}", before=facts)
        self._db.truncate_log()
        return RefsErased(**facts)


def open_review(
    session: Session,
    now: float,
    request: ReviewRequest,
    strata: Sequence[Stratum],
    *,
    model: str | None,
    source: dict[str, Any],
) -> ReviewRow:
    """Add a review with the items that it may hand out; ``source`` is what answers say of it."""
    review = ReviewRow(
        id=secrets.token_hex(12),
        name=request.name,
        model=model,
        gallery=request.source.gallery,
        source=source,
        question=request.question,
        at_most=request.at_most,
        confidence=request.confidence,
        strata=[
            {"decision": stratum.decision, "size": stratum.size, "items": len(stratum.items)}
            for stratum in strata
        ],
        n_unstratified_draws=0 if request.question == "missed-matches" else None,
        drawn=0,
        progress={},
        created_at=now,
        enough_at=None,
        alarm_at=None,
    )
    review.progress = progress_of(review, [])
    session.add(review)
    session.flush()
    repository.add_items(session, item_rows(review.id, strata))
    record(
        session, now, "review.create", f"review:{review.id}", after={**source, "question": review.question}
    )
    return review


def _gallery_model(session: Session, gallery: str) -> tuple[str, str]:
    model = None if "\x00" in gallery else repository.gallery_model(session, gallery)
    if model is None:
        raise UnknownGallery(f"there is no gallery {gallery[:100]!r}", field="source.gallery")
    return model[0], model[1]


def unknown_review(review_id: str) -> UnknownReview:
    """The error for a review that is not there, or not to be seen."""
    return UnknownReview(f"there is no review {review_id[:50]!r}")


def _existing(session: Session, review_id: str, *, lock: bool = False) -> ReviewRow:
    row = None if "\x00" in review_id else repository.review(session, review_id, lock=lock)
    if row is None:
        raise unknown_review(review_id)
    return row


def _draw(session: Session, review: ReviewRow, n: int) -> list[ReviewItem]:
    """Draw up to n more items of a review; erased ones are drawn too, count as wrong, and are not handed out."""
    draws = draws_of(review, repository.drawn_items(session, review.id))
    items = []
    for _ in range(n):
        stratum = next_stratum(review, draws)
        item = None if stratum is None else repository.next_of_stratum(session, review.id, stratum)
        if item is None:
            break
        item.draw = review.drawn
        review.drawn += 1
        draws.append(draws_of(review, [(item.stratum, item.erased, None, None)])[0])
        session.flush()
        if not item.erased:
            items.append(item)
    return items


def _judge(session: Session, item: ReviewItem, reviewer: str, same: bool | None, now: float) -> None:
    judgements = repository.judgements_of(session, item.id)
    earlier = next((judgement for judgement in judgements if judgement.reviewer == reviewer), None)
    if earlier is not None:
        earlier.same, earlier.at = same, now
    else:
        session.add(
            ReviewJudgement(
                item_id=item.id,
                reviewer=reviewer,
                review_id=item.review_id,
                number=len(judgements) + 1,
                same=same,
                at=now,
            )
        )
    if item.holder == reviewer or earlier is None:
        item.holder = item.held_until = None
    session.flush()


def _item_out(item: ReviewItem) -> ItemToJudge:
    sides = item.sides or {}
    return ItemToJudge(
        item=item.id,
        left=sides.get("left"),
        right=sides.get("right"),
        refs=(item.left_ref, item.right_ref),
        score=item.score,
        decision=None if item.decision is None else DECISIONS[item.decision],
        version=item.version,
    )


def _out(review: ReviewRow) -> ReviewOut:
    undrawn = sum(int(stratum["items"]) for stratum in review.strata) - review.drawn
    return ReviewOut(
        **{name: getattr(review, name) for name in _SHOWN},
        **review.progress,
        population=sum(sizes_of(review)),
        exhausted=undrawn <= 0,
        statement=_statement(review),
    )


def _statement(review: ReviewRow) -> str:
    sizes, progress = sizes_of(review), review.progress
    if review.question == "missed-matches":
        what = f"of the positive pairs among {sum(sizes):,} decisions are missed"
    else:
        what = f"of {sum(sizes):,} matches are false"
    month = iso(review.created_at)[:10]
    sentence = (
        f"at most {100 * progress['bound']:.3g} % {what}, {100 * review.confidence:g} % confidence ({month})"
    )
    return f"{sentence}; more than {100 * review.at_most:g} % are" if progress["alarm"] else sentence


MOST_PAIRS: Final = 100_000


class JudgedPair(NamedTuple):
    """Two sides as they were sent, and what was said of them."""

    left: Any
    right: Any
    same: bool


class JudgedPairs:
    """Makes datasets of pairs that people judged, as far as their sides are kept: they train, and calibrate nothing."""

    def __init__(self, db: Database, datasets: Datasets) -> None:
        self._db = db
        self._datasets = datasets

    def of_review(self, review_id: str, request: JudgedDatasetRequest) -> DatasetOut:
        """The judged pairs of a review; what nobody could tell is left out."""
        with self._db.read() as session:
            review = repository.review(session, review_id)
            if review is None:
                raise unknown_review(review_id)
            rows = repository.judged_items(session, review_id)
        pairs = [
            JudgedPair(row.sides["left"], row.sides["right"], row.same)
            for row in rows
            if row.sides is not None and row.same is not None
        ]
        return self._add_dataset(request.name, pairs)

    def of_outcomes(self, request: OutcomesDatasetRequest) -> DatasetOut:
        """Outcomes from elsewhere, of pairs whose sides are kept under the same refs."""
        with self._db.read() as session:
            model_id = repository.model_id_of(session, request.model)
            if model_id is None:
                raise UnknownModel(f"there is no model {request.model!r}", field="model")
            rows = repository.outcomes_with_sides(session, request.model, model_id, MOST_PAIRS)
        pairs = [JudgedPair(sides["left"], sides["right"], same) for sides, same in rows]
        return self._add_dataset(request.name, pairs)

    def _add_dataset(self, name: str, pairs: Sequence[JudgedPair]) -> DatasetOut:
        if not pairs:
            raise InvalidInput(
                "there is no judged pair whose sides are kept; expected some. A model's policy keeps sides with "
                '{"reviews": {"sides": true}}'
            )
        rows = [side for pair in pairs for side in (pair.left, pair.right)]
        if (
            len({type(row) for row in rows}) > 1
            or len({len(row) for row in rows if isinstance(row, list)}) > 1
        ):
            raise InvalidInput(
                "the judged pairs are of several kinds or dimensions; expected those of one model"
            )
        records = isinstance(rows[0], dict)
        cells = rows if records else [{f"x{at}": cell for at, cell in enumerate(row)} for row in rows]
        lines = (
            {"left": 2 * at, "right": 2 * at + 1, "same": int(pair.same)} for at, pair in enumerate(pairs)
        )
        return self._datasets.add(
            UploadFile(_table(cells), filename="points.csv"),
            DatasetRequest.model_validate({"name": name, "columns": {} if records else None}),
            pairs=UploadFile(_table(lines), filename="pairs.csv"),
            chosen=True,
        )


def _table(rows: Iterable[Mapping[str, Any]]) -> io.BytesIO:
    text = io.StringIO(newline="")
    lines = list(rows)
    columns = dict.fromkeys(name for row in lines for name in row)
    writer = csv.DictWriter(text, list(columns), restval="")
    writer.writeheader()
    writer.writerows(lines)
    return io.BytesIO(text.getvalue().encode())
