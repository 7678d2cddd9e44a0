"""The command line: ``pairmark``.

Exit codes: 0 well, 1 failed, 2 not understood. Each group of commands imports what it needs when it runs, so that
``pairmark --help`` answers at once.
"""

from __future__ import annotations

from pairmark.service.cli.root import app, main

__all__ = ["app", "main"]
