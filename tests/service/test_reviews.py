"""Reviews on both databases: what is kept, who gets which pair, what counts."""

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pytest
from pydantic import ValidationError
from sqlalchemy import func, select, update

from pairmark.schemas.models import Policy, ReviewPolicy
from pairmark.schemas.reviews import ElsewhereRequest, Outcome, ReviewOut, ReviewRequest
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput, UnknownReview
from pairmark.service.reviews import decisions
from pairmark.service.reviews.decisions import DecisionRecorder
from pairmark.service.reviews.repository import Deciding
from pairmark.service.reviews.reviews import Reviews
from pairmark.service.scoring.requests import PairRequest
from pairmark.service.store.versions import ensure_model
from pairmark.service.tables import (
    DecisionCount,
    KeptDecision,
    ModelRow,
    ReviewItem,
    ReviewJudgement,
    ReviewRow,
)
from tests.service.conftest import Deployment

pytestmark = pytest.mark.each_database

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions are kept by the hour; a test does not go on in the next."""
    now = time.time()
    monkeypatch.setattr(decisions, "time", SimpleNamespace(time=lambda: now, monotonic=time.monotonic))


@pytest.fixture
def reviews(database: Database) -> Reviews:
    return Reviews(database)


@pytest.fixture
def model_id(database: Database) -> str:
    with database.write() as session:
        model = ensure_model(session, "faces", 1.0)
        model.reviews = {}
        return model.id


def asked(**changes: Any) -> ReviewRequest:
    return ReviewRequest.model_validate({"source": {"model": "faces"}, **changes})


def pairs(n: int) -> list[list[str]]:
    return [[f"a{at}", f"b{at}"] for at in range(n)]


def record(database: Database, model_id: str, n: int, *, wrong: int = 0, **policy: Any) -> DecisionRecorder:
    """``n`` matches, of which the ``wrong`` that score lowest are about different people."""
    recorder = DecisionRecorder(database)
    take(recorder, model_id, n, ReviewPolicy(**policy), wrong=wrong)
    write(recorder)
    return recorder


def take(
    recorder: DecisionRecorder, model_id: str, n: int, policy: ReviewPolicy, *, wrong: int = 0, **more: Any
) -> None:
    decisions = more.pop("decisions", [1] * n)
    refs = more.pop("refs", [["wrong" if at < wrong else "right", f"b{at}"] for at in range(n)])
    sides = np.arange(n, dtype=np.float32).reshape(-1, 1)
    recorder.record(
        Deciding(model_id, more.pop("version", 1), more.pop("gallery", "")),
        policy,
        [decisions.count(code) for code in range(3)],
        lambda: decisions,
        [1.0 + at / n for at in range(n)],
        0.9,
        sides=PairRequest(sides, np.zeros_like(sides)).as_sent,
        refs=refs,
        **more,
    )


def write(recorder: DecisionRecorder) -> None:
    recorder.apply_chances(recorder.write(recorder.drain(closing=True)))


def judge_all(reviews: Reviews, review_id: str, most: int = 10_000, by: str = "ada") -> ReviewOut:
    for _ in range(most):
        items = reviews.next(review_id, by, 10).items
        if not items:
            break
        reviews.judge(
            review_id, [Outcome(item=one.item, same=one.refs[0] != "wrong", by=by) for one in items], "key:1"
        )
    return reviews.get(review_id)


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("n", [1, 3])
def test_a_tiny_population_is_judged_whole(reviews: Reviews, n: int) -> None:
    made = reviews.create(asked(source={"refs": pairs(n)}))
    assert (made.population, made.bound, made.enough, made.exhausted) == (n, 1.0, False, False)
    done = judge_all(reviews, made.id)
    assert (done.judged, done.wrong, done.bound, done.enough, done.exhausted) == (n, 0, 0.0, True, True)


def test_pairs_to_label_come_best_first_in_turn_and_bound_nothing(reviews: Reviews) -> None:
    made = reviews.create(asked(source={"refs": pairs(40)}, question="label"))
    items = reviews.next(made.id, "ada", 40).items
    now = reviews.judge(made.id, [Outcome(item=one.item, same=False) for one in items], "key:1")
    assert (now.judged, now.wrong, now.bound, now.enough, now.alarm) == (40, 0, None, False, False)
    assert "40 of 40 pairs are labeled" in now.statement


def test_pairs_of_a_reviewer_who_left_count_as_wrong_and_hold_nothing_up(
    reviews: Reviews, database: Database
) -> None:
    made = reviews.create(asked(source={"refs": pairs(4_000)}))
    left_behind = reviews.next(made.id, "bob", 10).items
    items = reviews.next(made.id, "ada", 100).items
    now = reviews.judge(made.id, [Outcome(item=one.item, same=True, by="ada") for one in items], "key:1")
    assert (now.judged, now.held, now.wrong, now.waiting) == (100, 10, 10, 0)
    assert 0.09 < now.bound < 0.35
    with database.write() as session:
        session.execute(update(ReviewItem).where(ReviewItem.holder == "bob").values(held_until=0.0))
    again = reviews.next(made.id, "eve", 10).items
    assert [one.item for one in again] == [one.item for one in left_behind]
    now = reviews.judge(made.id, [Outcome(item=one.item, same=True, by="eve") for one in again], "key:1")
    assert (now.judged, now.held, now.wrong) == (110, 0, 0)
    assert now.bound < 0.06


def test_only_what_was_handed_out_can_be_judged(reviews: Reviews, database: Database) -> None:
    made, other = (reviews.create(asked(source={"refs": pairs(5)})) for _ in range(2))
    (item,) = reviews.next(other.id, "ada", 1).items
    with database.read() as session:
        undrawn = session.scalar(
            select(ReviewItem.id).where(ReviewItem.review_id == made.id, ReviewItem.draw.is_(None))
        )
    for name in (item.item, str(undrawn), "nobody", "\x00"):
        with pytest.raises(InvalidInput, match="not handed out"):
            reviews.judge(made.id, [Outcome(item=name, same=True)], "ada")
    assert reviews.get(made.id).judged == 0
    for name in ("nobody", "\x00"):
        with pytest.raises(UnknownReview):
            reviews.get(name)


def test_who_repeats_or_changes_a_judgement_counts_once(reviews: Reviews) -> None:
    made = reviews.create(asked(source={"refs": pairs(50)}))
    (item,) = reviews.next(made.id, "ada", 1).items
    for same, wrong in ((True, 0), (True, 0), (False, 1), (None, 1), (True, 0)):
        found = reviews.judge(made.id, [Outcome(item=item.item, same=same)] * 2, "ada")
        assert (found.judged, found.wrong) == (1, wrong)
    # Somebody else's word on it changes nothing that counts.
    found = reviews.judge(made.id, [Outcome(item=item.item, same=False)], "bob")
    assert (found.judged, found.wrong) == (1, 0)


def test_a_review_that_drew_by_strata_is_made_anew(reviews: Reviews, database: Database) -> None:
    made = reviews.create(asked(source={"refs": pairs(5)}))
    with database.write() as session:
        review = session.get_one(ReviewRow, made.id)
        review.strata = [{"decision": 1, "size": 1, "items": 1}, {"decision": 1, "size": 4, "items": 4}]
    with pytest.raises(Conflict, match="POST /reviews"):
        reviews.next(made.id, "ada", 1)
    assert reviews.get(made.id).population == 5


# ---------------------------------------------------------------- what counts


def test_a_review_of_what_is_kept(reviews: Reviews, database: Database, model_id: str) -> None:
    record(database, model_id, 400, wrong=3, sides=True)
    made = reviews.create(asked())
    assert (made.population, made.question) == (400, "false-matches")
    (item,) = reviews.next(made.id, "ada", 1).items
    assert (item.decision, item.left) == ("match", [float(item.refs[1][1:])])
    done = judge_all(reviews, made.id)
    assert done.enough
    assert done.bound <= 0.02
    assert done.wrong / 400 <= 3 / 400 <= done.bound
    assert done.judged < 400
    assert "of 400 matches are false" in done.statement
    assert reviews.statements_of_version("faces", 1) == [done.statement]
    assert not reviews.next(made.id, "ada", 1).items, "it is enough: nobody need judge more"


def test_a_large_population_keeps_a_bounded_sample(
    reviews: Reviews, database: Database, model_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(database, model_id, 400, sides=True)
    monkeypatch.setattr(decisions, "MOST_SAMPLED", 200)
    monkeypatch.setattr(decisions, "MAX_SIDES_BYTES", 1_000)
    made = reviews.create(asked())
    assert made.population == 400
    done = judge_all(reviews, made.id)
    with database.read() as session:
        items = list(session.scalars(select(ReviewItem).where(ReviewItem.review_id == made.id)))
    assert sum(len(json.dumps(one.sides, separators=(",", ":"))) for one in items) <= 1_000
    assert done.exhausted
    assert 10 < done.judged == len(items) < 40


def test_hours_with_too_many_are_thinned_evenly(reviews: Reviews, database: Database, model_id: str) -> None:
    recorder = record(database, model_id, 2_000, per_hour=100)
    with database.read() as session:
        keys = list(session.scalars(select(KeptDecision.key)))
        counts = session.execute(select(func.sum(DecisionCount.count), func.min(DecisionCount.chance))).one()
    assert counts[0] == 2_000
    assert math.log2(counts[1]).is_integer()
    # 62 are expected, and drawn by the system's entropy: beyond these limits once in 10^11 times.
    assert 15 <= len(keys) <= 125
    assert max(keys) < counts[1]
    # What comes later in the hour, from a process that does not know yet, is held to the same chance.
    record(database, model_id, 200, per_hour=100)
    take(recorder, model_id, 50, ReviewPolicy(per_hour=100))
    write(recorder)
    assert reviews.create(asked()).population == 2_250
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(KeptDecision)) <= 140
        lowest = session.scalar(select(func.min(DecisionCount.chance)))
        assert session.scalar(select(func.max(KeptDecision.key))) < lowest


def test_every_decision_has_the_same_chance_to_be_kept(new_database: Callable[..., str]) -> None:
    """Of requests of 1 to 7 pairs; the chance is halved twice on the way. 400 processes, 90 decisions each."""
    times, total, policy = np.zeros(90), 0, ReviewPolicy(share=0.9, per_hour=30)
    # No process writes: any database will do.
    database = Database(new_database("sqlite"))
    for _ in range(400):
        recorder, place = DecisionRecorder(database), 0
        for at in range(24):
            n = at % 7 + 1
            take(recorder, "m", n, policy, refs=[[str(place + k), "b"] for k in range(n)])
            place += n
        (hour,) = recorder.drain(closing=True)
        assert place * hour.chance <= 30 < 2 * place * hour.chance
        assert hour.chance == 0.9 / 4
        assert all(row["key"] < hour.chance for row in hour.rows)
        for row in hour.rows:
            times[int(row["left_ref"] or 0)] += 1
        total += len(hour.rows)
    mean = 400 * 0.9 / 4
    spread = math.sqrt(mean * (1 - 0.9 / 4))
    # Drawn by the system's entropy: even the largest of 90 is so far off once in 10^8 times.
    assert abs(total - 90 * mean) < 6 * spread * math.sqrt(90)
    assert np.abs(times - mean).max() < 6.5 * spread


def test_old_decisions_are_forgotten(database: Database, model_id: str) -> None:
    with database.write() as session:
        session.execute(update(ModelRow).values(reviews={"days": 1}))
    record(database, model_id, 5)
    with database.write() as session:
        session.execute(update(KeptDecision).values(hour=5))
        session.execute(update(DecisionCount).values(hour=5))
    record(database, model_id, 2).forget()
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(KeptDecision)) == 2
        assert session.scalar(select(func.sum(DecisionCount.count))) == 2
    # Without a policy nothing is kept, and what other processes still hold is not written.
    recorder = DecisionRecorder(database)
    take(recorder, model_id, 3, ReviewPolicy())
    with database.write() as session:
        session.execute(update(ModelRow).values(reviews=None))
    write(recorder)
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(KeptDecision)) == 2


def test_a_deleted_review_leaves_nothing(reviews: Reviews, database: Database) -> None:
    made, other = (reviews.create(asked(source={"refs": pairs(30)})) for _ in range(2))
    for one in (made, other):
        judge_all(reviews, one.id, 1)
    reviews.delete(made.id)
    with pytest.raises(UnknownReview):
        reviews.get(made.id)
    assert reviews.get(other.id).judged == 10
    with database.read() as session:
        for table in (ReviewItem, ReviewJudgement):
            assert set(session.scalars(select(table.review_id))) == {other.id}


def test_each_question_draws_its_own_decisions(reviews: Reviews, database: Database, model_id: str) -> None:
    recorder = DecisionRecorder(database)
    refs = [[["different", "match", "doubt"][at % 3], f"b{at}"] for at in range(300)]
    take(recorder, model_id, 300, ReviewPolicy(), decisions=[at % 3 for at in range(300)], refs=refs)
    write(recorder)
    for question, expected in {"false-matches": {"match"}, "missed-matches": {"match", "different"}}.items():
        made = reviews.create(asked(question=question))
        assert made.population == 100 * len(expected)
        items = reviews.next(made.id, "ada", 100).items
        assert {one.refs[0] for one in items} == expected
        said = [Outcome(item=one.item, same=None) for one in items]
        assert reviews.judge(made.id, said, "ada").judged == len(items)


def test_missed_matches(reviews: Reviews) -> None:
    refs = pairs(400)
    for at in (201, 202):
        refs[at][0] = "same"
    source = {
        "refs": refs,
        "matches": [at < 200 for at in range(400)],
        "scores": [400.0 - at for at in range(400)],
    }
    made = reviews.create(asked(source=source, question="missed-matches", at_most=0.05))
    assert (made.population, made.bound) == (400, 1.0)
    for _ in range(60):
        items = reviews.next(made.id, "ada", 10).items
        if not items:
            break
        found = reviews.judge(
            made.id,
            [Outcome(item=one.item, same=one.decision == "match" or one.refs[0] == "same") for one in items],
            "ada",
        )
    assert found.enough
    assert 2 / 202 <= found.bound <= 0.05
    assert found.judged < 400


def test_erased_names_count_as_wrong_and_are_gone(
    reviews: Reviews, database: Database, model_id: str
) -> None:
    record(database, model_id, 60, sides=True)
    made = reviews.create(asked(at_most=0.001))
    before = reviews.create(asked(at_most=0.001))
    gone = reviews.erase("faces", ["b7", "nobody"])
    assert (gone.decisions, gone.items, gone.outcomes) == (1, 2, 0)
    with database.read() as session:
        for table in (KeptDecision, ReviewItem):
            erased: Sequence[Any] = session.scalars(select(table).where(table.erased)).all()
            assert {(row.left_ref, row.right_ref, row.sides) for row in erased} == {(None, None, None)}
            assert not session.scalars(select(table).where(table.right_ref == "b7")).all()
    for one in (made, before, reviews.create(asked(at_most=0.001))):
        done = judge_all(reviews, one.id)
        assert (done.population, done.judged, done.wrong) == (60, 60, 1)


# ---------------------------------------------------------------- several at once, and what follows


def test_no_side_is_judged_against_itself() -> None:
    with pytest.raises(ValidationError, match=r"refs\[1\] pairs 'b' with itself"):
        asked(source={"refs": [["a", "b"], ["b", "b"]]})
    with pytest.raises(ValidationError, match=r"outcomes\.0\s+Value error, 'b' is paired with itself"):
        ElsewhereRequest.model_validate(
            {"model": "people", "outcomes": [{"left": "b", "right": "b", "same": True}]}
        )


def test_what_nobody_can_tell_raises_the_bound_and_no_alarm(reviews: Reviews) -> None:
    made = []
    for same, alarm in ((None, False), (False, True)):
        one = reviews.create(asked(source={"refs": pairs(400)}))
        items = reviews.next(one.id, "ada", 40).items
        found = reviews.judge(one.id, [Outcome(item=item.item, same=same) for item in items], "ada")
        assert (found.wrong, found.alarm, found.enough) == (40, alarm, False)
        made.append(found)
    assert made[0].bound == made[1].bound


def test_outcomes_from_elsewhere_bound_nothing(reviews: Reviews, database: Database, model_id: str) -> None:
    record(database, model_id, 50)
    made = reviews.create(asked())
    told = [{"left": f"b{at}", "right": "right", "same": at % 2 == 0} for at in range(50)]
    found = reviews.report_outcomes(
        ElsewhereRequest.model_validate({"model": "faces", "outcomes": told}), "key:1"
    )
    assert (found.stored, found.contradicted) == (50, 25)
    now = reviews.get(made.id)
    assert (now.judged, now.bound, now.alarm) == (0, 1.0, False)


def test_an_alarm_is_of_the_version_that_decided(deployment: Deployment) -> None:
    store, db = deployment.store, deployment.db
    first, second = deployment.train(), deployment.train()
    store.set_policy("faces", Policy(reviews=ReviewPolicy()))
    with db.read() as session:
        model_id = session.scalar(select(ModelRow.id))
    recorder = DecisionRecorder(db)
    n = 500
    refs = [["wrong" if random.Random(at).random() < 0.3 else "right", "b"] for at in range(n)]
    take(recorder, model_id, n, ReviewPolicy(), version=second, refs=refs)
    write(recorder)
    reviews = Reviews(db)
    done = judge_all(reviews, reviews.create(asked()).id, 12)
    assert done.alarm
    assert done.alarm_at is not None
    assert not done.enough
    (stamp,) = reviews.statements_of_version("faces", second)
    assert "more than 2 % are" in stamp
    assert reviews.statements_of_version("faces", first) == []
    store.set_policy("faces", Policy(reviews=None))
    with db.read() as session:
        for table in (KeptDecision, DecisionCount):
            assert session.scalar(select(func.count()).select_from(table)) == 0, "off: nothing stays"
    assert reviews.get(done.id).judged == done.judged
