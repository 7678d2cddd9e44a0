"""Commands for those who run the service: audit."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import UrlOption, connected


def audit(
    limit: Annotated[int, typer.Option(help="Most entries to show.", min=1)] = 50,
    actor: Annotated[
        str | None, typer.Option(help="Only by this one, e.g. 'key 0123456789ab'.", show_default=False)
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action (alias.move) or group (alias).", show_default=False)
    ] = None,
    resource: Annotated[
        str | None, typer.Option(help="Only on this, e.g. model:faces or gallery:people.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only from this time on, ISO 8601.", show_default=False)
    ] = None,
    url: UrlOption = None,
    json: output.JsonOption = False,
) -> None:
    """Who changed what, newest first."""
    with connected(url) as client:
        wanted = {"actor": actor, "action": action, "resource": resource, "since": since}
        found = list(islice(client.pages("/audit", limit=limit, **wanted), limit))
    rows = [
        [entry["at"], entry["actor"], entry["action"], entry["resource"], _facts(entry)] for entry in found
    ]
    columns = ("at", "actor", "action", "resource", "change")
    output.show({"items": found}, output.table(columns, rows, empty="No entries."))


def _facts(entry: dict[str, Any]) -> str:
    before, after = entry["before"] or {}, entry["after"] or {}
    told = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old == new or (old is None and new is None):
            continue
        told.append(f"{name}: {new}" if old is None else f"{name}: {old} -> {new}")
    return ", ".join(told)
