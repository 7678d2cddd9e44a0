"""Commands for webhooks: addresses that are told of events."""

from __future__ import annotations

from typing import Annotated

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection
from pairmark.service.cli.options import Commands

webhooks = Commands(help="Webhooks: addresses that are told of events.", no_args_is_help=True)
WebhookId = Annotated[str, typer.Argument(help="The id that `webhooks list` shows.", metavar="ID")]


@webhooks.command()
def create(
    client: Connection,
    address: Annotated[
        str,
        typer.Argument(help="Where to send messages, on a host in PAIRMARK_WEBHOOK_HOSTS.", metavar="URL"),
    ],
    event: Annotated[
        list[str] | None, typer.Option(help="Event to tell of (repeatable), e.g. job.end. Default: all.")
    ] = None,
) -> None:
    """Create a webhook and show once what signs its messages."""
    webhook = client.create_webhook(address, event)
    output.show(webhook, output.facts({name: webhook[name] for name in ("id", "url", "events", "secret")}))


@webhooks.command("list")
def list_webhooks(client: Connection) -> None:
    """List webhooks, without their secrets."""
    items = list(client.webhooks())
    empty = "No webhooks yet: pairmark webhooks create URL"
    output.show(items, output.table(("id", "url", "events", "created_at"), items, empty=empty))


@webhooks.command()
def deliveries(
    client: Connection,
    webhook_id: WebhookId,
    limit: Annotated[int, typer.Option(help="Newest messages to show.", min=1)] = 50,
) -> None:
    """List messages to a webhook and what became of them, newest first."""
    items = list(client.deliveries(webhook_id, limit=limit))
    columns = ("created_at", "event", "state", "attempts", "answer", "next_at")
    output.show(items, output.table(columns, items, empty="No messages in the last 30 days."))


@webhooks.command()
def delete(client: Connection, webhook_id: WebhookId) -> None:
    """Delete a webhook. Messages that wait are not sent."""
    client.delete_webhook(webhook_id)
    output.show({"id": webhook_id}, output.facts({"deleted": webhook_id}))
