"""What each process of ``pairmark serve`` runs. It is ours alone, so unused imports may wait."""

from __future__ import annotations

from pairmark.service.deferred import defer_unused

defer_unused()

from pairmark.service.app import served_app  # noqa: E402

__all__ = ["served_app"]
