"""Loads each version once and warms it up before it serves; keeps the old one until then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from pairmark.service.caches import BoundedCache
from pairmark.service.errors import CorruptArtefact, PairmarkError
from pairmark.service.runtime.catalogue import CatalogueView, VersionEntry
from pairmark.service.runtime.metrics import LOADED, LOADS
from pairmark.service.runtime.versions import LoadedVersion

log = logging.getLogger(__name__)

SWITCH_PATIENCE_S = 2.0
"""How long a request by alias waits for a newly promoted version before the previous one answers it."""
RETRY_FAILED_S = 5.0
"""How long a version that failed to load is not tried again."""

VersionKey = tuple[str, int]
"""A model's id and the version's number."""


class LoadedVersions:
    """At most ``limit`` versions, least recently used dropped first. ``load`` reads, verifies and warms one, in a
    thread."""

    def __init__(self, load: Callable[[VersionEntry], LoadedVersion], limit: int) -> None:
        self._load = load
        self._versions: BoundedCache[VersionKey, LoadedVersion] = BoundedCache(limit)
        self._loading: dict[VersionKey, asyncio.Task[LoadedVersion]] = {}
        self._load_starts: dict[VersionKey, float] = {}
        self._failed: dict[VersionKey, tuple[PairmarkError, float]] = {}
        """Why a version could not be loaded, and until when it is not tried again."""
        self._serving: dict[tuple[str, str], VersionKey] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def at_hand(self, entry: VersionEntry) -> LoadedVersion | None:
        key = (entry.model_id, entry.version)
        version = self._versions.get(key)
        if version is not None and version.entry is not entry:
            # The same bytes under a newer view: it may have another calibration by now.
            version = replace(version, entry=entry)
            self._versions.put(key, version)
        return version

    async def get(self, entry: VersionEntry, alias: str | None) -> LoadedVersion:
        """The version, loaded; a request by ``alias`` is answered by what the alias served last while the new
        version is loading for long, or cannot be loaded."""
        key = (entry.model_id, entry.version)
        version = self.at_hand(entry)
        if version is None:
            previous = self._previous(entry, alias)
            try:
                if previous is None:
                    version = await asyncio.shield(self._task(entry))
                else:
                    task = self._task(entry)
                    # Counted from the load's start, so that a slow one delays requests once and not each of them.
                    patience = self._load_starts[key] + SWITCH_PATIENCE_S - time.monotonic()
                    version = await asyncio.wait_for(asyncio.shield(task), max(patience, 0.0))
            except (PairmarkError, TimeoutError):
                if previous is None:
                    raise
                return previous
        if alias is not None:
            self._serving[(entry.model_id, alias)] = key
        return version

    def forget_deleted(self, view: CatalogueView) -> None:
        """Drop versions that the view no longer holds."""
        present = {(model.id, version) for model in view.models.values() for version in model.versions}
        self._versions.drop([key for key, _ in self._versions.entries() if key not in present])
        LOADED.set(len(self._versions))
        self._serving = {name: key for name, key in self._serving.items() if key in present}
        self._failed = {key: failure for key, failure in self._failed.items() if key in present}

    def _previous(self, entry: VersionEntry, alias: str | None) -> LoadedVersion | None:
        if alias is None:
            return None
        key = self._serving.get((entry.model_id, alias))
        return self._versions.get(key) if key is not None else None

    def _task(self, entry: VersionEntry) -> asyncio.Task[LoadedVersion]:
        key = (entry.model_id, entry.version)
        task = self._loading.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(entry))
            self._loading[key] = task
            self._load_starts[key] = time.monotonic()
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return task

    def _ended(self, key: VersionKey, task: asyncio.Task[LoadedVersion]) -> None:
        self._loading.pop(key, None)
        self._load_starts.pop(key, None)
        if not task.cancelled():
            task.exception()  # Seen here: the one who waited may have given up.

    async def _fetch(self, entry: VersionEntry) -> LoadedVersion:
        key = (entry.model_id, entry.version)
        failure, until = self._failed.get(key, (None, 0.0))
        if failure is not None and time.monotonic() < until:
            raise type(failure)(failure.detail, **failure.facts)
        try:
            version = await asyncio.get_running_loop().run_in_executor(None, self._load, entry)
        except Exception as error:
            kind = error if isinstance(error, PairmarkError) else None
            log.error(
                "version could not be loaded",
                extra={"model": entry.name, "version": entry.version},
                exc_info=error,
            )
            problem = kind or CorruptArtefact(
                f"{entry.name}:{entry.version} could not be loaded; it is not served"
            )
            LOADS.labels("failed").inc()
            self._failed[key] = (problem, time.monotonic() + RETRY_FAILED_S)
            if kind is not None:
                raise
            raise problem from error
        self._failed.pop(key, None)
        LOADS.labels("loaded").inc()
        self._versions.put(key, version)
        LOADED.set(len(self._versions))
        log.info("version loaded", extra={"model": entry.name, "version": entry.version})
        return version
