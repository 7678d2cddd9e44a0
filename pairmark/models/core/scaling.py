"""Scaling of columns that a model does for itself, as steps of a pipeline did before it; and of decisions to odds."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import log_softmax, ndtr, ndtri
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import kernels as row_kernels
from pairmark.models.core.arrays import Float32, Float64, Int64, Matrix, NDArray
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.state import Array, refuse, require

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline


SCALING = "column-scaling"
"""Name in artefacts of the array that holds it, (2, d)."""


class ColumnScaling(NamedTuple):
    """``(x - centre) / scale``, column by column, in float64: both (d,), scales above zero."""

    centre: Float64
    scale: Float64

    @classmethod
    def of_array(cls, array: NDArray[Any], width: int) -> Self:
        """From an artefact's array; `ArtefactError` where no fit writes it."""
        if array.dtype != np.float64 or array.shape != (2, width):
            raise ArtefactError(
                f"array {SCALING!r} is {array.shape} {array.dtype}; expected (2, {width}) float64"
            )
        if not np.isfinite(array).all() or (array[1] <= 0).any():
            raise ArtefactError(f"array {SCALING!r}: expected finite numbers, those of line 1 above zero")
        return cls(*np.array(array))

    def then(self, other: ColumnScaling) -> ColumnScaling:
        """Both, one after the other."""
        return ColumnScaling(self.centre + self.scale * other.centre, self.scale * other.scale)

    def applied(self, rows: Any, name: str) -> Matrix:
        """Float64 rows, dense or CSR, as float32 ones of the scaled columns; NaN stays."""
        is_sparse = bool(issparse(rows))
        if is_sparse and self.centre.any():
            raise ValueError(f"{name} is sparse, and the model centres columns first: pass {name}.toarray()")
        with np.errstate(over="ignore"):
            numbers = rows.data / self.scale[rows.indices] if is_sparse else (rows - self.centre) / self.scale
            values: Any = numbers.astype(np.float32)
        if np.isinf(values).any():
            raise ValueError(f"{name} holds values too large for float32 once its columns are scaled")
        if is_sparse:
            values = csr_array((values, rows.indices, rows.indptr), shape=rows.shape)
        return values  # type: ignore[no-any-return]


def from_pipeline(pipeline: Pipeline) -> Any:
    """The similarity at the end of a fitted pipeline, which takes rows as the pipeline does.

    scikit-learn's pipelines have no ``pair_score``, ``top_k`` or ``index``; what this returns has them all, and is
    saved and loaded with its scaling. Fitted again, it learns from rows as they are: fit the pipeline instead.

    Parameters
    ----------
    pipeline : its last step is a similarity, those before it `StandardScaler`, `MinMaxScaler`, `MaxAbsScaler` (both
        without ``clip``), `RobustScaler` or ``"passthrough"``.

    Returns
    -------
    A copy of the last step. Its scores are those of scaled rows, but for the rounding of float32.

    Raises
    ------
    ValueError
        On any other step. `sklearn.exceptions.NotFittedError` where the pipeline is not fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from pairmark import MetricSimilarity, from_pipeline
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(10), 4)
    >>> X = rng.normal(size=(10, 3))[y] * [1, 10, 100] + rng.normal(size=(40, 3))
    >>> model = from_pipeline(make_pipeline(StandardScaler(), MetricSimilarity()).fit(X, y))
    >>> model.top_k(X[:2], X, 1)[0].ravel().tolist()
    [0, 1]
    """
    steps: Sequence[Any] = [step for _, step in pipeline.steps if step not in (None, "passthrough")]
    if not steps or not isinstance(steps[-1], PairScorerMixin):
        raise ValueError(
            "the pipeline does not end with a similarity of vectors: nothing to score pairs with"
        )
    for step in steps:
        check_is_fitted(step)
    if steps[-1].schema_ is not None:
        raise ValueError(
            "the pipeline ends with a similarity of records, which takes cells: scale nothing before it"
        )
    model: Any = copy(steps[-1])
    if scalings := [*map(_scaling_of, steps[:-1]), *([model.scaling_] if "scaling_" in vars(model) else [])]:
        model.scaling_ = reduce(ColumnScaling.then, scalings)
    names = getattr(steps[0], "feature_names_in_", None)
    if names is not None:
        model.feature_names_in_ = names
    return model


def _scaling_of(step: Any) -> ColumnScaling:
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    scalers = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
    if type(step) not in scalers or getattr(step, "clip", False):
        kind_names = ", ".join(kind.__name__ for kind in scalers)
        raise ValueError(
            f"step {step!r} cannot become part of the model; expected one of {kind_names}, without clip. Fit "
            "it apart, and give the similarity what it returns"
        )
    width = step.n_features_in_
    scale = np.ones(width) if step.scale_ is None else np.asarray(step.scale_, dtype=np.float64)
    if isinstance(step, MinMaxScaler):
        return ColumnScaling(-step.min_ / scale, 1 / scale)
    centre = getattr(step, "mean_" if isinstance(step, StandardScaler) else "center_", None)
    is_centred = centre is not None and getattr(step, "with_mean", True)
    return ColumnScaling(np.asarray(centre, dtype=np.float64) if is_centred else np.zeros(width), scale)


MAX_NORMAL = 4.0
"""Values beyond all training values become plus or minus this."""
_KNOTS = 128
_ROWS = 100_000


@dataclass(frozen=True)
class NormalMarginals:
    """Broken lines from values to normal quantiles.

    Attributes
    ----------
    knots : (d, k) float32, each row ascending, padded with +inf.
    values : (d, k) float32, what the knots become; 0 where padded.
    """

    knots: Annotated[Float32, Array(shape=("features", "knots"), infinite=True)]
    values: Annotated[Float32, Array(shape=("features", "knots"))]

    def relate(self, prefix: str) -> None:
        """Refuse knots that are none."""
        name, knots = f"{prefix}knots", self.knots
        if knots.shape[1] < 1:
            raise refuse(name, None, "has no columns", "one or more")
        require(np.isfinite(knots[:, :1]), name, knots[:, :1], "a finite number first")
        require(knots[:, 1:] >= knots[:, :-1], name, knots[:, 1:], "numbers that never fall within a row")

    @classmethod
    def of_rows(cls, X: Float32) -> NormalMarginals:
        """From rows (n, d); equal values share the mean of their quantiles."""
        n, d = min(X.shape[0], _ROWS), X.shape[1]
        reach = min(MAX_NORMAL, float(-ndtri(0.5 / max(n, 2))))
        levels = np.concatenate([[0.0], ndtr(np.linspace(-reach, reach, _KNOTS - 2)), [1.0]])
        knots = np.full((d, _KNOTS), np.inf, dtype=np.float32)
        values = np.zeros((d, _KNOTS), dtype=np.float32)
        for start in range(0, d, 64):
            block = slice(start, min(start + 64, d))
            quantiles = np.quantile(X[:n, block], levels, axis=0).astype(np.float32)
            for j in range(quantiles.shape[1]):
                distinct, first, counts = np.unique(quantiles[:, j], return_index=True, return_counts=True)
                middle = (levels[first] + levels[first + counts - 1]) / 2
                knots[start + j, : distinct.size] = distinct
                values[start + j, : distinct.size] = np.clip(ndtri(middle), -MAX_NORMAL, MAX_NORMAL)
        return cls(knots, values)

    def transform(self, X: Float32) -> Float32:
        """(n, d) float32 within `MAX_NORMAL` of 0; each row as if alone."""
        out = np.empty(X.shape, dtype=np.float32)
        row_kernels.broken_lines(np.ascontiguousarray(X), self.knots, self.values, out)
        return out


def fitted_sharpness(decisions: Float64, codes: Int64) -> float:
    """The one number that decisions are multiplied by before the softmax, from rows that did not train them.

    One number for all classes, so that the most probable class is the one with the highest decision. Targets are
    smoothed as Platt's (1999), so that rows separated without an error do not give certainty.
    """
    from scipy.optimize import minimize_scalar

    n, n_classes = decisions.shape
    if n == 0:
        return 1.0
    sure = (n + 1.0) / (n + n_classes)
    targets = np.full(decisions.shape, (1.0 - sure) / max(n_classes - 1, 1))
    targets[np.arange(n), codes] = sure
    size = float(np.abs(decisions - decisions.max(axis=1, keepdims=True)).mean()) or 1.0

    def loss(log_factor: float) -> float:
        return -float((targets * log_softmax(decisions * (np.exp(log_factor) / size), axis=1)).sum())

    return float(np.exp(minimize_scalar(loss, bounds=(-12.0, 12.0), method="bounded").x) / size)
