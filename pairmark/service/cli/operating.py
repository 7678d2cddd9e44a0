"""Commands for those who run the service: audit, backup, restore, doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
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
    with _open_stores() as (config, database, blobs):
        summary = back_up(database, blobs, config, file)

    def human(to: Console) -> None:
        size = f"{summary['bytes'] / 2**20:.1f} MiB"
        to.print(f"{file}: {summary['rows']} rows and {summary['blobs']} stored files, {size}")
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
        Literal["keep", "drop"] | None,
        typer.Option(
            help="What becomes of API keys that worked when the backup was made: drop revokes them. Default: drop, "
            "unless --last-revocation is before the backup."
        ),
    ] = None,
    last_revocation: Annotated[
        datetime | None,
        typer.Option(
            help="When a key was last revoked (ISO 8601, UTC).", formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]
        ),
    ] = None,
) -> None:
    """Restore a backup into an empty database and artefact store, and check its scores."""
    from pairmark.service.operations.restore import restore as restored

    with _open_stores() as (config, database, blobs):
        revoked_at = None if last_revocation is None else last_revocation.replace(tzinfo=UTC).timestamp()
        summary = restored(database, blobs, config, file, keys=keys, last_revocation=revoked_at)

    def human(to: Console) -> None:
        to.print(f"restored {summary['rows']} rows and {summary['blobs']} stored files from {file}")
        to.print(f"versions in use that give the same scores to the last bit: {len(summary['same'])}")
        for ref in summary["close"]:
            to.print(f"{ref} gives the same scores except for rounding: another CPU, or other libraries")
        for key in summary["revoked_keys"]:
            to.print(f"REVOKED: key {key['id']} ({key['name']!a}) worked in the backup")
        if summary["revoked_keys"]:
            to.print("Make new keys with `pairmark keys create`. `--keys keep` restores keys as they were.")
        for what, detail in summary["missing"].items():
            to.print(f"NOT IN THE BACKUP: {what[:40]}: {detail}")
        for item in summary["refused"][:20]:
            # As Python writes it: the name may hold characters that a terminal obeys.
            name = ascii(item.get("id") or item["subject"])
            to.print(f"NOT RESTORED: {name} of gallery {item['gallery']}: {item['detail']}")
        if summary["n_refused"] > 20:
            to.print(f"and {summary['n_refused'] - 20} more that are not restored (--json lists 1,000)")

    output.show(summary, human)


def doctor(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Skip the checksums of stored files and the compilation of kernels."),
    ] = False,
) -> None:
    """Check database, clocks, workers, data, calibrations, disk and kernels. Exit code 1: a check failed."""
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
