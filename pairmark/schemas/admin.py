"""API keys, webhooks and audit entries."""

from typing import Any, Literal, get_args

from pydantic import (
    Field,
)

from pairmark.schemas.base import Answer, Moment, Request

Scope = Literal["score", "decide", "gallery", "train", "import", "admin"]
Level = Literal["read", "items", "all"]
"""How much of a gallery a scope covers, each with what is before it: reading, its items, and the gallery itself."""
MAX_DAYS = 36_500
GRANTS_TEXT = (
    "`score`, `decide` (decisions without scores), `gallery`, `train`, `import` or `admin` (which includes the "
    "others), each perhaps on one resource: `score:people`, `gallery:people`, `gallery:people:read`, "
    "`gallery:people:items` (items, not the gallery itself)"
)
MAX_TENANT = 50
"""Characters of a tenant's name."""


class KeyRequest(Request):
    """A key to create."""

    name: str = Field(
        min_length=1,
        max_length=200,
        description="name of the key, for example its owner",
        examples=["turnstile"],
    )
    scopes: list[str] = Field(
        min_length=1,
        max_length=100,
        description=GRANTS_TEXT,
        examples=[["decide:people", "gallery:people:read"]],
    )
    tenant: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_TENANT,
        description="tenant whose names alone the key sees: those that begin with it and a slash. Default: that of "
        "the "
        "key that asks",
        examples=["acme"],
    )
    expires_in_days: float | None = Field(
        None, gt=0, le=MAX_DAYS, description="days until it expires; default: never", examples=[90]
    )
    rate: float | None = Field(
        None, gt=0, le=1e6, description="most requests per second; default: `PAIRMARK_RATE_LIMIT`"
    )


class RotationRequest(Request):
    """How to replace a key."""

    overlap_hours: float = Field(
        24.0, ge=0, le=24 * 365, description="hours for which the old key remains valid", examples=[24]
    )


class KeyOut(Answer):
    """A key's entry, without the key itself."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    name: str = Field(description="its name", examples=["turnstile"])
    scopes: list[str] = Field(description="what the key may do", examples=[["decide:people"]])
    tenant: str | None = Field(None, description="tenant whose names alone it sees")
    rate: float | None = Field(
        None, description="requests per second that the key may send; null: `PAIRMARK_RATE_LIMIT`"
    )
    created_at: Moment = Field(description="when it was created")
    expires_at: Moment | None = Field(None, description="when it stops working; null: never")
    last_used_at: Moment | None = Field(None, description="accurate to about half a minute")
    revoked_at: Moment | None = Field(description="when it was revoked; null: it was not")
    replaces: str | None = Field(None, description="id of the key that it replaces, after a rotation")


class NewKey(KeyOut):
    """A new key."""

    key: str = Field(
        description="the key, shown only once; the service stores its hash", examples=["pm_8c1f_..."]
    )
    warnings: list[str] = Field(
        [], description="resources of its scopes that do not exist, and names like them"
    )


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


class NewWebhook(WebhookOut):
    """A new webhook, with what its messages are signed with."""

    secret: str = Field(
        description="signs the messages (Standard Webhooks, HMAC-SHA256); not shown again",
        examples=["whsec_..."],
    )


class AuditEntry(Answer):
    """One change. Entries contain names and numbers, but no vectors, keys or identities."""

    id: int = Field(description="its id", examples=[42])
    at: Moment = Field(description="when it happened")
    actor: str = Field(
        description="who made the change: `key ID`, `loopback`, `local`, `command line USER`, `job ID` or `worker "
        "NAME`",
        examples=["key 8c1f"],
    )
    action: str = Field(description="what was done, e.g. `alias.move`", examples=["alias.move"])
    tenant: str | None = Field(description="whose view of the log shows it")
    resource: str = Field(
        description="what was changed, e.g. `model:faces@production`", examples=["model:people@production"]
    )
    before: dict[str, Any] | None = Field(
        description="the value before; null if it is new", examples=[{"version": 1}]
    )
    after: dict[str, Any] | None = Field(
        description="the value after; null if it was deleted", examples=[{"version": 2}]
    )
    request_id: str | None = Field(
        description="id of the request that made the change, as in the logs", examples=["a1b2c3d4-17"]
    )
