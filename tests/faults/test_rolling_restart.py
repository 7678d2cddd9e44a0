"""Two replicas and two workers on PostgreSQL and S3 are restarted under load: no request is lost."""

from __future__ import annotations

import pytest

from benchmarks._rolling import rolled


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_rolling_restart_loses_no_request() -> None:
    # Eight processes start and stop: this takes half a minute. BENCH=faults does it four times.
    row = rolled(1, is_gentle=True)
    assert row["acknowledged"] > 20
    assert (row["lost"], row["twice"], row["wrong"], row["refused (503, 507)"]) == (0, 0, 0, 0)
