"""Listening and answering: the socket and the server processes."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import socket
import sys
import tempfile

import typer

from pairmark.service.cli import output

GRACE_S = 10
"""How long requests under way may take once the service was asked to stop; event streams end then."""

SILENCE_S = 60
"""How long a process may be silent before it is replaced: starting takes more than uvicorn's 5 s where cores are busy,
and each replacement starts anew."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; exits with what to do when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            output.complain(
                f"port {port} on {host} is taken: stop what listens there, or choose another with --port"
            )
        else:
            output.complain(f"cannot listen on {host} port {port}: {error.strerror or error}")
        raise typer.Exit(1) from error
    # Listening this early, requests that come during the start wait instead of being refused.
    listener.listen(2048)
    listener.set_inheritable(True)
    return listener


def announce(listener: socket.socket, url: str) -> None:
    """Say where the service is, once it answers there."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    import http.client

    connection = http.client.HTTPConnection(reachable, port, timeout=300)
    try:
        connection.request("GET", "/healthz")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return
    finally:
        connection.close()
    # Said in plain text: drawing libraries would be imported while models are being loaded.
    facts = {"url": url, "pid": os.getpid()}
    sentence = f"Pairmark answers on {url}  (console at /, endpoints at /docs)"
    sys.stdout.write((json.dumps(facts, indent=2) if output.wants_json() else sentence) + "\n")
    sys.stdout.flush()


def answer(listener: socket.socket, workers: int) -> None:
    """Serve until asked to stop."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    config = uvicorn.Config(
        "pairmark.service.server:served_app",
        factory=True,
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_worker_healthcheck=SILENCE_S,
        loop="uvloop",
        http="httptools",
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
