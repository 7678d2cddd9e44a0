"""`pairmark doctor`: checks a deployment, and says how to fix what is wrong."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pairmark import migrations
from pairmark.service.audit.recovery import SAID, repairs_since
from pairmark.service.blobs import Blobs, LocalBlobs
from pairmark.service.blobs.holds import last_finished
from pairmark.service.blobs.repository import all_named_blobs
from pairmark.service.db import Database
from pairmark.service.errors import DamagedRow, NotReady, PairmarkError
from pairmark.service.galleries import repository as gallery_repository
from pairmark.service.galleries.calibration.thresholds import is_stale
from pairmark.service.jobs import repository as job_repository
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.operations.rows import DatabaseChecks
from pairmark.service.settings import Settings
from pairmark.service.store import repository as store_repository
from pairmark.wire.base import iso

Status = Literal["ok", "warning", "failure"]
LOW_BYTES, EMPTY_BYTES = 2 * 1024**3, 256 * 1024**2
SKEW_S = 1.0
OLD_CALIBRATION_DAYS = 365.0
OLD_BACKUP_DAYS = 7.0
RECOVERY_DAYS = 7.0
MANY_LOST = 5
"""So many lost attempts in `RECOVERY_DAYS` are no accident."""
_DAY_S = 86_400.0
_SHOWN = 5
_RESTORE = "restore a backup into another PAIRMARK_HOME"


Outcome = tuple[Status, str] | tuple[Status, str, str]
"""A finding, before it has the name of its check."""


@dataclass(frozen=True)
class Finding:
    """What one check found, and what to do: ``advice`` is empty when nothing is wrong."""

    check: str
    status: Status
    detail: str
    advice: str = ""


class Doctor:
    """Runs every check, each on its own, so that one that fails hides no other; ``quick`` leaves out hashing every blob
    and compiling kernels."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings, *, quick: bool = False) -> None:
        self._db = db
        self._blobs = blobs
        self._settings = settings
        self._quick = quick

    def examine(self) -> list[Finding]:
        """Every finding, in the order of the checks."""
        findings = [*self._run("database", self._database)]
        if findings[-1].status != "failure":
            for name, check in (
                ("rows", self._rows),
                ("clock", self._clock),
                ("workers", self._workers),
                ("blobs", self.stored_files),
                ("calibrations", self._calibrations),
                ("galleries", self._galleries),
                ("quarantine", self._quarantine),
                ("recovery", self._recovery),
                ("backup", self._backup),
            ):
                findings += self._run(name, check)
        findings += self._run("disk", self._disk)
        if not self._quick:
            findings += self._run("kernels", self._kernels)
        return findings

    def _run(self, name: str, check: Callable[[], Iterator[Outcome]]) -> list[Finding]:
        try:
            outcomes: list[Outcome] = list(check())
        except DamagedRow as error:
            outcomes = [("failure", error.detail, _RESTORE)]
        except PairmarkError as error:
            outcomes = [("failure", error.detail, "fix this and run it again")]
        except Exception as error:
            # What a check stumbles over is damage too, and hides no other finding.
            detail = f"the check failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
            outcomes = [("failure", detail, "restore a backup, or report this")]
        return [Finding(name, *outcome) for outcome in outcomes]

    def _database(self) -> Iterator[Outcome]:
        url = self._db.url.render_as_string(hide_password=True)
        try:
            self._db.check_schema()
        except NotReady as error:
            detail, _, advice = error.detail.partition(": ")
            yield ("failure", detail, advice or "start it")
            return
        yield "ok", f"{url} answers; schema revision {migrations.HEAD}"

    def _rows(self) -> Iterator[Outcome]:
        damages = 0
        try:
            for detail, repair in DatabaseChecks(self._db).damages():
                damages += 1
                yield "failure", detail, repair
        except DamagedRow as error:
            damages += 1
            yield "failure", error.detail, _RESTORE
        if not damages:
            yield "ok", "every row fits the schema"

    def _clock(self) -> Iterator[Outcome]:
        with self._db.read() as session:
            self._db.now(session)
            before = time.time()
            theirs = self._db.now(session)
            ours = (before + time.time()) / 2
        skew = theirs - ours
        if abs(skew) <= SKEW_S:
            yield "ok", f"the database's clock differs from this host's by {skew:+.3f} s"
            return
        yield (
            "warning",
            f"the database's clock differs from this host's by {skew:+.1f} s",
            "synchronise both with NTP: leases use the database's clock and stay right, times in logs do not",
        )

    def _workers(self) -> Iterator[Outcome]:
        workers = JobQueue(self._db, self._settings).workers()
        with self._db.read() as session:
            waiting = sum(job_repository.count_queued_by_owner(session).values())
            oldest = job_repository.oldest_queued(session)
            waited = 0.0 if oldest is None else self._db.now(session) - oldest
        if workers:
            jobs = f"{waiting} jobs wait, the first for {waited:.0f} s" if waiting else "no job waits"
            yield "ok", f"{len(workers)} alive; {jobs}"
            return
        yield (
            "failure" if waiting else "warning",
            f"no worker is alive; {waiting} jobs wait",
            "start one: `pairmark worker`, or `pairmark serve --with-worker`",
        )

    def stored_files(self) -> Iterator[Outcome]:
        """Whether every blob that a row names is there, and (unless quick) has the bytes that were stored."""
        with self._db.read() as session:
            keys = sorted(all_named_blobs(session))
        damaged = []
        for key in keys:
            try:
                if self._quick:
                    if not self._blobs.exists(key):
                        damaged.append(f"{key[:12]} is missing")
                else:
                    self._blobs.folder(key)
            except PairmarkError as error:
                damaged.append(error.detail)
        how = "present" if self._quick else "present, with the right checksums"
        if not damaged:
            yield "ok", f"{len(keys)} stored files are {how}"
        for detail in damaged[:_SHOWN]:
            yield (
                "failure",
                detail,
                "restore a backup elsewhere and copy the folder from there, or delete the dataset or version",
            )
        if len(damaged) > _SHOWN:
            yield "failure", f"{len(damaged) - _SHOWN} more stored files are damaged"

    def _calibrations(self) -> Iterator[Outcome]:
        with self._db.read() as session:
            now = self._db.now(session)
            in_use = store_repository.calibrations_in_use(session)
        old = [
            (f"{name}:{version}", (now - created_at) / _DAY_S)
            for name, version, created_at in in_use
            if now - created_at > OLD_CALIBRATION_DAYS * _DAY_S
        ]
        if not old:
            yield "ok", f"{len(in_use)} in use, none older than a year"
        for ref, days in old[:_SHOWN]:
            yield (
                "warning",
                f"{ref} uses a calibration that is {days:.0f} days old",
                "look at its live check in /metrics, and calibrate it on recent data",
            )

    def _galleries(self) -> Iterator[Outcome]:
        with self._db.read() as session:
            stale = [
                name
                for name, items, n_changes in gallery_repository.calibration_ages(session)
                if is_stale(items, n_changes)
            ]
        if not stale:
            yield "ok", "no calibration is out of date"
        for name in stale[:_SHOWN]:
            yield (
                "warning",
                f"gallery {name!r} has changed by more than a tenth since its calibration",
                f"calibrate it again: POST /galleries/{name}/calibrations",
            )

    def _quarantine(self) -> Iterator[Outcome]:
        with self._db.read() as session:
            versions = [
                (f"{name}:{row.version}", row.quarantine)
                for name, row in store_repository.quarantined(session)
            ]
        if not versions:
            yield "ok", "no version is in quarantine"
        for ref, reason in versions[:_SHOWN]:
            yield (
                "warning",
                f"{ref} is in quarantine: {reason}",
                "move its aliases to another version, delete it, and train or import it again",
            )

    def _recovery(self) -> Iterator[Outcome]:
        with self._db.read() as session:
            repairs = repairs_since(session, self._db.now(session) - RECOVERY_DAYS * _DAY_S)
        within = f"in the last {RECOVERY_DAYS:.0f} days"
        if not repairs:
            yield "ok", f"no repairs {within}"
            return
        summary = "; ".join(
            f"{SAID[repair]}: {n}, last at {iso(last)}" for repair, (n, last) in repairs.items()
        )
        if "job" not in repairs or repairs["job"][0] < MANY_LOST:
            yield "ok", f"{within}: {summary}"
            return
        yield (
            "warning",
            f"{within}: {summary}",
            "attempts are often lost: see `pairmark audit --action recovery`, and give workers more memory",
        )

    def _backup(self) -> Iterator[Outcome]:
        finished_at = last_finished(self._db)
        with self._db.read() as session:
            days = None if finished_at is None else (self._db.now(session) - finished_at) / _DAY_S
        advice = "take one: `pairmark backup FILE`"
        if days is None:
            yield ("warning", "no backup yet", advice)
        elif days > OLD_BACKUP_DAYS:
            yield ("warning", f"the last backup is {days:.0f} days old", advice)
        else:
            yield "ok", f"the last backup is {days:.1f} days old"

    def _disk(self) -> Iterator[Outcome]:
        places = {"home": self._settings.home}
        if isinstance(self._blobs, LocalBlobs):
            places["artefacts"] = self._blobs.root
        if self._db.is_sqlite and self._db.url.database:
            places["database"] = Path(self._db.url.database).parent
        devices = set()
        for name, path in places.items():
            there = _existing(path)
            if (device := there.stat().st_dev) in devices:
                continue
            devices.add(device)
            free = shutil.disk_usage(there).free
            status: Status = "ok" if free >= LOW_BYTES else "warning" if free >= EMPTY_BYTES else "failure"
            advice = "free some space: on a full disk nothing can be stored or erased"
            yield (
                status,
                f"{free / 2**30:.1f} GiB free for {name} ({path})",
                "" if status == "ok" else advice,
            )

    def _kernels(self) -> Iterator[Outcome]:
        from pairmark.models.warmup import warm

        start = time.perf_counter()
        try:
            warm()
        except Exception as error:
            yield (
                "failure",
                f"kernels do not run: {type(error).__name__}: {error}",
                "reinstall numba and llvmlite in the locked versions",
            )
            return
        seconds = time.perf_counter() - start
        yield "ok", f"every kernel runs (warm in {seconds:.1f} s)"


def as_json(findings: list[Finding]) -> dict[str, Any]:
    """Findings as JSON, with the worst status of all."""
    worst = max((finding.status for finding in findings), key=("ok", "warning", "failure").index)
    return {"status": worst, "findings": [asdict(finding) for finding in findings]}


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
