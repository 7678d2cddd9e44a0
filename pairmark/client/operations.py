"""Calls of those who run the service: webhooks and tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pairmark.client.calls import Calls
from pairmark.client.encoding import path_part
from pairmark.schemas.keys import TenantOut
from pairmark.schemas.webhooks import DeliveryOut, NewWebhookOut, WebhookOut


class OperationCalls(Calls):
    """Webhooks, and tenants with their quotas; they take an ``admin`` key."""

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

    async def tenants(self, *, limit: int | None = None) -> AsyncIterator[TenantOut]:
        """Tenants by name; a key of a tenant sees its own."""
        async for tenant in self.pages("/tenants", limit=limit):
            yield TenantOut.from_json(tenant)

    async def tenant(self, tenant: str) -> TenantOut:
        """A tenant's quotas and use."""
        return TenantOut.from_json(await self._get(f"/tenants/{path_part(tenant)}"))

    async def set_quotas(self, /, tenant: str, **quotas: Any) -> TenantOut:
        """Set ``vectors``, ``rows``, ``bytes``, ``jobs`` and ``keys``; those left out take the settings' defaults."""
        return TenantOut.from_json(await self._send("PUT", f"/tenants/{path_part(tenant)}", quotas))
