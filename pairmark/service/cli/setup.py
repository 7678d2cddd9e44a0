"""Setting up a deployment: a database password, the tables, the first admin key. Safe to run at every start."""

from __future__ import annotations

import os
import secrets as random_secrets
from pathlib import Path
from typing import Annotated

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import settings

GENERATE = "generate"
"""A given password that means none: not every Compose knows empty defaults."""


def setup(
    secrets: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the database password: the files `password`, and `pgpass` for clients."
        ),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the database to answer.", min=0)] = 60.0,
) -> None:
    """Prepare a deployment: password file, tables and first admin key (shown once). Safe to run again."""
    from pairmark.service.cli.keys import opened_keys
    from pairmark.service.db import open_database

    config = settings()
    if secrets is not None:
        password = os.environ.get("PAIRMARK_POSTGRES_PASSWORD", "")
        _write_password(secrets, password if password not in ("", GENERATE) else None)
    with open_database(config) as database:
        database.wait(wait)
        database.upgrade()
    with opened_keys(config, prepare=False) as keys:
        admin_key = None if keys.list() else keys.create("first admin", ["admin"]).key
    if admin_key is None:
        output.show({"key": None}, "ready: an API key exists already")
        return
    output.show(
        {"key": admin_key},
        lambda to: to.print(f"first admin key (shown only this once; send it as Bearer): {admin_key}"),
    )


def _write_password(folder: Path, choice: str | None) -> None:
    """One password for server and clients; an existing one stays, since the database was made with it."""
    file = folder / "password"
    if file.exists():
        password = file.read_text()
        if choice is not None and choice != password:
            output.complain(
                f"PAIRMARK_POSTGRES_PASSWORD differs from {file}, which the database was made with: change it in the "
                "database and in that file, or unset the variable"
            )
            raise typer.Exit(1)
    else:
        password = choice or random_secrets.token_urlsafe(32)
    # The clients' file first: the server starts when it sees its own.
    escaped = password.replace("\\", "\\\\").replace(":", "\\:")
    for path, content in ((folder / "pgpass", f"*:*:*:*:{escaped}\n"), (file, password)):
        if not path.exists():
            part = path.with_suffix(".part")
            part.unlink(missing_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
            with os.fdopen(descriptor, "w") as stream:
                stream.write(content)
                os.fsync(stream.fileno())
            part.replace(path)
