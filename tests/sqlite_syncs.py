"""SQLite's own flushes, passed to a callback: the library is asked to open files through a wrapper of its file system.

SQLite calls the system past Python, so `crashes.PowerCuts` cannot see it. Here its default VFS is replaced by a copy
whose files call back after each ``xSync``. Only for a Python that loads libsqlite3 as a shared library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_void_p
from pathlib import Path

# The name is a pointer: SQLite keeps it, so it must not become a copy on the way.
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


class _Vfs(ctypes.Structure):
    """The head of ``sqlite3_vfs``; 19 pointers in all follow ``pAppData`` up to version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", c_void_p),
        ("rest", c_void_p * 14),
    )


class _Methods(ctypes.Structure):
    """``sqlite3_io_methods`` up to version 3."""

    _fields_ = (
        ("iVersion", c_int),
        ("xClose", c_void_p),
        ("xRead", c_void_p),
        ("xWrite", c_void_p),
        ("xTruncate", c_void_p),
        ("xSync", c_void_p),
        ("rest", c_void_p * 13),
    )


_KEPT: list[object] = []


def shared_library() -> Path | None:
    """The libsqlite3 that this process uses, if it is a shared library (Linux)."""
    import sqlite3

    assert sqlite3.sqlite_version
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    found = {line.split()[-1] for line in maps.splitlines() if "/libsqlite3.so" in line}
    return Path(min(found)) if found else None


@contextmanager
def followed_syncs(library: Path, reported: Callable[[Path, bool], None]) -> Iterator[None]:
    """Call ``reported(file, new)`` after each flush of a file that SQLite opened within the block.

    ``new`` says that SQLite made the file and flushed its folder's entry with it (journals and logs, once each).
    """
    sqlite = ctypes.CDLL(str(library))
    sqlite.sqlite3_vfs_find.restype = POINTER(_Vfs)
    default = sqlite.sqlite3_vfs_find(None)
    original_open = _OPEN(default.contents.xOpen)
    paths: dict[int, Path] = {}
    new: set[int] = set()
    # Files that are still open when the block ends, say after an error, call these until they are closed.
    kept = _KEPT
    wrapped: dict[int, _Methods] = {}
    kept.append(wrapped)

    def with_sync(address: int) -> _Methods:
        methods = _Methods.from_buffer_copy(ctypes.string_at(address, ctypes.sizeof(_Methods)))
        sync = _SYNC(methods.xSync)

        def flush(file: int, flags: int) -> int:
            status: int = sync(file, flags)
            if file in paths:
                reported(paths[file], file in new)
                new.discard(file)
            return status

        callback = _SYNC(flush)
        kept.extend((callback, sync))
        methods.xSync = ctypes.cast(callback, c_void_p).value
        return methods

    def open_file(vfs: int, name: int | None, file: int, flags: int, out: object) -> int:
        status: int = original_open(vfs, name, file, flags, out)
        pointer = ctypes.cast(file, POINTER(c_void_p))
        if status == 0 and name is not None and pointer[0]:
            address = pointer[0]
            if address not in wrapped:
                wrapped[address] = with_sync(address)
            pointer[0] = ctypes.addressof(wrapped[address])
            paths[file] = Path(os.fsdecode(ctypes.string_at(name)))
            # SQLITE_OPEN_CREATE with SQLITE_OPEN_MAIN_JOURNAL or SQLITE_OPEN_WAL.
            if flags & 0x4 and flags & (0x800 | 0x80000):
                new.add(file)
        return status

    callback = _OPEN(open_file)
    shim = _Vfs.from_buffer_copy(default.contents)
    shim.zName = b"followed"
    shim.pNext = None
    shim.xOpen = ctypes.cast(callback, c_void_p).value
    kept.extend((callback, shim, original_open))
    assert sqlite.sqlite3_vfs_register(ctypes.byref(shim), 1) == 0
    try:
        yield
    finally:
        sqlite.sqlite3_vfs_register(default, 1)
        sqlite.sqlite3_vfs_unregister(ctypes.byref(shim))
