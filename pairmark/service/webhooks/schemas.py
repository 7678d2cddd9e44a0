"""Requests and answers about webhooks."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.audit.outbox import EVENTS, Event
from pairmark.service.pagination import Page
from pairmark.wire.base import Moment


class WebhookRequest(BaseModel):
    """An address that is to be told of events."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(
        max_length=2_000,
        description="where to send messages, on a host that the setting PAIRMARK_WEBHOOK_HOSTS names",
        examples=["https://hooks.example.com/pairmark"],
    )
    events: list[Event] = Field(
        list(EVENTS), min_length=1, max_length=len(EVENTS), description="default: all"
    )


class WebhookOut(BaseModel):
    """An address that is told of events."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    url: str
    events: list[Event]
    created_at: Moment


class NewWebhook(WebhookOut):
    """A new webhook, with what its messages are signed with."""

    secret: str = Field(description="signs the messages (Standard Webhooks, HMAC-SHA256); not shown again")


class WebhookPage(Page[WebhookOut]):
    """Webhooks, oldest first."""


class DeliveryOut(BaseModel):
    """A message to a webhook, and what became of it."""

    id: str = Field(description="also the header `webhook-id`, the same at each attempt")
    event: Event
    state: Literal["waiting", "delivered", "failed"]
    attempts: int
    created_at: Moment
    next_at: Moment | None = Field(description="when it is tried again; null: it is not")
    answer: str | None = Field(description="the last attempt's status, or why there was no answer")


class DeliveryPage(Page[DeliveryOut]):
    """Messages to a webhook, newest first."""
