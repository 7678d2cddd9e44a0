"""An uploaded file, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pairmark.schemas.datasets import DatasetRequest, Format
from pairmark.service.datasets.limits import FileLimits


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
