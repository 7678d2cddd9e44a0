"""Calls of those who run the service: webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pairmark.client.calls import Calls
from pairmark.client.encoding import path_part
from pairmark.schemas.webhooks import DeliveryOut, NewWebhookOut, WebhookOut


class OperationCalls(Calls):
    """Webhooks; they take an ``admin`` key."""

    async def create_webhook(self, url: str, events: Sequence[str] | None = None) -> NewWebhookOut:
        """Have an address told of ``events``, by default of all; its host must be in PAIRMARK_WEBHOOK_HOSTS."""
        body = {"url": url, "events": None if events is None else list(events)}
        return NewWebhookOut.from_json(await self._send("POST", "/webhooks", body))

    async def webhooks(self, *, limit: int | None = None) -> AsyncIterator[WebhookOut]:
        """Webhooks, oldest first."""
        async for webhook in self.pages("/webhooks", limit=limit):
            yield WebhookOut.from_json(webhook)

    async def delete_webhook(self, webhook: str) -> None:
        """Send nothing more to an address."""
        await self.request("DELETE", f"/webhooks/{path_part(webhook)}")

    async def deliveries(self, webhook: str, *, limit: int | None = None) -> AsyncIterator[DeliveryOut]:
        """Messages of the last 30 days to a webhook, newest first."""
        async for delivery in self.pages(f"/webhooks/{path_part(webhook)}/deliveries", limit=limit):
            yield DeliveryOut.from_json(delivery)
