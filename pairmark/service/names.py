"""Names that people give to datasets, models, galleries, aliases and calibrations, which of them a key may see; names
of hosts.

A tenant is a prefix of names: those of the tenant ``acme`` begin with ``acme/``. A model is named ``name``,
``name@alias`` or ``name:version``.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from pairmark.schemas.admin import MAX_TENANT
from pairmark.service.errors import InvalidInput, PairmarkError

MAX_NAME: Final = MAX_TENANT + 1 + 100
"""Characters of a name with its tenant."""
SUBRESOURCES: Final = (
    "aliases",
    "calibrations",
    "compare",
    "erase",
    "evaluations",
    "items",
    "policy",
    "rows",
    "search",
    "subjects",
    "versions",
)
"""What addresses have after a name. Not a name of a tenant, nor is a number, so that an address means one thing."""
_SEGMENT: Final = r"[A-Za-z0-9][A-Za-z0-9._-]"
_WORD = re.compile(_SEGMENT + "{0,99}")
_TENANT = re.compile(rf"{_SEGMENT}{{0,{MAX_TENANT - 1}}}")
_TAKEN: Final = rf"(?:{'|'.join(SUBRESOURCES)}|[0-9]+)"
NAME_PATTERN: Final = rf"[^/]+(?:/(?!{_TAKEN}(?:/|$))[^/]+)?"
"""A name in an address, with or without a tenant, however its slash is encoded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class VisibleNames:
    """The names that a key may see: those below its tenant's prefix, and among them these only (None: all).

    This is where it is decided; `pairmark.service.db.name_filter` says the same in SQL.
    """

    prefix: str = ""
    members: frozenset[str] | None = None

    def __contains__(self, name: str) -> bool:
        return name.startswith(self.prefix) and (self.members is None or name in self.members)

    @property
    def everything(self) -> bool:
        """Whether nothing is hidden."""
        return not self.prefix and self.members is None


EVERY_NAME: Final = VisibleNames()


def checked_name(name: str, field: str = "name") -> str:
    """The name, when it can stand in a path and a reference, or `InvalidInput` that names the field."""
    tenant, slash, word = name.partition("/")
    if not slash:
        return checked_word(name, field)
    if not _TENANT.fullmatch(tenant) or not _WORD.fullmatch(word) or re.fullmatch(_TAKEN, word):
        raise InvalidInput(
            f"{field}: {name[:MAX_NAME]!r} cannot be a name; expected NAME or TENANT/NAME, each of letters, digits, "
            f"'.', '_' or '-', starting with a letter or digit, the tenant at most {MAX_TENANT} and the name at most "
            f"100 characters. After a tenant, a name is no number and none of {', '.join(SUBRESOURCES)}",
            field=field,
        )
    return name


def checked_word(word: str, field: str) -> str:
    """A name without a tenant, or `InvalidInput` that names the field."""
    if not _WORD.fullmatch(word):
        raise InvalidInput(
            f"{field}: {word[:100]!r} cannot be a name; expected 1 to 100 letters, digits, '.', '_' or '-', starting "
            "with a letter or digit",
            field=field,
        )
    return word


def checked_tenant(tenant: str) -> str:
    """The name of a tenant, or `InvalidInput`."""
    if not _TENANT.fullmatch(tenant):
        raise InvalidInput(
            f"tenant: {tenant[:100]!r} cannot be a tenant; expected 1 to {MAX_TENANT} letters, digits, '.', '_' or "
            "'-', starting with a letter or digit",
            field="tenant",
        )
    return tenant


def check_prefix(name: str, names: VisibleNames, unknown: type[PairmarkError]) -> None:
    """Raise ``unknown`` for a name outside of the tenant: the same words, whether it exists or not."""
    if not name.startswith(names.prefix):
        raise unknown(f"there is no such name; this key has the names that begin with {names.prefix!r}")


def tenant_of(name: str) -> str:
    """The tenant that a name belongs to; empty for none."""
    return name.rpartition("/")[0]


def same_tenant(name: str) -> VisibleNames:
    """The names that an error about ``name`` may list."""
    tenant = tenant_of(name)
    return VisibleNames(prefix=f"{tenant}/" if tenant else "")


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
        if not (
            suffix.isascii() and suffix.isdigit() and len(suffix) <= 10 and 1 <= int(suffix) <= MAX_VERSION
        ):
            raise InvalidInput(
                f"model: expected a version number from 1 up, got {suffix[:20]!r}", field="model"
            )
        return ModelRef(name=name, version=int(suffix))
    return ModelRef(name=name, alias=checked_alias(suffix, "model") if mark else PRODUCTION)


def split_ref(text: str) -> tuple[str, str, str]:
    """Name, ``@``, ``:`` or nothing, and what comes after it; nothing is checked."""
    return text.partition("@" if "@" in text else ":")


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


def is_loopback(host: str) -> bool:
    """Whether an address (or a Host header's name) is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets."""
    return header[1:].partition("]")[0] if header.startswith("[") else header.partition(":")[0].lower()
