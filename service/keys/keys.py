"""The keys room's front door."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from sqlalchemy.orm import Session

from pairmark.service.audit.log import record
from pairmark.service.db import Database, bump_revision
from pairmark.service.errors import InvalidInput, UnknownKey
from pairmark.service.keys import repository
from pairmark.service.keys.schemas import KeyOut, NewKey, Scope
from pairmark.service.tables import ApiKey
from pairmark.service.times import iso

SCOPES: tuple[Scope, ...] = get_args(Scope)
_FORM = re.compile(r"pm_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True)
class ActiveKey:
    """A key that may be used, as a worker keeps it in memory."""

    id: str
    name: str
    sha256: str
    scopes: frozenset[str]

    def allows(self, scope: Scope) -> bool:
        """Whether the key carries the scope; ``admin`` carries all."""
        return "admin" in self.scopes or scope in self.scopes


class Keys:
    """Makes, lists, revokes and checks API keys of the form ``pm_<id>_<secret>``.

    The secret holds 256 random bits, so a plain sha256 of the key cannot be searched for and needs no salt.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def create(self, name: str, scopes: Sequence[str]) -> NewKey:
        """Make a key. The answer is the only place where it is ever shown.

        Raises
        ------
        InvalidInput
            When the name is empty or too long, or a scope is none of score, gallery, train and admin.
        """
        name = name.strip()
        if not 0 < len(name) <= 200 or not name.isprintable():
            raise InvalidInput(
                "name: expected 1 to 200 printable characters that say whose key it is", field="name"
            )
        unknown = sorted(set(scopes) - set(SCOPES))
        if unknown or not scopes:
            what = f"{unknown[0][:50]!r} is not one" if unknown else "none was given"
            raise InvalidInput(f"scopes: {what}; expected some of {', '.join(SCOPES)}", field="scopes")
        key_id = secrets.token_hex(6)
        key = f"pm_{key_id}_{secrets.token_urlsafe(32)}"
        with self._db.write() as session:
            row = ApiKey(
                id=key_id,
                name=name,
                sha256=_sha256(key),
                scopes=[scope for scope in SCOPES if scope in scopes],
                created_at=self._db.now(session),
                revoked_at=None,
            )
            repository.insert_key(session, row)
            record(session, row.created_at, "key.create", f"key:{row.id}", after=_facts(row))
            bump_revision(session)
            return NewKey(**_out(row).model_dump(), key=key)

    def list(self) -> list[KeyOut]:
        """Every key, revoked ones too, in the order they were made."""
        with self._db.read() as session:
            return [_out(row) for row in repository.all_keys(session)]

    def revoke(self, key_id: str) -> KeyOut:
        """Make a key useless from now on; revoking it again changes nothing.

        Raises
        ------
        UnknownKey
            When there is none of that id.
        """
        with self._db.write() as session:
            if "\x00" in key_id or repository.key_by_id(session, key_id) is None:
                raise UnknownKey(f"there is no key {key_id[:50]!r}; `pairmark keys list` shows their ids")
            now = self._db.now(session)
            before = _facts(repository.key_by_id(session, key_id))
            if repository.revoke_key(session, key_id, now):
                after = {**before, "revoked_at": iso(now)}
                record(session, now, "key.revoke", f"key:{key_id}", before=before, after=after)
                bump_revision(session)
            session.expire_all()
            row = repository.key_by_id(session, key_id)
            assert row is not None
            return _out(row)

    def exist(self) -> bool:
        """Whether a key was ever made. A revoked last key does not open the service again."""
        with self._db.read() as session:
            return repository.any_key(session)

    def verify(self, key: str) -> ActiveKey | None:
        """The key that was presented, or None when it is unknown, wrong or revoked."""
        with self._db.read() as session:
            return match_key(active_keys(session), key)


def active_keys(session: Session) -> dict[str, ActiveKey]:
    """Every usable key by id, for workers to keep until the revision moves."""
    return {
        row.id: ActiveKey(id=row.id, name=row.name, sha256=row.sha256, scopes=frozenset(row.scopes))
        for row in repository.all_keys(session, active=True)
    }


def match_key(active: Mapping[str, ActiveKey], key: str) -> ActiveKey | None:
    """The active key that was presented, or None; takes as long for a wrong secret as for an unknown id."""
    form = _FORM.fullmatch(key)
    known = active.get(form[1]) if form else None
    presented = _sha256(key)
    if hmac.compare_digest(presented, known.sha256 if known else _NOBODY) and known is not None:
        return known
    return None


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _facts(row: ApiKey | None) -> dict[str, Any]:
    """What the audit log keeps of a key: everything but its hash."""
    return {} if row is None else _out(row).model_dump(mode="json")


def _out(row: ApiKey) -> KeyOut:
    return KeyOut(
        id=row.id,
        name=row.name,
        scopes=row.scopes,
        created_at=iso(row.created_at),
        revoked_at=iso(row.revoked_at),
    )
