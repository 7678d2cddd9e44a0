"""How far an attempt is, for people."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from pairmark.service.errors import NotReady
from pairmark.service.jobs.leases import Claim, Leases

_log = logging.getLogger("pairmark.jobs")

_WRITE_EVERY_S = 0.5
_EVENT_STEP = 0.01


class Progress:
    """Progress of one attempt, whose ``stages`` say where each begins and ends on the job's way from 0 to 1."""

    def __init__(self, leases: Leases, claim: Claim, stages: Mapping[str, tuple[float, float]]) -> None:
        self._stages = stages
        self._leases = leases
        self._claim = claim
        self._stage = "starting"
        self._written_at = 0.0
        self._event_at = -1.0

    def stage(self, name: str) -> None:
        """A stage begins: always written. Raises `Fenced` when the attempt was superseded."""
        self._stage = name
        self._write(self._stages[name][0], "", event=True)

    def within(self, share: float, message: str = "") -> None:
        """A share of the stage is done: written when enough time has passed."""
        if time.monotonic() - self._written_at < _WRITE_EVERY_S:
            return
        low, high = self._stages[self._stage]
        fraction = low + (high - low) * min(max(share, 0.0), 1.0)
        self._write(fraction, message, event=fraction >= self._event_at + _EVENT_STEP)

    def log(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """A line for people in the job's events, and the same as facts. Raises `Fenced` when superseded."""
        try:
            self._leases.log(self._claim, message, facts)
        except NotReady:
            self._away()

    def _write(self, fraction: float, message: str, *, event: bool) -> None:
        self._written_at = time.monotonic()
        if event:
            self._event_at = fraction
        try:
            self._leases.progress(
                self._claim, fraction=fraction, stage=self._stage, message=message, event=event
            )
        except NotReady:
            self._away()

    def _away(self) -> None:
        # Progress is for people; the work goes on while the database is away.
        _log.warning(
            "progress was not written: the database does not answer", extra={"job": self._claim.job_id}
        )
