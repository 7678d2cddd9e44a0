"""What rows each version decides on in this process: counted, and held against its calibration.

Rows that are unlike are told at each decision; `StreamMonitor` looks at the others, for what one row cannot show. Of a
request at most `PICKED` rows count, and a vector once. Of the last `WINDOW` rows that count about a tenth at most are
one client's, or its even share where fewer ask: no client by itself takes the guarantee of many others away.
"""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import TOGETHER, RowRanges, StreamMonitor
from pairmark.models.core.arrays import Float32
from pairmark.service.runtime.versions import LoadedVersion

PICKED = 8
WINDOW = 100
OF_ONE_CLIENT = WINDOW // 10
MOST_REMEMBERED = 1 << 14
MAX_WATCHED = 256


@dataclass(slots=True)
class InputWatch:
    """Counts of one calibration's decisions since they were last read, and the rows that its monitor is to take."""

    model: str
    version: int
    rows: int = 0
    unlike: int = 0
    day: int = 0
    today: list[int] = field(default_factory=lambda: [0, 0])
    moved: str | None = None
    """What has moved, in words; None: nothing is known to have."""
    monitor: StreamMonitor | None = None
    looks: asyncio.Future[None] | None = None
    requests: int = 0
    askers: deque[str] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Whose the last rows were, whether they counted or not."""
    clients: deque[str] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Whose the last rows were that counted."""
    digests: dict[bytes, None] = field(default_factory=dict, repr=False)
    pending: list[tuple[Float32, int]] = field(default_factory=list, repr=False)

    def count(self, n: int, unlike: int) -> None:
        """Count rows."""
        self.rows += n
        self.unlike += unlike
        day = int(time.time() // 86_400)
        if day != self.day:
            self.day, self.today = day, [0, 0]
        self.today[0] += n
        self.today[1] += unlike

    def take(self, row: Float32, client: str) -> None:
        """Keep a row for the monitor, unless its client or the vector itself has had its share."""
        self.askers.append(client)
        # One more than its share: the last place of a full window is taken by somebody, or no row would ever leave it.
        if self.clients.count(client) > max(OF_ONE_CLIENT, WINDOW // len(set(self.askers))):
            return
        digest = hashlib.blake2b(row.tobytes(), digest_size=8).digest()
        if digest in self.digests:
            return
        self.digests[digest] = None
        if len(self.digests) > MOST_REMEMBERED:
            del self.digests[next(iter(self.digests))]
        self.clients.append(client)
        self.pending.append((row.copy(), self.requests))


class InputChecks:
    """Watches what each calibration decides on. Used on the event loop only.

    Parameters
    ----------
    alarm : is called in a thread, with a calibration and what has moved, once.
    """

    def __init__(self, alarm: Callable[[str, str], None]) -> None:
        self._alarm = alarm
        self._watches: dict[str, InputWatch] = {}

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
            watch = self._watches[calibration] = InputWatch(version.entry.name, version.entry.version)
        watch.count(n_rows, 0 if flags is None else int(flags.sum()))
        if (
            ranges is None
            or watch.moved is not None
            or not isinstance(rows, np.ndarray)
            or rows.dtype != np.float32
        ):
            return
        places: Sequence[int] = (
            range(len(rows)) if flags is None else np.flatnonzero(~flags[: len(rows)]).tolist()
        )
        watch.requests += 1
        for place in places[:: max(1, -(-len(places) // PICKED))]:
            watch.take(rows[place], client)
        # One look at a time; meanwhile rows wait, and what is too much is not looked at.
        if len(watch.pending) >= TOGETHER and (watch.looks is None or watch.looks.done()):
            taken, watch.pending = watch.pending[: 2 * TOGETHER], []
            look = partial(self._look, watch, calibration, ranges, taken)
            watch.looks = asyncio.get_running_loop().run_in_executor(None, look)

    def _look(
        self, watch: InputWatch, calibration: str, ranges: RowRanges, taken: list[tuple[Float32, int]]
    ) -> None:
        """Hold rows against the calibration (blocking)."""
        watch.monitor = watch.monitor or StreamMonitor(ranges)
        watch.monitor.observe(np.stack([row for row, _ in taken]), [request for _, request in taken])
        watch.moved = watch.monitor.moved
        if watch.moved is not None:
            self._alarm(calibration, watch.moved)
