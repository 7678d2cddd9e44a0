"""Making, listing, rotating, revoking and checking API keys, and the console's sessions. Only hashes are stored."""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, get_args

from sqlalchemy import delete, exists, select, union_all, update
from sqlalchemy.orm import Session

from pairmark.schemas.admin import MAX_DAYS, KeyOut, Level, NewKey, Scope
from pairmark.schemas.base import Page, iso
from pairmark.service.audit.log import record
from pairmark.service.db import Database, bump_revision, execute_change, read_page
from pairmark.service.errors import Conflict, InvalidInput, UnknownKey
from pairmark.service.names import VisibleNames, checked_name, checked_tenant
from pairmark.service.tables import ApiKey, DatasetRow, GalleryRow, ModelRow, SessionRow

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
ANY: Final = "*"
_IMPLIED: Final[dict[str, tuple[Scope, ...]]] = {"score": ("decide",)}
"""Whoever sees scores may take decisions by them."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One scope, on everything (``resource`` None) or on one resource, up to a level."""

    scope: Scope
    resource: str | None = None
    level: Level = "all"

    def __str__(self) -> str:
        limited = self.level != "all"
        parts = [self.scope, *([self.resource or ANY] if self.resource or limited else [])]
        return ":".join([*parts, *([self.level] if limited else [])])

    def covers(self, level: Level) -> bool:
        """Whether it reaches that far."""
        return LEVELS.index(self.level) >= LEVELS.index(level)


def parse_grant(text: str, tenant: str | None = None) -> Grant:
    """``score``, ``score:people``, ``gallery:people:read`` or ``gallery:*:items``; `InvalidInput` for anything else,
    and for a resource that is not the tenant's."""
    scope, *parts = text.split(":")
    if scope not in SCOPES:
        raise InvalidInput(
            f"scopes: {scope[:50]!r} is not a scope; expected some of {', '.join(SCOPES)}", field="scopes"
        )
    if not parts:
        return Grant(scope)
    resource, *levels = parts
    level: Level = next((candidate for candidate in LEVELS[:-1] if levels == [candidate]), "all")
    if scope == "admin" or (levels and (level == "all" or scope != "gallery")):
        raise InvalidInput(
            f"scopes: {text[:100]!r} is not a scope; expected SCOPE, SCOPE:RESOURCE, or for galleries "
            "gallery:NAME:read or gallery:NAME:items",
            field="scopes",
        )
    if resource != ANY:
        checked_name(resource, "scopes")
        if tenant is not None and not resource.startswith(f"{tenant}/"):
            raise InvalidInput(
                f"scopes: {resource!r} is no name of the tenant; expected one that begins with '{tenant}/'",
                field="scopes",
            )
    return Grant(scope, None if resource == ANY else resource, level)


class Grants:
    """All that a key may do, by its grants as they are stored; ``admin`` carries every scope.

    Attributes
    ----------
    tenant : the one whose names the key is confined to; None: to no tenant's.
    visible : every name that the key may see, whatever its scopes are. usable : the models that it may score with.
    """

    __slots__ = ("_all", "_everything", "admin", "tenant", "texts", "usable", "visible")

    def __init__(self, grants: Iterable[str], tenant: str | None = None) -> None:
        self.texts = tuple(grants)
        self.tenant = tenant
        self.visible = VisibleNames(prefix="" if tenant is None else f"{tenant}/")
        parsed = [parse_grant(text) for text in self.texts]
        self.admin = any(grant.scope == "admin" for grant in parsed)
        self._all = frozenset(
            Grant(scope, grant.resource, grant.level)
            for grant in parsed
            for scope in (grant.scope, *_IMPLIED.get(grant.scope, ()))
        )
        self._everything = frozenset(
            grant.scope for grant in self._all if grant.resource is None and grant.level == "all"
        )
        self.usable = self.resources("score", "decide")

    def allows(self, scope: str, resource: str | None = None, *, level: Level = "all") -> bool:
        """Whether they carry the scope: on this resource, or (None) on any at all."""
        if resource is not None and resource not in self.visible:
            return False
        if self.admin or scope in self._everything:
            return True
        return any(
            grant.scope == scope
            and grant.covers(level)
            and (resource is None or grant.resource is None or grant.resource == resource)
            for grant in self._all
        )

    @property
    def models(self) -> VisibleNames:
        """The models that may be seen. Whoever may fill any gallery may see what they can name for it."""
        return self.visible if "gallery" in self._everything else self.resources("score", "decide", "train")

    @property
    def datasets(self) -> VisibleNames:
        """The datasets that may be seen."""
        return self.resources("train")

    def resources(self, *scopes: Scope) -> VisibleNames:
        """The names that any of these scopes covers."""
        if self.admin:
            return self.visible
        granted = [grant for grant in self._all if grant.scope in scopes and grant.covers("read")]
        if any(grant.resource is None for grant in granted):
            return self.visible
        names = frozenset(grant.resource for grant in granted if grant.resource is not None)
        return VisibleNames(prefix=self.visible.prefix, members=names)


EVERYTHING: Final = Grants(["admin"])
"""Of who was admitted without a key."""

_IN_ORDER = select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)
DAY_S = 86_400.0
OVERLAP_S = DAY_S
# A key: its id, and 32 random bytes. What is compared with where nobody has the id, so that it takes as long.
_FORM = re.compile(r"pm_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True)
class ActiveKey:
    """A key that may be used, as a worker keeps it in memory.

    Attributes
    ----------
    expires_at : seconds since the epoch. rate : requests a second; None: the setting's.
    """

    id: str
    name: str
    sha256: str
    grants: Grants
    expires_at: float | None = None
    rate: float | None = None

    @property
    def owner(self) -> str:
        """Who is given a share of what the service does: its tenant, else the key itself."""
        tenant = self.grants.tenant
        return f"tenant {tenant}" if tenant else f"key {self.id}"

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires_at is not None and time.time() >= self.expires_at


class Keys:
    """Makes, lists, rotates, revokes and checks API keys of the form ``pm_<id>_<secret>``.

    The secret holds 256 random bits, so a plain sha256 of the key cannot be searched for and needs no salt.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_in_s: float | None = None,
        rate: float | None = None,
        tenant: str | None = None,
    ) -> NewKey:
        """Make a key. The answer is the only place where it is ever shown.

        ``scopes`` : such as ``score``, ``score:people`` or ``gallery:people:read``. ``rate`` : requests a
        second that it may send; None: the setting's. ``tenant`` : the one whose names alone it sees.
        """
        name = name.strip()
        if not 0 < len(name) <= 200 or not name.isprintable():
            raise InvalidInput(
                "name: expected 1 to 200 printable characters that say whose key it is", field="name"
            )
        if not scopes:
            raise InvalidInput("scopes: none was given", field="scopes")
        if expires_in_s is not None and not 0 < expires_in_s <= MAX_DAYS * DAY_S:
            raise InvalidInput("expires: expected a time to come, within a hundred years", field="expires")
        granted = list(dict.fromkeys(str(parse_grant(scope, tenant)) for scope in scopes))
        if tenant is not None:
            checked_tenant(tenant)
        with self._db.write() as session:
            now = self._db.now(session)
            expires_at = None if expires_in_s is None else now + expires_in_s
            columns = {"expires_at": expires_at, "rate": rate, "tenant": tenant}
            row, key = self._insert(session, name, granted, now, **columns)
            record(session, now, "key.create", f"key:{row.id}", after=_facts(row), tenant=tenant)
            bump_revision(session)
            warnings = list(_missing_resources(session, granted, tenant))
            return NewKey(**KeyOut.model_validate(row).model_dump(), key=key, warnings=warnings)

    def rotate(self, key_id: str, overlap_s: float = OVERLAP_S, *, tenant: str | None = None) -> NewKey:
        """Make a key that may do the same, and let the old one end after an overlap; `Conflict` when it has ended.
        ``tenant`` : only a key of this one."""
        with self._db.write() as session:
            old = self._existing(session, key_id, tenant)
            now = self._db.now(session)
            if old.revoked_at is not None or (old.expires_at is not None and old.expires_at <= now):
                raise Conflict(f"key {key_id} was revoked or has expired; make a new one")
            before = _facts(old)
            lifetime = None if old.expires_at is None else old.expires_at - old.created_at
            row, key = self._insert(
                session,
                old.name,
                old.scopes,
                now,
                expires_at=None if lifetime is None else now + lifetime,
                rate=old.rate,
                tenant=old.tenant,
                replaces=old.id,
            )
            end = now + overlap_s
            old.expires_at = end if old.expires_at is None else min(end, old.expires_at)
            session.flush()
            after = {**_facts(old), "replaced_by": row.id}
            record(session, now, "key.rotate", f"key:{old.id}", before=before, after=after, tenant=old.tenant)
            bump_revision(session)
            return NewKey(**KeyOut.model_validate(row).model_dump(), key=key)

    def list(self) -> list[KeyOut]:
        """Every key, revoked ones too, in the order they were made."""
        with self._db.read() as session:
            return [KeyOut.model_validate(row) for row in session.scalars(_IN_ORDER)]

    def page(self, limit: int = 50, cursor: str | None = None, *, tenant: str | None = None) -> Page[KeyOut]:
        """Keys in the order they were made; ``tenant`` : only those of this one."""
        query = select(ApiKey)
        if tenant is not None:
            query = query.where(ApiKey.tenant == tenant)
        with self._db.read() as session:
            make, order = KeyOut.model_validate, (ApiKey.created_at, ApiKey.id)
            return read_page(session, Page[KeyOut], make, query, order, limit, cursor)

    def revoke(self, key_id: str, *, tenant: str | None = None) -> KeyOut:
        """Make a key useless from now on, with its sessions; revoking it again changes nothing. ``tenant`` : only a key
        of this one."""
        with self._db.write() as session:
            _revoke(session, self._existing(session, key_id, tenant), self._db.now(session))
            session.expire_all()
            return KeyOut.model_validate(self._existing(session, key_id, tenant))

    def note_uses(self, uses: Mapping[str, float]) -> None:
        """Keep when keys were last used, by id, in seconds since the epoch."""
        with self._db.write() as session:
            for key_id, moment in uses.items():
                earlier = ApiKey.last_used_at.is_(None) | (ApiKey.last_used_at < moment)
                of_key = update(ApiKey).where(ApiKey.id == key_id, earlier)
                session.execute(of_key.values(last_used_at=moment))

    def _existing(self, session: Session, key_id: str, tenant: str | None) -> ApiKey:
        row = None if "\x00" in key_id else session.get(ApiKey, key_id)
        if row is None or (tenant is not None and row.tenant != tenant):
            raise UnknownKey(f"there is no key {key_id[:50]!r}; `pairmark keys list` shows their ids")
        return row

    def _insert(
        self, session: Session, name: str, scopes: Sequence[str], now: float, **columns: Any
    ) -> tuple[ApiKey, str]:
        key_id = secrets.token_hex(6)
        key = f"pm_{key_id}_{secrets.token_urlsafe(32)}"
        row = ApiKey(
            id=key_id,
            name=name,
            sha256=_sha256(key),
            scopes=[*scopes],
            created_at=now,
            revoked_at=None,
            last_used_at=None,
            **columns,
        )
        session.add(row)
        session.flush()
        return row, key


def _revoke(session: Session, row: ApiKey, now: float) -> None:
    """Make a key useless, unless it is already."""
    before = _facts(row)
    usable = update(ApiKey).where(ApiKey.id == row.id, ApiKey.revoked_at.is_(None))
    if execute_change(session, usable.values(revoked_at=now)):
        after = {**before, "revoked_at": iso(now)}
        record(session, now, "key.revoke", f"key:{row.id}", before=before, after=after, tenant=row.tenant)
        bump_revision(session)


_RESOURCES: Final[dict[str, tuple[Any, ...]]] = {
    "gallery": (GalleryRow.name,),
    "train": (ModelRow.name, DatasetRow.name),
}
"""What each scope may be limited to, where it is more than models."""


def _missing_resources(session: Session, scopes: Iterable[str], tenant: str | None) -> Iterator[str]:
    """A sentence for each resource that does not exist; it may come, or be misspelled."""
    for grant in map(parse_grant, scopes):
        if grant.resource is None:
            continue
        named = union_all(*(select(name) for name in _RESOURCES.get(grant.scope, (ModelRow.name,))))
        # A tenant is told of no other's names.
        names = sorted(
            {name for name in session.scalars(named) if name.startswith(f"{tenant}/" if tenant else "")}
        )
        if grant.resource not in names:
            alike = get_close_matches(grant.resource, names, 3)
            hint = f"; did you mean {' or '.join(alike)}?" if alike else ", and nothing is named like it"
            yield f"{grant}: there is no {grant.resource!r} yet{hint}"


def any_key(session: Session) -> bool:
    return bool(session.scalar(select(exists().select_from(ApiKey))))


def active_keys(session: Session) -> dict[str, ActiveKey]:
    """Every key that is not revoked, by id, for workers to keep until the revision moves."""
    return {
        row.id: ActiveKey(
            id=row.id,
            name=row.name,
            sha256=row.sha256,
            grants=Grants(row.scopes, row.tenant),
            expires_at=row.expires_at,
            rate=row.rate,
        )
        for row in session.scalars(_IN_ORDER.where(ApiKey.revoked_at.is_(None)))
    }


def match_key(active: Mapping[str, ActiveKey], key: str) -> ActiveKey | None:
    """The active key that was presented, or None; takes as long for a wrong secret as for an unknown id."""
    form = _FORM.fullmatch(key)
    candidate = active.get(form[1]) if form else None
    presented = _sha256(key)
    if hmac.compare_digest(presented, candidate.sha256 if candidate else _NOBODY) and candidate is not None:
        return None if candidate.expired else candidate
    return None


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _facts(row: ApiKey) -> dict[str, Any]:
    """What the audit log keeps of a key: everything but its hash, and but when it was used."""
    return KeyOut.model_validate(row).model_dump(mode="json", exclude={"last_used_at"})


SESSION_S = 12 * 3600
MAX_SESSIONS = 50
"""Sessions of one key; a further one ends the oldest."""


@dataclass(frozen=True, kw_only=True)
class ActiveSession:
    """A session as a worker keeps it in memory. ``csrf`` must come back with whatever changes something."""

    key_id: str
    csrf: str
    expires_at: float


class Sessions:
    """Begins and ends sessions."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def begin(self, key_id: str, *, instead_of: str | None = None) -> str:
        """Begin a session that stands for a key; its word goes into the cookie, and is kept nowhere.

        ``instead_of`` : the word of the session that the cookie named before, which ends.
        """
        if instead_of is not None:
            self.end(instead_of)
        word = secrets.token_urlsafe(32)
        with self._db.write() as session:
            now = self._db.now(session)
            newest_first = SessionRow.created_at.desc(), SessionRow.sha256
            of_key = select(SessionRow.sha256).where(SessionRow.key_id == key_id).order_by(*newest_first)
            surplus = list(session.scalars(of_key.offset(MAX_SESSIONS - 1).limit(10_000)))
            ended = (SessionRow.expires_at <= now) | SessionRow.sha256.in_(surplus)
            session.execute(delete(SessionRow).where(ended))
            row = SessionRow(
                sha256=session_hash(word),
                key_id=key_id,
                csrf=secrets.token_urlsafe(32),
                created_at=now,
                expires_at=now + SESSION_S,
            )
            session.add(row)
            bump_revision(session)
        return word

    def end(self, word: str) -> None:
        """Make a session useless; one that is unknown changes nothing."""
        with self._db.write() as session:
            row = session.get(SessionRow, session_hash(word), with_for_update=True)
            if row is None:
                return
            session.delete(row)
            bump_revision(session)


def active_sessions(session: Session) -> dict[str, ActiveSession]:
    """Every session by the hash of its word, for workers to keep until the revision moves."""
    return {
        row.sha256: ActiveSession(key_id=row.key_id, csrf=row.csrf, expires_at=row.expires_at)
        for row in session.scalars(select(SessionRow))
    }


def session_hash(word: str) -> str:
    return hashlib.sha256(word.encode("utf-8", "surrogatepass")).hexdigest()
