"""Token buckets that the processes of a machine share."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pairmark.service.api.rates import SETS, WAYS, Rates
from pairmark.service.errors import RateLimited


def taken(rates: Rates, name: str, tries: int, per_second: float = 0.01, burst: float = 5) -> int:
    """How many of so many tries were let through."""
    done = 0
    for _ in range(tries):
        try:
            rates.take(name, per_second, burst, "at most a few")
            done += 1
        except RateLimited:
            pass
    return done


def test_a_bucket_gives_its_burst_and_then_says_when(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    assert taken(rates, "a", 20) == 5
    assert taken(rates, "b", 3) == 3
    with pytest.raises(RateLimited, match="at most a few; try again in") as refused:
        rates.take("a", 0.01, 5, "at most a few")
    assert 90 <= refused.value.facts["retry_after"] <= 100


def test_a_bucket_fills_up_again(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    assert taken(rates, "a", 10, per_second=20, burst=2) == 2
    time.sleep(0.3)
    assert taken(rates, "a", 10, per_second=20, burst=2) == 2


def test_processes_share_their_buckets(tmp_path: Path) -> None:
    assert taken(Rates(tmp_path / "rates"), "a", 3) == 3
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path;"
        "from test_rates import taken; from pairmark.service.api.rates import Rates;"
        "print(taken(Rates(Path(sys.argv[1])), 'a', 10))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "rates"), str(Path(__file__).parent)]
    reported = subprocess.run(command, capture_output=True, text=True, check=True)
    assert reported.stdout.strip() == "2"


def test_a_crowd_of_names_is_bounded_and_starves_nobody(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    for number in range(3 * SETS * WAYS):
        rates.take(f"name {number}", 1000.0, 1, "")
    assert (tmp_path / "rates").stat().st_size == SETS * WAYS * 16
    assert taken(rates, "somebody else", 20) == 5


def test_a_clock_set_back_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Rates(tmp_path / "rates")
    assert taken(rates, "a", 20) == 5
    now = time.time()
    monkeypatch.setattr("pairmark.service.api.rates.time.time", lambda: now - 1e6)
    assert taken(rates, "a", 20) == 5


def test_where_no_file_can_be_made_a_process_counts_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert taken(Rates(tmp_path / "file" / "rates"), "a", 20) == 5
