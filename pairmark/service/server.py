"""The entry point of each process of ``pairmark serve``."""

from __future__ import annotations

import sys

from pairmark.service.app import served_app

__all__ = ["served_app"]

# The event loop waits so long for a thread that computes in Python: Python's own 5 ms are many scores.
sys.setswitchinterval(0.0005)
