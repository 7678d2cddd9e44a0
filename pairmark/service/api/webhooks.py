"""Webhooks over HTTP, for admins."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Response

from pairmark.service.api.query import Paging
from pairmark.service.api.services import InServices
from pairmark.service.webhooks.schemas import DeliveryPage, NewWebhookOut, WebhookPage, WebhookRequest

WebhookId = Annotated[str, Path(max_length=32, pattern="^[0-9a-zA-Z_-]+$", description="the webhook's id")]


async def create_webhook(services: InServices, response: Response, request: WebhookRequest) -> NewWebhookOut:
    """Have events sent to an address. Only this answer shows the secret that signs the messages.

    A message is `{"type", "timestamp", "data"}` with the headers of Standard Webhooks (`webhook-id`,
    `webhook-timestamp`, `webhook-signature`). An answer other than 2xx is tried again, seven times in 18 hours.
    """
    webhook = await asyncio.to_thread(services.webhooks.create, request)
    response.headers["Cache-Control"] = "no-store"
    return webhook


def list_webhooks(services: InServices, query: Paging) -> WebhookPage:
    """Webhooks, oldest first, without their secrets."""
    return services.webhooks.page(query.limit, query.cursor)


async def delete_webhook(services: InServices, webhook_id: WebhookId) -> None:
    """Delete a webhook and its messages."""
    await asyncio.to_thread(services.webhooks.delete, webhook_id)


def list_deliveries(services: InServices, webhook_id: WebhookId, query: Paging) -> DeliveryPage:
    """Messages to a webhook of the last 30 days, newest first, with what became of them."""
    return services.webhooks.deliveries(webhook_id, query.limit, query.cursor)
