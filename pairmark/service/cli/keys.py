"""API keys, beside the database: made, listed, rotated and revoked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import prepare_database, settings
from pairmark.service.cli.options import Commands

if TYPE_CHECKING:
    from pairmark.schemas.admin import NewKey
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
        new_key = key_store.create(
            name or " ".join(scopes), scopes, expires_in_s=seconds, rate=rate, tenant=tenant
        )
    _show_new(new_key)


@keys.command()
def rotate(
    key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")],
    overlap: Annotated[str, typer.Option(help="How long the old key stays valid, e.g. 1d, 2h, 0m.")] = "1d",
) -> None:
    """Replace a key by a new one with the same scopes. Both work during the overlap."""
    seconds = seconds_until(overlap)
    with opened_keys(settings()) as key_store:
        new_key = key_store.rotate(key_id, overlap_s=seconds)
    _show_new(new_key)


def _show_new(new_key: NewKey) -> None:
    value = new_key.model_dump(mode="json")
    facts = {
        name: value[name]
        for name in ("id", "name", "tenant", "scopes", "expires_at")
        if value[name] is not None
    }

    def human(to: Any) -> None:
        output.facts({**facts, "key": new_key.key})(to)
        to.print("This is the only time it is shown. Send it as 'Authorization: Bearer KEY'.", style="dim")

    output.show(value, human)


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


def has_active_key(config: Settings) -> bool:
    """Whether a key exists that was not revoked."""
    with opened_keys(config, prepare=False) as key_store:
        return any(entry.revoked_at is None for entry in key_store.list())


@contextmanager
def opened_keys(config: Settings, *, prepare: bool = True) -> Iterator[Keys]:
    """The keys of the settings' database, which is migrated first unless it is to be taken as it is."""
    from pairmark.service.db import open_database
    from pairmark.service.keys import Keys

    if prepare:
        prepare_database(config)
    with open_database(config) as database:
        yield Keys(database)
