"""What a key may do: scopes, each on everything or on one resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, get_args

from pairmark.service.errors import InvalidInput
from pairmark.service.keys.schemas import Scope
from pairmark.service.names import VisibleNames, checked_name

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
ANY: Final = "*"
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


def parse_grant(text: str, tenant: str | None = None) -> Grant:
    """``score``, ``score:people``, ``gallery:people:read`` or ``gallery:*:read``; `InvalidInput` for anything else, and
    for a resource that is not the tenant's."""
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
    if resource != ANY:
        checked_name(resource, "scopes")
        if tenant is not None and not resource.startswith(f"{tenant}/"):
            raise InvalidInput(
                f"scopes: {resource!r} is no name of the tenant; expected one that begins with '{tenant}/'",
                field="scopes",
            )
    return Grant(scope, None if resource == ANY else resource, bool(level))


class Grants:
    """All that a key may do, by its grants as they are stored; ``admin`` carries every scope.

    Attributes
    ----------
    tenant : the one whose names the key is confined to; None: to no tenant's.
    seen : every name that the key may see, whatever its scopes are. usable : the models that it may score with.
    """

    __slots__ = ("_all", "_everything", "admin", "seen", "tenant", "texts", "usable")

    def __init__(self, grants: Iterable[str], tenant: str | None = None) -> None:
        self.texts = tuple(grants)
        self.tenant = tenant
        self.seen = VisibleNames(prefix="" if tenant is None else f"{tenant}/")
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
        self.usable = self.resources("score", "decide")

    def allows(self, scope: str, resource: str | None = None, *, reading: bool = False) -> bool:
        """Whether they carry the scope: on this resource, or (None) on any at all."""
        if resource is not None and resource not in self.seen:
            return False
        if self.admin or scope in self._everything:
            return True
        return any(
            grant.scope == scope
            and (reading or not grant.reading)
            and (resource is None or grant.resource is None or grant.resource == resource)
            for grant in self._all
        )

    @property
    def models(self) -> VisibleNames:
        """The models that may be seen. Whoever may fill any gallery may see what they can name for it."""
        return self.seen if "gallery" in self._everything else self.resources("score", "decide", "train")

    @property
    def datasets(self) -> VisibleNames:
        """The datasets that may be seen."""
        return self.resources("train")

    def resources(self, *scopes: Scope, reading: bool = True) -> VisibleNames:
        """The names that any of these scopes covers."""
        if self.admin:
            return self.seen
        granted = [grant for grant in self._all if grant.scope in scopes and (reading or not grant.reading)]
        if any(grant.resource is None for grant in granted):
            return self.seen
        names = frozenset(grant.resource for grant in granted if grant.resource is not None)
        return VisibleNames(prefix=self.seen.prefix, only=names)


EVERYTHING: Final = Grants(["admin"])
"""Of who was admitted without a key."""
