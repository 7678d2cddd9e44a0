"""API keys: made, listed and revoked beside the database, never over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import prepare_database, settings

if TYPE_CHECKING:
    from pairmark.service.keys import Keys
    from pairmark.service.settings import Settings

keys = typer.Typer(help="API keys (in the database of the settings).", no_args_is_help=True)
SCOPES = "score, gallery, train or admin (which includes the others)"


@keys.command()
def create(
    scope: Annotated[list[str], typer.Option(help=f"What it may do (repeatable): {SCOPES}.")],
    name: Annotated[str, typer.Option(help="Whose it is, for the list.")] = "",
    json: output.JsonOption = False,
) -> None:
    """Make a key and show it, once: only its hash is kept."""
    with opened_keys(settings()) as stored:
        made = stored.create(name or " ".join(scope), scope)
    value = made.model_dump(mode="json")

    def human(to: Any) -> None:
        output.facts({"id": value["id"], "name": value["name"], "scopes": value["scopes"], "key": made.key})(
            to
        )
        to.print("This is the only time it is shown. Send it as 'Authorization: Bearer KEY'.", style="dim")

    output.show(value, human)


@keys.command("list")
def list_keys(json: output.JsonOption = False) -> None:
    """Every key ever made, without its secret."""
    with opened_keys(settings()) as stored:
        found = [entry.model_dump(mode="json") for entry in stored.list()]
    columns = ("id", "name", "scopes", "created_at", "revoked_at")
    empty = "No keys yet: pairmark keys create --scope admin"
    rows = [[entry.get(column) for column in columns] for entry in found]
    output.show({"items": found}, output.table(columns, rows, empty=empty))


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")],
    json: output.JsonOption = False,
) -> None:
    """Revoke a key; running services refuse it within a moment."""
    with opened_keys(settings()) as stored:
        stored.revoke(key_id)
    output.show({"revoked": key_id}, lambda to: to.print(f"revoked {key_id}", markup=False))


def has_active_key(chosen: Settings) -> bool:
    """Whether a key exists that was not revoked."""
    with opened_keys(chosen, prepare=False) as stored:
        return any(entry.revoked_at is None for entry in stored.list())


@contextmanager
def opened_keys(chosen: Settings, *, prepare: bool = True) -> Iterator[Keys]:
    """The keys in the database of the settings."""
    from pairmark.service.db import open_database
    from pairmark.service.keys import Keys

    if prepare:
        prepare_database(chosen)
    database = open_database(chosen)
    try:
        yield Keys(database)
    finally:
        database.dispose()
