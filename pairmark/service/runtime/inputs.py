"""What rows each version decides on in this process: counted, and held against its calibration.

Rows that are unlike are told at each decision; `DriftTest` looks at the others, for what one row cannot show. Of a
request at most `PICKED` rows count, and a vector once. Of the last `WINDOW` rows at most a tenth are one client's,
unless nobody else asks: no client by itself takes the others' guarantee away.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import TOGETHER, DriftTest, RowRanges
from pairmark.service.runtime.versions import LoadedVersion

PICKED = 8
WINDOW = 100
OF_ONE_CLIENT = WINDOW // 10
MOST_REMEMBERED = 1 << 14
MAX_WATCHED = 256


@dataclass(slots=True)
class InputWatch:
    """Counts of one calibration's decisions since they were last read, and the test of its inputs."""

    model: str
    version: int
    test: DriftTest
    rows: int = 0
    unlike: int = 0
    day: int = 0
    today: list[int] = field(default_factory=lambda: [0, 0])
    clients: deque[str] = field(default_factory=lambda: deque(maxlen=WINDOW))
    first_client: str | None = None
    several: bool = False
    digests: dict[bytes, None] = field(default_factory=dict, repr=False)
    pending: list[NDArray[np.float32]] = field(default_factory=list, repr=False)

    def count(self, n: int, unlike: int) -> None:
        """Count rows."""
        self.rows += n
        self.unlike += unlike
        day = int(time.time() // 86_400)
        if day != self.day:
            self.day, self.today = day, [0, 0]
        self.today[0] += n
        self.today[1] += unlike

    def take(self, row: NDArray[np.float32], client: str) -> None:
        """Keep a row for the test, unless its client or the vector itself has had its share."""
        self.first_client = self.first_client or client
        self.several = self.several or client != self.first_client
        if self.several and self.clients.count(client) >= OF_ONE_CLIENT:
            return
        digest = hashlib.blake2b(row.tobytes(), digest_size=8).digest()
        if digest in self.digests:
            return
        self.digests[digest] = None
        if len(self.digests) > MOST_REMEMBERED:
            del self.digests[next(iter(self.digests))]
        self.clients.append(client)
        self.pending.append(row.copy())


class InputChecks:
    """Watches what each calibration decides on. Used on the event loop only; ``alarm`` is called in a thread, with a
    calibration and what has moved, once."""

    def __init__(self, alarm: Callable[[str, str], None]) -> None:
        self._alarm = alarm
        self._watches: dict[str, InputWatch] = {}
        self._telling: set[asyncio.Future[None]] = set()

    def watches(self) -> list[InputWatch]:
        """Everything that is watched."""
        return list(self._watches.values())

    def note(
        self,
        version: LoadedVersion,
        ranges: RowRanges | None,
        rows: Any,
        flags: NDArray[np.bool_] | None,
        client: str,
        *,
        n_rows: int,
    ) -> None:
        """Count what a request decided on, and hold some of its rows against the calibration.

        Parameters
        ----------
        ranges : what rows of the calibration are like; None where that is not known.
        rows : those to look at. flags : which of them, or of more, are unlike, which were told.
        n_rows : how many rows the request has.
        """
        calibration = version.calibration_id
        if calibration is None:
            return
        watch = self._watches.get(calibration)
        if watch is None:
            if ranges is None or len(self._watches) >= MAX_WATCHED:
                return
            watch = InputWatch(version.entry.name, version.entry.version, DriftTest(ranges))
            self._watches[calibration] = watch
        watch.count(n_rows, 0 if flags is None else int(flags.sum()))
        if watch.test.moved is not None or not isinstance(rows, np.ndarray) or rows.dtype != np.float32:
            return
        places: Sequence[int] = (
            range(len(rows)) if flags is None else np.flatnonzero(~flags[: len(rows)]).tolist()
        )
        for at in places[:: max(1, -(-len(places) // PICKED))]:
            watch.take(rows[at], client)
        if len(watch.pending) >= TOGETHER:
            taken, watch.pending = np.stack(watch.pending), []
            watch.test.observe(taken)
            if watch.test.moved is not None:
                loop = asyncio.get_running_loop()
                told = loop.run_in_executor(None, self._alarm, calibration, watch.test.moved)
                self._telling.add(told)
                told.add_done_callback(self._telling.discard)
