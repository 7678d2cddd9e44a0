"""Files of tests that watch promises of several rooms."""

from __future__ import annotations

POWER = "tests/faults/test_power_cuts.py"
BACKUP = "tests/service/test_backup.py"
