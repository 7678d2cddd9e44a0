"""Records of arrays, and how they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from pairmark.models.core.schema import Arrays


class Stored:
    """A dataclass whose fields are arrays, kept by their own names; ``parts`` are fields that are such records."""

    parts: ClassVar[Mapping[str, type[Stored]]] = {}

    def arrays(self) -> Arrays:
        """Every array by its name."""
        arrays: Arrays = {}
        for name in _names(type(self)):
            value = getattr(self, name)
            arrays |= value.arrays() if name in self.parts else {name: np.asarray(value)}
        return arrays

    @classmethod
    def restore(cls, arrays: Mapping[str, Any], prefix: str = "") -> Self:
        """The record of arrays that are named with a prefix."""
        return cls(
            **{
                name: cls.parts[name].restore(arrays, prefix)
                if name in cls.parts
                else np.asarray(arrays[f"{prefix}{name}"])
                for name in _names(cls)
            }
        )


def _names(kind: Any) -> list[str]:
    return [field.name for field in fields(kind)]
