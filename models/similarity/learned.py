"""Learned pair features: a few symmetric numbers of a pair that enter f beside the raw coordinates.

The best similarity is any increasing transform of ``eta(x, x') = sum_k eta_k(x) eta_k(x')`` (Clemencon & Vogel,
section 2.1), which axis-parallel splits of (|x - x'|, x + x') approach slowly. So estimates of it, or of what stands in
for it when identities to come are unknown, are learned first:

- ``posteriors`` (closed-set use): a kernel classifier estimates the class posteriors ``eta_k``; a pair's features are
  the inner product of its two posteriors, and their cosine. The classifier is ridge regression of the classes on
  random Fourier features of a Gaussian kernel (Rahimi & Recht, 2007): its sums over rows add up, so leaving a fold out
  costs a subtraction and a solve, not another fit.
- ``discriminant`` (open-set use): identities are Gaussian around Gaussian centres, after an asinh per feature; a pair's
  features are that model's log-likelihood ratio of same against different (two-covariance, or PLDA), the cosine of
  its discriminant coordinates and their distance.
- ``whitened`` (open-set use): distance and cosine after whitening within identities.

Trees learn from out-of-fold values: a training pair's features come from maps that saw neither of its rows (with
enough identities: neither of its identities), so trees trust them no more than they will deserve.

Every feature has one form, ``r r' sum_i D_i z_i z'_i + c + c'``, of a row's coordinates z, factor r and offset c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse import coo_array
from scipy.special import logsumexp

from models.base import Float32
from models.similarity import learned_kernels, scoring_kernels
from models.splits import joined_groups

PairFeatures = Literal["raw", "posteriors", "discriminant", "whitened"]
NAMES: dict[str, tuple[str, ...]] = {
    "raw": (),
    "posteriors": ("posteriors' inner product", "posteriors' cosine"),
    "discriminant": ("log-likelihood ratio", "discriminant cosine", "discriminant nearness"),
    "whitened": ("whitened nearness", "whitened cosine"),
}
MAX_CLASSES = 1_000
"""Most classes whose posteriors are estimated; beyond it identities are rather met anew than known."""
MAX_WIDTH = 2_048
"""Most features that are whitened: the work grows with their cube."""
_COORDINATES = 128
_FIT_ROWS = 100_000
_ROW_BLOCK = 4_096
_FOLDS = 4
_WAVES = (4_096, 8_192)
"""Most waves for few rows, and for 57,000 and more."""
_TRIED_ROWS = 4_000
_TRIED_WAVES = 512


class _Map(NamedTuple):
    """Rows to coordinates, and the forms of a pair's features."""

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    curved: bool
    layers: tuple[tuple[Float32, Float32], ...]
    posteriors: bool
    forms: Float32
    norms: NDArray[np.float64]
    offsets: NDArray[np.float64]

    def columns(self, X: Float32) -> Float32:
        """(n, q + 2 m): coordinates, factors, offsets; each row as if alone."""
        m, q = self.forms.shape
        out = np.empty((X.shape[0], q + 2 * m), dtype=np.float32)
        for start in range(0, X.shape[0], _ROW_BLOCK):
            # Plain arrays: one compiled version serves matrices that are mapped, read-only or views.
            block = np.array(X[start : start + _ROW_BLOCK], dtype=np.float32, order="C")
            to = out[start : start + _ROW_BLOCK]
            scaled = np.empty_like(block)
            learned_kernels.squash(block, self.centre, self.scale, self.curved, scaled)
            for level, (weights, bias) in enumerate(self.layers):
                after = np.empty((block.shape[0], weights.shape[1]), dtype=np.float32)
                learned_kernels.affine(scaled, weights, bias, after)
                if self.posteriors and level == 0:
                    learned_kernels.wave(after)
                scaled = after
            if self.posteriors:
                learned_kernels.softmax(scaled)
            learned_kernels.bounded(scaled)
            to[:, :q] = scaled
            learned_kernels.complete(to, q, self.norms, self.offsets)
        return out


@dataclass(frozen=True, kw_only=True)
class LearnedFeatures:
    """Fitted learned features.

    Attributes
    ----------
    kind : which.
    names : of the m features of a pair.
    """

    kind: PairFeatures
    map: _Map

    @property
    def names(self) -> tuple[str, ...]:
        """What people read."""
        return NAMES[self.kind]

    @property
    def forms(self) -> Float32:
        """(m, q), see `scoring_kernels.pair_forms`."""
        return self.map.forms

    def columns(self, X: Float32) -> Float32:
        """Learned columns of rows, (n, q + 2 m) float32; worked out once for equal rows, of which pairs have many."""
        if X.shape[0] > 1 and X.strides[0] == 0:
            return np.asarray(np.broadcast_to(self.map.columns(X[:1]), (X.shape[0], self._width)))
        if X.shape[0] < 64:
            return self.map.columns(X)
        X = np.ascontiguousarray(X)
        _, first, number = np.unique(
            learned_kernels.row_hashes(X.view(np.uint32)), return_index=True, return_inverse=True
        )
        if 2 * first.size > X.shape[0]:
            return self.map.columns(X)
        columns = self.map.columns(X[first])[number]
        # Rows that only share a hash are worked out after all.
        strangers = np.flatnonzero((X[first][number] != X).any(axis=1))
        if strangers.size:
            columns[strangers] = self.map.columns(X[strangers])
        return columns

    @property
    def _width(self) -> int:
        m, q = self.map.forms.shape
        return int(q + 2 * m)

    def values(self, left: Float32, right: Float32) -> Float32:
        """A pair's features, (n, m)."""
        return _pair_values(
            self.columns(left), self.columns(right), np.arange(len(left)), np.arange(len(right)), self.forms
        )

    def to_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Plain arrays, and the rest."""
        plain = {name: getattr(self.map, name) for name in ("centre", "scale", "forms", "norms", "offsets")}
        for number, (weights, bias) in enumerate(self.map.layers):
            plain[f"weights{number}"], plain[f"bias{number}"] = weights, bias
        meta = {
            "curved": self.map.curved,
            "posteriors": self.map.posteriors,
            "n_layers": len(self.map.layers),
        }
        return {f"learned_{name}": array for name, array in plain.items()}, meta

    @classmethod
    def from_state(
        cls, kind: PairFeatures, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
    ) -> LearnedFeatures:
        """What `to_state` gave."""

        def array(name: str) -> NDArray[Any]:
            return np.array(arrays[f"learned_{name}"])

        return cls(
            kind=kind,
            map=_Map(
                **{name: array(name) for name in ("centre", "scale", "forms", "norms", "offsets")},
                curved=bool(meta["curved"]),
                posteriors=bool(meta["posteriors"]),
                layers=tuple(
                    (array(f"weights{number}"), array(f"bias{number}")) for number in range(meta["n_layers"])
                ),
            ),
        )


class OutOfFold:
    """Features of training pairs, from maps that saw neither row.

    Parameters
    ----------
    folds : (n,) the fold of each row.
    columns : the rows' columns under a map that left out two folds ``(a, b)``, a <= b, in rows' order; for
        ``posteriors`` a single entry, where each row's come from a map without its fold.
    """

    def __init__(
        self,
        folds: NDArray[np.int64],
        columns: dict[tuple[int, int], tuple[Float32, Float32]],
    ) -> None:
        self._folds, self._columns = folds, columns

    def values(self, left: NDArray[np.int32], right: NDArray[np.int32]) -> Float32:
        """(n, m) float32 of pairs of training rows."""
        if len(self._columns) == 1:
            ((columns, forms),) = self._columns.values()
            return _pair_values(columns, columns, left, right, forms)
        m = next(iter(self._columns.values()))[1].shape[0]
        out = np.empty((left.shape[0], m), dtype=np.float32)
        low, high = (choose(self._folds[left], self._folds[right]) for choose in (np.minimum, np.maximum))
        for (a, b), (columns, forms) in self._columns.items():
            here = np.flatnonzero((low == a) & (high == b))
            place = _places(self._folds, a, b)
            out[here] = _pair_values(columns, columns, place[left[here]], place[right[here]], forms)
        return out


def learn(
    kind: PairFeatures, X: Float32, codes: NDArray[np.int64], random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """Learn pair features from rows (n, d) with identities 0, 1, ..., and keep their out-of-fold values.

    Raises
    ------
    ValueError
        Where there are more classes than `MAX_CLASSES` (posteriors), or more features than `MAX_WIDTH`.
    """
    n_classes = int(codes.max()) + 1
    if kind == "posteriors":
        if n_classes > MAX_CLASSES:
            raise ValueError(
                f"pair_features is 'posteriors' and y holds {n_classes} classes; expected at most {MAX_CLASSES}: "
                "use 'discriminant', which needs no posterior a class"
            )
        return _learn_posteriors(X, codes, n_classes, random)
    if X.shape[1] > MAX_WIDTH:
        raise ValueError(
            f"pair_features is {kind!r} and X has {X.shape[1]} features; expected at most {MAX_WIDTH}: "
            "reduce them first, say by PCA"
        )
    return _learn_gaussian(kind, X, codes, n_classes, random)


def identities_of_pairs(points: Float32, n: int, same: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Identities that explicit pairs tell of: equal points, and points joined by same pairs, are one.

    ``points`` : (2 n, d), left rows then right rows.
    """
    _, number = np.unique(points, axis=0, return_inverse=True)
    number = number.ravel()
    _, component = joined_groups(int(number.max()) + 1, number[:n][same], number[n:][same])
    return np.unique(component[number], return_inverse=True)[1].astype(np.int64)


def _learn_gaussian(
    kind: PairFeatures, X: Float32, codes: NDArray[np.int64], n_classes: int, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    by_identity = n_classes >= 3 * _FOLDS
    folds = (random.permutation(n_classes) % _FOLDS)[codes] if by_identity else _spread(codes, _FOLDS, random)
    columns: dict[tuple[int, int], tuple[Float32, Float32]] = {}
    for a in range(_FOLDS):
        for b in range(a, _FOLDS):
            seen = (folds != a) & (folds != b)
            fitted = _gaussian_map(kind, X[seen], codes[seen], random)
            columns[a, b] = fitted.columns(X[~seen]), fitted.forms
    return LearnedFeatures(kind=kind, map=_gaussian_map(kind, X, codes, random)), OutOfFold(folds, columns)


def _gaussian_map(
    kind: PairFeatures, X: Float32, codes: NDArray[np.int64], random: np.random.RandomState
) -> _Map:
    """The two-covariance model of rows, diagonal in both: within identities 1, between them psi."""
    if X.shape[0] > _FIT_ROWS:
        kept = np.sort(random.choice(X.shape[0], _FIT_ROWS, replace=False))
        X, codes = X[kept], codes[kept]
    n, d = X.shape
    centre, scale = _robust(X)
    U = np.empty((n, d), dtype=np.float32)
    learned_kernels.squash(np.ascontiguousarray(X), centre, scale, True, U)
    _, codes, counts = np.unique(codes, return_inverse=True, return_counts=True)
    overall = U.mean(axis=0, dtype=np.float64)
    U = (U - overall).astype(np.float64)
    means = np.zeros((counts.size, d))
    np.add.at(means, codes, U)
    means /= counts[:, None]
    residual = U - means[codes]
    freedom = max(n - counts.size, 1)
    within = residual.T @ residual / freedom
    centred = means - means.mean(axis=0)
    between = centred.T @ centred / max(counts.size - 1, 1) - within * (1.0 / counts).mean()
    spread = max(float(np.trace(within)) / d, 1e-6)
    # Drawn to a ball the more, the fewer rows there are for the directions.
    drawn = 0.01 + 0.2 * min(1.0, d / freedom)
    within = (1 - drawn) * within + drawn * spread * np.eye(d)
    psi, axes = eigh(between, within)
    q = min(d, _COORDINATES)
    psi, axes = np.maximum(psi[::-1][:q], 0.0), axes[:, ::-1][:, :q]
    # An axis has no sign of its own: the largest entry positive, so that runs agree.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(q)] < 0, -1.0, 1.0)
    ones, nothing = np.ones(q), np.zeros(q)
    if kind == "discriminant":
        weight = psi / (2 * psi + 1)
        forms = [weight, weight, 2 * ones]
        norms = [nothing, weight, nothing]
        offsets = [0.5 * psi**2 / ((psi + 1) * (2 * psi + 1)), nothing, ones]
    else:
        forms, norms, offsets = [2 * ones, ones], [nothing, ones], [ones, nothing]
    weights = np.ascontiguousarray(axes, dtype=np.float32)
    bias = (-(overall @ axes)).astype(np.float32)
    return _Map(
        centre=centre,
        scale=scale,
        curved=True,
        layers=((weights, bias),),
        posteriors=False,
        forms=np.array(forms, dtype=np.float32),
        norms=np.array(norms),
        offsets=np.array(offsets),
    )


def _learn_posteriors(
    X: Float32, codes: NDArray[np.int64], n_classes: int, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    folds = _spread(codes, _FOLDS, random)
    centre, scale, curved, reach, ridge = _tuned(X, codes, n_classes, random)
    scaled = np.empty(X.shape, dtype=np.float32)
    learned_kernels.squash(np.ascontiguousarray(X), centre, scale, curved, scaled)
    # More waves tell more, and rows must be several times as many for that to hold on others.
    n_waves = int(np.clip(X.shape[0], 64, np.clip(X.shape[0] // 7, *_WAVES)))
    first = _random_waves(X.shape[1], n_waves, reach, random)
    prior = np.bincount(codes, minlength=n_classes) / codes.size
    sums = [_sums(scaled[folds == fold], codes[folds == fold], first, prior) for fold in range(_FOLDS)]

    def scores(fold: int, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = scaled[folds == fold]
        out = np.empty((rows.shape[0], n_classes))
        for start in range(0, rows.shape[0], _ROW_BLOCK):
            out[start : start + _ROW_BLOCK] = _waves(
                rows[start : start + _ROW_BLOCK], first
            ) @ weights.astype(np.float32)
        return out + prior

    def without(fold: int, ridge: float) -> NDArray[np.float64]:
        """Scores of a fold's rows by the others."""
        return scores(fold, _solved([part for other, part in enumerate(sums) if other != fold], ridge))

    left_out = np.empty((X.shape[0], n_classes))
    own, least, chosen = np.flatnonzero(folds == 0), np.inf, ridge
    # More rows and waves than were tuned on bear less of a ridge.
    for lower in (1.0, 0.1, 0.01):
        tried = without(0, lower * ridge)
        wrong = float((tried.argmax(axis=1) != codes[own]).mean())
        if wrong < least:
            least, chosen, left_out[own] = wrong, lower * ridge, tried
    for fold in range(1, _FOLDS):
        left_out[folds == fold] = without(fold, chosen)
    sharpness = _sharpness(left_out, codes)
    last = (_solved(sums, chosen) * sharpness).astype(np.float32)
    fitted = _Map(
        centre=centre,
        scale=scale,
        curved=curved,
        layers=(first, (last, (prior * sharpness).astype(np.float32))),
        posteriors=True,
        forms=np.ones((2, n_classes), dtype=np.float32),
        norms=np.stack([np.zeros(n_classes), np.ones(n_classes)]),
        offsets=np.zeros((2, n_classes)),
    )
    columns = np.empty((X.shape[0], n_classes + 4), dtype=np.float32)
    logits = (left_out * sharpness).astype(np.float32)
    learned_kernels.softmax(logits)
    columns[:, :n_classes] = logits
    learned_kernels.complete(columns, n_classes, fitted.norms, fitted.offsets)
    return LearnedFeatures(kind="posteriors", map=fitted), OutOfFold(folds, {(0, 0): (columns, fitted.forms)})


def _random_waves(
    d: int, n_waves: int, reach: float, random: np.random.RandomState
) -> tuple[Float32, Float32]:
    """Frequencies (in turns) and phases whose cosines stand for a Gaussian kernel of width ``reach``."""
    frequencies = random.standard_normal((d, n_waves)) / (2 * np.pi * reach)
    return frequencies.astype(np.float32), random.random_sample(n_waves).astype(np.float32)


def _waves(scaled: Float32, first: tuple[Float32, Float32]) -> Float32:
    turns = scaled @ first[0] + first[1]
    learned_kernels.wave(turns)
    return turns


def _sums(
    scaled: Float32, codes: NDArray[np.int64], first: tuple[Float32, Float32], prior: NDArray[np.float64]
) -> tuple[Float32, NDArray[np.float64]]:
    """Products of waves with waves, and of waves with classes less their share, over rows."""
    n_waves = first[1].size
    gram = np.zeros((n_waves, n_waves), dtype=np.float32)
    target = np.zeros((prior.size, n_waves))
    for start in range(0, scaled.shape[0], _ROW_BLOCK):
        h = _waves(scaled[start : start + _ROW_BLOCK], first)
        gram += h.T @ h
        here = codes[start : start + _ROW_BLOCK]
        ones = np.ones(here.size, dtype=np.float32)
        target += coo_array((ones, (here, np.arange(here.size))), shape=(prior.size, here.size)).tocsr() @ h
        target -= np.outer(prior, h.sum(axis=0, dtype=np.float64))
    return gram, target.T


def _tuned(
    X: Float32, codes: NDArray[np.int64], n_classes: int, random: np.random.RandomState
) -> tuple[NDArray[np.float64], NDArray[np.float64], bool, float, float]:
    """Scaling, kernel width and ridge that classify best, on some rows.

    Features share one unit (pixels, principal components) or have each its own: which, only trying tells.
    """
    looked_at = random.permutation(X.shape[0])[:_TRIED_ROWS]
    cut = looked_at.size * 2 // 3
    codes = codes[looked_at]
    mean = X.mean(axis=0, dtype=np.float64)
    common = 1.0 / max(float(np.sqrt(X.var(axis=0, dtype=np.float64).mean())), 1e-30)
    scalings = [(mean, np.full(X.shape[1], common), False), (*_robust(X), True)]
    n_waves = int(np.clip(cut, 32, _TRIED_WAVES))
    prior = np.bincount(codes[:cut], minlength=n_classes) / max(cut, 1)
    best, chosen = np.inf, (*scalings[1], 1.0, 1e-3)
    for scaling in scalings:
        scaled = np.empty((looked_at.size, X.shape[1]), dtype=np.float32)
        learned_kernels.squash(np.ascontiguousarray(X[looked_at]), *scaling, scaled)
        distance = float(np.sqrt(2 * scaled.var(axis=0, dtype=np.float64).sum()))
        for times in (0.3, 0.6, 1.2):
            reach = max(times * distance, 1e-6)
            first = _random_waves(X.shape[1], n_waves, reach, random)
            sums = [_sums(scaled[:cut], codes[:cut], first, prior)]
            unseen = _waves(scaled[cut:], first)
            for ridge in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
                scores = unseen @ _solved(sums, ridge).astype(np.float32) + prior
                wrong = float((scores.argmax(axis=1) != codes[cut:]).mean()) if cut < codes.size else 0.0
                if wrong < best:
                    best, chosen = wrong, (*scaling, reach, ridge)
    return chosen


def _solved(sums: Sequence[tuple[Float32, NDArray[np.float64]]], ridge: float) -> NDArray[np.float64]:
    """Ridge regression from sums over parts of the rows."""
    left, target = sums[0][0].astype(np.float64), sums[0][1]
    for gram, more in sums[1:]:
        left += gram
        target = target + more
    left[np.diag_indices(left.shape[0])] += ridge * max(float(np.trace(left)), 1e-6) / left.shape[0]
    return np.asarray(cho_solve(cho_factor(left, overwrite_a=True, check_finite=False), target))


def _sharpness(scores: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """The factor of the scores under which their softmax is likeliest."""
    own = scores[np.arange(codes.size), codes]

    def loss(factor: float) -> float:
        return float((logsumexp(factor * scores, axis=1) - factor * own).mean())

    return min((float(factor) for factor in np.geomspace(1, 60, 25)), key=loss)


def _robust(X: Float32) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Medians, and one over the normal-consistent interquartile range (else the deviation)."""
    low, middle, high = np.percentile(X[: 4 * _FIT_ROWS], (25, 50, 75), axis=0).astype(np.float64)
    width = (high - low) / 1.349
    deviation = X.std(axis=0, dtype=np.float64)
    width = np.where(width > 0, width, np.where(deviation > 0, deviation, 1.0))
    return middle, 1.0 / np.maximum(width, 1e-30)


def _spread(codes: NDArray[np.int64], n_folds: int, random: np.random.RandomState) -> NDArray[np.int64]:
    """Folds of rows, each class spread evenly over them."""
    order = random.permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    folds = np.empty(codes.size, dtype=np.int64)
    folds[order] = np.arange(codes.size) % n_folds
    return folds


def _places(folds: NDArray[np.int64], a: int, b: int) -> NDArray[np.int64]:
    """Where each row of folds a and b stands among them."""
    return np.cumsum((folds == a) | (folds == b)) - 1


def _pair_values(
    left_columns: Float32, right_columns: Float32, left: NDArray[Any], right: NDArray[Any], forms: Float32
) -> Float32:
    out = np.empty((left.shape[0], forms.shape[0]), dtype=np.float32)
    scoring_kernels.forms_of_pairs(
        left_columns, right_columns, left.astype(np.int64), right.astype(np.int64), forms, out
    )
    return out
