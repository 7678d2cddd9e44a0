"""What a key may do: scopes, each on everything or on one resource."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, get_args

from pairmark.service.errors import InvalidInput
from pairmark.service.keys.schemas import Level, Scope

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
ANY: Final = "*"
_RESOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}|\*")
_IMPLIED: Final[dict[str, tuple[Scope, ...]]] = {"score": ("decide",)}
"""Whoever sees scores may take decisions by them."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One scope, on everything (``resource`` None) or on one resource, up to a level."""

    scope: Scope
    resource: str | None = None
    level: Level = "all"

    def __str__(self) -> str:
        limited = self.level != "all"
        parts = [self.scope, *([self.resource or ANY] if self.resource or limited else [])]
        return ":".join([*parts, *([self.level] if limited else [])])

    def covers(self, level: Level) -> bool:
        """Whether it reaches that far."""
        return LEVELS.index(self.level) >= LEVELS.index(level)


def parse_grant(text: str) -> Grant:
    """``score``, ``score:people``, ``gallery:people:read`` or ``gallery:*:items``; `InvalidInput` for anything else."""
    scope, *rest = text.split(":")
    if scope not in SCOPES:
        raise InvalidInput(
            f"scopes: {scope[:50]!r} is not a scope; expected some of {', '.join(SCOPES)}", field="scopes"
        )
    if not rest:
        return Grant(scope)
    resource, *levels = rest
    level: Level = next((one for one in LEVELS[:-1] if levels == [one]), "all")
    if scope == "admin" or (levels and (level == "all" or scope != "gallery")):
        raise InvalidInput(
            f"scopes: {text[:100]!r} is not a scope; expected SCOPE, SCOPE:RESOURCE, or for galleries "
            "gallery:NAME:read or gallery:NAME:items",
            field="scopes",
        )
    if not _RESOURCE.fullmatch(resource):
        raise InvalidInput(
            f"scopes: {resource[:100]!r} is not the name of a resource; expected letters, digits, '.', '_' and '-', "
            "or *",
            field="scopes",
        )
    return Grant(scope, None if resource == ANY else resource, level)


class Grants:
    """All that a key may do, by its grants as they are stored; ``admin`` carries every scope."""

    __slots__ = ("_all", "_everything", "admin", "texts")

    def __init__(self, grants: Iterable[str]) -> None:
        self.texts = tuple(grants)
        parsed = [parse_grant(text) for text in self.texts]
        self.admin = any(grant.scope == "admin" for grant in parsed)
        self._all = frozenset(
            Grant(scope, grant.resource, grant.level)
            for grant in parsed
            for scope in (grant.scope, *_IMPLIED.get(grant.scope, ()))
        )
        self._everything = frozenset(
            grant.scope for grant in self._all if grant.resource is None and grant.level == "all"
        )

    def allows(self, scope: str, resource: str | None = None, *, level: Level = "all") -> bool:
        """Whether they carry the scope: on this resource, or (None) on any at all."""
        if self.admin or scope in self._everything:
            return True
        return any(
            grant.scope == scope
            and grant.covers(level)
            and (resource is None or grant.resource is None or grant.resource == resource)
            for grant in self._all
        )

    @property
    def models(self) -> frozenset[str] | None:
        """The models that may be seen; None: all. Whoever may fill any gallery may see what they can name for it."""
        return None if "gallery" in self._everything else self.resources("score", "decide", "train")

    @property
    def datasets(self) -> frozenset[str] | None:
        """The datasets that may be seen; None: all."""
        return self.resources("train")

    def resources(self, *scopes: Scope, level: Level = "read") -> frozenset[str] | None:
        """The resources that any of these scopes covers; None: all there are."""
        if self.admin:
            return None
        found = [grant for grant in self._all if grant.scope in scopes and grant.covers(level)]
        if any(grant.resource is None for grant in found):
            return None
        return frozenset(grant.resource for grant in found if grant.resource is not None)
