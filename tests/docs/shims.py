"""``pairmark`` and ``python`` of a reader's shell, forked by the tests' process (`tests.forking`).

Run as a script by a shim, ``python -IS shims.py SOCKET WORDS``, this asks that process and ends as the command does.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shims(folder: Path, commands: Mapping[str, str]) -> Iterator[Path]:
    """Write an executable for each command, which stands for these words of Python's, and run what they ask for."""
    folder.mkdir(exist_ok=True)
    door_file = folder / "door"
    door_file.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(door_file))
        door.listen()
        for name, words in commands.items():
            shim = folder / name
            shim.write_text(
                f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "{door_file}" {words} "$@"\n'
            )
            shim.chmod(0o755)
        threading.Thread(target=_answer, args=[door], daemon=True).start()
        yield folder
        door.shutdown(socket.SHUT_RDWR)


def _answer(door: socket.socket) -> None:
    while True:
        try:
            wire, _ = door.accept()
        except OSError:
            return
        threading.Thread(target=_run, args=[wire], daemon=True).start()


def _run(wire: socket.socket) -> None:
    from tests.forking import Forked

    with wire:
        _, files, _, _ = socket.recv_fds(wire, 1, 3)
        with wire.makefile("rb") as stream:
            words, environment, folder = json.load(stream)
        stdin, stdout, stderr = files
        command = [sys.executable, *words]
        process = Forked(command, env=environment, cwd=folder, stdin=stdin, stdout=stdout, stderr=stderr)
        for descriptor in files:
            os.close(descriptor)
        wire.send(bytes([process.wait() % 256]))


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(sys.argv[1])
        socket.send_fds(wire, [b"."], [0, 1, 2])
        wire.sendall(json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode())
        wire.shutdown(socket.SHUT_WR)
        sys.exit(wire.recv(1)[0])
