"""Commands for those who run the service: keys, audit, backup, restore, doctor."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pairmark.service.cli import output
from pairmark.service.cli.options import Commands, Connection, prepare_database, settings

if TYPE_CHECKING:
    from pairmark.schemas.admin import NewKey
    from pairmark.service.blobs import Blobs
    from pairmark.service.db import Database
    from pairmark.service.keys import Keys
    from pairmark.service.settings import Settings

keys = Commands(help="API keys, in the database that the settings name.", no_args_is_help=True)
SCOPES = (
    "score, decide (decisions without scores), gallery, train, import or admin (which includes the others), or one of "
    "them on a resource, e.g. score:people, gallery:people:read"
)
_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
ExpiresOption = Annotated[
    str | None, typer.Option(help="When the key expires: 90d, 12h, 30m, or a date such as 2027-01-31.")
]


@keys.command()
def create(
    scope: Annotated[list[str], typer.Option(help=f"What it may do (repeatable): {SCOPES}.")],
    name: Annotated[str, typer.Option(help="Name of the key in lists, e.g. its owner.")] = "",
    resource: Annotated[
        str | None, typer.Option(help="Only on this model or gallery (all its scopes), e.g. people.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant whose names alone it sees: those that begin with TENANT/.")
    ] = None,
    expires: ExpiresOption = None,
    rate: Annotated[
        float | None, typer.Option(help="Maximum requests per second with this key.", min=0.001)
    ] = None,
) -> None:
    """Create a key and show it once. Only its hash is stored."""
    if tenant and resource and "/" not in resource:
        resource = f"{tenant}/{resource}"
    scopes = [f"{action}:{resource}" if resource else action for action in scope]
    seconds = None if expires is None else seconds_until(expires)
    with opened_keys(settings()) as key_store:
        _show_new(
            key_store.create(name or " ".join(scopes), scopes, expires_in_s=seconds, rate=rate, tenant=tenant)
        )


@keys.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")],
    overlap: Annotated[str, typer.Option(help="How long the old key stays valid, e.g. 1d, 2h, 0m.")] = "1d",
) -> None:
    """Replace a key by a new one with the same scopes. Both work during the overlap."""
    seconds = seconds_until(overlap)
    with opened_keys(settings()) as key_store:
        _show_new(key_store.rotate(key_id, overlap_s=seconds))


def _show_new(new_key: NewKey) -> None:
    value = new_key.model_dump(mode="json")
    facts = {name: value[name] for name in ("id", "name", "tenant", "scopes", "expires_at", "key")}
    only = "This is the only time it is shown. Send it as 'Authorization: Bearer KEY'."
    warnings = output.warnings(new_key.warnings)
    output.show(value, output.facts(facts), warnings, lambda to: to.print(only, style="dim"))


def seconds_until(text: str) -> float:
    """Seconds to a moment given as a span (``90d``) or a date (UTC), or a usage error."""
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) < 7:
        return int(number) * _UNITS[unit]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; expected e.g. 90d, 12h, 30m or 2027-01-31"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = moment.timestamp() - time.time()
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r} is over")
    return seconds


@keys.command("list")
def list_keys() -> None:
    """List all keys, without their secrets."""
    with opened_keys(settings()) as key_store:
        entries = [entry.model_dump(mode="json") for entry in key_store.list()]
    columns = ("id", "name", "tenant", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at")
    empty = "No keys yet: pairmark keys create --scope admin"
    output.show({"items": entries}, output.table(columns, entries, empty=empty))


@keys.command()
def revoke(key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")]) -> None:
    """Revoke a key. Running services refuse it from the next request on."""
    with opened_keys(settings()) as key_store:
        key_store.revoke(key_id)
    # Until then services go by what they read before.
    time.sleep(settings().catalogue_ttl_s)
    output.show({"revoked": key_id}, f"revoked {key_id}")


@contextmanager
def opened_keys(config: Settings, *, prepare: bool = True) -> Iterator[Keys]:
    """The keys of the settings' database, which is migrated first unless it is to be taken as it is."""
    from pairmark.service.db import open_database
    from pairmark.service.keys import Keys

    if prepare:
        prepare_database(config)
    with open_database(config) as database:
        yield Keys(database)


def audit(
    client: Connection,
    limit: Annotated[int, typer.Option(help="Maximum number of entries to show.", min=1)] = 50,
    actor: Annotated[
        str | None, typer.Option(help="Only changes by this actor, e.g. 'key 0123456789ab'.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action (alias.move) or group of actions (alias).")
    ] = None,
    resource: Annotated[
        str | None, typer.Option(help="Only changes of this resource, e.g. model:faces or gallery:people.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only from this time on (ISO 8601).")] = None,
) -> None:
    """List who changed what, newest first."""
    filters = {"actor": actor, "action": action, "resource": resource, "since": since}
    entries = list(islice(client.pages("/audit", limit=limit, **filters), limit))
    columns = ("at", "actor", "action", "resource", "before", "after")
    output.show({"items": entries}, output.table(columns, entries, empty="No entries."))


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.", dir_okay=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Back up the database and the artefacts while the service runs. Exit code 1: a stored file is damaged."""
    from pairmark.service.operations import back_up

    if file.exists() and not force:
        output.complain(f"{file} exists already: name another file, or overwrite it with --force")
        raise typer.Exit(2)
    # Ended by a signal it removes what it has written so far.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with open_stores() as (config, database, blobs):
        summary = back_up(database, blobs, config, file)

    output.show(summary, output.details(summary))
    if summary["damaged"]:
        raise typer.Exit(1)


def restore(
    file: Annotated[
        Path, typer.Argument(help="A file that `pairmark backup` wrote.", exists=True, dir_okay=False)
    ],
    keys: Annotated[
        Literal["keep", "drop"],
        typer.Option(
            help="What becomes of API keys that worked when the backup was made: drop revokes them."
        ),
    ] = "drop",
) -> None:
    """Restore a backup into an empty database and artefact store. Exit code 1: something is missing or does not
    load."""
    from pairmark.service.operations import restore as restored

    with open_stores() as (config, database, blobs):
        summary = restored(database, blobs, config, file, keys=keys)

    output.show(
        summary,
        output.details(summary),
        "These keys worked in the backup, and are revoked: make new ones with `pairmark keys create`, or\n"
        "restore them as they were with `--keys keep`."
        if summary["revoked_keys"]
        else None,
        "The backup holds no API key: the new one is an admin's, and is shown only here."
        if summary["new_key"]
        else None,
        "There is no API key: everybody on this machine may use the service." if summary["open"] else None,
    )
    if summary["missing"] or summary["unloadable"]:
        raise typer.Exit(1)


def doctor() -> None:
    """Check the database, foreign keys, stored files and the versions in use. Exit code 1: a check failed."""
    from pairmark.service.operations import examine

    with open_stores() as (config, database, blobs):
        described = examine(database, blobs, config)
    rows = [
        [finding[name] for name in ("status", "check", "detail", "advice")]
        for finding in described["findings"]
    ]
    output.show(
        described, output.table(("status", "check", "finding", "what to do"), rows, empty="No findings.")
    )
    if described["status"] == "failure":
        raise typer.Exit(1)


@contextmanager
def open_stores() -> Iterator[tuple[Settings, Database, Blobs]]:
    """Database and storage of the settings, as they are: nothing is migrated."""
    from pairmark.service.blobs import open_blobs
    from pairmark.service.db import open_database

    config = settings()
    with open_database(config) as database:
        yield config, database, open_blobs(config)
