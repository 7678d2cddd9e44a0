"""What a key may do: scopes, each on everything or on one resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, get_args

from pairmark.schemas.keys import Level, Scope
from pairmark.service.errors import InvalidInput
from pairmark.service.names import VisibleNames, checked_name

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
ANY: Final = "*"
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


def parse_grant(text: str, tenant: str | None = None) -> Grant:
    """``score``, ``score:people``, ``gallery:people:read`` or ``gallery:*:items``; `InvalidInput` for anything else,
    and for a resource that is not the tenant's."""
    scope, *parts = text.split(":")
    if scope not in SCOPES:
        raise InvalidInput(
            f"scopes: {scope[:50]!r} is not a scope; expected some of {', '.join(SCOPES)}", field="scopes"
        )
    if not parts:
        return Grant(scope)
    resource, *levels = parts
    level: Level = next((candidate for candidate in LEVELS[:-1] if levels == [candidate]), "all")
    if scope == "admin" or (levels and (level == "all" or scope != "gallery")):
        raise InvalidInput(
            f"scopes: {text[:100]!r} is not a scope; expected SCOPE, SCOPE:RESOURCE, or for galleries "
            "gallery:NAME:read or gallery:NAME:items",
            field="scopes",
        )
    if resource != ANY:
        checked_name(resource, "scopes")
        if tenant is not None and not resource.startswith(f"{tenant}/"):
            raise InvalidInput(
                f"scopes: {resource!r} is no name of the tenant; expected one that begins with '{tenant}/'",
                field="scopes",
            )
    return Grant(scope, None if resource == ANY else resource, level)


class Grants:
    """All that a key may do, by its grants as they are stored; ``admin`` carries every scope.

    Attributes
    ----------
    tenant : the one whose names the key is confined to; None: to no tenant's.
    visible : every name that the key may see, whatever its scopes are. usable : the models that it may score with.
    """

    __slots__ = ("_all", "_everything", "admin", "tenant", "texts", "usable", "visible")

    def __init__(self, grants: Iterable[str], tenant: str | None = None) -> None:
        self.texts = tuple(grants)
        self.tenant = tenant
        self.visible = VisibleNames(prefix="" if tenant is None else f"{tenant}/")
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
        self.usable = self.resources("score", "decide")

    def allows(self, scope: str, resource: str | None = None, *, level: Level = "all") -> bool:
        """Whether they carry the scope: on this resource, or (None) on any at all."""
        if resource is not None and resource not in self.visible:
            return False
        if self.admin or scope in self._everything:
            return True
        return any(
            grant.scope == scope
            and grant.covers(level)
            and (resource is None or grant.resource is None or grant.resource == resource)
            for grant in self._all
        )

    @property
    def models(self) -> VisibleNames:
        """The models that may be seen. Whoever may fill any gallery may see what they can name for it."""
        return self.visible if "gallery" in self._everything else self.resources("score", "decide", "train")

    @property
    def datasets(self) -> VisibleNames:
        """The datasets that may be seen."""
        return self.resources("train")

    def resources(self, *scopes: Scope) -> VisibleNames:
        """The names that any of these scopes covers."""
        if self.admin:
            return self.visible
        granted = [grant for grant in self._all if grant.scope in scopes and grant.covers("read")]
        if any(grant.resource is None for grant in granted):
            return self.visible
        names = frozenset(grant.resource for grant in granted if grant.resource is not None)
        return VisibleNames(prefix=self.visible.prefix, members=names)


EVERYTHING: Final = Grants(["admin"])
"""Of who was admitted without a key."""
