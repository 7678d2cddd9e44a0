"""Reviews: made, handed out, judged. Every change locks the review's row, so reviewers never see the same draw."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import Final

from prometheus_client import Counter
from sqlalchemy.orm import Session

from pairmark.schemas.base import iso
from pairmark.schemas.reviews import (
    Agreement,
    ElsewhereOut,
    ElsewhereRequest,
    ItemsToJudge,
    ItemToJudge,
    JudgedPart,
    Outcome,
    RefsErased,
    ReviewOut,
    ReviewPage,
    ReviewRequest,
)
from pairmark.service.audit.log import record
from pairmark.service.db import Database
from pairmark.service.decision_codes import DECISIONS, DecisionCode
from pairmark.service.errors import InvalidInput, PairmarkError, UnknownGallery, UnknownModel, UnknownReview
from pairmark.service.names import VisibleNames
from pairmark.service.pagination import page_of, start_of
from pairmark.service.reviews import repository
from pairmark.service.reviews.population import item_rows, strata_of, window_of
from pairmark.service.reviews.progress import (
    breakdown,
    draws_of,
    groups_of,
    next_stratum,
    progress_of,
    score_ranges,
    sizes_of,
)
from pairmark.service.store.refs import PRODUCTION
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import ReviewItem, ReviewJudgement, ReviewRow

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

    def __init__(self, db: Database, store: ModelStore) -> None:
        self._db = db
        self._store = store

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
            review = ReviewRow(
                id=secrets.token_hex(12),
                name=request.name,
                model=model,
                gallery=source.gallery,
                source=facts,
                question=request.question,
                at_most=request.at_most,
                confidence=request.confidence,
                second_share=request.judged_twice,
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
                session,
                now,
                "review.create",
                f"review:{review.id}",
                after={**facts, "question": review.question},
            )
            return _out(session, review)

    def get(self, review_id: str, group_by: str | None = None) -> ReviewOut:
        """A review and what it has shown so far, by a field of its records where one is named, or `UnknownReview`."""
        with self._db.read() as session:
            row = _existing(session, review_id)
            rows = repository.drawn_items(session, review_id)
            draws = draws_of(row, rows)
            parts = {
                "by_score": breakdown(draws, score_ranges([row.score for row in rows])),
                "by_version": breakdown(draws, [row.version for row in rows]),
                "by_gallery": breakdown(draws, [row.gallery or None for row in rows]),
            }
            if group_by is not None:
                sides = repository.drawn_sides(session, review_id)
                parts["by_group"] = breakdown(draws, groups_of(sides, group_by))
            return _out(session, row).model_copy(
                update={name: [JudgedPart(**part) for part in listing] for name, listing in parts.items()}
            )

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
            return page_of(
                ReviewPage, rows, limit, lambda row: (row.created_at, row.id), lambda row: _out(session, row)
            )

    def next(self, review_id: str, reviewer: str, n: int) -> ItemsToJudge:
        """Pairs for a reviewer: those they have already, those that nobody has any more, then new draws."""
        with self._db.write() as session:
            review = _existing(session, review_id, lock=True)
            now = self._db.now(session)
            items = repository.held_items(session, review_id, reviewer, now, n)
            if len(items) < n:
                items += repository.free_items(session, review_id, reviewer, now, n - len(items))
            if len(items) < n and not review.progress["enough"]:
                items += _draw(session, review, n - len(items))
            for item in items:
                item.holder, item.held_until = reviewer, now + HELD_S
            return ItemsToJudge(items=[_item_out(item) for item in items])

    def judge(self, review_id: str, outcomes: Sequence[Outcome], caller: str) -> ReviewOut:
        """Take judgements. One by the same reviewer on the same pair replaces the earlier one; one by another measures
        agreement and does not change what counts."""
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
            answer = _out(session, review)
        if alarmed:
            self._alarm(answer)
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

    def _alarm(self, review: ReviewOut) -> None:
        """Tell of a review that shows too many wrong decisions; with a policy, production falls back."""
        _ALARMS.labels(review.model or "").inc()
        log.warning(
            "a review shows more wrong decisions than allowed",
            extra={
                "review": review.id,
                "model": review.model,
                "judged": review.judged,
                "wrong": review.wrong,
            },
        )
        if review.model is None:
            return
        try:
            self._fall_back(review, review.model)
        except PairmarkError as error:
            # The judgements are taken: a model that is gone, or a version that may not serve, is no reason to refuse.
            log.warning("production could not fall back", extra={"review": review.id, "reason": error.detail})

    def _fall_back(self, review: ReviewOut, model: str) -> None:
        policy = self._store.model(model).policy.reviews
        if policy is None or not policy.fall_back:
            return
        moves = self._store.history(model, PRODUCTION, limit=1).items
        if not moves or moves[0].previous is None:
            return
        # Only from the version that the judged decisions are of.
        if review.source.get("versions") != [moves[0].version]:
            return
        self._store.promote(
            model,
            PRODUCTION,
            moves[0].previous,
            by=f"review:{review.id}",
            reason=f"review {review.id}: {review.wrong} of {review.judged} drawn decisions are wrong",
        )


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
        item.needs_second = secrets.randbelow(10**6) < review.second_share * 10**6
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


def _out(session: Session, review: ReviewRow) -> ReviewOut:
    pairs, agreed = repository.agreement(session, review.id)
    sizes = sizes_of(review)
    undrawn = sum(int(stratum["items"]) for stratum in review.strata) - review.drawn
    progress = review.progress
    return ReviewOut(
        **{name: getattr(review, name) for name in _SHOWN},
        chosen=review.question == "uncertain",
        population=sum(sizes),
        **progress,
        exhausted=undrawn <= 0,
        agreement=Agreement(pairs=pairs, agreed=agreed),
        statement=_statement(review),
    )


def _statement(review: ReviewRow) -> str:
    sizes, progress = sizes_of(review), review.progress
    if review.question == "uncertain":
        judged = f"{progress['judged']:,} of {sum(sizes):,} pairs judged"
        return f"{judged}; they were chosen by their score, so no bound follows"
    if review.question == "missed-matches":
        what = f"of the same pairs among {sum(sizes):,} decisions are missed"
    else:
        what = f"of {sum(sizes):,} matches are false"
    month = iso(review.created_at)[:10]
    sentence = (
        f"at most {100 * progress['bound']:.3g} % {what}, {100 * review.confidence:g} % confidence ({month})"
    )
    return f"{sentence}; more than {100 * review.at_most:g} % are" if progress["alarm"] else sentence
