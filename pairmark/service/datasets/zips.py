"""Safe reading of uploaded zip files, with limits on their unpacked size."""

from __future__ import annotations

import errno
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pairmark.service.errors import InvalidInput, TooLarge

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
