"""The audit log: an entry for every change, committed with it, and never changed afterwards."""

import re
from functools import partial

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from pairmark.service.audit import Actor, acting_as
from pairmark.service.audit.log import AuditLog, record
from pairmark.service.errors import Conflict, InvalidInput
from pairmark.service.keys import Keys
from tests.service.conftest import of_all_pages

pytestmark = pytest.mark.each_database


@pytest.fixture
def audit(database):
    return AuditLog(database)


def actions(audit, **filters):
    """(action, resource) of every entry, oldest first."""
    return [(entry.action, entry.resource) for entry in reversed(audit.page(limit=200, **filters).items)]


def test_every_change_on_the_way_to_a_model_is_logged_by_who_made_it(deployment, audit):
    with acting_as(Actor(name="key abc", request_id="r-1")):
        version = deployment.train(promote="production")
        deployment.train(promote=False)
        deployment.store.promote("faces", "production", 2, actor="key abc", reason="canary held for a week")
        deployment.store.promote("faces", "production", 2, actor="key abc")
        deployment.store.delete("faces", 1)
        with pytest.raises(Conflict):
            deployment.store.delete("faces", 2)
    assert version == 1
    assert actions(audit, actor="system") == [("dataset.create", "dataset:people:1")]
    reported = actions(audit, actor="key abc")
    assert [action for action, _ in reported] == [
        "job.submit", "version.create", "alias.move", "job.end",
        "job.submit", "version.create", "job.end",
        "alias.move", "version.delete",
    ]  # fmt: skip
    assert reported[1][1] == "model:faces:1"
    moved = audit.page(action="alias.move").items[0]
    assert (moved.resource, moved.before) == ("model:faces@production", {"version": 1, "revision": 1})
    assert moved.after == {"version": 2, "revision": 2, "reason": "canary held for a week"}
    assert moved.request_id == "r-1"
    gone = audit.page(action="version.delete").items[0]
    assert (gone.after, gone.before["kind"]) == (None, "similarity-forest")


def test_keys_and_jobs_are_logged_without_their_secrets(deployment, audit, database):
    keys = Keys(database)
    made = keys.create("laptop", ["score"])
    keys.revoke(made.id)
    keys.revoke(made.id)
    job = deployment.queue.submit(deployment.request()).id
    deployment.queue.cancel(job)
    deployment.queue.cancel(job)
    deployment.datasets.delete("people")
    assert actions(audit)[1:] == [
        ("key.create", f"key:{made.id}"),
        ("key.revoke", f"key:{made.id}"),
        ("job.submit", f"job:{job}"),
        ("job.cancel", f"job:{job}"),
        ("dataset.delete", "dataset:people:1"),
    ]
    whole = audit.page(limit=200).model_dump_json()
    assert made.key not in whole
    assert made.key.removeprefix(f"pm_{made.id}_") not in whole


def test_an_entry_appears_with_its_change_or_not_at_all(database, audit):
    def broken():
        with database.write() as session:
            record(session, database.now(session), "thing.do", "thing:1")
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert audit.page().items == []


def test_entries_cannot_be_changed(database, audit):
    with database.write() as session:
        record(session, database.now(session), "thing.do", "thing:1", after={"n": 1})
    with pytest.raises(DBAPIError, match="cannot be changed"), database.write() as session:
        session.execute(text("UPDATE audit SET actor = 'nobody'"))
    assert [entry.actor for entry in audit.page().items] == ["system"]


def test_pages_and_filters(database, audit):
    names = ["model:a", "model:a:1", "model:a@production", "model:ab:1", "model:a_:1", "gallery:a"]
    with database.write() as session:
        for at, name in enumerate(names):
            record(session, 1_000.0 + at, "thing.make" if at % 2 else "thing.mend", name)
    assert {r for _, r in actions(audit, resource="model:a")} == set(names[:3])
    assert len(actions(audit, resource="model")) == 5
    assert len(actions(audit, action="thing")) == 6
    assert len(actions(audit, action="thing.make")) == 3
    assert actions(audit, action="thin") == []
    assert [r for _, r in actions(audit, since=1_004.0)] == names[4:]
    assert [entry.resource for entry in of_all_pages(partial(audit.page, limit=4))] == names[::-1]
    with pytest.raises(InvalidInput):
        audit.page(cursor="nonsense")


def test_old_entries_are_deleted_after_the_retention_and_that_is_logged(database, audit):
    with database.write() as session:
        now = database.now(session)
        record(session, now - 40 * 86_400, "thing.do", "thing:old")
        record(session, now - 20 * 86_400, "thing.do", "thing:new")
    assert audit.prune(30) == 1
    assert actions(audit) == [("thing.do", "thing:new"), ("audit.prune", "audit")]
    assert audit.prune(30) == 0
    last = audit.page().items[0]
    assert last.after == {"removed": 1, "older_than_days": 30}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", last.at)
