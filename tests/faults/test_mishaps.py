"""Killed backups, restores and migrations, full disks in migrations, clock steps, two services on one file, rotated
keys: some tries of each. ``make bench BENCH=faults PRESET=full`` makes a hundred."""

from __future__ import annotations

import sys

import pytest

from benchmarks._mishaps import MISHAPS, happened

TRIES = {
    "killed_backups": 2, "killed_restores": 2, "full_migrations": 4, "killed_migrations": 4, "stepped_clocks": 6,
    "two_services": 6, "rotated_keys": 6,
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="limits of files and of clocks need Linux")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MISHAPS)
def test_nothing_is_lost_doubled_or_half(name: str) -> None:
    row = happened(name, TRIES[name], is_gentle=True)
    assert (row["lost"], row["twice"], row["wrong"]) == (0, 0, 0), row
