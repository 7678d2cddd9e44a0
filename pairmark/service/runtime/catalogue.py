"""A worker's view of names, aliases and keys: read from the database only when something changed.

A request looks at a view at most `ttl_s` old. The look-up runs off the event loop, once for all who wait, and when
the database is away the last view keeps serving.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import select

from pairmark.schemas.models import DECIDED_RATES, ReviewPolicy
from pairmark.service.db import Database
from pairmark.service.errors import (
    AmbiguousModel,
    DamagedRow,
    Forbidden,
    ModelNotCapable,
    NotReady,
    UnknownModel,
)
from pairmark.service.keys import (
    ActiveKey,
    ActiveSession,
    active_keys,
    active_sessions,
    any_key,
    match_key,
    session_hash,
)
from pairmark.service.names import (
    EVERY_NAME,
    PRODUCTION,
    VisibleNames,
    check_prefix,
    name_of,
    same_tenant,
    split_ref,
)
from pairmark.service.tables import AliasRow, CalibrationRow, ModelRow, ModelVersion, Revision

log = logging.getLogger(__name__)

_PATIENCE_S = 0.5
"""How long a request waits for a slow database before the cached view serves it."""
_LOOK_UP_PATIENCE_S = 10.0
"""How long one waits that the cached view cannot serve, before it is asked to retry."""


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """A version as the runtime needs it."""

    model_id: str
    name: str
    version: int
    kind: str
    capabilities: frozenset[str]
    calibration_id: str | None
    artefact_sha256: str


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model's versions and aliases."""

    id: str
    name: str
    versions: Mapping[int, VersionEntry]
    aliases: Mapping[str, int]
    allow_asymptotic: bool | None = None
    """The model's policy; None: the server's."""
    reviews: ReviewPolicy | None = None
    """Which of its decisions are kept."""
    rates: Collection[float] = DECIDED_RATES
    """At which keys that may only decide are answered."""
    missing: str = "assume-random"
    """What is decided of records that lack columns."""


@dataclass(frozen=True, slots=True)
class CatalogueView:
    """Everything at one revision."""

    revision: int
    models: Mapping[str, ModelEntry]
    keys: Mapping[str, ActiveKey]
    locked: bool
    """Whether a key was ever made: then every request needs one, even when all are revoked."""
    sessions: Mapping[str, ActiveSession] = field(default_factory=dict)
    moved: Mapping[str, dict[str, str]] = field(default_factory=dict)
    """Calibrations whose inputs have moved, and the warning that says so."""

    def key(self, credential: str) -> ActiveKey | None:
        """The unrevoked key that was shown, if it is one."""
        return match_key(self.keys, credential)

    def session(self, word: str) -> tuple[ActiveSession, ActiveKey] | None:
        """The session that a cookie's word names and its key, while both are good."""
        session = self.sessions.get(session_hash(word))
        key = None if session is None else self.keys.get(session.key_id)
        if session is None or key is None or key.expired or time.time() >= session.expires_at:
            return None
        return session, key

    def resolve(
        self, ref: str | None, capability: str | None, visible: VisibleNames = EVERY_NAME
    ) -> VersionEntry:
        """The version that a reference means, if it can do what is asked (None: whatever it can) and is of a
        ``visible`` model."""
        if ref is None:
            assert capability is not None, "what no name says, it decides"
            return self._only_one(capability, visible)
        if not visible.everything:
            name = name_of(ref)
            check_prefix(name, visible, UnknownModel)
            if name not in visible:
                raise Forbidden(f"the key may not use the model {name[:100]!r} for this", field="model")
        entry = self._named(ref)
        if capability is not None and capability not in entry.capabilities:
            able = [model.name for model in self._able(capability, visible)]
            raise ModelNotCapable(
                f"{entry.name}:{entry.version} is a {entry.kind}, which cannot {capability!r}; it can: "
                f"{', '.join(sorted(entry.capabilities)) or 'nothing that is served'}",
                capability=capability,
                capabilities=sorted(entry.capabilities),
                models=able[:50],
            )
        return entry

    def _named(self, ref: str) -> VersionEntry:
        """The version that a reference names, whatever it can do, or `UnknownModel`."""
        name, separator, suffix = split_ref(ref)
        model = self.models.get(name)
        if model is None:
            neighbors = [neighbor for neighbor in self.models if neighbor in same_tenant(name)]
            names = ", ".join(neighbors[:20]) or "none"
            raise UnknownModel(f"there is no model {name[:100]!r}; known: {names}", field="model")
        if separator == ":":
            number = int(suffix) if suffix.isascii() and suffix.isdigit() and len(suffix) < 10 else -1
            entry = model.versions.get(number)
            if entry is None:
                newest = ", ".join(str(version) for version in sorted(model.versions, reverse=True)[:10])
                raise UnknownModel(
                    f"model {name!r} has no version {suffix[:50]!r}; it has: {newest or 'none'}",
                    field="model",
                )
            return entry
        alias = suffix if separator else PRODUCTION
        target = model.aliases.get(alias)
        if target is not None and target not in model.versions:
            raise DamagedRow(
                f"alias {name}@{alias} points to version {name}:{target}, which is not there; restore a backup",
                version=f"{name}:{target}",
            )
        if target is None or target not in model.versions:
            has = ", ".join(sorted(model.aliases)) or "none"
            raise UnknownModel(
                f"model {name!r} has no alias {alias[:100]!r} (it has: {has}); promote a version to it, or name one as "
                f"'{name}:VERSION'",
                field="model",
            )
        return model.versions[target]

    def _able(self, capability: str, names: VisibleNames) -> list[VersionEntry]:
        entries = []
        for model in self.models.values():
            entry = model.versions.get(model.aliases.get(PRODUCTION, -1))
            if entry is not None and capability in entry.capabilities and entry.name in names:
                entries.append(entry)
        return entries

    def _only_one(self, capability: str, visible: VisibleNames = EVERY_NAME) -> VersionEntry:
        able = self._able(capability, visible)
        if not able and not visible.everything:
            raise UnknownModel(f"no model that the key may use can {capability!r}", field="model")
        if not able:
            raise UnknownModel(
                f"no model in production can {capability!r}; train one (POST /jobs), or promote a version "
                "(PUT /models/NAME/aliases/production)",
                field="model",
            )
        if len(able) > 1:
            names = [entry.name for entry in able]
            raise AmbiguousModel(
                f"{len(names)} models can {capability!r}: {', '.join(names[:20])}; name one in 'model'",
                field="model",
                models=names[:200],
            )
        return able[0]


class Catalogue:
    """The newest `CatalogueView`, at most ``ttl_s`` old while the database answers."""

    def __init__(self, database: Database, ttl_s: float) -> None:
        self._database = database
        self._ttl = ttl_s
        self._view: CatalogueView | None = None
        self._fresh_until = 0.0
        self._refreshing: asyncio.Task[CatalogueView] | None = None
        self._away = False
        self._began_at = self._changed_at = 0.0

    @property
    def view(self) -> CatalogueView:
        """The cached view, however old. `NotReady` before the first one."""
        if self._view is None:
            raise NotReady("the catalogue of models was not read yet")
        return self._view

    async def refreshed(self) -> CatalogueView:
        """A fresh view; when the database is slow or away, the cached one. `NotReady` when there is none."""
        seconds = self._fresh_until - time.monotonic()
        if seconds > 0 and self._view is not None:
            if seconds < self._ttl / 2:
                # Ahead of time: nobody waits for it, while requests of somebody who sends many are answered.
                self._refresh_task()
            return self._view
        if self._view is None:
            return await asyncio.shield(self._refresh_task())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                if self._began_at <= self._changed_at:
                    # What is read now may be older than a change that who asks has learned of.
                    await self.settled()
                return await asyncio.shield(self._refresh_task())
        except (TimeoutError, NotReady):
            return self._view

    def expire(self) -> None:
        """Let the next request read the catalogue again: something changed, and a client knows it."""
        self._changed_at = time.monotonic()
        self._fresh_until = 0.0

    async def after_change(self) -> CatalogueView:
        """The view after a change that this process made. What other processes read before it is too old by then, so
        that a change which is acknowledged after this is seen by every request."""
        await asyncio.sleep(self._ttl)
        self.expire()
        await self.settled()
        return await self.refreshed()

    async def looked_up(self) -> CatalogueView:
        """A view read from now on, for whom an older one would tell that something does not exist. `NotReady` when the
        database does not answer in time: whether it exists is not known."""
        try:
            async with asyncio.timeout(_LOOK_UP_PATIENCE_S):
                await self.settled()
                return await asyncio.shield(self._refresh_task())
        except TimeoutError:
            raise NotReady("the database does not answer in time; try again") from None

    async def settled(self) -> None:
        """Wait until nothing is being read that was begun before now."""
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])

    def _refresh_task(self) -> asyncio.Task[CatalogueView]:
        if self._refreshing is None:
            self._began_at = time.monotonic()
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
            self._refreshing.add_done_callback(self._refresh_ended)
        return self._refreshing

    def _refresh_ended(self, task: asyncio.Task[CatalogueView]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # Seen here, so that nobody need await it.

    async def _refresh(self) -> CatalogueView:
        start = time.monotonic()
        try:
            view = await asyncio.get_running_loop().run_in_executor(None, self.read)
        except Exception as error:
            # One try a second while the database is away, and one line in the log for all of them.
            self._fresh_until = time.monotonic() + max(self._ttl, 1.0) if self._view is not None else 0.0
            if not self._away:
                log.warning("the catalogue could not be read; the last view keeps serving", exc_info=error)
            self._away = True
            raise NotReady("the database does not answer") from error
        if self._away:
            log.info("the catalogue is read again")
        self._away = False
        self._view = view
        if start >= self._changed_at:
            self._fresh_until = start + self._ttl
        return view

    def read(self) -> CatalogueView:
        """Read the database (blocking): only the revision, when nothing changed."""
        with self._database.read() as session:
            revision = int(session.scalar(select(Revision.value)) or 0)
            view = self._view
            if view is not None and view.revision == revision:
                return view
            versions: dict[str, dict[int, VersionEntry]] = {}
            columns = (
                ModelVersion.model_id,
                ModelRow.name,
                ModelVersion.version,
                ModelVersion.kind,
                ModelVersion.capabilities,
                ModelVersion.calibration_id,
                ModelVersion.artefact_sha256,
            )
            for row in session.execute(
                select(*columns).join(ModelRow).order_by(ModelVersion.model_id, ModelVersion.version)
            ):
                entry = VersionEntry(**{**row._mapping, "capabilities": frozenset(row.capabilities)})
                versions.setdefault(entry.model_id, {})[entry.version] = entry
            aliases: dict[str, dict[str, int]] = {}
            for alias in session.scalars(select(AliasRow)):
                aliases.setdefault(alias.model_id, {})[alias.alias] = alias.version
            models = {
                model.name: ModelEntry(
                    model.id,
                    model.name,
                    versions.get(model.id, {}),
                    aliases.get(model.id, {}),
                    model.allow_asymptotic,
                    ReviewPolicy(**model.reviews) if isinstance(model.reviews, dict) else None,
                    model.rates if isinstance(model.rates, list) else DECIDED_RATES,
                    model.missing,
                )
                for model in session.scalars(select(ModelRow).order_by(ModelRow.name))
            }
            moved = select(CalibrationRow.id, CalibrationRow.moved).where(CalibrationRow.moved.is_not(None))
            return CatalogueView(
                revision=revision,
                models=models,
                moved={
                    id: {
                        "code": "inputs-moved",
                        "detail": f"inputs have moved since the calibration: {words}",
                    }
                    for id, words in session.execute(moved)
                },
                keys=active_keys(session),
                sessions=active_sessions(session),
                locked=any_key(session),
            )
