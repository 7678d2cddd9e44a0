"""Where a command's calls go: a running service, or the same service inside this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pairmark.client import Client
    from pairmark.service.settings import Settings

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="PAIRMARK_URL",
        help="A running service (its key in PAIRMARK_API_KEY). Without it, the database of the settings is used.",
        show_default=False,
    ),
]


def settings() -> Settings:
    """The settings of this process."""
    from pairmark.service.settings import Settings

    return Settings()


@contextmanager
def connected(url: str | None) -> Iterator[Client]:
    """A client of the service at ``url``, or of one inside this process."""
    from pairmark.client import Client

    if url:
        with Client(url) as client:
            yield client
        return
    from pairmark.service.inprocess import embedded_client

    chosen = settings()
    prepare_database(chosen)
    with embedded_client(chosen) as client:
        yield client


def prepare_database(chosen: Settings, wait: float = 0.0) -> None:
    """Migrate the embedded database; a PostgreSQL one is only checked, since others may be using it.

    Parameters
    ----------
    wait : seconds to wait for PostgreSQL to answer and to have its tables.
    """
    from pairmark.service.db import open_database
    from pairmark.service.errors import NotReady

    database = open_database(chosen)
    deadline = time.monotonic() + wait
    try:
        if database.is_sqlite:
            database.upgrade()
            return
        database.wait(max(wait, 5.0))
        while True:
            try:
                database.ping()
                return
            except NotReady as error:
                if time.monotonic() >= deadline:
                    raise NotReady(
                        "the database has no Pairmark tables yet: run `pairmark db upgrade`"
                    ) from error
            time.sleep(0.5)
    finally:
        database.dispose()
