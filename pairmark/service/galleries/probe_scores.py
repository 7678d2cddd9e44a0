"""How probes find their subjects: by rank, and each enrolled one among the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.identification import leave_one_subject_out
from pairmark.models.core.progress import report
from pairmark.service.galleries.probes import Float32, Probes
from pairmark.service.galleries.rows import StoredRows
from pairmark.service.galleries.templates import SubjectHit
from pairmark.service.galleries.view import Hit

MAX_LEFT_OUT = 2_000
"""Enrolled subjects that are searched among the others for an estimate."""

Search = Callable[[Float32, int], Sequence[Sequence[Hit | SubjectHit]]]
"""Probes and k -> the k best subjects of each."""


def ranks_of(search: Search, probes: Probes, records: NDArray[np.void], max_rank: int) -> NDArray[np.int64]:
    """Rank of each enrolled probe's own subject among subjects, ties against it; max_rank + 1 for later. ``records``:
    the probes' scores, see `RECORD`."""
    enrolled = np.flatnonzero(records["own_items"] > 0)
    ranks: list[int] = []
    for at in enrolled.tolist():
        report(0.4 + 0.4 * len(ranks) / enrolled.size, "ranking the enrolled")
        hits = search(probes.vectors[at : at + 1], max_rank + 1)[0]
        mine = records["own"][at]
        others = sum(hit.subject != probes.subjects[at] and np.float32(hit.score) >= mine for hit in hits)
        ranks.append(min(1 + others, max_rank + 1))
    return np.array(ranks, dtype=np.int64)


def search_left_out(
    search: Search, items: Iterable[StoredRows], threshold: float, confidence: float
) -> dict[str, Any] | None:
    """Search for enrolled subjects, one item each, among the others."""
    best: dict[str, float] = {}
    for rows in items:
        for at, subject in enumerate(rows.subjects):
            if subject is None or subject in best or len(best) >= MAX_LEFT_OUT:
                continue
            report(0.8 + 0.2 * len(best) / MAX_LEFT_OUT, "leaving one out")
            hits = search(rows.vectors[at : at + 1], 2)[0]
            best[subject] = next((hit.score for hit in hits if hit.subject != subject), -np.inf)
        if len(best) >= MAX_LEFT_OUT:
            break
    if len(best) < 2:
        return None
    return leave_one_subject_out(np.array(list(best.values())), np.array(list(best)), threshold, confidence)
