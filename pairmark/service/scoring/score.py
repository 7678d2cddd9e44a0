"""From a request to rows as a version takes them, and to their scores."""

from typing import Any, NamedTuple

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
from pairmark.models.records.schema import RecordError
from pairmark.service.datasets.data import name_list
from pairmark.service.errors import InvalidInput, ModelNotCapable, TooLarge
from pairmark.service.runtime.versions import LoadedVersion, check_finite
from pairmark.service.scoring.json import Counts, RecordRows, SideRows, SparseRows
from pairmark.service.scoring.requests import Features, PairRequest
from pairmark.service.store.subjects import SubjectClass

MAX_DENSE_BYTES = 1024 * 1024 * 1024
"""Most memory that sparse vectors may unfold to, for learners that read dense rows only."""
Warnings = tuple[dict[str, str], ...]


class Resolved(NamedTuple):
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


def to_rows(version: LoadedVersion, side: SideRows, name: str, *, dense: bool = False) -> Any:
    """Rows of the model's dimension: dense float32, CSR for a learner that reads it unless ``dense`` ones are asked
    for, or cells for one of records; ``name`` is what refusals call them."""
    accepts_sparse = version.accepts_sparse and not dense
    if isinstance(side, RecordRows):
        return _record_rows(version, side, name, dense=not accepts_sparse)
    if not version.takes_vectors:
        names = name_list(version.columns)
        raise InvalidInput(
            f"{name} is a vector; the model takes records with the columns {names}", field=name
        )
    if isinstance(side, SparseRows):
        return _sparse_rows(side, name, version.n_features, accepts_sparse=accepts_sparse)
    if side.shape[1] != version.n_features:
        raise InvalidInput(
            f"{name} has vectors of {side.shape[1]} numbers; the model expects {version.n_features}",
            field=name,
            expected_dimension=version.n_features,
        )
    return side


def _record_rows(version: LoadedVersion, side: RecordRows, name: str, *, dense: bool) -> Any:
    """Cells of records, held against the model's columns; encoded for a learner that takes vectors."""
    schema, encoder = version.schema, version.encoder
    if schema is None:
        raise InvalidInput(
            f"{name} is a record; expected a vector of {version.n_features} numbers", field=name
        )
    try:
        cells = schema.records(side.rows, name)
    except RecordError as error:
        first = error.problems[0]
        member = name if side.single else f"{name}[{first['row'] - 1}]"
        raise InvalidInput(
            f"{member}: column {first['column']!r} {first['detail']}", field=f"{member}.{first['column']}"
        ) from None
    empty = schema.empty_rows(cells)
    if empty.size:
        member = name if side.single else f"{name}[{empty[0]}]"
        raise InvalidInput(f"{member} {schema.no_cell}", field=member)
    if encoder is None:
        return cells
    rows = encoder.transform(cells)
    return rows.toarray() if dense and not isinstance(rows, np.ndarray) else rows


def _sparse_rows(side: SparseRows, name: str, n_features: int, *, accepts_sparse: bool) -> Any:
    if not accepts_sparse and 4 * n_features * len(side) > MAX_DENSE_BYTES:
        raise TooLarge(f"{name} unfolds to more than {MAX_DENSE_BYTES} bytes; send fewer vectors at a time")
    pointers = np.concatenate([[0], np.cumsum(side.counts)]).astype(np.int32)
    columns = np.frombuffer(side.indices, np.int64)
    row_of = np.repeat(np.arange(len(side)), side.counts)
    wrong, problem = (
        np.flatnonzero((columns < 0) | (columns >= n_features)),
        f"is not in 0 to {n_features - 1}",
    )
    if not wrong.size:
        order = np.lexsort((columns, row_of))
        cells = row_of[order] * n_features + columns[order]
        wrong, problem = order[1:][np.diff(cells) == 0], "occurs twice"
    if wrong.size:
        place, row = int(wrong.min()), int(row_of[wrong.min()])
        field = f"{name if side.single else f'{name}[{row}]'}.indices[{place - pointers[row]}]"
        raise InvalidInput(
            f"{field} {problem}; expected distinct columns of the model's {n_features}", field=field
        )
    numbers = np.frombuffer(side.values).astype(np.float32)
    matrix = csr_array((numbers, columns.astype(np.int32), pointers), shape=(len(side), n_features))
    matrix.sort_indices()
    return matrix if accepts_sparse else matrix.toarray()


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


class Scored(NamedTuple):
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
