"""Claims that are known not to hold, from ``known_misses.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.common import Claim

FILE = Path(__file__).parent / "known_misses.toml"


def known(benchmark: str, what: str) -> bool:
    """Whether a claim of a benchmark is on the list."""
    listed = tomllib.loads(FILE.read_text(encoding="utf-8")).get(benchmark, {})
    return any(fnmatchcase(what, pattern) for pattern in listed)


def new(benchmark: str, claims: Sequence[Claim]) -> list[Claim]:
    """Claims that do not hold and are not on the list."""
    return [claim for claim in claims if not claim.holds and not known(benchmark, claim.what)]
