"""Processes killed and restarted, clocks that step, two services on one file: some tries of each.

``make bench BENCH=faults PRESET=full`` makes a hundred.
"""

from __future__ import annotations

import sys

import pytest

from benchmarks.faults import happened


@pytest.mark.nightly
@pytest.mark.skipif(
    sys.platform != "linux", reason="clocks that step and killed groups of processes need Linux"
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "kind", "times"),
    [
        ("killed", "sqlite", 4),
        ("stepped_clocks", "sqlite", 6),
        ("two_services", "sqlite", 6),
        ("frozen", "postgresql", 1),
        ("rolling_restart", "postgresql", 1),
    ],
)
def test_nothing_is_lost_doubled_or_half(name: str, kind: str, times: int) -> None:
    row = happened(name, kind, times, is_gentle=True)
    assert row["acknowledged"] > 0
    assert (row["lost"], row["twice"], row["wrong"]) == (0, 0, 0), row
    if name == "rolling_restart":
        assert row["refused (503, 507)"] == 0
