"""Reviews on both databases: what is kept, who gets which pair, what counts."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
from pydantic import ValidationError
from sqlalchemy import func, select, text, update

from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, PairmarkError, UnknownModel, UnknownReview
from pairmark.service.reviews.export import same_chance
from pairmark.service.reviews.progress import MAX_PARTS, Draw, breakdown, groups_of
from pairmark.service.reviews.recorder import DecisionRecorder
from pairmark.service.reviews.repository import Deciding
from pairmark.service.reviews.reviews import Reviews
from pairmark.service.reviews.schemas import ElsewhereRequest, Outcome, ReviewOut, ReviewRequest
from pairmark.service.runtime.vectors import VectorPairs
from pairmark.service.store import repository as store_repository
from pairmark.service.store.schemas import Policy, ReviewPolicy
from pairmark.service.tables import DecisionCount, KeptDecision, ModelRow, ReviewItem, ReviewJudgement
from tests.service.conftest import Deployment

pytestmark = pytest.mark.each_database

T = TypeVar("T")


@pytest.fixture
def reviews(database: Database, deployment_store: Any) -> Reviews:
    return Reviews(database, deployment_store)


@pytest.fixture
def deployment_store(database: Database, blobs: Any, settings: Any) -> Any:
    from pairmark.service.store.store import ModelStore

    return ModelStore(database, blobs, settings)


@pytest.fixture
def model_id(database: Database) -> str:
    with database.write() as session:
        model = store_repository.ensure_model(session, "faces", 1.0)
        model.reviews = {}
        return model.id


def asked(**changes: Any) -> ReviewRequest:
    given = {"source": {"model": "faces"}, "judged_twice": 0.0, **changes}
    return ReviewRequest.model_validate(given)


class Row(NamedTuple):
    """A judged item of a stratum."""

    stratum: int
    place: int


def test_equal_chances_are_made_of_unequal_ones() -> None:
    rows = (
        [Row(0, at) for at in range(40)] + [Row(1, at) for at in range(30)] + [Row(2, at) for at in range(9)]
    )
    picked = same_chance(rows, [400, 60, 900])
    assert picked == [*rows[:4], *rows[70:79]], "1 in 100 of each stratum, in the order of draws"
    assert same_chance(rows[:40], [400, 60, 0]) == []


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
        pairs=VectorPairs(sides, np.zeros_like(sides)),
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
        said = [Outcome(item=one.item, same=one.refs[0] != "wrong", by=by) for one in items]
        reviews.judge(review_id, said, "key:1")
    return reviews.get(review_id)


# ---------------------------------------------------------------- breakdown


def test_wrong_decisions_are_broken_down_by_both_records() -> None:
    sides = [
        {"left": {"country": "pt"}, "right": {"country": "pt"}},
        {"left": {"country": "pt"}, "right": {"country": "es"}},
        {"left": {"country": None}, "right": {"country": True}},
        {"left": {"name": "ana"}, "right": {}},
        {"left": [1.0], "right": [2.0]},
        None,
    ]
    groups = groups_of(sides, "country")
    assert groups == ["pt", "es / pt", "true", None, None, None]
    draws = [Draw(0, wrong) for wrong in (True, False, None, True, True, True)]
    assert breakdown(draws, groups) == [
        {"of": "es / pt", "judged": 1, "wrong": 0},
        {"of": "pt", "judged": 1, "wrong": 1},
    ]


def test_a_breakdown_has_the_parts_that_were_judged_most() -> None:
    keys = [f"{part:03}" for part in range(2 * MAX_PARTS) for _ in range(1 + part % 2)]
    parts = breakdown([Draw(0, False)] * len(keys), keys)
    assert [part["of"] for part in parts] == [f"{part:03}" for part in range(1, 2 * MAX_PARTS, 2)]


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("n", [1, 3])
def test_a_tiny_population_is_judged_whole(reviews: Reviews, n: int) -> None:
    made = reviews.create(asked(source={"refs": pairs(n)}))
    assert (made.population, made.bound, made.enough, made.exhausted) == (n, 1.0, False, False)
    done = judge_all(reviews, made.id)
    assert (done.judged, done.wrong, done.bound, done.enough, done.exhausted) == (n, 0, 0.0, True, True)


def test_a_population_of_none_is_refused(reviews: Reviews, model_id: str) -> None:
    with pytest.raises(InvalidInput, match="no such decision"):
        reviews.create(asked(source={"model": "faces"}))
    for source in ({"refs": []}, {"refs": pairs(2), "matches": [False, False]}):
        with pytest.raises(
            InvalidInput, match=r"source\.refs holds no pair that matched; expected at least one"
        ):
            reviews.create(asked(source=source))
    with pytest.raises(UnknownModel):
        reviews.create(asked(source={"model": "nobody"}))
    with pytest.raises(InvalidInput, match="until"):
        reviews.create(
            asked(source={"model": "faces", "since": "2026-01-02T00:00Z", "until": "2026-01-01T00:00Z"})
        )


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"model": "faces", "gallery": "people"},
        {"refs": pairs(2), "scores": [1.0]},
        {"refs": [["a"]]},
        {"refs": [["a", "b\x00"]]},
        {"refs": [["a", "b\u202e"]]},
        {"refs": [["a", "x" * 10_000]]},
        {"refs": pairs(1), "since": "2026-01-01T00:00Z"},
    ],
)
def test_sources_that_make_no_sense_are_refused(source: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        asked(source=source)


def test_below_one_and_a_half_in_n_everything_has_to_be_right(reviews: Reviews) -> None:
    """At most 1 % of 20 is none: the bound is low enough only when all are judged."""
    made = reviews.create(asked(source={"refs": pairs(20)}, at_most=0.01))
    for n in range(20):
        (item,) = reviews.next(made.id, "ada", 1).items
        found = reviews.judge(made.id, [Outcome(item=item.item, same=True)], "ada")
        assert found.enough == (n == 19)


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
    # Somebody else's word on it measures agreement and changes nothing that counts.
    found = reviews.judge(made.id, [Outcome(item=item.item, same=False)], "bob")
    assert (found.judged, found.wrong, found.agreement.pairs, found.agreement.agreed) == (1, 0, 1, 0)


def test_judgements_wait_for_pairs_drawn_before(reviews: Reviews) -> None:
    """Hard pairs take longer. If judgements counted as they come, easy ones would count first."""
    made = reviews.create(asked(source={"refs": pairs(300)}))
    (hard,) = reviews.next(made.id, "slow", 1).items
    easy = reviews.next(made.id, "quick", 100).items
    found = reviews.judge(made.id, [Outcome(item=one.item, same=True) for one in easy], "quick")
    assert (found.judged, found.waiting, found.bound) == (0, 100, 1.0)
    found = reviews.judge(made.id, [Outcome(item=hard.item, same=None)], "slow")
    assert (found.judged, found.waiting, found.wrong) == (101, 0, 1)


def test_what_a_reviewer_leaves_goes_to_the_next(reviews: Reviews, database: Database) -> None:
    made = reviews.create(asked(source={"refs": pairs(100)}))
    first = [one.item for one in reviews.next(made.id, "ada", 5).items]
    assert [one.item for one in reviews.next(made.id, "ada", 5).items] == first, "asked again: the same ones"
    assert not set(first) & {one.item for one in reviews.next(made.id, "bob", 5).items}
    with database.write() as session:
        session.execute(update(ReviewItem).where(ReviewItem.holder == "ada").values(held_until=1.0))
    assert [one.item for one in reviews.next(made.id, "cyd", 5).items] == first


# ---------------------------------------------------------------- what counts


def test_a_review_of_what_is_kept(reviews: Reviews, database: Database, model_id: str) -> None:
    record(database, model_id, 400, wrong=3, sides=True)
    made = reviews.create(asked())
    assert made.population == 400
    assert made.question == "false-matches"
    (item,) = reviews.next(made.id, "ada", 1).items
    assert item.decision == "match"
    assert item.left == [float(item.refs[1][1:])]
    done = judge_all(reviews, made.id)
    assert done.enough
    assert done.bound <= 0.02
    assert done.wrong / 400 <= 3 / 400 <= done.bound
    assert done.judged < 400
    assert done.curve[-1] == (done.judged, done.bound)
    assert "of 400 matches are false" in done.statement
    assert reviews.statements_of_version("faces", 1) == [done.statement]
    assert not reviews.next(made.id, "ada", 1).items, "it is enough: nobody need judge more"


def test_hours_with_too_many_are_thinned_evenly(reviews: Reviews, database: Database, model_id: str) -> None:
    recorder = record(database, model_id, 2_000, per_hour=100)
    with database.read() as session:
        keys = list(session.scalars(select(KeptDecision.key)))
        counts = session.execute(select(func.sum(DecisionCount.count), func.min(DecisionCount.chance))).one()
    assert counts[0] == 2_000
    assert math.log2(counts[1]).is_integer()
    assert 20 <= len(keys) <= 100
    assert max(keys) < counts[1]
    # What comes later in the hour, from a process that does not know yet, is held to the same chance.
    record(database, model_id, 200, per_hour=100)
    take(recorder, model_id, 50, ReviewPolicy(per_hour=100))
    write(recorder)
    made = reviews.create(asked())
    assert made.population == 2_250
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(KeptDecision)) <= 100
        lowest = session.scalar(select(func.min(DecisionCount.chance)))
        assert session.scalar(select(func.max(KeptDecision.key))) < lowest


def test_a_share_is_a_sample_of_all_that_is_counted(
    reviews: Reviews, database: Database, model_id: str
) -> None:
    record(database, model_id, 3_000, share=0.1)
    made = reviews.create(asked())
    assert made.population == 3_000
    with database.read() as session:
        kept = session.scalar(select(func.count()).select_from(KeptDecision))
        items = session.scalar(select(func.count()).select_from(ReviewItem))
    assert 200 <= kept <= 400
    assert items == kept
    done = judge_all(reviews, made.id, 17)
    assert done.judged == 170
    assert 0.01 < done.bound <= 0.02


def test_every_decision_has_the_same_chance_to_be_kept(database: Database, model_id: str) -> None:
    """Of requests of 1 to 7 pairs; the chance is halved twice on the way. 400 processes, 90 decisions each."""
    times, total, policy = np.zeros(90), 0, ReviewPolicy(share=0.9, per_hour=30)
    for _ in range(400):
        recorder, place = DecisionRecorder(database), 0
        for at in range(24):
            n = at % 7 + 1
            take(recorder, model_id, n, policy, refs=[[str(place + k), "b"] for k in range(n)])
            place += n
        (hour,) = recorder.drain(closing=True)
        assert place * hour.chance <= 30 < 2 * place * hour.chance
        assert hour.chance == 0.9 / 4
        assert all(row.key < hour.chance for row in hour.rows)
        for row in hour.rows:
            times[int(row.left_ref or 0)] += 1
        total += len(hour.rows)
    mean = 400 * 0.9 / 4
    spread = math.sqrt(mean * (1 - 0.9 / 4))
    assert abs(total - 90 * mean) < 4 * spread * math.sqrt(90)
    assert np.abs(times - mean).max() < 4.5 * spread


def test_keys_are_uniform_below_the_chance(database: Database, model_id: str) -> None:
    recorder = DecisionRecorder(database)
    for _ in range(300):
        take(recorder, model_id, 40, ReviewPolicy(share=0.25))
    (hour,) = recorder.drain(closing=True)
    keys = np.sort([row.key for row in hour.rows])
    assert hour.chance * 12_000 / 4 < 12_000 * 0.25 * 0.9, "the hour has more than the policy keeps"
    grid = hour.chance * np.arange(1, keys.size + 1) / keys.size
    assert np.abs(keys - grid).max() / hour.chance < 2 / math.sqrt(keys.size), "Kolmogorov and Smirnov"


@pytest.mark.parametrize("share", [1.0, 1e-12])
def test_when_decisions_are_written_does_not_depend_on_what_is_kept(
    database: Database, model_id: str, share: float
) -> None:
    """What a killed process loses would be no random part of them otherwise."""
    recorder = DecisionRecorder(database)
    written = []
    for _ in range(6):
        take(recorder, model_id, 3, ReviewPolicy(share=share))
        written.append(sum(sum(map(sum, hour.counts.values())) for hour in recorder.drain()))
    assert written == [0, 0, 9, 0, 0, 9]


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


def test_uncertain_pairs_are_chosen_and_never_mixed_with_random_ones(
    reviews: Reviews, database: Database, model_id: str
) -> None:
    recorder = DecisionRecorder(database)
    refs = [[["different", "match", "doubt"][at % 3], f"b{at}"] for at in range(300)]
    take(recorder, model_id, 300, ReviewPolicy(), decisions=[at % 3 for at in range(300)], refs=refs)
    write(recorder)
    kinds = {"false-matches": {"match"}, "missed-matches": {"match", "different"}, "uncertain": {"doubt"}}
    for question, expected in kinds.items():
        made = reviews.create(asked(question=question))
        assert made.chosen == (question == "uncertain")
        assert made.population == 100 * len(expected)
        items = reviews.next(made.id, "ada", 100).items
        assert {one.refs[0] for one in items} == expected
        said = [Outcome(item=one.item, same=None) for one in items]
        found = reviews.judge(made.id, said, "ada")
        assert found.judged == len(items)
        if found.chosen:
            assert (found.bound, found.wrong, found.enough, found.alarm) == (1.0, 0, False, False)
            assert found.exhausted
            assert "no bound follows" in found.statement
            assert reviews.statements_of_version("faces", 1) == []


def test_decisions_of_a_deleted_model_are_dropped(database: Database, model_id: str) -> None:
    recorder = DecisionRecorder(database)
    take(recorder, model_id, 1, ReviewPolicy())
    with database.write() as session:
        session.delete(session.get(ModelRow, model_id))
    write(recorder)


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
        said = [
            Outcome(item=one.item, same=one.decision == "match" or one.refs[0] == "same") for one in items
        ]
        found = reviews.judge(made.id, said, "ada")
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
    after = reviews.create(asked(at_most=0.001))
    for one in (made, before, after):
        done = judge_all(reviews, one.id)
        assert (done.population, done.judged, done.wrong) == (60, 60, 1)


def test_an_erasure_in_a_gallery_reaches_its_decisions(database: Database, model_id: str) -> None:
    from pairmark.service.reviews.repository import erase_of_gallery

    recorder = DecisionRecorder(database)
    take(
        recorder,
        model_id,
        3,
        ReviewPolicy(),
        refs=[["probe", "item-1"], ["probe", "item-2"], [None, "item-3"]],
        gallery="people",
        subjects=["eve", "ada", "ada"],
    )
    write(recorder)
    with database.write() as session:
        assert erase_of_gallery(session, "cars", ["item-1"], ["ada"]) == 0
        assert erase_of_gallery(session, "people", ["item-1"], []) == 1
        assert erase_of_gallery(session, "people", [], ["ada"]) == 2
        assert set(session.scalars(select(KeptDecision.left_ref))) == {None}


# ---------------------------------------------------------------- several at once, and what follows


def again(call: Callable[[], T]) -> T:
    """As clients do when the service answers 503: they ask again."""
    for _ in range(20):
        try:
            return call()
        except PairmarkError:
            time.sleep(0.05)
    return call()


def end_connections(database: Database) -> None:
    """What a restart of the database does to those who are connected."""
    if database.engine.dialect.name == "postgresql":
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        with database.write() as session:
            session.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))


def test_twenty_reviewers_at_once_never_judge_a_pair_twice(reviews: Reviews, database: Database) -> None:
    """One leaves, and the database restarts in between."""
    made = reviews.create(asked(source={"refs": pairs(600)}, at_most=0.001, judged_twice=0.1))
    failed: list[BaseException] = []
    restarted = threading.Event()

    def work(name: str) -> None:
        try:
            for turn in range(3):
                if turn == 2:
                    restarted.wait(60)
                items = again(lambda: reviews.next(made.id, name, 5)).items
                if name == "leaver":
                    return
                said = [Outcome(item=one.item, same=True, by=name) for one in items]
                again(lambda said=said: reviews.judge(made.id, said, "key"))
        except BaseException as error:
            failed.append(error)

    names = [f"reviewer {at}" for at in range(19)] + ["leaver"]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    end_connections(database)
    restarted.set()
    for thread in threads:
        thread.join()
    assert not failed
    with database.read() as session:
        said = Counter(session.scalars(select(ReviewJudgement.item_id)))
        twice = set(session.scalars(select(ReviewItem.id).where(ReviewItem.needs_second)))
        draws = list(
            session.scalars(
                select(ReviewItem.draw).where(ReviewItem.draw.is_not(None)).order_by(ReviewItem.draw)
            )
        )
    assert draws == list(range(len(draws)))
    assert sum(said.values()) == 19 * 15, "every judgement that was acknowledged is there"
    assert {item for item, n in said.items() if n > 1} <= twice
    assert max(said.values()) <= 2
    with database.write() as session:
        session.execute(update(ReviewItem).where(ReviewItem.holder == "leaver").values(held_until=1.0))
    done = judge_all(reviews, made.id, by="heir")
    assert (done.enough, done.waiting) == (True, 0)
    assert done.judged > 500
    assert done.agreement.pairs > 0


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


def test_an_alarm_moves_production_back_where_the_policy_says_so(deployment: Deployment) -> None:
    store, db = deployment.store, deployment.db
    first, second = deployment.train(), deployment.train()
    store.promote("faces", "production", second, by="test")
    store.set_policy("faces", Policy(reviews=ReviewPolicy(fall_back=True)))
    assert store.model("faces").policy.allow_asymptotic is None
    with db.read() as session:
        model_id = session.scalar(select(ModelRow.id))
    recorder = DecisionRecorder(db)
    n = 500
    refs = [["wrong" if random.Random(at).random() < 0.3 else "right", "b"] for at in range(n)]
    take(recorder, model_id, n, ReviewPolicy(), version=second, refs=refs)
    write(recorder)
    reviews = Reviews(db, store)
    done = judge_all(reviews, reviews.create(asked()).id, 12)
    assert done.alarm
    assert done.alarm_at is not None
    assert not done.enough
    assert store.alias("faces", "production").version == first
    (stamp,) = reviews.statements_of_version("faces", second)
    assert "more than 2 % are" in stamp
    assert reviews.statements_of_version("faces", first) == []
    assert store.history("faces", "production").items[0].by == f"review:{done.id}"
    store.set_policy("faces", Policy(reviews=None))
    with db.read() as session:
        for table in (KeptDecision, DecisionCount):
            assert session.scalar(select(func.count()).select_from(table)) == 0, "off: nothing stays"
    assert reviews.get(done.id).judged == done.judged


def test_a_review_is_of_one_version_where_it_says_so(
    reviews: Reviews, database: Database, model_id: str
) -> None:
    recorder = DecisionRecorder(database)
    for version, n in ((1, 20), (2, 30)):
        take(recorder, model_id, n, ReviewPolicy(), version=version)
    write(recorder)
    for version, n in ((1, 20), (2, 30), (None, 50)):
        source = {"model": "faces", **({} if version is None else {"version": version})}
        assert reviews.create(asked(source=source)).population == n
    done = judge_all(reviews, reviews.create(asked(source={"model": "faces", "version": 2})).id)
    assert reviews.statements_of_version("faces", 2) == [done.statement]
    assert reviews.statements_of_version("faces", 1) == []
