"""Pairs of records that lack columns: which threshold decides each of them.

What the two sides of a pair are compared without is its pattern, and its threshold is that of calibration pairs that
are scored without the same. Patterns that calibration pairs have are worked out whenever
they are first asked for; of others each client gets `NEW_A_MINUTE`, and a calibration `MOST_PATTERNS` in all. Pairs of
patterns beyond do not match and say why; the other pairs of a request are decided as ever.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import pattern_codes
from pairmark.models.core.arrays import Bool, Float32
from pairmark.service.caches import BoundedCache
from pairmark.service.errors import RateLimited
from pairmark.service.runtime.operating_points import UNSUPPORTED, OperatingPoints, ServedPoint, Thresholds
from pairmark.service.tables import RAW_TOO_LITTLE

MOST_PATTERNS, NEW_A_MINUTE, MOST_CLIENTS = 256, 8, 4_096
MINUTE_S = 60.0
MORE_COLUMNS = "these columns would help."
COMPLETE_ONLY = "the model's policy (missing) refuses records that lack a column."
NOT_KEPT = (
    "the calibration has no records to compare without them, as those of earlier versions have none; calibrate the "
    "version again, or send complete records."
)
ALL_TAKEN = (
    f"{MOST_PATTERNS} choices of columns were worked out for this calibration, as many as are kept: send complete "
    "records, or calibrate the version again."
)
TOO_LITTLE: Final = "too-little-to-compare"
"""The reason where nothing can be said of the columns that both sides have."""


@dataclass(frozen=True, eq=False, slots=True)
class ComparedPairs:
    """Pairs of which some lack columns.

    Attributes
    ----------
    lacked : (n_pairs, 2, d) columns without which the sides are compared.
    thresholds : each pair's own. codes : (n_pairs,) 0, or the code of a pair with too little to compare.
    why : what to do about these, in words.
    """

    lacked: Bool
    thresholds: tuple[Float32, Float32]
    why: str
    codes: NDArray[np.uint8] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "codes", np.uint8(RAW_TOO_LITTLE) * np.isnan(self.thresholds[0]))

    def of(self, pair: int) -> ComparedPairs:
        """One of the pairs."""
        part, (upper, lower) = slice(pair, pair + 1), self.thresholds
        return ComparedPairs(self.lacked[part], (upper[part], lower[part]), self.why)

    @property
    def places(self) -> list[int]:
        """The numbers of pairs that lack columns."""
        places: list[int] = np.flatnonzero(self.lacked.any(axis=(1, 2))).tolist()
        return places

    def facts(self, pair: int, columns: Sequence[str], *, shows_scores: bool) -> dict[str, Any]:
        """What an answer says of a pair; ``columns`` : the model's."""
        lacked = self.lacked[pair].any(axis=0).tolist()
        if not any(lacked):
            return {}
        if self.codes[pair]:
            missing = [name for name, lacks in zip(columns, lacked, strict=True) if lacks]
            return {"reason": TOO_LITTLE, "missing": missing}
        if not shows_scores:
            return {}
        compared = [name for name, lacks in zip(columns, lacked, strict=True) if not lacks]
        return {"threshold": float(self.thresholds[0][pair]), "compared": compared}

    def warnings(self, columns: Sequence[str]) -> tuple[dict[str, str], ...]:
        """What limits the answer."""
        refused = self.codes > 0
        if not refused.any():
            return ()
        names = [columns[at] for at in np.flatnonzero(self.lacked[refused].any(axis=(0, 1))).tolist()]
        said = f"too little to compare in {int(refused.sum())} of {len(refused)} pairs, for want of "
        said += f"{', '.join(names)}: {self.why}"
        return ({"code": TOO_LITTLE, "detail": said},)


class Patterns:
    """Finds thresholds by pattern, within bounds."""

    def __init__(self, points: OperatingPoints) -> None:
        self._points = points
        self._known: BoundedCache[str, dict[bytes, None]] = BoundedCache(MOST_PATTERNS)
        self._asked: BoundedCache[str, deque[float]] = BoundedCache(MOST_CLIENTS)

    def found(self, estimator: Any, client: str, point: ServedPoint, lacked: Bool) -> ComparedPairs:
        """The thresholds of pairs (blocking)."""
        compared = self.find(estimator, client, point, lacked)
        assert compared is not None
        return compared

    def find(
        self, estimator: Any, client: str, point: ServedPoint, lacked: Bool, *, may_work: bool = True
    ) -> ComparedPairs | None:
        """The same; None where some are not worked out yet and no work ``may`` be done.

        `RateLimited` where no pair could be decided before the client may have more of them worked out.

        Parameters
        ----------
        point : of complete records. lacked : (n_pairs, 2, d), as of `RecordScorer.patterns`.
        """
        request = point.request
        assert request is not None
        found: dict[bytes, Thresholds] = {}
        why, limit = COMPLETE_ONLY if request.complete_only else MORE_COLUMNS, None
        patterns = pattern_codes(lacked)
        for at, pattern in enumerate(patterns):
            if pattern in found:
                continue
            columns = lacked[at]
            if not columns.any():
                found[pattern] = point.threshold, point.lower or np.float32(0)
                continue
            thresholds = (
                UNSUPPORTED if request.complete_only else self._points.cached_thresholds(request, pattern)
            )
            if thresholds is None and not may_work:
                return None
            if thresholds is None:
                try:
                    refusal = self._refused(request.calibration_id, pattern, columns, estimator, client)
                except RateLimited as error:
                    limit, refusal = error, error.detail
                why = refusal or why
                work = request, pattern, columns, estimator
                thresholds = UNSUPPORTED if refusal else self._points.thresholds(*work)
            found[pattern] = thresholds
        if limit is not None and np.isnan([upper for upper, _ in found.values()]).all():
            raise limit
        upper, lower = (
            np.array([found[pattern][side] for pattern in patterns], dtype=np.float32) for side in (0, 1)
        )
        return ComparedPairs(lacked, (upper, lower), why)

    def _refused(
        self, calibration: str, pattern: bytes, columns: Bool, estimator: Any, client: str
    ) -> str | None:
        """Why a pattern is not worked out; None: it may be. `RateLimited` where the client has to wait."""
        known = self._known.get_or_make(calibration, dict)
        records = self._points.fetch(calibration).calibration.records
        if records is None:
            return NOT_KEPT
        if pattern not in known and not records.lack(columns, estimator).any():
            asked, now = self._asked.get_or_make(client, lambda: deque(maxlen=NEW_A_MINUTE)), time.monotonic()
            if len(known) >= MOST_PATTERNS:
                return ALL_TAKEN
            if len(asked) == NEW_A_MINUTE and now - asked[0] < MINUTE_S:
                wait_s = math.ceil(asked[0] + MINUTE_S - now)
                raise RateLimited(
                    "pairs lack columns in choices that nobody asked for before, of which a client gets "
                    f"{NEW_A_MINUTE} a minute; those are kept: send these pairs again in {wait_s} s",
                    retry_after=wait_s,
                )
            asked.append(now)
        known[pattern] = None
        return None
