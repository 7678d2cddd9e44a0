"""API keys on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import select, text

from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, UnknownKey
from pairmark.service.keys import Keys
from pairmark.service.tables import Revision


@pytest.fixture
def keys(database: Database) -> Keys:
    return Keys(database)


def revision(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(Revision.value)) or 0


def test_a_key_works_until_it_is_revoked(keys: Keys) -> None:
    made = keys.create("ci", ["train", "score"])
    found = keys.verify(made.key)
    assert found is not None
    assert (found.id, found.name) == (made.id, "ci")
    assert found.allows("score")
    assert not found.allows("admin")
    revoked = keys.revoke(made.id)
    assert revoked.revoked_at is not None
    assert keys.verify(made.key) is None
    assert keys.revoke(made.id) == revoked


def test_admin_carries_every_scope(keys: Keys) -> None:
    found = keys.verify(keys.create("root", ["admin"]).key)
    assert all(found.allows(scope) for scope in ("score", "gallery", "train", "admin"))


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
        assert keys.verify(wrong) is None


def test_workers_can_see_that_keys_changed(keys: Keys, database: Database) -> None:
    before = revision(database)
    made = keys.create("ci", ["score"])
    between = revision(database)
    keys.revoke(made.id)
    assert before < between < revision(database)


def test_a_revoked_last_key_does_not_open_the_service(keys: Keys) -> None:
    assert not keys.exist()
    keys.revoke(keys.create("ci", ["score"]).id)
    assert keys.exist()


def test_what_is_wrong_is_said(keys: Keys) -> None:
    with pytest.raises(
        InvalidInput, match="'root' is not one; expected some of score, gallery, train, admin"
    ):
        keys.create("ci", ["root"])
    with pytest.raises(InvalidInput, match="none was given"):
        keys.create("ci", [])
    with pytest.raises(InvalidInput, match="name"):
        keys.create(" ", ["score"])
    with pytest.raises(UnknownKey):
        keys.revoke("nobody")
    assert keys.list() == []
