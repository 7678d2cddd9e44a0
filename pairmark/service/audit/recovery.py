"""Records each repair after a crash in the audit log and the log."""

from __future__ import annotations

import logging
from typing import Any, Literal

from sqlalchemy.orm import Session

from pairmark.service.audit.log import record

logger = logging.getLogger("pairmark.recovery")
Repair = Literal["job", "storage", "galleries"]
SAID: dict[Repair, str] = {
    "job": "job queued again after a lost attempt",
    "storage": "data of killed processes removed from storage",
    "galleries": "data of deleted galleries and killed imports removed",
}


def recovered(session: Session, now: float, repair: Repair, resource: str, **facts: Any) -> None:
    """Note a repair, in the caller's transaction.

    Parameters
    ----------
    resource : what was repaired, such as ``job:ID``.
    facts : JSON-able, for the entry and the log line.
    """
    record(session, now, f"recovery.{repair}", resource, after=facts)
    logger.warning(SAID[repair], extra={"resource": resource, **facts})
