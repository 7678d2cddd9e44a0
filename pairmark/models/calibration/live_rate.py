"""Watching a false positive rate in use, without labels: a sequential test on pairs known to be unrelated.

Each observation is whether a pair of unrelated vectors scores above a served threshold; under the promise its
probability is at most p. L_n(q) = q/p after a hit and (1 - q)/(1 - p) after a miss has expectation at most 1 then, for
every q > p. The Shiryaev-Roberts sum M_n = (M_{n-1} + 1) L_n, averaged over several q, therefore satisfies
E M_n <= n, and the mean number of pairs before M_n first reaches A is at least A (an e-detector: Shin, Ramdas and
Rinaldo 2022, theorem 2.4). It forgets good times: a rate that doubles after a year is seen as fast as on the first day.

That is an average run length, no promise for every time: at exactly the promised rate an alarm comes sooner or later
(within 20,000 pairs in about one run in six), and pairs of people who return depend on each other, so that alarms come
sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

PAIRS_BETWEEN_FALSE_ALARMS = 100_000
"""While the rate is as promised, alarms are at least so many unrelated pairs apart on average."""
MULTIPLES = (1.5, 2.0, 3.0, 6.0)
"""Rates, in multiples of the promised one, that the test looks out for."""


@dataclass
class RateWatch:
    """A promised rate, and what unrelated pairs say of it.

    Attributes
    ----------
    promised : false positive rate, in (0, 1). n, above : pairs seen, and those above the threshold.
    alarms : how often the alarm was raised. It starts afresh after each.
    """

    promised: float
    n: int = 0
    above: int = 0
    alarms: int = 0
    _sums: list[float] = field(default_factory=lambda: [0.0] * len(MULTIPLES), repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.promised < 1:
            raise ValueError(f"promised is {self.promised}; expected a rate between 0 and 1")
        p = self.promised
        rates = [min(p * multiple, (1 + p) / 2) for multiple in MULTIPLES]
        self._hit = [rate / p for rate in rates]
        self._miss = [(1 - rate) / (1 - p) for rate in rates]

    def observe(self, hits: Iterable[bool]) -> None:
        """Take whether each of some unrelated pairs scored above the threshold, in order."""
        for hit in hits:
            self.n += 1
            self.above += int(hit)
            factors = self._hit if hit else self._miss
            self._sums = [(total + 1.0) * factor for total, factor in zip(self._sums, factors, strict=True)]
            if sum(self._sums) >= len(MULTIPLES) * PAIRS_BETWEEN_FALSE_ALARMS:
                self.alarms += 1
                self._sums = [0.0] * len(MULTIPLES)
