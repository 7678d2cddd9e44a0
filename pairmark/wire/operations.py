"""Requests and answers about webhooks and tenants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Moment, Text

Event = Literal["job.end", "alias.move", "review.enough", "review.alarm", "outcomes.contradict"]
"""Actions of the audit log that webhooks can be told of."""


class WebhookFields(Fields):
    id: str
    url: str
    events: list[Event]
    created_at: Moment


class NewWebhookFields(WebhookFields):
    secret: Annotated[str, Text("signs the messages (Standard Webhooks, HMAC-SHA256); not shown again")]


class DeliveryFields(Fields):
    id: Annotated[str, Text("also the header `webhook-id`, the same at each attempt")]
    event: Event
    state: Literal["waiting", "delivered", "failed"]
    attempts: int
    created_at: Moment
    next_at: Annotated[Moment | None, Text("when it is tried again; null: it is not")]
    answer: Annotated[str | None, Text("the last attempt's status, or why there was no answer")]


class TenantFields(Fields):
    name: Annotated[str, Text("names of the tenant begin with it and a slash")]
    quotas: Any
    use: Any
