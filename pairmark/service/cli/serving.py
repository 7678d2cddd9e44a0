"""Commands that run the service's processes: serve, worker, warmup, db."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from pairmark.service.cli import output
from pairmark.service.cli.connect import migrate_embedded, prepare_database, settings
from pairmark.service.cli.listening import announce, answer, listen
from pairmark.service.cli.options import Commands

if TYPE_CHECKING:
    from pairmark.service.settings import Settings

WaitOption = Annotated[float, typer.Option(help="Seconds to wait for the database and its tables.", min=0)]
# For processes that must not outlive the one that started them.
UntilStdinCloses = Annotated[bool, typer.Option("--until-stdin-closes", hidden=True)]
database = Commands(help="The schema of the database.", no_args_is_help=True)


@database.command()
def upgrade(
    wait: Annotated[float, typer.Option(help="Seconds to wait for the database to answer.", min=0)] = 30.0,
) -> None:
    """Migrate the schema to the newest version. Safe to run again, and from several machines at once."""
    from pairmark.service.db import open_database

    with open_database(settings()) as store:
        store.wait(wait)
        if store.is_sqlite:
            migrate_embedded(store)
        else:
            store.upgrade()
        url = store.url.render_as_string(hide_password=True)
    output.show({"database": url, "upgraded": True}, f"{url} is up to date")


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    workers: Annotated[
        int, typer.Option(help="Number of processes that answer requests.", min=1, max=256)
    ] = 1,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="Also run one training worker. It stops with the service.")
    ] = False,
    wait: WaitOption = 0.0,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Start the HTTP service. Other machines can reach it only once an API key exists."""
    from pairmark.service.addresses import is_loopback
    from pairmark.service.cli.supervising import worker_beside
    from pairmark.service.logs import configure_logging

    config = settings()
    configure_logging(config.log_level)
    prepare_database(config, wait)
    if not is_loopback(host):
        _require_a_key(config, host, wait)
    if until_stdin_closes:
        _when_stdin_closes(lambda: os.kill(os.getpid(), signal.SIGTERM))
    listener = listen(host, port)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    threading.Thread(target=announce, args=(listener, url), daemon=True).start()
    with worker_beside(with_worker):
        answer(listener, workers)


def worker(
    drain: Annotated[bool, typer.Option("--drain", help="Stop when the queue is empty.")] = False,
    job: Annotated[str | None, typer.Option(help="Run only this job, then stop.")] = None,
    wait: WaitOption = 0.0,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Run training jobs from the queue, one at a time."""
    from pairmark.service.jobs.worker import Worker
    from pairmark.service.logs import configure_logging

    config = settings()
    configure_logging(config.log_level)
    prepare_database(config, wait)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if until_stdin_closes:
        _when_stdin_closes(stop.set)
    Worker(config).run(stop, drain=drain or job is not None, only_job=job)


def warmup() -> None:
    """Compile all kernels into the cache, so that the first requests do not wait."""
    from pairmark.models.warmup import warm

    start = time.perf_counter()
    warm()
    seconds = time.perf_counter() - start
    output.show({"seconds": seconds}, f"kernels are warm ({seconds:.1f} s)")


def _require_a_key(config: Settings, host: str, wait: float) -> None:
    from pairmark.service.cli.keys import has_active_key

    deadline = time.monotonic() + wait
    while not has_active_key(config):
        if time.monotonic() >= deadline:
            output.complain(
                f"refusing to listen on {host}: no API key exists, so anybody who reaches it could do anything. "
                "Create one with `pairmark keys create --scope admin`, or listen on 127.0.0.1"
            )
            raise typer.Exit(1)
        time.sleep(0.5)


def _when_stdin_closes(do: Callable[[], None]) -> None:
    """The pipe closes when the process that holds its other end is gone, however it went."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        do()

    threading.Thread(target=watch, daemon=True).start()
