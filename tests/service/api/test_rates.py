"""Token buckets that the processes of a machine share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pairmark.service.api.rates import SETS, WAYS, Rates, limit_of
from pairmark.service.errors import RateLimited, TooLarge

SLOW = limit_of("tries", 0.01, 500)


def taken(rates: Rates, name: str, tries: int, per_second: float = 0.01, burst_s: float = 500) -> int:
    """How many of so many tries were let through."""
    limit = limit_of("tries", per_second, burst_s)
    return sum(rates.take(name, limit).wait_s == 0 for _ in range(tries))


def test_a_bucket_gives_its_burst_and_then_says_when(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    assert taken(rates, "a", 20) == 5
    assert taken(rates, "b", 3) == 3
    with pytest.raises(RateLimited, match="at most 5 tries of it in 500 s; try again in") as refused:
        rates.draw({}, "a", SLOW, "tries of it")
    assert 90 <= refused.value.facts["retry_after"] <= 100


def test_several_are_taken_at_once_or_none(tmp_path: Path) -> None:
    rates = Rates(tmp_path / "rates")
    assert rates.take("a", SLOW, 3).remaining == 2
    refused = rates.take("a", SLOW, 4)
    assert refused.remaining == 2
    assert 190 <= refused.wait_s <= 200
    assert rates.take("a", SLOW, 2) == (0, 500, 0)
    with pytest.raises(TooLarge, match="the request has 6 tries; at most 5 are taken in 500 s") as never:
        rates.draw({}, "b", SLOW, "tries", 6)
    assert never.value.facts["limit"] == 5
    assert rates.take("b", SLOW, 5).wait_s == 0


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
        rates.take(f"name {number}", limit_of("tries", 1000.0, 0.001))
    assert (tmp_path / "rates").stat().st_size == SETS * WAYS * 16
    assert taken(rates, "somebody else", 20) == 5
