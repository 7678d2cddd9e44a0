"""What one uploaded file may hold and become, and what reading it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pairmark.service.errors import TooLarge
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
