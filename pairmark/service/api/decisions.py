"""Decisions written into the audit log, so that each can be defended later."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pairmark.service.api.calls import JSON, Answer, Call

HEADER: Final = b"pairmark-log-decision"
LOGGED: Final = 1_000
"""Most scores of one entry; the digest of the answer stands for the rest."""


async def logged_decision(handler: Callable[..., Awaitable[Answer]], call: Call) -> Answer:
    """Answer, once the decision is in the audit log: the answer names its entry in ``Pairmark-Decision-Id``."""
    body, kind, extra = await handler(call, **call.path_params)
    facts = {
        "query": call.scope["query_string"].decode("latin-1")[:500],
        "input_sha256": hashlib.sha256(call.whole).hexdigest(),
        "answer_sha256": hashlib.sha256(body).hexdigest(),
        **(_of_json(body) if kind == JSON else _of_headers(extra)),
    }
    resource = f"gallery:{call.path_params['gallery']}" if "gallery" in call.path_params else "match"
    number = await asyncio.to_thread(call.services.audit.note, "decision", resource, facts)
    return body, kind, (*extra, (b"pairmark-decision-id", b"%d" % number))


def _of_json(body: bytes) -> dict[str, Any]:
    answer = json.loads(body)
    entries = answer.get("matches", answer.get("decisions"))
    if entries is None and "results" in answer:
        entries = [hit for hits in answer["results"] for hit in hits]
    if entries is None:
        entries = [answer]
    # Who was found is not kept: ids of people must stay erasable.
    decisions = [
        {name: entry[name] for name in ("score", "match", "decision") if name in entry}
        for entry in entries[:LOGGED]
    ]
    return {
        "model": answer.get("model"),
        "operating_point": answer.get("operating_point"),
        "n": len(entries),
        "decisions": decisions,
    }


def _of_headers(extra: tuple[tuple[bytes, bytes], ...]) -> dict[str, Any]:
    answer = {name.decode().lower(): value.decode() for name, value in extra}
    return {
        "operating_point": {
            "threshold": answer.get("x-pairmark-threshold"),
            "calibration_id": answer.get("x-pairmark-calibration-id"),
        },
        "model": answer.get("x-pairmark-model"),
    }
