"""Commands for those who run the service: audit, backup, restore, doctor."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import Connection, settings

if TYPE_CHECKING:
    from rich.console import Console

    from pairmark.service.blobs import Blobs
    from pairmark.service.db import Database
    from pairmark.service.settings import Settings


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
    rows = [
        [entry["at"], entry["actor"], entry["action"], entry["resource"], _facts(entry)] for entry in entries
    ]
    columns = ("at", "actor", "action", "resource", "change")
    output.show({"items": entries}, output.table(columns, rows, empty="No entries."))


def _facts(entry: dict[str, Any]) -> str:
    before, after = entry["before"] or {}, entry["after"] or {}
    described = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old == new or (old is None and new is None):
            continue
        described.append(f"{name}: {new}" if old is None else f"{name}: {old} -> {new}")
    return ", ".join(described)


def backup(
    file: Annotated[Path, typer.Argument(help="The file to write.", dir_okay=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Back up the database and the artefacts while the service runs. Exit code 1: a stored file is damaged."""
    from pairmark.service.operations.backup import back_up

    if file.exists() and not force:
        output.complain(f"{file} exists already: name another file, or overwrite it with --force")
        raise typer.Exit(2)
    # Ended by a signal it removes what it has written so far.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with _open_stores() as (config, database, blobs):
        summary = back_up(database, blobs, config, file)

    def human(to: Console) -> None:
        to.print(f"{file}: the database and {summary['blobs']} artefacts, {summary['bytes'] / 2**20:.1f} MiB")
        for what, detail in summary["damaged"].items():
            to.print(f"NOT IN THE BACKUP: {what[:40]}: {detail}")

    output.show(summary, human)
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
    from pairmark.service.operations.restore import restore as restored

    with _open_stores() as (config, database, blobs):
        summary = restored(database, blobs, config, file, keys=keys)

    def human(to: Console) -> None:
        to.print(f"restored the database and {summary['blobs']} artefacts from {file}")
        for key in summary["revoked_keys"]:
            to.print(f"REVOKED: key {key['id']} ({key['name']!a}) worked in the backup")
        if summary["revoked_keys"]:
            to.print("Make new keys with `pairmark keys create`. `--keys keep` restores keys as they were.")
        if summary["new_key"]:
            to.print("The backup holds no API key. This admin key was made, and is shown only here:")
            to.print(summary["new_key"])
        if summary["open"]:
            to.print("OPEN: there is no API key, so everybody on this machine may use the service.")
        for what, detail in summary["missing"].items():
            to.print(f"NOT IN THE BACKUP: {what[:40]}: {detail}")
        for ref, detail in summary["unloadable"].items():
            to.print(f"DOES NOT LOAD: {ref}: {detail}")

    output.show(summary, human)
    if summary["missing"] or summary["unloadable"]:
        raise typer.Exit(1)


def doctor(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Skip the checksums of stored files and the loading of versions."),
    ] = False,
) -> None:
    """Check the database, foreign keys, stored files and the versions in use. Exit code 1: a check failed."""
    from pairmark.service.operations.doctor import Doctor, as_json

    with _open_stores() as (config, database, blobs):
        findings = Doctor(database, blobs, config, quick=quick).examine()
    described = as_json(findings)
    rows = [[finding.status, finding.check, finding.detail, finding.advice] for finding in findings]
    output.show(
        described, output.table(("status", "check", "finding", "what to do"), rows, empty="No findings.")
    )
    if described["status"] == "failure":
        raise typer.Exit(1)


@contextmanager
def _open_stores() -> Iterator[tuple[Settings, Database, Blobs]]:
    """Database and storage of the settings, as they are: nothing is migrated."""
    from pairmark.service.blobs import open_blobs
    from pairmark.service.db import open_database

    config = settings()
    with open_database(config) as database:
        yield config, database, open_blobs(config)
