"""What probes score in a gallery: with strangers, with their own subjects, and by rank."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.identification import leave_one_subject_out
from pairmark.models.core.progress import report
from pairmark.models.core.subjects import SampleSets
from pairmark.service.galleries import item_repository
from pairmark.service.galleries.catching_up import MAX_TEMPLATES, PROBES_AT_A_TIME
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.probes import Float32, Probes
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.templates import SubjectHit
from pairmark.service.galleries.view import Hit, View
from pairmark.service.runtime.scoring import Served

MAX_LEFT_OUT = 2_000
"""Enrolled subjects that are searched among the others for an estimate."""


class ProbeScores:
    """Searches with probes, item by item or, with ``how``, for subjects as wholes (all blocking)."""

    def __init__(self, galleries: Galleries) -> None:
        self._galleries = galleries

    def view(self, state: State, served: Served) -> View:
        """The gallery as it is searched."""
        return self._galleries.views.live(state, served.estimator).view(state.seq)

    def _searched(
        self, state: State, view: View, probes: Float32, k: int, how: str | None, *, by_subject: bool = False
    ) -> list[list[Hit]] | list[list[SubjectHit]]:
        """Hits among items, or with ``how`` among subjects as wholes."""
        if how is not None:
            return self._galleries.views.live(state, view.estimator).subjects.at(view, how).search(probes, k)
        elsewhere = self._galleries.views.elsewhere(state, (), view.seq)
        return view.search(probes, k, elsewhere=elsewhere, by_subject=by_subject)

    def best(
        self, state: State, view: View, probes: Float32, span: tuple[float, float], how: str | None
    ) -> Float32:
        """Best score of each probe in the gallery; -inf for none. Tells progress from one of ``span`` to the other."""
        found: list[float] = []
        for start in range(0, len(probes), PROBES_AT_A_TIME):
            report(span[0] + (span[1] - span[0]) * start / len(probes), "searching with strangers")
            some = self._searched(state, view, probes[start : start + PROBES_AT_A_TIME], 1, how)
            found += [hits[0].score if hits else -np.inf for hits in some]
        return np.array(found, dtype=np.float32)

    def mated(self, state: State, served: Served, probes: Probes, how: str | None) -> Float32:
        """Score of each enrolled probe with its own subject: the best of its items, or with all of them as a whole."""
        scores = []
        for at in np.flatnonzero(probes.enrolled).tolist():
            with self._galleries.database.read() as session:
                items = item_repository.subject_rows(session, state, probes.subjects[at], MAX_TEMPLATES)
            probe = probes.vectors[at : at + 1]
            if items is None:
                # Erased since the probes were looked up: found by nobody.
                scores.append(-np.inf)
            elif how is None:
                scores.append(served.score(probe, items.vectors).max())
            else:
                enrolled = SampleSets.of_rows(items.vectors, np.array([len(items)]))
                scores.append(served.score_subjects(SampleSets.of_rows(probe), enrolled, how)[0])
        return np.array(scores, dtype=np.float32)

    def ranks(
        self, state: State, view: View, probes: Probes, own: Float32, max_rank: int, how: str | None
    ) -> NDArray[np.int64]:
        """Rank of each enrolled probe's own subject among subjects, ties against it; max_rank + 1 for later."""
        ranks: list[int] = []
        for at, mine in zip(np.flatnonzero(probes.enrolled).tolist(), own, strict=True):
            report(0.5 * len(ranks) / own.size, "ranking the enrolled")
            probe = probes.vectors[at : at + 1]
            hits = self._searched(state, view, probe, max_rank + 1, how, by_subject=True)[0]
            others = sum(hit.subject != probes.subjects[at] and np.float32(hit.score) >= mine for hit in hits)
            ranks.append(min(1 + others, max_rank + 1))
        return np.array(ranks, dtype=np.int64)

    def left_out(
        self, state: State, view: View, threshold: float, confidence: float, how: str | None
    ) -> dict[str, Any] | None:
        """Search enrolled subjects, one item each, among the others."""
        best: list[float] = []
        subjects: list[str | None] = []
        seen: set[str] = set()
        with self._galleries.database.read() as session:
            for rows in item_repository.read_range(session, state, 0, view.seq):
                fresh = []
                for at, subject in enumerate(rows.subjects):
                    if subject is not None and subject not in seen and len(seen) < MAX_LEFT_OUT:
                        seen.add(subject)
                        fresh.append(at)
                for at in fresh:
                    report(0.8 + 0.2 * len(best) / MAX_LEFT_OUT, "leaving one out")
                    probe = rows.vectors[at : at + 1]
                    hits = self._searched(state, view, probe, 2, how, by_subject=True)[0]
                    others = [hit.score for hit in hits if hit.subject != rows.subjects[at]]
                    best.append(others[0] if others else -np.inf)
                    subjects.append(rows.subjects[at])
                if len(seen) >= MAX_LEFT_OUT:
                    break
        if len(subjects) < 2:
            return None
        return leave_one_subject_out(np.array(best), np.array(subjects), threshold, confidence)
