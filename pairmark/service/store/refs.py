"""How a model is named: ``name``, ``name@alias`` or ``name:version``."""

from __future__ import annotations

from dataclasses import dataclass

from pairmark.service.errors import InvalidInput
from pairmark.service.names import checked_name, checked_word

PRODUCTION = "production"
"""The alias that a plain name means."""

MAX_VERSION = 2**31 - 1
_ALIAS_LENGTH = 64
_RESERVED = ("if-better", "true", "false")
"""Words that say how to promote, where an alias may stand too."""


@dataclass(frozen=True, kw_only=True)
class ModelRef:
    """A model's name with either an alias or a version number."""

    name: str
    alias: str | None = None
    version: int | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.version}" if self.version is not None else f"{self.name}@{self.alias}"


def parse_ref(text: str) -> ModelRef:
    """Read a model reference, or `InvalidInput`; plain ``name`` means ``name@production``."""
    name, mark, suffix = split_ref(text)
    checked_name(name, "model")
    if mark == ":":
        return ModelRef(name=name, version=_version_number(suffix))
    return ModelRef(name=name, alias=checked_alias(suffix, "model") if mark else PRODUCTION)


def split_ref(text: str) -> tuple[str, str, str]:
    """Name, ``@``, ``:`` or nothing, and what comes after it; nothing is checked."""
    for mark in ("@", ":"):
        if mark in text:
            return text.partition(mark)
    return text, "", ""


def name_of(text: str) -> str:
    """The name in a reference to a model or a dataset; nothing is checked."""
    return split_ref(text)[0]


def checked_alias(alias: str, field: str = "alias") -> str:
    """An alias that is not a version number, or `InvalidInput`."""
    if alias.isdigit() or len(alias) > _ALIAS_LENGTH or alias in _RESERVED:
        raise InvalidInput(
            f"{field}: an alias is a word of at most {_ALIAS_LENGTH} characters that is neither a number nor one of "
            f"{', '.join(_RESERVED)}, e.g. staging",
            field=field,
        )
    return checked_word(alias, field)


def _version_number(number: str) -> int:
    """The version number of a model reference, from 1 up, or `InvalidInput`."""
    if not (
        number.isascii() and number.isdigit() and 1 <= len(number) <= 10 and 1 <= int(number) <= MAX_VERSION
    ):
        raise InvalidInput(f"model: expected a version number from 1 up, got {number[:20]!r}", field="model")
    return int(number)
