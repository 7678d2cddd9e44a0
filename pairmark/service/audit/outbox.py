"""What is sent to webhooks: written with the change it tells of, so that neither is there without the other."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from pairmark.schemas.base import iso
from pairmark.schemas.webhooks import EVENTS
from pairmark.service.tables import WebhookDelivery, WebhookRow


def post(session: Session, now: float, action: str, resource: str, facts: Mapping[str, Any] | None) -> None:
    """Add a delivery to each webhook that asks for this action, in the caller's transaction."""
    if action not in EVENTS:
        return
    asking = [row.id for row in session.scalars(select(WebhookRow)) if action in row.events]
    if not asking:
        return
    body = {"type": action, "timestamp": iso(now), "data": {"resource": resource, **(facts or {})}}
    session.execute(
        insert(WebhookDelivery),
        [
            {"id": secrets.token_hex(12), "webhook_id": webhook, "event": action, "body": body}
            | {"created_at": now, "attempts": 0, "next_at": now}
            for webhook in asking
        ],
    )
