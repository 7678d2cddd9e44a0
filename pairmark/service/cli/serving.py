"""Commands that run the service's processes: serve, worker, warmup, setup, db."""

from __future__ import annotations

import errno
import gc
import json
import logging
import multiprocessing
import os
import resource
import secrets as random_secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pairmark.service.cli import output
from pairmark.service.cli.operating import opened_keys
from pairmark.service.cli.options import Commands, migrate_embedded, prepare_database, settings, thread_beside

if TYPE_CHECKING:
    from pairmark.service.api.guard import Application
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
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Leave it running in the background, and return once it is ready."),
    ] = False,
    wait: WaitOption = 0.0,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Start the HTTP service. Other machines can reach it only once an API key exists."""
    from pairmark.service.names import is_loopback
    from pairmark.service.processes import configure_logging

    config = settings()
    configure_logging(config.log_level)
    prepare_database(config, wait)
    if not is_loopback(host):
        _require_a_key(config, host, wait)
    if until_stdin_closes:
        _when_stdin_closes(lambda: os.kill(os.getpid(), signal.SIGTERM))
    listener = listen(host, port)
    url = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    if detach:
        _go_on_in_the_background(listener, url, (config.home / "serve.log").absolute())
    threading.Thread(target=announce, args=(listener, url), daemon=True).start()
    with thread_beside(_keep_worker) if with_worker else nullcontext():
        answer(listener, workers)


def worker(
    drain: Annotated[bool, typer.Option("--drain", help="Stop when the queue is empty.")] = False,
    job: Annotated[str | None, typer.Option(help="Run only this job, then stop.")] = None,
    wait: WaitOption = 0.0,
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Run training jobs from the queue, one at a time."""
    from pairmark.service.processes import configure_logging
    from pairmark.service.worker import Worker

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


def _go_on_in_the_background(listener: socket.socket, url: str, log: Path) -> None:
    """Return in a process of a session of its own, which writes to ``log``; this one says where that is once it is
    ready, or how it failed, and exits."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with log.open("ab") as file, open(os.devnull, "rb") as nothing:
            for number, of in enumerate((nothing, file, file)):
                os.dup2(of.fileno(), number)
        return
    address = listener.getsockname()
    # The child alone listens: when it ends, who waits for an answer hears of it.
    listener.close()
    output.say("starting; the first start on a machine compiles for up to a minute")
    while not _answers("/readyz", address):
        if os.waitpid(child, os.WNOHANG)[0]:
            output.complain(f"the service ended as it started: see {log}")
            raise typer.Exit(1)
        time.sleep(POLL_S)
    output.show(
        {"url": url, "pid": child, "log": str(log)},
        f"Pairmark answers on {url}  (console at /, endpoints at /docs)\nprocess {child}: stop it with `kill {child}`\n"
        f"log {log}",
    )
    raise typer.Exit


def _require_a_key(config: Settings, host: str, wait: float) -> None:
    deadline = time.monotonic() + wait
    with opened_keys(config, prepare=False) as key_store:
        while all(entry.revoked_at is not None for entry in key_store.list()):
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


GRACE_S = 10
"""How long requests under way may take once the service was asked to stop; event streams end then."""

SILENCE_S = 60
"""How long a process may be silent before it is replaced: starting takes more than uvicorn's 5 s where cores are busy,
and each replacement starts anew."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; exits with what to do when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual = family == socket.AF_INET6
    try:
        # Listening this early, requests that come during the start wait instead of being refused.
        listener = socket.create_server((host, port), family=family, backlog=2048, dualstack_ipv6=dual)
    except OSError as error:
        output.complain(
            f"port {port} on {host} is taken: stop what listens there, or choose another with --port"
            if error.errno == errno.EADDRINUSE
            else f"cannot listen on {host} port {port}: {error.strerror or error}"
        )
        raise typer.Exit(1) from error
    listener.set_inheritable(True)
    return listener


def _answers(path: str, address: tuple[Any, ...]) -> bool:
    """Whether the service at a socket's address answers well."""
    import http.client
    import urllib.request

    host, port = address[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    # No proxy knows the way to this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{reachable}:{port}{path}", timeout=300):
            return True
    except (OSError, http.client.HTTPException):
        return False


def announce(listener: socket.socket, url: str) -> None:
    """Say where the service is, once it answers there."""
    if _answers("/healthz", listener.getsockname()):
        # Said in plain text: drawing libraries would be imported while models are being loaded.
        facts = {"url": url, "pid": os.getpid()}
        sentence = f"Pairmark answers on {url}  (console at /, endpoints at /docs)"
        sys.stdout.write((json.dumps(facts, indent=2) if output.wants_json() else sentence) + "\n")
        sys.stdout.flush()


def served_app() -> Application:
    """What each process of `serve` runs: the application, its logs as JSON lines."""
    from pairmark.service.processes import (
        bound_arenas,
        configure_logging,
        die_with_parent,
        import_scikit_learn,
    )

    # The event loop waits so long for a thread that computes in Python: Python's own 5 ms are many scores.
    sys.setswitchinterval(0.0005)
    bound_arenas()
    config = settings()
    configure_logging(config.log_level)
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        # One of several processes ends with the one that started them: else a restart would find the port taken.
        die_with_parent(parent.pid)
    import_scikit_learn()
    from pairmark.service.app import create_app

    app = create_app(config)
    app.state.own_process = True
    return app


def answer(listener: socket.socket, workers: int) -> None:
    """Serve until asked to stop."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    # Every connection and every mapped file takes one: as many as the system lets this process have.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    config = uvicorn.Config(
        "pairmark.service.cli.serving:served_app",
        factory=True,
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_worker_healthcheck=SILENCE_S,
        loop="uvloop",
        http="pairmark.service.api.protocol:BoundedProtocol",
        ws="none",
    )
    if workers > 1:
        with tempfile.TemporaryDirectory(prefix="pairmark-metrics-") as folder:
            # Each process counts into files there, and every scrape adds them up.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
            Multiprocess(config, sockets=[listener]).run()
        return
    # What a start allocates stays, and looking for garbage in it is a sixth of the time; `app._warm` turns it on.
    gc.disable()
    server = uvicorn.Server(config)
    # uvicorn raises the signal that stopped it once more when it is done; being asked to stop is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listener])
    if not server.started:
        raise typer.Exit(1)


logger = logging.getLogger("pairmark.worker")
WORKER = (sys.executable, "-P", "-m", "pairmark.service.cli", "worker", "--until-stdin-closes")
POLL_S = 0.1
PAUSE_S = 2.0
"""Before a worker that ended is started again."""
WORKER_GRACE_S = 30.0


def _keep_worker(stop: threading.Event) -> None:
    """Run a training worker that is started again when it ends, and ends when this process does, even when this one is
    killed."""
    from pairmark.service.processes import isolated_environment

    while not stop.is_set():
        # The pipe closes when this process ends, however it ends.
        with subprocess.Popen(WORKER, stdin=subprocess.PIPE, env=isolated_environment()) as worker:
            while worker.poll() is None and not stop.wait(POLL_S):
                pass
            if stop.is_set():
                worker.terminate()
                try:
                    worker.wait(WORKER_GRACE_S)
                except subprocess.TimeoutExpired:
                    worker.kill()
                return
        logger.error("the worker ended and is started again", extra={"status": worker.returncode})
        stop.wait(PAUSE_S)


CERTIFICATE_DAYS = 3650
GENERATE = "generate"
"""A given password that means none: not every Compose knows empty defaults."""


def setup(
    secrets: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the database password: the files `password`, and `pgpass` for clients."
        ),
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(help="Folder for the certificate of a Dask cluster: the file `cluster.pem`."),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the database to answer.", min=0)] = 60.0,
) -> None:
    """Prepare a deployment: password file, tables and first admin key (shown once). Safe to run again."""
    from pairmark.service.db import open_database

    config = settings()
    if secrets is not None:
        password = os.environ.get("PAIRMARK_POSTGRES_PASSWORD", "")
        _write_password(secrets, password if password not in ("", GENERATE) else None)
    if cluster is not None:
        _write_certificate(cluster / "cluster.pem")
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
    _write_secret(folder / "pgpass", f"*:*:*:*:{escaped}\n")
    _write_secret(file, password)


def _write_certificate(path: Path) -> None:
    """One key and certificate, its own authority, by which the parts of a Dask cluster know one another."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pairmark cluster")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_secret(path, (private + certificate.public_bytes(pem)).decode())


def _write_secret(path: Path, content: str) -> None:
    """A file that its owner alone may read; one that exists stays."""
    if path.exists():
        return
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "w") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    part.replace(path)
