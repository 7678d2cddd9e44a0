"""What a key may do: scopes, each on everything or on one resource."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, get_args

from pairmark.service.errors import InvalidInput
from pairmark.service.keys.schemas import Scope

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
ANY: Final = "*"
_RESOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}|\*")
_IMPLIED: Final[dict[str, tuple[Scope, ...]]] = {"score": ("decide",)}
"""Whoever sees scores may take decisions by them."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One scope, on everything (``resource`` None) or on one resource; ``reading``: it changes nothing."""

    scope: Scope
    resource: str | None = None
    reading: bool = False

    def __str__(self) -> str:
        parts = [self.scope, *([self.resource or ANY] if self.resource or self.reading else [])]
        return ":".join([*parts, *(["read"] if self.reading else [])])


def parse_grant(text: str) -> Grant:
    """``score``, ``score:people``, ``gallery:people:read`` or ``gallery:*:read``; `InvalidInput` for anything else."""
    scope, *rest = text.split(":")
    if scope not in SCOPES:
        raise InvalidInput(
            f"scopes: {scope[:50]!r} is not a scope; expected some of {', '.join(SCOPES)}", field="scopes"
        )
    if not rest:
        return Grant(scope)
    resource, *level = rest
    if scope == "admin" or level not in ([], ["read"]) or (level and scope != "gallery"):
        raise InvalidInput(
            f"scopes: {text[:100]!r} is not a scope; expected SCOPE, SCOPE:RESOURCE, or for galleries "
            "gallery:NAME:read",
            field="scopes",
        )
    if not _RESOURCE.fullmatch(resource):
        raise InvalidInput(
            f"scopes: {resource[:100]!r} is not the name of a resource; expected letters, digits, '.', '_' and '-', "
            "or *",
            field="scopes",
        )
    return Grant(scope, None if resource == ANY else resource, bool(level))


class Grants:
    """All that a key may do, by its grants as they are stored; ``admin`` carries every scope."""

    __slots__ = ("_all", "_everything", "admin", "texts")

    def __init__(self, grants: Iterable[str]) -> None:
        self.texts = tuple(grants)
        parsed = [parse_grant(text) for text in self.texts]
        self.admin = any(grant.scope == "admin" for grant in parsed)
        self._all = frozenset(
            Grant(scope, grant.resource, grant.reading)
            for grant in parsed
            for scope in (grant.scope, *_IMPLIED.get(grant.scope, ()))
        )
        self._everything = frozenset(
            grant.scope for grant in self._all if grant.resource is None and not grant.reading
        )

    def allows(self, scope: str, resource: str | None = None, *, reading: bool = False) -> bool:
        """Whether they carry the scope: on this resource, or (None) on any at all."""
        if self.admin or scope in self._everything:
            return True
        return any(
            grant.scope == scope
            and (reading or not grant.reading)
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

    def resources(self, *scopes: Scope, reading: bool = True) -> frozenset[str] | None:
        """The resources that any of these scopes covers; None: all there are."""
        if self.admin:
            return None
        found = [grant for grant in self._all if grant.scope in scopes and (reading or not grant.reading)]
        if any(grant.resource is None for grant in found):
            return None
        return frozenset(grant.resource for grant in found if grant.resource is not None)
