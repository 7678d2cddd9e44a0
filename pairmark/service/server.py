"""The entry point of each process of ``pairmark serve``."""

from __future__ import annotations

from pairmark.service.deferred import defer_unused

defer_unused()

from pairmark.service.app import served_app  # noqa: E402

__all__ = ["served_app"]
