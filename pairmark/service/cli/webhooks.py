"""Commands for webhooks: addresses that are told of events."""

from __future__ import annotations

from typing import Annotated

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import UrlOption, connected

webhooks = typer.Typer(help="Webhooks: addresses that are told of events.", no_args_is_help=True)
WebhookId = Annotated[str, typer.Argument(help="The id that `webhooks list` shows.", metavar="ID")]


@webhooks.command()
def create(
    address: Annotated[
        str,
        typer.Argument(help="Where to send messages, on a host in PAIRMARK_WEBHOOK_HOSTS.", metavar="URL"),
    ],
    event: Annotated[
        list[str] | None, typer.Option(help="Event to tell of (repeatable), e.g. job.end. Default: all.")
    ] = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Create a webhook and show once what signs its messages."""
    with connected(url) as client:
        webhook = client.create_webhook(address, event)

    facts = output.facts({name: webhook[name] for name in ("id", "url", "events", "secret")})
    output.show(webhook, facts)


@webhooks.command("list")
def list_webhooks(url: UrlOption = None, json: output.JsonOption = False) -> None:
    """List webhooks, without their secrets."""
    with connected(url) as client:
        items = list(client.webhooks())
    rows = [[webhook.id, webhook.url, webhook.events, webhook.created_at] for webhook in items]
    empty = "No webhooks yet: pairmark webhooks create URL"
    output.show(items, output.table(("id", "url", "events", "created_at"), rows, empty=empty))


@webhooks.command()
def deliveries(
    webhook_id: WebhookId,
    limit: Annotated[int, typer.Option(help="Newest messages to show.", min=1)] = 50,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """List messages to a webhook and what became of them, newest first."""
    with connected(url) as client:
        items = list(client.deliveries(webhook_id, limit=limit))
    columns = ("created_at", "event", "state", "attempts", "answer", "next_at")
    rows = [[delivery[column] for column in columns] for delivery in items]
    output.show(items, output.table(columns, rows, empty="No messages in the last 30 days."))


@webhooks.command()
def delete(webhook_id: WebhookId, url: UrlOption = None, json: output.JsonOption = False) -> None:
    """Delete a webhook. Messages that wait are not sent."""
    with connected(url) as client:
        client.delete_webhook(webhook_id)
    output.show({"id": webhook_id}, output.facts({"deleted": webhook_id}))
