"""Pairs of records that lack columns: which threshold decides each of them.

What the two sides of a pair are compared without is its choice of columns, and its threshold is that of calibration
pairs that are scored without the same. Some choices were prepared in training. A pair of any other is *rounded up* at
once: it is scored and decided without a few columns more, by the prepared choice that contains its own and costs least,
while its own is worked out in the background and answers from then on. Where none was prepared, as for subjects, what
all pairs of a request lack together stands for theirs. All are valid: a choice is fixed before scores are seen, and
what is decided is what was calibrated.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from pairmark.models.calibration.records import pattern_codes, pattern_of
from pairmark.models.core.arrays import Bool, Float32
from pairmark.service.caches import BoundedCache
from pairmark.service.db import Database
from pairmark.service.errors import PairmarkError
from pairmark.service.runtime.operating_points import (
    MOST_CALIBRATIONS,
    UNSUPPORTED,
    OperatingPoints,
    PointRequest,
    ServedPoint,
    Thresholds,
)
from pairmark.service.scheduling import lower_priority
from pairmark.service.tables import RAW_TOO_LITTLE, ColumnChoice

MOST_CHOICES, SHARES = 256, 4
"""Choices of columns of a calibration that are kept, and how many owners may have as many as they are allowed."""
MOST_WAITING = 64
"""Choices of four owners that wait to be worked out, 16 of each: one thread takes them as they come, about a tenth of a
second each, so that another owner's first one waits for some two seconds of each. Pairs with those beyond an owner's
share are decided by prepared choices all the same, and ask again when they come next."""
NOW = 8
"""Choices of a request that are worked out at once where none stands for them; the last one is what all others lack
together."""
Rescore = Callable[[NDArray[np.intp], Bool], Float32]
"""Numbers of pairs, and the (n, 2, d) columns without which to compare them -> their scores."""
MORE_COLUMNS = "these columns would help."
COMPLETE_ONLY = "the model's policy (missing) refuses records that lack a column."
NOT_KEPT = (
    "the calibration has no records to compare without them, as those of earlier versions have none; calibrate the "
    "version again, or send complete records."
)
NOT_READY = "what is left is being worked out: send these pairs again shortly."
TOO_LITTLE: Final = "too-little-to-compare"
"""The reason where nothing can be said of the columns that both sides have."""


@dataclass(frozen=True, eq=False, slots=True)
class ComparedPairs:
    """Pairs of which some lack columns.

    Attributes
    ----------
    lacked : (n_pairs, 2, d) columns without which the sides are compared.
    thresholds : each pair's own.
    scores : (n_pairs,) those of pairs that are compared without more columns than they lack, NaN for the others; None:
        there is no such pair.
    why : what to do about these, in words.
    """

    lacked: Bool
    thresholds: tuple[Float32, Float32]
    why: str
    scores: Float32 | None = None

    @property
    def codes(self) -> NDArray[np.uint8]:
        """(n_pairs,) 0, or the code of a pair with too little to compare."""
        codes: NDArray[np.uint8] = np.uint8(RAW_TOO_LITTLE) * np.isnan(self.thresholds[0])
        return codes

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
        if np.isnan(self.thresholds[0][pair]):
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
        share = f"too little to compare in {int(refused.sum())} of {len(refused)} pairs"
        return ({"code": TOO_LITTLE, "detail": f"{share}, for want of {', '.join(names)}: {self.why}"},)


class UsedChoices:
    """Choices of columns that were asked for, in the database, so that a restart forgets none."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, calibration: str) -> list[tuple[PointRequest, bytes, str]]:
        """What was asked for of a calibration, by what, and by whom, the first one first; of more than may be kept,
        as several processes leave them, the last ones."""
        with self._database.write() as session:
            query = select(ColumnChoice).where(ColumnChoice.calibration_id == calibration)
            rows = list(session.scalars(query.order_by(ColumnChoice.asked_at.desc(), ColumnChoice.code)))
            for row in rows[MOST_CHOICES:]:
                session.delete(row)
            return [
                (PointRequest(calibration, *row.request), row.code, row.owner)
                for row in rows[MOST_CHOICES - 1 :: -1]
            ]

    def change(self, request: PointRequest, code: bytes, owner: str, gone: list[bytes]) -> None:
        """Keep a choice and forget others; what cannot be stored is worked out again after a restart."""
        calibration, *asked = request
        with suppress(PairmarkError, IntegrityError), self._database.write() as session:
            if session.get(ColumnChoice, (calibration, code)) is None:
                session.add(
                    ColumnChoice(
                        calibration_id=calibration,
                        code=code,
                        request=asked,
                        owner=owner,
                        asked_at=self._database.now(session),
                    )
                )
            for choice in gone:
                row = session.get(ColumnChoice, (calibration, choice))
                if row is not None:
                    session.delete(row)


class Patterns:
    """Finds what decides pairs that lack columns, at once."""

    def __init__(self, points: OperatingPoints, used: UsedChoices | None = None) -> None:
        self._points, self._used = points, used
        self._lock = threading.Lock()
        self._owners: BoundedCache[str, OrderedDict[bytes, str]] = BoundedCache(MOST_CALIBRATIONS)
        """Of each calibration, the choices that were worked out and who asked first, the least lately used first."""
        self._waiting: dict[tuple[Any, bytes], str | None] = {}
        self._background = ThreadPoolExecutor(1, "choices", initializer=lower_priority)

    def close(self) -> None:
        """Work nothing out any more."""
        self._background.shutdown(wait=False, cancel_futures=True)

    def find(
        self,
        estimator: Any,
        owner: str,
        point: ServedPoint,
        lacked: Bool,
        rescore: Rescore | None = None,
        *,
        may_work: bool = True,
    ) -> ComparedPairs | None:
        """What decides pairs (blocking); None where some of it is not known yet and no work ``may`` be done.

        Parameters
        ----------
        owner : who asks. point : of complete records. lacked : (n_pairs, 2, d), as of `RecordScorer.patterns`.
        rescore : scores pairs without more columns; None: that cannot be done here.
        """
        request = point.request
        assert request is not None
        deciding: dict[bytes, tuple[Thresholds, Bool | None]] = {}
        why = COMPLETE_ONLY if request.complete_only else MORE_COLUMNS
        later: dict[bytes, Bool] = {}
        codes = pattern_codes(lacked)
        # Who lacks most comes first: what is worked out for them may contain what others lack.
        choices = sorted(dict(zip(codes, lacked, strict=True)).items(), key=lambda choice: -choice[1].sum())
        # 1. What is known already decides at once; nothing is worked out for it.
        for code, columns in choices:
            if not columns.any():
                deciding[code] = (point.threshold, point.lower or np.float32(0)), None
                continue
            if request.complete_only:
                deciding[code] = UNSUPPORTED, None
                continue
            thresholds = self._points.cached_thresholds(request, code)
            if thresholds is not None:
                self._hold(request, code)
                deciding[code] = thresholds, None
                continue
            if not may_work:
                return None
            # 2. Choices that calibration scored beforehand, and those that an earlier choice of fewer columns covers.
            records = self._points.fetch(request.calibration_id).calibration.records
            if records is None:
                deciding[code], why = (UNSUPPORTED, None), NOT_KEPT
            elif code in records.codes:
                deciding[code] = self._points.thresholds(request, code, columns, estimator), None
            elif rescore is not None and (cover := self._cover(request, columns, estimator)) is not None:
                deciding[code] = cover
                self._work_out(request, code, columns, estimator, owner)
            else:
                later[code] = columns
        # 3. Of the others the first few are worked out now, ...
        for code, columns in [*later.items()][: NOW if rescore is None or len(later) <= NOW else NOW - 1]:
            del later[code]
            deciding[code] = self._points.thresholds(request, code, columns, estimator), None
            self._hold(request, code, owner)
        if later:
            # 4. ... and the rest decided without any column that one of them lacks, until their own are worked out.
            together = np.tile(np.any([*later.values()], axis=(0, 1)), (2, 1))
            thresholds = UNSUPPORTED
            if rescore is not None:
                (code,) = pattern_codes(together[None])
                thresholds = self._points.thresholds(request, code, together, estimator)
                self._hold(request, code, owner)
            is_supported = not np.isnan(thresholds[0])
            why = why if is_supported else NOT_READY
            for code, columns in later.items():
                deciding[code] = thresholds, together if is_supported else None
                self._work_out(request, code, columns, estimator, owner)
        upper, lower = (
            np.array([deciding[code][0][side] for code in codes], dtype=np.float32) for side in (0, 1)
        )
        rounded = np.array([deciding[code][1] is not None for code in codes])
        if not rounded.any() or rescore is None:
            return ComparedPairs(lacked, (upper, lower), why)
        # A cover is of a choice, in the order of one pair's sides; a pair may be the other way round.
        compared, scores = lacked.copy(), np.full(len(codes), np.nan, dtype=np.float32)
        for pair in np.flatnonzero(rounded).tolist():
            sides = deciding[codes[pair]][1]
            assert sides is not None
            compared[pair] = sides if (sides | ~lacked[pair]).all() else sides[::-1]
        numbers = np.flatnonzero(rounded)
        scores[numbers] = rescore(numbers, compared[numbers])
        return ComparedPairs(compared, (upper, lower), why, scores)

    def _cover(self, request: Any, columns: Bool, estimator: Any) -> tuple[Thresholds, Bool] | None:
        """The best prepared choice that contains these columns and supports the rate, and its thresholds."""
        records = self._points.fetch(request.calibration_id).calibration.records
        assert records is not None
        # What is known comes first: a request of many choices would wait for each one's best.
        for may_work in (False, True):
            for code, sides in records.cover(columns):
                thresholds = self._points.cached_thresholds(request, code)
                if thresholds is None and may_work:
                    thresholds = self._points.thresholds(request, code, sides, estimator)
                if thresholds is not None and not np.isnan(thresholds[0]):
                    return thresholds, sides
        return None

    def prepare(self, estimator: Any, request: PointRequest) -> None:
        """Have what is likely to be asked for worked out in the background: at this rate what was scored beforehand,
        and the first time that a calibration is asked about what was asked for before this process began."""
        is_known = self._owners.get(request.calibration_id) is not None
        self._owners.get_or_make(request.calibration_id, OrderedDict)
        self._submit(self._prepare, estimator, request, not is_known)

    def _prepare(self, estimator: Any, request: PointRequest, is_first: bool) -> None:
        calibration = self._points.fetch(request.calibration_id).calibration
        records = calibration.records
        if records is None or request.complete_only:
            return
        used = self._used.of(request.calibration_id) if self._used is not None and is_first else []
        rates = dict.fromkeys((request, *(asked for asked, _, _ in used)))
        for asked in [asked for asked in rates if calibration.answers(asked.fpr, asked.confidence)]:
            # All of them, the best first.
            for code, columns in records.cover(np.zeros((2, records.n_columns), dtype=np.bool_)):
                self._work_out(asked, code, columns, estimator, None)
        for asked, code, owner in used:
            self._submit(self._decide, (asked, code), pattern_of(code, records.n_columns), estimator, owner)

    def _work_out(self, request: Any, code: bytes, columns: Bool, estimator: Any, owner: str | None) -> None:
        """Have a choice worked out in the background."""
        key = request, code
        with self._lock:
            n_own = sum(waiting == owner for waiting in self._waiting.values())
            if key in self._waiting or (owner is not None and n_own >= MOST_WAITING // SHARES):
                return
            self._waiting[key] = owner
        self._submit(self._decide, key, columns, estimator, owner)

    def _decide(
        self, key: tuple[PointRequest, bytes], columns: Bool, estimator: Any, owner: str | None
    ) -> None:
        try:
            self._points.thresholds(*key, columns, estimator)
            self._hold(*key, owner)
        finally:
            with self._lock:
                self._waiting.pop(key, None)

    def _submit(self, work: Callable[..., None], *arguments: Any) -> None:
        """Work in the background, in its turn; nothing where the process ends."""
        with suppress(RuntimeError):
            self._background.submit(work, *arguments)

    def _hold(self, request: PointRequest, code: bytes, owner: str | None = None) -> None:
        """Note that a choice was asked for and, with ``owner``, who had it worked out; let go of one then: the owner's
        own, where that has its share."""
        calibration = request.calibration_id
        owners = self._owners.get_or_make(calibration, OrderedDict)
        with self._lock:
            if owner is not None:
                owners.setdefault(code, owner)
            if code in owners:
                owners.move_to_end(code)
            if owner is None:
                return
            own_codes = [one for one, first in owners.items() if first == owner]
            surplus = (
                own_codes
                if len(own_codes) > MOST_CHOICES // SHARES
                else list(owners)
                if len(owners) > MOST_CHOICES
                else []
            )
            for gone in surplus[:1]:
                del owners[gone]
                self._points.forget(calibration, gone)
        if self._used is not None:
            self._used.change(request, code, owner, surplus[:1])
