"""Webhooks over HTTP, for admins."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Response

from pairmark.schemas.webhooks import DeliveryPage, NewWebhookOut, WebhookPage, WebhookRequest
from pairmark.service.api.query import Paging
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices

router = APIRouter(tags=["webhooks"], route_class=GuardedRoute)


WebhookId = Annotated[str, Path(max_length=32, pattern="^[0-9a-zA-Z_-]+$", description="the webhook's id")]


@router.post("/webhooks", status_code=201)
@needs(
    "operator",
)
async def create_webhook(services: InServices, response: Response, request: WebhookRequest) -> NewWebhookOut:
    """Have events sent to an address. Only this answer shows the secret that signs the messages.

    A message is `{"type", "timestamp", "data"}` with the headers of Standard Webhooks (`webhook-id`,
    `webhook-timestamp`, `webhook-signature`). An answer other than 2xx is tried again, seven times in 18 hours.
    """
    webhook = await asyncio.to_thread(services.webhooks.create, request)
    response.headers["Cache-Control"] = "no-store"
    return webhook


@router.get("/webhooks")
@needs("operator")
def list_webhooks(services: InServices, query: Paging) -> WebhookPage:
    """Webhooks, oldest first, without their secrets."""
    return services.webhooks.page(query.limit, query.cursor)


@router.delete("/webhooks/{webhook_id}", status_code=204)
@needs("operator")
async def delete_webhook(services: InServices, webhook_id: WebhookId) -> None:
    """Delete a webhook and its messages."""
    await asyncio.to_thread(services.webhooks.delete, webhook_id)


@router.get("/webhooks/{webhook_id}/deliveries")
@needs("operator")
def list_deliveries(services: InServices, webhook_id: WebhookId, query: Paging) -> DeliveryPage:
    """Messages to a webhook of the last 30 days, newest first, with what became of them."""
    return services.webhooks.deliveries(webhook_id, query.limit, query.cursor)
