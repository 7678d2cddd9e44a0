"""From a request to rows as a version takes them, and to their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.calibration.records import (
    are_records,
    blanked_subjects,
    cells_missing,
    lacked_by_subject,
)
from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.core.scores import SampleSets
from pairmark.models.core.spec import Explainer
from pairmark.service.datasets.data import name_list
from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.runtime.versions import LoadedVersion, check_finite
from pairmark.service.scoring.requests import Features, PairRequest
from pairmark.service.scoring.rows import Counts, RecordRows, SideRows, to_rows
from pairmark.service.store.subjects import SubjectClass

Warnings = tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Two sides as a version takes them.

    Attributes
    ----------
    left, right : (n, d) rows; one of a side meets every one of the other.
    counts : of subjects of several samples, how many each of the left and the right side has; rows lie subject after
        subject.
    aggregation : how subjects are compared. warnings : of categories that training did not have.
    """

    version: LoadedVersion
    left: Any
    right: Any
    counts: tuple[Counts, Counts] | None = None
    aggregation: str = "auto"
    warnings: Warnings = ()

    @property
    def n_rows(self) -> int:
        return int(self.left.shape[0] + self.right.shape[0])

    def subjects(self) -> SubjectClass | None:
        """The class of subjects that a decision is about; None for plain rows."""
        if self.counts is None:
            return None
        a, b = np.broadcast_arrays(*self.counts)
        larger, smaller = np.maximum(a, b), np.minimum(a, b)
        differing = np.flatnonzero((larger != larger[0]) | (smaller != smaller[0]))
        if differing.size:
            pair = int(differing[0])
            raise InvalidInput(
                f"pair 0 has {a[0]} and {b[0]} samples, and pair {pair} {a[pair]} and {b[pair]}: a decision is "
                "calibrated for fixed numbers of samples; send pairs with other numbers in a separate request",
                field="left",
                pair=pair,
            )
        return SubjectClass(int(larger[0]), int(smaller[0]), self.aggregation)


def resolve(request: PairRequest, version: LoadedVersion, aggregation: str = "auto") -> Resolved:
    """The sides of a request as a version takes them; `InvalidInput` for rows that it does not take."""
    sides = to_rows(version, request.left, "left"), to_rows(version, request.right, "right")
    if request.counts is not None or aggregation != "auto":
        aggregation = version.aggregation(aggregation)
    return Resolved(
        version,
        *sides,
        request.counts,
        aggregation,
        unseen_categories(version, request.left, request.right),
    )


def unseen_categories(version: LoadedVersion, *sides: SideRows) -> Warnings:
    """A warning for each column of records as sent that holds categories which training did not have, of a learner that
    takes them encoded; one that compares texts needs none."""
    if version.encoder is None:
        return ()
    records = [record for side in sides if isinstance(side, RecordRows) for record in side.rows]
    return tuple(
        {
            "code": "unseen-category",
            "detail": f"column {column!r}: training did not have {name_list(values)}; the answer rests on the other "
            "columns",
        }
        for column, values in version.encoder.unseen(records).items()
    )


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores, and what was scored (None: they were made elsewhere).

    Attributes
    ----------
    scores : (n,) float32. model : the version that made them, in JSON.
    lacked : (n, 2, d) columns without which both sides of records were compared; None where nothing is lacking.
    """

    scores: Float32
    model: bytes
    resolved: Resolved | None = None
    lacked: Bool | None = None


def score(resolved: Resolved) -> Scored:
    """Score pairs of rows, or of subjects of several samples."""
    version, left, right = resolved.version, resolved.left, resolved.right
    lacked = columns_lacked(resolved)
    if resolved.counts is not None:
        a, b = (
            SampleSets.of_rows(rows, counts)
            for rows, counts in zip((left, right), resolved.counts, strict=True)
        )
        scores = version.score_subjects(*blanked_subjects(a, b), resolved.aggregation)
    else:
        if version.accepts_sparse and type(left) is not type(right):
            left, right = csr_array(left), csr_array(right)
        scores = version.score(left, right)
    return Scored(scores, version.json, resolved, lacked)


def columns_lacked(resolved: Resolved) -> Bool | None:
    """(n, 2, d) columns without which pairs of records are compared, of subjects those that any sample of either lacks;
    None where nothing is lacking."""
    left, right, counts = resolved.left, resolved.right, resolved.counts
    if not (are_records(left) and are_records(right)):
        return None
    if counts is None:
        left, right = cells_missing(left), cells_missing(right)
    else:
        sides = zip((left, right), counts, strict=True)
        left, right = (lacked_by_subject(SampleSets.of_rows(side, n_samples)) for side, n_samples in sides)
        left = right = left | right
    lacked: Bool | None = None
    if left.any() or right.any():
        lacked = resolved.version.estimator.patterns(left, right)
    return lacked


def score_without(resolved: Resolved, pairs: NDArray[np.intp], lacked: Bool) -> Float32:
    """Scores of some pairs of records or subjects, by their numbers, without the columns (n, 2, d) of either side."""
    if resolved.counts is not None:
        a, b = (
            SampleSets.of_rows(rows, counts).take(pairs if len(counts) > 1 else np.zeros_like(pairs))
            for rows, counts in zip((resolved.left, resolved.right), resolved.counts, strict=True)
        )
        return resolved.version.score_subjects(
            *blanked_subjects(a, b, np.logical_or(*lacked.swapaxes(0, 1))), resolved.aggregation
        )
    sides = []
    for rows, without in zip((resolved.left, resolved.right), lacked.swapaxes(0, 1), strict=True):
        blanked = rows[pairs if len(rows) > 1 else np.zeros_like(pairs)].copy()
        blanked[without] = None
        sides.append(blanked)
    return resolved.version.score(*sides)


def explain(request: PairRequest, version: LoadedVersion, aggregation: str) -> tuple[Scored, dict[str, Any]]:
    """One pair's score, with the learner's explanation."""
    learner = version.estimator
    if not isinstance(learner, Explainer):
        raise ModelNotCapable(f"{version.entry.kind} cannot explain its scores", capability="explain")
    if request.n_pairs != 1:
        raise InvalidInput(f"the request has {request.n_pairs} pairs; expected one to explain", field="left")
    left, right = (
        to_rows(version, side, name, dense=True)
        for side, name in ((request.left, "left"), (request.right, "right"))
    )
    scored = score(resolve(request, version, aggregation))
    if request.counts is None:
        return scored, learner.explain(left, right, feature_names=version.feature_names)
    a, b = (SampleSets.of_rows(side, np.array([len(side)])) for side in (left, right))
    left, right = (subject.rows for subject in blanked_subjects(a, b))
    grid = version.estimator.score_against(left, right)
    # Of all pairs of samples the one whose score is nearest to that of the subjects stands for them.
    i, j = np.unravel_index(int(np.argmin(np.abs(grid - scored.scores[0]))), grid.shape)
    return scored, {
        "aggregation": version.aggregation(aggregation),
        "samples": [len(left), len(right)],
        "sample_scores": grid,
        "explained_samples": [int(i), int(j)],
        "explanation": learner.explain(
            left[i : i + 1], right[j : j + 1], feature_names=version.feature_names
        ),
    }


def embed(version: LoadedVersion, features: Features) -> Float32:
    """A version's own vectors of points, (n, n_components) C-contiguous float32."""
    rows = version.estimator.transform(to_rows(version, features.rows, "features"))
    vectors = np.ascontiguousarray(rows, dtype=np.float32)
    check_finite(vectors, noun="point", what="vector", field="features")
    return vectors
