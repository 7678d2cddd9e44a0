"""Where a command's calls go: a running service, or the same service inside this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output

if TYPE_CHECKING:
    from pairmark.client import Client
    from pairmark.service.db import Database
    from pairmark.service.settings import Settings

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="PAIRMARK_URL",
        help="A running service (its key in PAIRMARK_API_KEY). Without it, the database of the settings is used.",
    ),
]


def settings() -> Settings:
    """The settings of this process."""
    from pairmark.service.settings import Settings

    return Settings()


@dataclass(frozen=True)
class Connects:
    """Of a command's argument: a client of the service at ``--url``, or else of one inside this process, on a database
    that is there or that the command ``creates``."""

    creates: bool = False


Connection = Annotated["Client", Connects()]
NewConnection = Annotated["Client", Connects(creates=True)]


class LazyClient:
    """A client that connects for its first call: what is wrong with a command's words is said before."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect

    @cached_property
    def _client(self) -> Client:
        return self._connect()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextmanager
def connected(url: str | None, *, creates: bool = False) -> Iterator[Client]:
    """See `Connects`."""
    if url:
        from pairmark.client import Client

        try:
            client = Client(url)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--url") from error
        with client:
            yield client
        return
    config = settings()
    if not creates and not config.database_url and not (config.home / "pairmark.db").exists():
        output.complain(
            f"there is no service to ask and no database in {config.home}/: start one with `pairmark serve`, then "
            "`export PAIRMARK_URL=http://127.0.0.1:8000`, or name one with --url"
        )
        raise typer.Exit(1)
    from pairmark.service.inprocess import embedded_client

    prepare_database(config)
    with embedded_client(config) as client:
        yield client


def prepare_database(config: Settings, wait: float = 0.0) -> None:
    """Migrate the embedded database; a PostgreSQL one is only checked, since others may be using it.

    An embedded database that is older is copied first, and both are said on stderr.

    Parameters
    ----------
    wait : seconds to wait for PostgreSQL to answer and to have its tables.

    Raises
    ------
    SchemaMismatch
        When PostgreSQL's tables are older or missing, or the database is newer than this version.
    """
    from pairmark.service.db import open_database
    from pairmark.service.errors import SchemaMismatch

    deadline = time.monotonic() + wait
    with open_database(config) as database:
        if database.is_sqlite:
            migrate_embedded(database)
            return
        database.wait(max(wait, 5.0))
        while True:
            try:
                database.check_schema()
                return
            except SchemaMismatch:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.5)


def migrate_embedded(database: Database) -> None:
    """Bring an embedded database to the newest revision, after copying one that holds data."""
    from pairmark import migrations

    before = database.revision()
    if before in (None, migrations.HEAD):
        database.upgrade()
        return
    if before not in migrations.revisions():
        database.check_schema()
    file = Path(database.url.database or "")
    copy = file.with_name(f"{file.name}.revision-{before}")
    if not copy.exists():
        database.copy_to(copy)
    database.upgrade()
    typer.echo(
        f"the database was migrated from revision {before} to {migrations.HEAD}; a copy from before is in {copy}",
        err=True,
    )
