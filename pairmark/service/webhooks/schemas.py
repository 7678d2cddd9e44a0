"""Requests and answers about webhooks."""

from __future__ import annotations

from pydantic import BaseModel, Field

from pairmark.service.audit.outbox import EVENTS
from pairmark.service.pagination import Page
from pairmark.wire.operations import DeliveryFields, Event, NewWebhookFields, WebhookFields


class WebhookRequest(BaseModel, extra="forbid"):
    """An address that is to be told of events."""

    url: str = Field(
        max_length=2_000,
        description="where to send messages, on a host that the setting PAIRMARK_WEBHOOK_HOSTS names",
        examples=["https://hooks.example.com/pairmark"],
    )
    events: list[Event] = Field(
        list(EVENTS), min_length=1, max_length=len(EVENTS), description="default: all"
    )


class WebhookOut(BaseModel, WebhookFields, from_attributes=True):
    """An address that is told of events."""


class NewWebhookOut(BaseModel, NewWebhookFields, from_attributes=True, title="NewWebhook"):
    """A new webhook, with what its messages are signed with."""


class WebhookPage(Page[WebhookOut]):
    """Webhooks, oldest first."""


class DeliveryOut(BaseModel, DeliveryFields):
    """A message to a webhook, and what became of it."""


class DeliveryPage(Page[DeliveryOut]):
    """Messages to a webhook, newest first."""
