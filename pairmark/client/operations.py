"""Calls of those who run the service: webhooks and tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from pairmark.client.calls import Calls
from pairmark.client.encoding import path_part
from pairmark.client.results import Answer
from pairmark.wire.operations import DeliveryFields, NewWebhookFields, TenantFields, WebhookFields


class Webhook(Answer, WebhookFields):
    """An address that is told of events."""


class NewWebhook(Answer, NewWebhookFields):
    """A new webhook; ``secret`` signs its messages and is not shown again."""


class Delivery(Answer, DeliveryFields):
    """A message to a webhook: ``waiting``, ``delivered`` or ``failed``, and the last attempt's answer."""


class Tenant(Answer, TenantFields):
    """A prefix of names: its quotas (0: no limit) and what it uses of them, by name."""


class OperationCalls(Calls):
    """Webhooks, and tenants with their quotas; they take an ``admin`` key."""

    async def create_webhook(self, url: str, events: Sequence[str] | None = None) -> NewWebhook:
        """Have an address told of ``events``, by default of all; its host must be in PAIRMARK_WEBHOOK_HOSTS."""
        body = {"url": url, "events": None if events is None else list(events)}
        return NewWebhook.of(await self._send("POST", "/webhooks", body))

    async def webhooks(self, *, limit: int | None = None) -> AsyncIterator[Webhook]:
        """Webhooks, oldest first."""
        async for webhook in self.pages("/webhooks", limit=limit):
            yield Webhook.of(webhook)

    async def delete_webhook(self, webhook: str) -> None:
        """Send nothing more to an address."""
        await self.request("DELETE", f"/webhooks/{path_part(webhook)}")

    async def deliveries(self, webhook: str, *, limit: int | None = None) -> AsyncIterator[Delivery]:
        """Messages of the last 30 days to a webhook, newest first."""
        async for delivery in self.pages(f"/webhooks/{path_part(webhook)}/deliveries", limit=limit):
            yield Delivery.of(delivery)

    async def tenants(self, *, limit: int | None = None) -> AsyncIterator[Tenant]:
        """Tenants by name; a key of a tenant sees its own."""
        async for tenant in self.pages("/tenants", limit=limit):
            yield Tenant.of(tenant)

    async def tenant(self, tenant: str) -> Tenant:
        """A tenant's quotas and use."""
        return Tenant.of(await self._get(f"/tenants/{path_part(tenant)}"))

    async def set_quotas(self, /, tenant: str, **quotas: Any) -> Tenant:
        """Set ``vectors``, ``rows``, ``bytes``, ``jobs`` and ``keys``; those left out take the settings' defaults."""
        return Tenant.of(await self._send("PUT", f"/tenants/{path_part(tenant)}", quotas))
