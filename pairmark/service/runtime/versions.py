"""Versions in memory: vectors in, scores out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic_core import to_json
from scipy.sparse import csr_array, issparse

from pairmark.models.core.arrays import Float32
from pairmark.models.core.scores import SampleSets
from pairmark.models.records.schema import is_plain
from pairmark.models.registry import schema_of_model
from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.runtime.bodies import Features, SideRows, VectorPairs, check_finite, to_rows
from pairmark.service.runtime.catalogue import VersionEntry

FEW, FEW_NUMBERS = 64, 1_000_000
"""So few pairs, of so few numbers, take no time worth a thread."""


@dataclass(kw_only=True, eq=False)
class LoadedVersion:
    """A version in memory, ready to score.

    Attributes
    ----------
    entry : which version it is. estimator : the fitted learner.
    n_features : numbers a vector. accepts_sparse : whether sparse vectors are scored as they are.
    ignores_unknown : whether indices beyond ``n_features`` are ignored.
    feature_names, label_names, class_names : of the training data, where known.
    seconds_a_point : about how long one point takes to rank or classify.
    seconds_a_pair : how long a pair took in the last batch of more than `FEW`.
    public, json : how answers name the version. columns : those of its records.
    """

    entry: VersionEntry
    estimator: Any
    n_features: int
    accepts_sparse: bool
    ignores_unknown: bool = False
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    class_names: list[str] | None = None
    seconds_a_point: float = 0.0
    seconds_a_pair: float = math.inf

    def __post_init__(self) -> None:
        self.calibration_id = self.entry.calibration_id
        self.public = {"name": self.entry.name, "version": self.entry.version, "kind": self.entry.kind}
        self.json = to_json(self.public)
        schema = schema_of_model(self.estimator)
        self._takes_vectors = schema is None or is_plain(schema)
        self.columns = [] if schema is None else [column.name for column in schema.fields]

    def seconds(self, n_pairs: int) -> float:
        """About how long so many pairs take to score."""
        if n_pairs <= FEW:
            return 0.0 if n_pairs * self.n_features <= FEW_NUMBERS else math.inf
        return n_pairs * self.seconds_a_pair

    def score(self, left: Any, right: Any) -> Float32:
        """Scores of finite float32 rows of the model's dimension; a single row meets every row of the other side.

        Returns
        -------
        (n,) float32, higher is more similar; swapping the sides changes no bit.
        """
        n = max(left.shape[0], right.shape[0])
        left, right = _repeated(left, n), _repeated(right, n)
        # Both sides were validated as they were parsed, so the estimator's own checks are not paid again.
        if n <= FEW:
            scores: Float32 = self.estimator._pair_score(left, right)
        else:
            start = time.perf_counter()
            scores = self.estimator._pair_score(left, right)
            self.seconds_a_pair = (time.perf_counter() - start) / n
        check_finite(scores, noun="pair", what="score", field="left")
        return scores

    def aggregation(self, name: str, samples: tuple[int, int] | None = None) -> str:
        """How subjects of several samples are compared: what was asked, or what ``auto`` means for this model.

        ``samples`` : of the two subjects of each pair, larger number first; None for different ones, as in searches.
        """
        able: tuple[str, ...] = self.estimator.aggregations
        if name == "auto":
            return str(self.estimator.auto_aggregation(samples))
        if name not in able:
            raise ModelNotCapable(
                f"aggregation {name!r} needs a PLDA model that scores log-likelihood ratios; {self.entry.name}:"
                f"{self.entry.version} ({self.entry.kind}) has {', '.join(able)}",
                field="aggregation",
                aggregations=list(able),
            )
        return name

    def score_subjects(self, left: SampleSets, right: SampleSets, how: str) -> Float32:
        """Scores of subjects of several samples, (n,); ``how`` is what `aggregation` returned."""
        scores: Float32 = self.estimator._subject_score(left, right, how)
        check_finite(scores, noun="pair", what="score", field="left")
        return scores

    def score_pairs(self, pairs: VectorPairs, aggregation: str = "auto") -> Float32:
        """Scores of parsed pairs, checked against the model's dimension."""
        left: Any = pairs.left
        right: Any = pairs.right
        if not (self._scores_as_sent(left) and self._scores_as_sent(right)):
            left, right = pairs.rows = self._rows_of(pairs)
        if pairs.counts is not None:
            a, b = (
                SampleSets.of_rows(rows, counts)
                for rows, counts in zip((left, right), pairs.counts, strict=True)
            )
            return self.score_subjects(a, b, self.aggregation(aggregation, pairs.common_samples))
        if aggregation != "auto":
            self.aggregation(aggregation)
        return self.score(left, right)

    def _scores_as_sent(self, side: SideRows) -> bool:
        return self._takes_vectors and isinstance(side, np.ndarray) and side.shape[1] == self.n_features

    def _rows_of(self, pairs: VectorPairs) -> tuple[Any, Any]:
        form = {
            "accepts_sparse": self.accepts_sparse,
            "ignores_unknown": self.ignores_unknown,
            "estimator": self.estimator,
        }
        left = to_rows(pairs.left, "left", self.n_features, **form)
        right = to_rows(pairs.right, "right", self.n_features, **form)
        if self.accepts_sparse and (issparse(left) != issparse(right)):
            left, right = csr_array(left), csr_array(right)
        return left, right

    def explain(self, pairs: VectorPairs, aggregation: str = "auto") -> tuple[float, dict[str, Any]]:
        """One pair's score, with the learner's explanation."""
        explain = getattr(self.estimator, "explain", None)
        if explain is None:
            raise ModelNotCapable(f"{self.entry.kind} cannot explain its scores", capability="explain")
        if pairs.n_pairs != 1:
            raise InvalidInput(
                f"the request has {pairs.n_pairs} pairs; expected one to explain", field="left"
            )
        left, right = (
            to_rows(side, name, self.n_features, accepts_sparse=False, estimator=self.estimator)
            for side, name in ((pairs.left, "left"), (pairs.right, "right"))
        )
        score = float(self.score_pairs(pairs, aggregation)[0])
        if pairs.counts is None:
            return score, explain(left, right, feature_names=self.feature_names)
        how = self.aggregation(aggregation, pairs.common_samples)
        grid = self.estimator.score_against(left, right)
        # Of all pairs of samples the one whose score is nearest to that of the subjects stands for them.
        i, j = np.unravel_index(int(np.argmin(np.abs(grid - np.float32(score)))), grid.shape)
        return score, {
            "aggregation": how,
            "samples": [len(left), len(right)],
            "sample_scores": grid,
            "explained_samples": [int(i), int(j)],
            "explanation": explain(left[i : i + 1], right[j : j + 1], feature_names=self.feature_names),
        }


def embedded(version: LoadedVersion, features: Features) -> Float32:
    """A version's own vectors of points, (n, n_components) C-contiguous float32."""
    rows = to_rows(
        features.rows,
        "features",
        version.n_features,
        accepts_sparse=version.accepts_sparse,
        ignores_unknown=version.ignores_unknown,
        estimator=version.estimator,
    )
    vectors = np.ascontiguousarray(version.estimator.transform(rows), dtype=np.float32)
    check_finite(vectors, noun="point", what="vector", field="features")
    return vectors


def _repeated(rows: Any, n: int) -> Any:
    if rows.shape[0] == n:
        return rows
    if isinstance(rows, np.ndarray):
        return np.repeat(rows, n, axis=0)
    return rows[np.zeros(n, dtype=np.intp)]
