"""Webhooks and their messages."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import (
    Field,
)

from pairmark.schemas.base import Answer, Moment, Page, Request

Event = Literal[
    "job.end", "alias.move", "review.enough", "review.alarm", "outcomes.contradict", "inputs.moved"
]
"""Actions of the audit log that webhooks can be told of."""
EVENTS = get_args(Event)


class WebhookRequest(Request):
    """An address that is to be told of events."""

    url: str = Field(
        max_length=2_000,
        description="where to send messages, on a host that the setting PAIRMARK_WEBHOOK_HOSTS names",
        examples=["https://hooks.example.com/pairmark"],
    )
    events: list[Event] = Field(
        list(EVENTS), min_length=1, max_length=len(EVENTS), description="default: all", examples=[["job.end"]]
    )


class WebhookOut(Answer):
    """An address that is told of events."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    url: str = Field(
        description="the address that messages are sent to", examples=["https://hooks.example.com/pairmark"]
    )
    events: list[Event] = Field(description="what the webhook is told of", examples=[["job.end"]])
    created_at: Moment = Field(description="when it was created")


class NewWebhookOut(WebhookOut, title="NewWebhook"):
    """A new webhook, with what its messages are signed with."""

    secret: str = Field(
        description="signs the messages (Standard Webhooks, HMAC-SHA256); not shown again",
        examples=["whsec_..."],
    )


class WebhookPage(Page[WebhookOut]):
    """Webhooks, oldest first."""


class DeliveryOut(Answer):
    """A message to a webhook, and what became of it."""

    id: str = Field(
        description="also the header `webhook-id`, the same at each attempt",
        examples=["6f1ed002ab5595859014ebf0951522d9"],
    )
    event: Event = Field(description="what happened")
    state: Literal["waiting", "delivered", "failed"] = Field(
        description="what became of it", examples=["delivered"]
    )
    attempts: int = Field(description="number of attempts so far", examples=[1])
    created_at: Moment = Field(description="when it was created")
    next_at: Moment | None = Field(description="when it is tried again; null: it is not")
    answer: str | None = Field(
        description="the last attempt's status, or why there was no answer", examples=["204"]
    )


class DeliveryPage(Page[DeliveryOut]):
    """Messages to a webhook, newest first."""
