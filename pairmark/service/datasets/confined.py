"""Reads uploads in processes of their own, which end when their memory or time is used up.

A *fork server* (`pairmark.service.parser`) imports once what reads files and then forks a process for each upload: that
takes milliseconds, and a reader that is killed takes nothing else down. It starts with the first upload.

Each upload has a socket of its own. The reader gets its task as a line of JSON, and answers by a line as it begins and
one as it ends; when this side closes the socket, the reader ends.
"""

import atexit
import errno
import json
import math
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from pydantic import BaseModel

from pairmark.schemas.datasets import DatasetRequest, Format
from pairmark.service.errors import InvalidInput, NotReady, PairmarkError, StorageFailed, TooLarge
from pairmark.service.processes import isolated_environment
from pairmark.service.settings import MIB, Settings

UNPACKED_FREE = 64 * MIB
"""Bytes that any file may unpack to, however small it is."""
_TEXT_SHARE = 4
"""Numbers take up to so many times more bytes as text, or as float64 with labels, than as float32."""


FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}


def format_of(request_format: Format | None, filename: str | None) -> Format:
    """The format that was named, or else that of the file's extension."""
    if request_format is not None:
        return request_format
    suffix = Path((filename or "").lower().removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        raise InvalidInput(
            f"the file name does not say the format: {(filename or '')[-60:]!r}; expected format = csv, parquet, npz "
            f"or svmlight, or one of the extensions {', '.join(FORMATS)}",
            field="format",
        )
    return FORMATS[suffix]


@dataclass(frozen=True, kw_only=True)
class FileLimits:
    """How much one file may hold, and how much time and memory reading it may take.

    Attributes
    ----------
    rows, features, columns : of the table. stored_bytes : of the numbers, as float32.
    unpacked_bytes : of the file, unpacked. memory_bytes, seconds : of the process that reads it.
    raised_by : the setting that raises each limit, by the limit's name.
    """

    rows: int
    features: int
    columns: int
    stored_bytes: int
    unpacked_bytes: int
    memory_bytes: int
    seconds: float
    raised_by: Mapping[str, str]

    @classmethod
    def of(
        cls,
        settings: Settings,
        upload_bytes: int,
        *,
        rows: str = "max_dataset_rows",
        features: int | None = None,
    ) -> Self:
        """The limits of a file of so many bytes.

        Parameters
        ----------
        rows : the setting that bounds the rows. features : their most; default: the setting's.
        """
        raised_by = {
            "rows": rows,
            "features": "max_dimension",
            "columns": "max_table_columns",
            "stored_bytes": "max_dataset_bytes",
            "unpacked_bytes": "max_dataset_bytes",
            "memory_bytes": "parse_memory_bytes",
            "seconds": "parse_timeout_s",
        }
        stored_bytes = settings.max_dataset_bytes
        unpacked = _TEXT_SHARE * stored_bytes
        by_ratio = max(UNPACKED_FREE, settings.max_unpacked_ratio * upload_bytes)
        if by_ratio < unpacked:
            unpacked, raised_by["unpacked_bytes"] = by_ratio, "max_unpacked_ratio"
        if by_ratio < stored_bytes:
            stored_bytes, raised_by["stored_bytes"] = by_ratio, "max_unpacked_ratio"
        return cls(
            rows=getattr(settings, rows),
            features=settings.max_dimension if features is None else features,
            columns=settings.max_table_columns,
            stored_bytes=stored_bytes,
            unpacked_bytes=unpacked,
            memory_bytes=settings.parse_memory_bytes,
            seconds=settings.parse_timeout_s + upload_bytes / settings.min_parse_bytes_per_s,
            raised_by={name: f"PAIRMARK_{setting.upper()}" for name, setting in raised_by.items()},
        )

    def exceeded(self, name: str, what: str, unit: str, instead: str = "", **facts: Any) -> TooLarge:
        """The refusal of what exceeds a limit.

        Parameters
        ----------
        name : of the limit. what : what the file holds. unit : what the limit counts. instead : how to send it.
        """
        limit = getattr(self, name)
        setting = self.raised_by[name]
        return TooLarge(
            f"{what}; at most {limit:.15g} {unit} are taken ({setting} raises this){instead}",
            limit=limit,
            setting=setting,
            **facts,
        )


class Upload(BaseModel, frozen=True):
    """A file, its format, what it was sent with, and what bounds reading it.

    Attributes
    ----------
    pairs : a pairs file and its format. right : a second table of records, likewise, whose rows follow.
    """

    file: Path
    kind: Format
    request: DatasetRequest
    limits: FileLimits
    pairs: tuple[Path, Format] | None = None
    right: tuple[Path, Format] | None = None

    @property
    def is_table(self) -> bool:
        """Whether it has columns with names."""
        return self.kind in ("csv", "parquet")

    @property
    def is_labelled(self) -> bool:
        """Whether it is said what the rows are labelled by, or that they are not."""
        return bool(self.request.label or self.request.ranking or self.request.unlabelled or self.pairs)


_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def checked_members(
    archive: zipfile.ZipFile, max_bytes: int, setting: str | None = None
) -> list[zipfile.ZipInfo]:
    """The files of an archive; `TooLarge` when they unpack to more than ``max_bytes`` together, which ``setting``
    raises, and `InvalidInput` when one is packed by a method that numpy does not write."""
    # A name may be empty, which the standard library trips over.
    members = [member for member in archive.infolist() if not member.filename.endswith("/")]
    total = sum(member.file_size for member in members)
    if total > max_bytes:
        raised = "" if setting is None else f" ({setting} raises this)"
        raise TooLarge(
            f"the arrays unpack to {total} bytes; at most {max_bytes} are taken{raised}",
            limit=max_bytes,
            setting=setting,
        )
    for member in members:
        if member.compress_type not in _METHODS:
            name = member.filename.removesuffix(".npy")[:100]
            raise InvalidInput(f"{name!r} is packed by an unusual method; expected numpy.savez", field=name)
    return members


DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    struct.error,
    IndexError,
)
"""What the standard library raises for a damaged archive."""
UNREADABLE_HEAD: Final = (
    ValueError,
    EOFError,
    SyntaxError,
    TypeError,
    OverflowError,
    RecursionError,
    KeyError,
    IndexError,
    tokenize.TokenError,
)
"""What numpy raises for the head of a .npy file that is none."""


@contextmanager
def damage_refused(detail: str, field: str) -> Iterator[None]:
    """Refuse (`InvalidInput`) with ``detail`` whatever a damaged archive makes the standard library raise."""
    try:
        yield
    except OSError as error:
        # Offsets of the archive that lie before its beginning; a full disk is another matter.
        if error.errno != errno.EINVAL:
            raise
        raise InvalidInput(detail, field=field) from error
    except DAMAGE as error:
        raise InvalidInput(detail, field=field) from error


_LOOK_MS = 250
"""A reader's time is looked at so often."""
_WAIT, _STALLED_S = 4, 60.0
"""A reader that takes no time of its processor for so many seconds for each that it may take, and so many at least, is
given up; so is one, elsewhere than on Linux, whose time cannot be looked at."""
_ERRORS: dict[str, type[PairmarkError]] = {
    kind.slug: kind for kind in (InvalidInput, TooLarge, StorageFailed)
}


def read_confined(task: Mapping[str, Any], limits: FileLimits) -> Any:
    """What a reader makes of a file: the result of the one function that ``task`` names.

    `InvalidInput`, `TooLarge` and `StorageFailed` as the reader raises them; `TooLarge` when it needs more memory or
    time than ``limits`` give.
    """
    service_end, reader_end = socket.socketpair()
    with service_end:
        with reader_end:
            _FORK_SERVER.adopt(reader_end)
        # What bounds this process' files, a quota say, bounds those that are written for it.
        file_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        message = {**task, "limits": asdict(limits), "file_bytes": file_bytes}
        # Where it has ended already, no answer says so.
        with suppress(OSError):
            service_end.sendall(json.dumps(message).encode() + b"\n")
        # However busy the machine is, a reader begins as soon as the fork server gets to it. Nothing past this line is
        # taken into a buffer: the rest of the answer is waited for.
        begun = _line(service_end, buffering=0)
        if not begun:
            raise NotReady("the process that reads uploads has ended; try again")
        seconds = _await_answer(service_end, int(begun), max(_STALLED_S, _WAIT * limits.seconds))
        line = _line(service_end)
    if line:
        return _result(json.loads(line))
    # It ended without an answer: at the limit of its processor's time the kernel ends it.
    if seconds >= limits.seconds:
        raise limits.exceeded(
            "seconds", "reading the file takes too long", "seconds", ": send a smaller file, or npz"
        )
    raise limits.exceeded(
        "memory_bytes",
        "reading the file ended its process: it needs more memory, or is damaged",
        "bytes of memory",
    )


def _await_answer(wire: socket.socket, reader: int, patience_s: float) -> float:
    """Wait until a process answers or ends; the seconds of its processor that it took at most.

    The kernel bounds these, and nobody bounds the wait: on a busy machine, files are not refused for that. A process
    that takes none is told to end after ``patience_s``.
    """
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    used, moved_at, looked_at = 0.0, time.monotonic(), time.monotonic()
    while not poll.poll(_LOOK_MS):
        before, looked_at = used, time.monotonic()
        # Linux's clock of another process; it has none once it has ended.
        with suppress(OSError):
            used = time.clock_gettime(~reader << 3 | 2)
        if used > before:
            moved_at = looked_at
        elif looked_at - moved_at > patience_s:
            wire.shutdown(socket.SHUT_RDWR)
            return math.inf
    return used + time.monotonic() - looked_at


def _line(wire: socket.socket, buffering: int = -1) -> bytes:
    """A whole message of a reader; empty where it has ended."""
    line = b""
    with wire.makefile("rb", buffering=buffering) as answers, suppress(ConnectionError):
        line = answers.readline()
    return line if line.endswith(b"\n") else b""


def _result(answer: Mapping[str, Any]) -> Any:
    if "error" in answer:
        raise _ERRORS[answer["error"]](answer["detail"], **answer["facts"])
    if "failed" in answer:
        raise RuntimeError("reading a file failed; the reader's traceback is in the log")
    return answer["result"]


class ForkServer:
    """The process that readers are forked from. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None

    def adopt(self, wire: socket.socket) -> None:
        """Have a reader started at the other end of this socket."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._wire is not None
            try:
                # An open file travels with a byte at least.
                socket.send_fds(self._wire, [b"."], [wire.fileno()])
            except OSError as error:
                raise NotReady("the process that reads uploads has ended; try again") from error

    def stop(self) -> None:
        """End it; readers at work end with this process."""
        with self._lock:
            if self._process is not None and self._wire is not None:
                self._wire.close()
                self._process.kill()
                self._process.wait()

    def _start(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire, server_end = socket.socketpair()
        # It has nothing to do with the service's secrets, and forks: it must have one thread.
        environment = {
            name: value
            for name, value in isolated_environment().items()
            if not name.startswith(("PAIRMARK_", "AWS_"))
        }
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with server_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pairmark.service.parser", str(server_end.fileno())],
                env=environment | threads,
                pass_fds=[server_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A group of its own: a terminal's Ctrl-C is for the service.
                process_group=0,
            )


_FORK_SERVER = ForkServer()
"""The one of this process; it starts with the first upload."""
atexit.register(_FORK_SERVER.stop)
