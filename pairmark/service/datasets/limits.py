"""What one uploaded file may hold and become, and what reading it may take."""

from __future__ import annotations

import errno
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pairmark.schemas.datasets import DatasetRequest, Format
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.settings import MIB, Settings

UNPACKED_FREE = 64 * MIB
"""Bytes that any file may unpack to, however small it is."""
_TEXT_SHARE = 4
"""Numbers take up to so many times more bytes as text, or as float64 with labels, than as float32."""


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


@dataclass(frozen=True, kw_only=True)
class Upload:
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

    @classmethod
    def of(
        cls, limits: FileLimits, *, upload: str, kind: Format, request: Mapping[str, Any], **others: Any
    ) -> Self:
        """Of a task in JSON."""
        files = {name: (Path(path), format) for name, (path, format) in others.items()}
        return cls(
            file=Path(upload),
            kind=kind,
            request=DatasetRequest.model_validate(request),
            limits=limits,
            **files,
        )

    @property
    def is_table(self) -> bool:
        """Whether it has columns with names."""
        return self.kind in ("csv", "parquet")


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
