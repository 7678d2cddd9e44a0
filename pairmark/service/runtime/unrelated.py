"""The false positive rate in use, without labels: probes of unrelated requests are scored against each other.

One vector of each request is kept, in memory only, until `POOL` of them are there. They are then paired at random, each
once, and scored. Such pairs are different people as long as the requests of a pool are about different people. A vector
counts once: users who return with the template they are enrolled by, and clients that send one probe again and again,
count as one. Who returns with new photos is not seen. `pairmark.models.calibration.live_rate` says when the rate is
above the promised one.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.live_rate import RateWatch
from pairmark.service.errors import PairmarkError
from pairmark.service.runtime.versions import LoadedVersion

POOL = 64
MOST_VERSIONS = 256
MOST_THRESHOLDS = 16
MOST_REMEMBERED = 1 << 16
MOST_NUMBERS = 1 << 22
"""Numbers kept in all pools together; vectors beyond are not taken."""


@dataclass
class UnrelatedPairs:
    """What one process knows of a version: probes that wait for a partner, and a watch for each served threshold."""

    model: str
    version: int
    probes: list[NDArray[np.float32]] = field(default_factory=list)
    watches: dict[tuple[str, float], RateWatch] = field(default_factory=dict)
    published: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    digests: dict[bytes, None] = field(default_factory=dict, repr=False)
    """Digests of the newest vectors that were taken."""

    def is_new(self, vector: NDArray[np.float32]) -> bool:
        """Whether a vector was not taken before, as far as that is remembered."""
        digest = hashlib.blake2b(vector.tobytes(), digest_size=8).digest()
        if digest in self.digests:
            return False
        self.digests[digest] = None
        if len(self.digests) > MOST_REMEMBERED:
            del self.digests[next(iter(self.digests))]
        return True

    def observe(self, scores: NDArray[np.float32]) -> None:
        """Hold scores of unrelated pairs against every served threshold."""
        for (_, threshold), watch in self.watches.items():
            watch.observe((scores > threshold).tolist())

    def counts(self) -> dict[str, tuple[int, int, int]]:
        """Pairs, those above, and alarms by rate: over the thresholds that were served at it."""
        counts: dict[str, tuple[int, int, int]] = {}
        for (rate, _), watch in self.watches.items():
            n, above, alarms = counts.get(rate, (0, 0, 0))
            counts[rate] = n + watch.n, above + watch.above, alarms + watch.alarms
        return counts


class UnrelatedCheck:
    """Watches the rates that are served. Used on the event loop only; pairs are scored in a thread. ``enabled``:
    whether probes may be kept at all (``PAIRMARK_LIVE_PROBES``)."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._versions: dict[str, UnrelatedPairs] = {}
        self._scoring: set[asyncio.Task[None]] = set()
        self._random = random.Random()
        self._n_numbers = 0

    def versions(self) -> list[UnrelatedPairs]:
        """Everything that is watched."""
        return list(self._versions.values())

    def take(self, version: LoadedVersion, rows: Any, rate: str, fpr: float, threshold: float) -> None:
        """Keep one probe of a decision, and watch its threshold.

        Parameters
        ----------
        rows : the request's left side. Sparse rows are not taken.
        rate : what the rate is called in metrics. fpr : the rate promised. threshold : what decides at it.
        """
        calibration = version.calibration_id
        if not self._enabled or calibration is None or not isinstance(rows, np.ndarray) or not len(rows):
            return
        pairs = self._versions.get(calibration)
        if pairs is None:
            if len(self._versions) >= MOST_VERSIONS:
                return
            pairs = UnrelatedPairs(version.entry.name, version.entry.version)
            self._versions[calibration] = pairs
        # One rate has several thresholds: by confidence and method.
        key = rate, threshold
        if key not in pairs.watches:
            if len(pairs.watches) >= MOST_THRESHOLDS:
                return
            pairs.watches[key] = RateWatch(fpr)
        if self._n_numbers + rows.shape[1] > MOST_NUMBERS:
            return
        probe = np.asarray(rows[0], dtype=np.float32)
        if not pairs.is_new(probe):
            return
        self._n_numbers += probe.size
        # A view would keep all rows of its request.
        pairs.probes.append(probe.copy())
        if len(pairs.probes) >= POOL:
            probes, pairs.probes = pairs.probes, []
            self._n_numbers -= sum(probe.size for probe in probes)
            task = asyncio.get_running_loop().create_task(self._score(version, pairs, probes))
            self._scoring.add(task)
            task.add_done_callback(self._scoring.discard)

    async def _score(
        self, version: LoadedVersion, pairs: UnrelatedPairs, probes: list[NDArray[np.float32]]
    ) -> None:
        self._random.shuffle(probes)
        left, right = np.stack(probes[::2]), np.stack(probes[1::2])
        try:
            scores = await asyncio.get_running_loop().run_in_executor(
                None, lambda: version.score(left, right)
            )
        except PairmarkError:
            # A score that is not finite: these probes say nothing of the rate.
            return
        pairs.observe(scores)
