"""Processes and databases killed, frozen and restarted, clocks that step, two services on one file: some tries of each.

``make bench BENCH=faults PRESET=full`` makes a hundred.
"""

from __future__ import annotations

import sys

import pytest

from benchmarks.faults import KINDS, happened


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="clocks that step and processes that freeze need Linux")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in KINDS.items() for kind in kinds])
def test_nothing_is_lost_doubled_or_half(name: str, kind: str) -> None:
    row = happened(name, kind, 1 if name in ("frozen", "rolling_restart") else 4, is_gentle=True)
    assert row["acknowledged"] > 0
    assert (row["lost"], row["twice"], row["wrong"]) == (0, 0, 0), row
    if name == "rolling_restart":
        assert row["refused (503, 507)"] == 0
