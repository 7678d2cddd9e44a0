"""Logs as one JSON object a line. What is logged names requests, models and jobs; never vectors, labels or keys."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from pairmark.service.audit.actor import current_actor

_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class JsonFormatter(logging.Formatter):
    """A record as JSON: time, level, logger, message, what `extra` added, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{whole}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _OF_EVERY_RECORD)
        actor = current_actor()
        if actor.trace_id is not None:
            line.setdefault("trace_id", actor.trace_id)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def configure_logging(level: str) -> None:
    """Send every log of this process to stderr as JSON lines; ``level`` is a name such as INFO."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers[:] = []
        logger.propagate = True
    # Our own middleware logs requests, with their ids.
    logging.getLogger("uvicorn.access").disabled = True
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
