"""API keys on both databases, and the audit log: an entry for every change, committed with it."""

import re
import time
from functools import partial

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from pairmark.schemas.admin import Level
from pairmark.service.audit import Actor, acting_as
from pairmark.service.audit.log import AuditLog, record
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput, UnknownKey
from pairmark.service.keys import (
    ActiveKey,
    Grants,
    Keys,
    Sessions,
    active_keys,
    active_sessions,
    match_key,
    session_hash,
)
from pairmark.service.tables import ModelRow, Revision
from tests.service.conftest import of_all_pages

pytestmark = pytest.mark.each_database


@pytest.fixture
def keys(database: Database) -> Keys:
    return Keys(database)


def revision(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(Revision.value)) or 0


def verify(keys: Keys, key: str) -> ActiveKey | None:
    with keys._db.read() as session:
        return match_key(active_keys(session), key)


def test_a_key_works_until_it_is_revoked(keys: Keys) -> None:
    made = keys.create("ci", ["train", "score"])
    found = verify(keys, made.key)
    assert (found.id, found.name) == (made.id, "ci")
    assert found.grants.allows("score")
    assert not found.grants.allows("admin")
    revoked = keys.revoke(made.id)
    assert revoked.revoked_at is not None
    assert verify(keys, made.key) is None
    assert keys.revoke(made.id) == revoked


def test_a_resource_that_does_not_exist_is_told_with_names_like_it(keys: Keys, database: Database) -> None:
    with database.write() as session:
        session.add_all([ModelRow(id=name, name=name, created_at=1.0) for name in ("people", "a/peoples")])
    assert keys.create("ci", ["score:people", "admin", "gallery:*:read"]).warnings == []
    (warning,) = keys.create("ci", ["score:peple"]).warnings
    assert warning == "score:peple: there is no 'peple' yet; did you mean people or a/peoples?"
    # A tenant hears of no other's names.
    (warning,) = keys.create("ci", ["gallery:b/people"], tenant="b").warnings
    assert "people or" not in warning


def test_the_key_itself_is_nowhere_in_the_database(keys: Keys, database: Database) -> None:
    made = keys.create("ci", ["score"])
    with database.read() as session:
        stored = repr(session.execute(text("SELECT * FROM api_keys")).all())
    assert made.key not in stored
    assert made.key.split("_", 2)[2] not in stored


def test_any_change_to_a_key_is_refused(keys: Keys) -> None:
    made = keys.create("ci", ["score"])
    other = keys.create("other", ["admin"])
    swapped = f"pm_{other.id}_{made.key.split('_', 2)[2]}"
    flipped = made.key[:-1] + ("A" if made.key[-1] != "A" else "B")
    for wrong in ("", "pm_", made.key[:-1], made.key + "x", flipped, swapped, made.id, "é" * 60, "\ud800"):
        assert verify(keys, wrong) is None


def test_what_is_wrong_is_said(keys: Keys) -> None:
    scopes = "'root' is not a scope; expected some of score, decide, gallery, train, import, admin"
    for name, asked, said in (
        ("ci", ["root"], scopes),
        ("ci", [], "none was given"),
        (" ", ["score"], "name"),
    ):
        with pytest.raises(InvalidInput, match=said):
            keys.create(name, asked)
    with pytest.raises(UnknownKey):
        keys.revoke("nobody")
    assert keys.list() == []


@pytest.mark.parametrize(
    ("grants", "scope", "resource", "level", "allowed"),
    [
        (["score"], "score", "people", "all", True),
        (["score:people"], "score", "people", "all", True),
        (["score:people"], "score", "cars", "all", False),
        (["score:people"], "score", None, "all", True),
        (["score:people"], "decide", "people", "all", True),
        (["decide:people"], "score", "people", "all", False),
        (["gallery:people:read"], "gallery", "people", "read", True),
        (["gallery:people:read"], "gallery", "people", "all", False),
        (["gallery:people:read"], "gallery", "cars", "read", False),
        (["gallery:*:read"], "gallery", "cars", "read", True),
        (["gallery:*:read"], "gallery", "cars", "all", False),
        (["gallery:people:read"], "gallery", "people", "items", False),
        (["gallery:people:items"], "gallery", "people", "read", True),
        (["gallery:people:items"], "gallery", "people", "items", True),
        (["gallery:people:items"], "gallery", "people", "all", False),
        (["gallery:people:items"], "gallery", "cars", "items", False),
        (["gallery:*:items"], "gallery", "cars", "all", False),
        (["gallery:people:read", "gallery:cars"], "gallery", "cars", "all", True),
        (["gallery:*"], "gallery", "cars", "all", True),
        (["train:people"], "admin", None, "all", False),
        (["train"], "import", None, "all", False),
        (["admin"], "import", "people", "all", True),
    ],
)
def test_grants(grants: list[str], scope: str, resource: str | None, level: Level, allowed: bool) -> None:
    assert Grants(grants).allows(scope, resource, level=level) is allowed


def test_what_grants_let_see() -> None:
    assert Grants(["admin"]).models.everything
    assert Grants(["score:a", "train:b", "decide:c"]).models.members == {"a", "b", "c"}
    assert Grants(["score:a", "train:b"]).datasets.members == {"b"}
    assert Grants(["gallery:people"]).models.members == frozenset()
    assert Grants(["gallery:people", "gallery:cars:read"]).resources("gallery").members == {"people", "cars"}


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour goes by."""
    now = time.time() + 3_600.0
    monkeypatch.setattr(time, "time", lambda: now)


def test_a_key_expires(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keys.create("ci", ["score"], expires_in_s=3_000.0)
    assert made.expires_at is not None
    assert verify(keys, made.key) is not None
    later(monkeypatch)
    assert verify(keys, made.key) is None
    for never in (0.0, -5.0, 1e12):
        with pytest.raises(InvalidInput, match="a time to come"):
            keys.create("ci", ["score"], expires_in_s=never)


def test_rotation_lets_both_work_for_a_while(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    old = keys.create("ci", ["score:people", "gallery:people:read"], rate=5)
    new = keys.rotate(old.id, overlap_s=3_000.0)
    assert (new.name, new.scopes, new.rate, new.replaces) == (old.name, old.scopes, 5, old.id)
    assert verify(keys, old.key) is not None
    assert verify(keys, new.key) is not None
    later(monkeypatch)
    assert verify(keys, old.key) is None
    assert verify(keys, new.key) is not None
    with pytest.raises(UnknownKey):
        keys.rotate("nobody")
    keys.revoke(new.id)
    with pytest.raises(Conflict, match="revoked"):
        keys.rotate(new.id)


def test_keys_are_listed_in_pages(keys: Keys) -> None:
    made = [keys.create(f"key {number}", ["score"]).id for number in range(5)]
    assert [one.id for one in of_all_pages(partial(keys.page, 2))] == made


def test_a_session_is_not_the_key_and_its_word_is_kept_nowhere(keys: Keys, database: Database) -> None:
    made = keys.create("me", ["admin"])
    sessions = Sessions(database)
    word = sessions.begin(made.id)
    assert word not in made.key
    with database.read() as session:
        stored = repr(session.execute(text("SELECT * FROM sessions")).all())
        assert active_sessions(session)[session_hash(word)].key_id == made.id
    assert word not in stored
    before = revision(database)
    sessions.end(word)
    sessions.end("nobody")
    with database.read() as session:
        assert active_sessions(session) == {}
    assert revision(database) == before + 1


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
