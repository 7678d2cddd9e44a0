"""All SQL of reviews."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Row,
    and_,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from pairmark.service.db import execute_change, insert_into, name_filter, read_rows
from pairmark.service.errors import UnknownGallery, UnknownModel
from pairmark.service.names import EVERY_NAME, VisibleNames
from pairmark.service.tables import (
    DecisionCount,
    GalleryRow,
    KeptDecision,
    ModelRow,
    OutcomeRow,
    ReviewItem,
    ReviewJudgement,
    ReviewRow,
)

# ---------------------------------------------------------------- decisions


class Deciding(NamedTuple):
    """What decided: a version of a model, in a gallery or (empty) in `/match`."""

    model_id: str
    version: int
    gallery: str = ""


def lock_model(session: Session, model_id: str) -> tuple[bool, bool]:
    """Lock a model's decisions; says whether there is the model, and whether it keeps any. Sampling and counting are of
    one moment then."""
    locked = select(ModelRow.reviews).where(ModelRow.id == model_id).with_for_update(key_share=True)
    row = session.execute(locked).first()
    return row is not None, row is not None and row.reviews is not None


def policies(session: Session) -> list[Row[str, Any]]:
    """(model id, policy) of models that keep decisions."""
    rows = session.execute(select(ModelRow.id, ModelRow.reviews).order_by(ModelRow.id))
    return [row for row in rows if row.reviews is not None]


def hour_total(session: Session, model_id: str, hour: int) -> tuple[int, float | None]:
    """How many decisions an hour has, and the chance with which they are kept; None: it has none."""
    where = DecisionCount.model_id == model_id, DecisionCount.hour == hour
    total, chance = session.execute(
        select(func.sum(DecisionCount.count), func.min(DecisionCount.chance)).where(*where)
    ).one()
    return int(total or 0), chance


def add_decisions(
    session: Session,
    rows: Sequence[Mapping[str, Any]],
    hour: int,
    counts: Mapping[Deciding, Sequence[int]],
    chance: float,
) -> None:
    """Add kept decisions and count all, by model, version and gallery."""
    if rows:
        session.execute(insert(KeptDecision), rows)
    new = insert_into(session, DecisionCount)
    session.execute(
        new.on_conflict_do_update(
            index_elements=[column.name for column in DecisionCount.__table__.primary_key],
            set_={"count": DecisionCount.count + new.excluded.count},
        ),
        [
            {**deciding._asdict(), "hour": hour, "decision": decision, "count": n, "chance": chance}
            for deciding, numbers in counts.items()
            for decision, n in enumerate(numbers)
            if n
        ],
    )


def lower_chance(session: Session, model_id: str, hour: int, chance: float) -> None:
    """Lower the chance of an hour, and delete what it does not keep."""
    session.execute(
        delete(KeptDecision).where(
            KeptDecision.model_id == model_id, KeptDecision.hour == hour, KeptDecision.key >= chance
        )
    )
    session.execute(
        update(DecisionCount)
        .where(DecisionCount.model_id == model_id, DecisionCount.hour == hour)
        .values(chance=chance)
    )


def forget_before(session: Session, model_id: str, hour: int) -> None:
    """Delete a model's decisions of before an hour."""
    for table in (KeptDecision, DecisionCount):
        session.execute(delete(table).where(table.model_id == model_id, table.hour < hour))


class DecisionWindow(NamedTuple):
    """Decisions of a model between two hours, perhaps of one gallery or version only."""

    model_id: str
    hours: tuple[int, int]
    gallery: str | None = None
    version: int | None = None

    def where(self, table: type[DecisionCount] | type[KeptDecision]) -> list[ColumnElement[bool]]:
        first, end = self.hours
        chosen = ((table.gallery, self.gallery), (table.version, self.version))
        return [
            table.model_id == self.model_id,
            table.hour >= first,
            table.hour < end,
            *(column == value for column, value in chosen if value is not None),
        ]


def decision_counts(session: Session, window: DecisionWindow) -> tuple[dict[int, int], float]:
    """Decisions of a window, by kind, and the smallest chance with which any of its hours kept them."""
    totals = select(
        DecisionCount.decision, func.sum(DecisionCount.count), func.min(DecisionCount.chance)
    ).where(*window.where(DecisionCount))
    rows = session.execute(totals.group_by(DecisionCount.decision)).all()
    return {row[0]: int(row[1]) for row in rows}, min((row[2] for row in rows), default=1.0)


def deciding_versions(session: Session, window: DecisionWindow) -> list[int]:
    return list(
        session.scalars(
            select(DecisionCount.version)
            .where(*window.where(DecisionCount))
            .distinct()
            .order_by(DecisionCount.version)
        )
    )


def kept_decisions(session: Session, window: DecisionWindow, decision: int, chance: float) -> list[int]:
    """Ids of a uniform sample of a window's decisions: those kept with keys below ``chance``."""
    sampled = *window.where(KeptDecision), KeptDecision.decision == decision, KeptDecision.key < chance
    return list(session.scalars(select(KeptDecision.id).where(*sampled)))


def decisions(session: Session, ids: Sequence[int]) -> dict[int, KeptDecision]:
    return {row.id: row for row in session.scalars(select(KeptDecision).where(KeptDecision.id.in_(ids)))}


def gallery_model(session: Session, gallery: str) -> tuple[str, str]:
    """Id and name of the model that searches a gallery."""
    searches = select(ModelRow.id, ModelRow.name).join(GalleryRow, GalleryRow.model_id == ModelRow.id)
    is_name = "\x00" not in gallery
    model = session.execute(searches.where(GalleryRow.name == gallery)).first() if is_name else None
    if model is None:
        raise UnknownGallery(f"there is no gallery {gallery[:100]!r}", field="source.gallery")
    return model[0], model[1]


def known_model_id(session: Session, name: str, field: str = "model") -> str:
    """The id of the model of a name, or `UnknownModel`; ``field`` : of the request that named it."""
    model_id = session.scalar(select(ModelRow.id).where(ModelRow.name == name))
    if model_id is None:
        raise UnknownModel(f"there is no model {name!r}", field=field)
    return model_id


# ---------------------------------------------------------------- reviews


def page(
    session: Session, limit: int, cursor: str | None, models: VisibleNames
) -> tuple[list[ReviewRow], str | None]:
    """Reviews of these models, newest first; those of lists where every name is seen."""
    statement, order = select(ReviewRow), (ReviewRow.created_at, ReviewRow.id)
    if models != EVERY_NAME:
        statement = statement.where(name_filter(models, ReviewRow.model))
    return read_rows(session, statement, order, limit, cursor, newest_first=True)


def add_items(session: Session, items: Sequence[Mapping[str, Any]]) -> None:
    for start in range(0, len(items), 1_000):
        session.execute(insert(ReviewItem), items[start : start + 1_000])


def drawn_items(session: Session, review_id: str) -> list[Row[Any]]:
    """(stratum, erased, same, number) of drawn items in the order of draws; number None: not judged."""
    first_judgement = and_(ReviewJudgement.item_id == ReviewItem.id, ReviewJudgement.number == 1)
    return list(
        session.execute(
            select(ReviewItem.stratum, ReviewItem.erased, ReviewJudgement.same, ReviewJudgement.number)
            .outerjoin(ReviewJudgement, first_judgement)
            .where(ReviewItem.review_id == review_id, ReviewItem.draw.is_not(None))
            .order_by(ReviewItem.draw)
        )
    )


def next_of_stratum(session: Session, review_id: str, stratum: int) -> ReviewItem | None:
    """The item of a stratum that is next in its random order."""
    return session.scalar(
        select(ReviewItem)
        .where(ReviewItem.review_id == review_id, ReviewItem.stratum == stratum, ReviewItem.draw.is_(None))
        .order_by(ReviewItem.place)
        .limit(1)
    )


def items_for(session: Session, review_id: str, reviewer: str, now: float, limit: int) -> list[ReviewItem]:
    """Drawn items that a reviewer has, then those that nobody has now and nobody has judged."""
    is_held = and_(ReviewItem.holder == reviewer, ReviewItem.held_until > now)
    is_free = and_(
        ReviewItem.draw.is_not(None),
        ReviewItem.erased.is_(False),
        or_(ReviewItem.held_until.is_(None), ReviewItem.held_until <= now),
        ~exists().where(ReviewJudgement.item_id == ReviewItem.id),
    )
    return list(
        session.scalars(
            select(ReviewItem)
            .where(ReviewItem.review_id == review_id, or_(is_held, is_free))
            .order_by(case((is_held, 0), else_=1), ReviewItem.draw)
            .limit(limit)
        )
    )


def finished_reviews(session: Session, model: str, limit: int) -> list[ReviewRow]:
    """The newest reviews of a model whose bound was low enough, or that raised the alarm."""
    ended = or_(ReviewRow.enough_at.is_not(None), ReviewRow.alarm_at.is_not(None))
    return list(
        session.scalars(
            select(ReviewRow)
            .where(ReviewRow.model == model, ended)
            .order_by(ReviewRow.created_at.desc())
            .limit(limit)
        )
    )


def item(session: Session, review_id: str, item_id: str) -> ReviewItem | None:
    return session.scalar(
        select(ReviewItem).where(
            ReviewItem.id == item_id, ReviewItem.review_id == review_id, ReviewItem.draw.is_not(None)
        )
    )


def judgements_of(session: Session, item_id: str) -> list[ReviewJudgement]:
    """What was said of an item, first first."""
    return list(
        session.scalars(
            select(ReviewJudgement).where(ReviewJudgement.item_id == item_id).order_by(ReviewJudgement.number)
        )
    )


def judged_items(session: Session, review_id: str) -> list[Row[Any]]:
    """(sides, same) of judged items that are not erased, in the order of draws."""
    return list(
        session.execute(
            select(ReviewItem.sides, ReviewJudgement.same)
            .join(
                ReviewJudgement, and_(ReviewJudgement.item_id == ReviewItem.id, ReviewJudgement.number == 1)
            )
            .where(ReviewItem.review_id == review_id, ReviewItem.erased.is_(False))
            .order_by(ReviewItem.draw)
        )
    )


def delete_review(session: Session, review_id: str) -> None:
    """Delete a review with its items and judgements."""
    for table in (ReviewJudgement, ReviewItem):
        session.execute(delete(table).where(table.review_id == review_id))
    session.execute(delete(ReviewRow).where(ReviewRow.id == review_id))


# ---------------------------------------------------------------- elsewhere and erasure


def decided_as(session: Session, model_id: str, left: str, right: str) -> int | None:
    """The newest kept decision on a pair by its refs, in either order."""
    return session.scalar(
        select(KeptDecision.decision)
        .where(
            KeptDecision.model_id == model_id,
            or_(
                and_(KeptDecision.left_ref == left, KeptDecision.right_ref == right),
                and_(KeptDecision.left_ref == right, KeptDecision.right_ref == left),
            ),
        )
        .order_by(KeptDecision.at.desc())
        .limit(1)
    )


def outcomes_with_sides(
    session: Session, model: str, model_id: str, limit: int
) -> list[Row[dict[str, Any], bool]]:
    """(sides, same) of outcomes whose refs a decision with sides is kept under, newest first."""
    one_way = and_(
        KeptDecision.left_ref == OutcomeRow.left_ref, KeptDecision.right_ref == OutcomeRow.right_ref
    )
    other_way = and_(
        KeptDecision.left_ref == OutcomeRow.right_ref, KeptDecision.right_ref == OutcomeRow.left_ref
    )
    return [
        row
        for row in session.execute(
            select(KeptDecision.sides, OutcomeRow.same)
            .join(OutcomeRow, or_(one_way, other_way))
            .where(
                OutcomeRow.model == model, KeptDecision.model_id == model_id, KeptDecision.erased.is_(False)
            )
            .order_by(OutcomeRow.id.desc(), KeptDecision.id)
            .limit(limit)
        )
        if row.sides is not None
    ]


def erase_refs(
    session: Session, model: str, model_id: str | None, refs: Sequence[str]
) -> tuple[int, int, int]:
    """Erase what is kept under these names; returns numbers of decisions, items of reviews and outcomes."""
    reviews = select(ReviewRow.id).where(ReviewRow.model == model)
    outcomes = delete(OutcomeRow).where(OutcomeRow.model == model, _names(OutcomeRow, refs))
    return (
        _blank(session, KeptDecision, KeptDecision.model_id == model_id, _names(KeptDecision, refs)),
        _blank(session, ReviewItem, ReviewItem.review_id.in_(reviews), _names(ReviewItem, refs)),
        execute_change(session, outcomes),
    )


def erase_of_review(session: Session, review_id: str, refs: Sequence[str]) -> int:
    """Erase names from the items of a review; returns how many."""
    return _blank(session, ReviewItem, ReviewItem.review_id == review_id, _names(ReviewItem, refs))


def _names(
    table: type[KeptDecision] | type[ReviewItem] | type[OutcomeRow], refs: Sequence[str]
) -> ColumnElement[bool]:
    """Whether a pair has a side of some names."""
    return or_(table.left_ref.in_(refs), table.right_ref.in_(refs))


def erase_of_gallery(session: Session, gallery: str, ids: Sequence[str], subjects: Sequence[str]) -> int:
    """Erase decisions about items or subjects of a gallery; returns how many rows."""
    total = 0
    for start in range(0, max(len(ids), len(subjects)), 500):
        item_ids, subject_names = ids[start : start + 500], subjects[start : start + 500]
        for table in (KeptDecision, ReviewItem):
            about = or_(table.right_ref.in_(item_ids), table.subject.in_(subject_names))
            total += _blank(session, table, table.gallery == gallery, about)
    return total


def _blank(session: Session, table: type[KeptDecision] | type[ReviewItem], *where: Any) -> int:
    """Erase what says whom rows are about. They stay: what was counted must stay countable."""
    blank = {"left_ref": None, "right_ref": None, "subject": None, "sides": None, "erased": True}
    return execute_change(session, update(table).where(*where).values(**blank))
