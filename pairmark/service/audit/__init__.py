"""The audit log: who changed what, from what to what, written in the transaction of the change.

Here: who makes the changes of this thread or task.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Actor:
    """Who acts, and in the course of what.

    Attributes
    ----------
    name : ``key ID``, ``loopback``, ``local``, ``command line USER``, ``job ID`` or ``worker``.
    tenant : whose view of the audit log shows what is done; None: that of what is changed.
    request_id : of the request, as in the logs.
    """

    name: str
    tenant: str | None = None
    request_id: str | None = None


_SYSTEM = Actor(name="system")
_ACTOR: ContextVar[Actor | None] = ContextVar("pairmark_actor", default=None)


def current_actor() -> Actor:
    """Who acts now; ``system`` when nobody said."""
    return _ACTOR.get() or _SYSTEM


@contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Make ``actor`` the author of what is changed in this block."""
    token = _ACTOR.set(actor)
    try:
        yield
    finally:
        _ACTOR.reset(token)
