"""Turns a learner's refusals into messages for the job's owner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pairmark.service.errors import InvalidInput


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn a ``ValueError`` of `pairmark.models` into `InvalidInput` that begins with ``what``."""
    try:
        yield
    except ValueError as error:
        raise InvalidInput(f"{what}: {str(error)[:2000]}") from error
