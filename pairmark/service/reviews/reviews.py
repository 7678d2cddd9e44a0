"""Reviews: made, handed out, judged, and made datasets of. Every change locks the review's row, so reviewers never see
the same draw."""

import csv
import io
import logging
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from prometheus_client import Counter
from sqlalchemy import Row, insert
from sqlalchemy.orm import Session
from starlette.datastructures import UploadFile

from pairmark.models.linking.evaluation import recall_so_far
from pairmark.models.reviews.evidence import (
    Judgements,
    draws_match,
    exceeds,
    expected_judgements,
    missed_bound,
    share_bound,
)
from pairmark.schemas.base import Page, iso
from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.schemas.reviews import (
    ElsewhereOut,
    ElsewhereRequest,
    ItemsToJudge,
    ItemToJudge,
    JudgedDatasetRequest,
    Outcome,
    OutcomesDatasetRequest,
    RefsErased,
    ReviewOut,
    ReviewRequest,
)
from pairmark.service.audit.log import record
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput, UnknownReview
from pairmark.service.names import VisibleNames
from pairmark.service.reviews import repository
from pairmark.service.reviews.decisions import (
    BLANK,
    KINDS,
    Decisions,
    Item,
    population_of,
    sizes_of,
    window_of,
)
from pairmark.service.tables import (
    DECISIONS,
    DecisionCode,
    OutcomeRow,
    ReviewItem,
    ReviewJudgement,
    ReviewRow,
)


def progress_of(review: ReviewRow, drawn: Sequence[Row[Any]]) -> dict[str, Any]:
    """What the judgements of drawn items show, given as `repository.drawn_items` gives them.

    They count in the order of draws. Hard pairs take longer: counting judgements as they come would count easy ones
    first. What nobody could judge is wrong, and so are what was erased and what is passed over.
    """
    answered = [_is_answered(item) for item in drawn]
    n_answered = sum(answered)
    if review.question == "recall":
        return _recall_progress(review, drawn, n_answered)
    if review.question == "label":
        # Nobody drew at random: the judgements are labels, and say nothing of the others.
        shown = dict.fromkeys(("waiting", "wrong", "held"), 0) | {"bound": None, "expected_more": None}
        return shown | {"judged": n_answered, "enough": False, "alarm": False}
    # A match is right if it is the same; what was decided to be different, if it is not. What is not judged is wrong:
    # that makes no bound lower, so it holds for whatever is answered later.
    wrong = [item.same is not (item.stratum == 0) for item in drawn]
    at_most, confidence = review.at_most, review.confidence

    def bound_of(n: int) -> float:
        if review.question == "missed-matches":
            matched, different = (
                Judgements(
                    size, [w for w, item in zip(wrong[:n], drawn, strict=False) if item.stratum == kind]
                )
                for kind, size in enumerate(sizes_of(review))
            )
            return missed_bound(matched, different, at_most, confidence)
        return share_bound(Judgements(sum(sizes_of(review)), wrong[:n]), at_most, confidence)

    # The bound holds at all numbers of draws at once: the lower one of the first gap and of the last answer is one.
    n_whole = next((at for at, is_answered in enumerate(answered) if not is_answered), len(drawn))
    n_last = max((at + 1 for at, is_answered in enumerate(answered) if is_answered), default=0)
    bound, n_counted = min((bound_of(n), n) for n in {n_whole, n_last})
    alarm, n_expected = False, None
    if review.question == "false-matches":
        # What nobody could tell may be right: it raises the bound, and no alarm.
        certain = [w and item.same is not None for w, item in zip(wrong[:n_whole], drawn, strict=False)]
        size = sum(sizes_of(review))
        alarm = exceeds(Judgements(size, certain), at_most, confidence)
        n_expected = expected_judgements(Judgements(size, wrong[:n_counted]), at_most, confidence)
    is_enough, n_judged = bound <= at_most, sum(answered[:n_counted])
    return {
        "judged": n_judged,
        "waiting": n_answered - n_judged,
        "held": len(drawn) - n_answered,
        "wrong": sum(wrong[:n_counted]),
        "bound": bound,
        "enough": is_enough,
        "alarm": alarm,
        "expected_more": 0 if is_enough else n_expected,
    }


def _is_answered(item: Row[Any]) -> bool:
    return item.number is not None or item.erased


def _recall_progress(review: ReviewRow, drawn: Sequence[Row[Any]], n_answered: int) -> dict[str, Any]:
    """What the records show all of whose pairs are judged; ``recall`` is about records, and the rest about pairs."""
    records, answered = review.strata[0]["records"], list(takewhile(_is_answered, drawn))
    answers: list[list[tuple[bool, bool | None]]] = []
    n_judged = 0
    for linked in records:
        of_record = answered[n_judged : n_judged + len(linked)]
        if len(of_record) < len(linked):
            break
        answers.append([(each == "1", item.same) for each, item in zip(linked, of_record, strict=True)])
        n_judged += len(linked)
    recall = recall_so_far(sizes_of(review)[0], answers, 1 - review.at_most, review.confidence)
    more, pairs = recall.expected_more, sum(map(len, records)) / max(len(records), 1)
    return {
        "judged": n_judged,
        "waiting": n_answered - n_judged,
        "held": len(drawn) - n_answered,
        "wrong": sum(not linked and same is not False for others in answers for linked, same in others),
        "bound": 1 - recall.bound,
        "enough": recall.enough,
        "alarm": False,
        "expected_more": None if more is None else math.ceil(more * pairs),
        "recall": recall.model_dump(exclude={"confidence", "review"}),
    }


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
            return repository.gallery_model(session, source.gallery)[1]

    def create(self, request: ReviewRequest) -> ReviewOut:
        """Draw the sample of a population, before anything is judged."""
        source = request.source
        if request.question == "recall":
            raise InvalidInput(
                'recall is asked by a link job, which draws the records: POST /links with "recall"; expected '
                "false-matches, missed-matches or label",
                field="question",
            )
        with self._db.write() as session:
            model_id, model = None, source.model
            if source.gallery is not None:
                model_id, model = repository.gallery_model(session, source.gallery)
            elif source.model is not None:
                model_id = repository.known_model_id(session, source.model, "source.model")
            population = population_of(session, request, model_id)
            now = self._db.now(session)
            facts = source.model_dump(mode="json", exclude={"refs", "scores", "matches"}, exclude_none=True)
            if source.refs is not None:
                facts["refs"] = len(source.refs)
            elif model_id is not None:
                facts["versions"] = repository.deciding_versions(session, window_of(source, model_id))
            return _out(open_review(session, now, request, population, model=model, source=facts))

    def get(self, review_id: str) -> ReviewOut:
        """A review and what it has shown so far, or `UnknownReview`."""
        with self._db.read() as session:
            return _out(existing_review(session, review_id))

    def delete(self, review_id: str) -> None:
        """Delete a review with what it holds of people, or `UnknownReview`. The audit log still says that it was."""
        with self._db.write() as session:
            review = existing_review(session, review_id, lock=True)
            facts = {name: review.progress[name] for name in ("judged", "wrong", "bound")}
            record(session, self._db.now(session), "review.delete", f"review:{review_id}", before=facts)
            repository.delete_review(session, review_id)
        self._db.truncate_log()

    def statements_of_version(self, model: str, version: int) -> list[str]:
        """What reviews of decisions of this version alone have shown, newest first."""
        with self._db.read() as session:
            rows = repository.finished_reviews(session, model, 100)
            return [_statement(row) for row in rows if row.source.get("versions") == [version]]

    def page(self, limit: int, cursor: str | None, models: VisibleNames) -> Page[ReviewOut]:
        """Reviews of these models, newest first; those of lists where every name is seen."""
        with self._db.read() as session:
            rows, following = repository.page(session, limit, cursor, models)
            return Page[ReviewOut](items=[_out(row) for row in rows], next_cursor=following)

    def next(self, review_id: str, reviewer: str, n: int) -> ItemsToJudge:
        """Pairs for a reviewer: those they have already, those that nobody has any more, then new draws."""
        with self._db.write() as session:
            review = _open(session, review_id)
            now = self._db.now(session)
            # The review's row is locked, so that no two reviewers are handed the same draw.
            items = repository.items_for(session, review_id, reviewer, now, n)
            if len(items) < n and not review.progress["enough"]:
                items += _draw(session, review, n - len(items))
            for item in items:
                item.holder, item.held_until = reviewer, now + HELD_S
            return ItemsToJudge(items=[_item_out(item) for item in items])

    def judge(self, review_id: str, outcomes: Sequence[Outcome], caller: str) -> ReviewOut:
        """Take judgements. One by the same reviewer on the same pair replaces the earlier one; one by another is kept
        and does not count."""
        with self._db.write() as session:
            review = _open(session, review_id)
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
                _judge(session, item, outcome.by or caller, outcome.same, now)
            session.flush()
            review.progress = progress_of(review, repository.drawn_items(session, review_id))
            alarmed = review.progress["alarm"] and review.alarm_at is None
            for action in ("enough", "alarm"):
                if review.progress[action] and getattr(review, f"{action}_at") is None:
                    setattr(review, f"{action}_at", now)
                    facts = {name: review.progress[name] for name in ("judged", "wrong", "bound")}
                    record(session, now, f"review.{action}", f"review:{review_id}", after=facts)
            answer = _out(review)
        if alarmed:
            _ALARMS.labels(review.model or "").inc()
            facts = answer.model_dump(include={"model", "judged", "wrong"}) | {"review": review_id}
            log.warning("a review shows more wrong decisions than allowed", extra=facts)
        return answer

    def report_outcomes(self, request: ElsewhereRequest, caller: str) -> ElsewhereOut:
        """Keep outcomes that nobody drew: chosen as they are, they bound nothing."""
        with self._db.write() as session:
            model_id = repository.known_model_id(session, request.model)
            now = self._db.now(session)
            contradicted = sum(
                repository.decided_as(session, model_id, outcome.left, outcome.right)
                == (DecisionCode.DIFFERENT if outcome.same else DecisionCode.MATCH)
                for outcome in request.outcomes
            )
            rows = [
                {
                    "model": request.model,
                    "left_ref": outcome.left,
                    "right_ref": outcome.right,
                    "same": outcome.same,
                    "reporter": caller,
                    "at": now,
                }
                for outcome in request.outcomes
            ]
            session.execute(insert(OutcomeRow), rows)
            if contradicted:
                facts = {"contradicted": contradicted, "of": len(rows)}
                record(session, now, "outcomes.contradict", f"model:{request.model}", after=facts)
        _CONTRADICTED.labels(request.model).inc(contradicted)
        return ElsewhereOut(model=request.model, stored=len(rows), contradicted=contradicted)

    def erase(self, model: str, refs: Sequence[str]) -> RefsErased:
        with self._db.write() as session:
            counts = repository.erase_refs(
                session, model, repository.known_model_id(session, model), list(refs)
            )
            facts = {"decisions": counts[0], "items": counts[1], "outcomes": counts[2]}
            record(session, self._db.now(session), "review.erase", f"model:{model}", before=facts)
        self._db.truncate_log()
        return RefsErased(**facts)


def open_review(
    session: Session,
    now: float,
    request: ReviewRequest,
    population: Sequence[Decisions],
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
            {
                "decision": decisions.decision,
                "size": decisions.size,
                "items": len(decisions.items),
                "records": list(decisions.records),
            }
            for decisions in population
        ],
        drawn=0,
        progress={},
        created_at=now,
        enough_at=None,
        alarm_at=None,
    )
    review.progress = progress_of(review, [])
    session.add(review)
    session.flush()
    items: list[Item] = [
        {
            **BLANK,
            **item,
            # It tells nothing.
            "id": secrets.token_hex(12),
            "review_id": review.id,
            "stratum": kind,
            "place": place,
            "draw": None,
            "holder": None,
            "held_until": None,
        }
        for kind, decisions in enumerate(population)
        for place, item in enumerate(decisions.items)
    ]
    repository.add_items(session, items)
    record(
        session, now, "review.create", f"review:{review.id}", after={**source, "question": review.question}
    )
    return review


def unknown_review(review_id: str) -> UnknownReview:
    """The error for a review that is not there, or not to be seen."""
    return UnknownReview(f"there is no review {review_id[:50]!r}")


def existing_review(session: Session, review_id: str, *, lock: bool = False) -> ReviewRow:
    """The row of a review, or `UnknownReview`; with ``lock``, nobody else changes it until the transaction ends."""
    row = None if "\x00" in review_id else session.get(ReviewRow, review_id, with_for_update=lock or None)
    if row is None:
        raise unknown_review(review_id)
    return row


def _open(session: Session, review_id: str) -> ReviewRow:
    """A review that can be judged, locked."""
    review = existing_review(session, review_id, lock=True)
    if review.question != "label" and len(review.strata) != len(KINDS[review.question]):
        raise Conflict(
            f"review {review_id} was made by an earlier version, which drew some pairs more often than others: ask "
            "again (POST /reviews)"
        )
    return review


def _draw(session: Session, review: ReviewRow, n: int) -> list[ReviewItem]:
    """Draw up to n more items of a review; erased ones are drawn too, count as wrong, and are not handed out."""
    sizes, items = sizes_of(review), []
    drawn = [0] * len(sizes)
    for row in repository.drawn_items(session, review.id):
        drawn[row.stratum] += 1
    for _ in range(n):
        kind = 0 if len(sizes) == 1 or draws_match(sizes, drawn) else 1
        item = repository.next_of_stratum(session, review.id, kind)
        if item is None:
            break
        item.draw = review.drawn
        review.drawn += 1
        drawn[kind] += 1
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
    if review.question == "label":
        return f"{progress['judged']:,} of {sum(sizes):,} pairs are labeled: they train a model, and bound nothing"
    what = {
        "false-matches": f"of {sum(sizes):,} matches are false",
        "missed-matches": f"of the positive pairs among {sum(sizes):,} decisions are missed",
        "recall": f"of the partners of {sum(sizes):,} records are not linked with them",
    }[review.question]
    if not progress["judged"]:
        return f"how many {what} is not known before pairs are judged"
    month = iso(review.created_at)[:10]
    sentence = (
        f"at most {100 * progress['bound']:.3g} % {what}, {100 * review.confidence:g} % confidence ({month})"
    )
    return f"{sentence}; more than {100 * review.at_most:g} % are" if progress["alarm"] else sentence


MOST_PAIRS: Final = 100_000


class JudgedPairs:
    """Makes datasets of pairs that people judged, as far as their sides are kept: they train, and calibrate nothing."""

    def __init__(self, db: Database, datasets: Datasets) -> None:
        self._db, self._datasets = db, datasets

    def of_review(self, review_id: str, request: JudgedDatasetRequest) -> DatasetOut:
        """The judged pairs of a review; what nobody could tell is left out."""
        with self._db.read() as session:
            review = existing_review(session, review_id)
            rows, columns = repository.judged_items(session, review_id), review.source.get("columns")
        pairs = [
            (row.sides["left"], row.sides["right"], row.same)
            for row in rows
            if row.sides is not None and row.same is not None
        ]
        return self._add_dataset(request.name, pairs, columns)

    def of_outcomes(self, request: OutcomesDatasetRequest) -> DatasetOut:
        """Outcomes from elsewhere, of pairs whose sides are kept under the same refs."""
        with self._db.read() as session:
            model_id = repository.known_model_id(session, request.model)
            rows = repository.outcomes_with_sides(session, request.model, model_id, MOST_PAIRS)
        pairs = [(sides["left"], sides["right"], same) for sides, same in rows]
        return self._add_dataset(request.name, pairs)

    def _add_dataset(
        self, name: str, pairs: Sequence[tuple[Any, Any, bool]], columns: dict[str, str] | None = None
    ) -> DatasetOut:
        if not pairs:
            raise InvalidInput(
                "there is no judged pair whose sides are kept; expected some. A model's policy keeps sides with "
                '{"reviews": {"sides": true}}'
            )
        rows = [side for left, right, _ in pairs for side in (left, right)]
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
            {"left": 2 * at, "right": 2 * at + 1, "same": int(same)} for at, (*_, same) in enumerate(pairs)
        )
        return self._datasets.add(
            UploadFile(_table(cells), filename="points.csv"),
            DatasetRequest.model_validate({"name": name, "columns": columns or ({} if records else None)}),
            pairs=UploadFile(_table(lines), filename="pairs.csv"),
            chosen=True,
        )


def _table(rows: Iterable[Mapping[str, Any]]) -> io.BytesIO:
    text = io.StringIO(newline="")
    lines = list(rows)
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in lines for name in row)), restval="")
    writer.writeheader()
    writer.writerows(lines)
    return io.BytesIO(text.getvalue().encode())
