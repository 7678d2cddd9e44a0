"""Learned features by random waves: cosines of random directions, on which linear maps stand for kernel ones.

Products of random Fourier features approach a Gaussian kernel (Rahimi & Recht, 2007), and what is learned on them needs
the rows only through sums. Sums of parts of the rows add up: a map that left some parts out costs a solve.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, eigh, solve_triangular
from scipy.linalg.blas import ssyrk
from scipy.sparse import coo_array
from scipy.special import logsumexp

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.kernels import rows as row_kernels
from pairmark.models.core.two_covariance import COORDINATES, TwoCovariance, orient, two_covariance
from pairmark.models.pairs.sampling import TrainingPairs
from pairmark.models.similarity.pair_features.common import TRIED_ROWS, judging_pairs, reached, scalings
from pairmark.models.similarity.pair_features.gaussian import forms_of, layer_of, some_rows
from pairmark.models.similarity.pair_features.maps import (
    FOLDS,
    CoordinateMap,
    Forms,
    LearnedFeatures,
    OutOfFold,
    Scaling,
    folds_of,
    spread_rows,
)

_ROW_BLOCK = 4_096
_MOST_WAVES, _SETS = 4_096, 3
"""Most waves that are solved for together, and how many classifiers on such waves vote."""
_WAVES_OF_CLASSES, _LEAST_WAVES = ((512, _MOST_WAVES), (4_096, 2_048), (16_384, 1_024)), 512
"""Most waves of a discriminant of at most so many identities, and of more."""
_TRIED_WAVES = 512
_JUDGED_SHARE = 2
"""Of a fold's rows, one in so many at most judges: their waves are held at once."""


class _Waves(NamedTuple):
    """Frequencies (in turns), (d, w), and phases, (w,)."""

    frequencies: Float32
    phases: Float32

    def of(self, scaled: Float32) -> Float32:
        turns = scaled @ self.frequencies + self.phases
        row_kernels.wave(turns)
        return turns


class _Sums(NamedTuple):
    """Of rows' waves h: ``h' h``, (w, w), and for the k classes among them, their codes, the sums and numbers of their
    rows: (k,), (k, w) and (k,)."""

    gram: Float32
    classes: Int64
    by_class: Float64
    counts: Int64


def learn_posteriors(
    X: Float32, codes: Int64, n_classes: int, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """``posteriors`` features, and their out-of-fold values: each row's from a classifier that left out its fold.

    The classifier is the mean of `_SETS`, each on waves of its own: nearly as good as one on all their waves, whose
    solving would take the square of their number times the work.
    """
    folds = spread_rows(codes, random)
    scaling, reach, ridge = _tuned_classifier(X, codes, n_classes, random)
    scaled = scaling.scaled(X)
    n_waves = int(np.clip(X.shape[0], 64, _MOST_WAVES))
    prior = np.bincount(codes, minlength=n_classes) / codes.size
    test_rows = np.flatnonzero(folds == 0)
    out_of_fold = np.tile(prior, (X.shape[0], 1))
    sets, weights = [], []
    for number in range(_SETS):
        waves = _random_waves(X.shape[1], n_waves, reach, random)
        sums = [_sums(scaled[folds == fold], codes[folds == fold], waves) for fold in range(FOLDS)]
        if number == 0:
            lowest_error, best_ridge = np.inf, ridge
            # More rows and waves than were tuned on bear less of a ridge.
            for lower in (1.0, 0.1, 0.01):
                scores = prior + _scores(
                    waves, scaled[test_rows], _classifier(sums[1:], prior, lower * ridge)
                )
                wrong = float((scores.argmax(axis=1) != codes[test_rows]).mean())
                if wrong < lowest_error:
                    lowest_error, best_ridge = wrong, lower * ridge
        for fold in range(FOLDS):
            classifier = _classifier([part for at, part in enumerate(sums) if at != fold], prior, best_ridge)
            out_of_fold[folds == fold] += _scores(waves, scaled[folds == fold], classifier) / _SETS
        sets.append(waves)
        weights.append(_classifier(sums, prior, best_ridge) / _SETS)
    sharpness = _sharpness(out_of_fold, codes)
    centre, axes, psi = two_covariance(out_of_fold, codes)
    last = np.concatenate(weights)
    forms = _posterior_forms(n_classes, psi)
    layers = (
        (np.hstack([waves.frequencies for waves in sets]), np.concatenate([waves.phases for waves in sets])),
        (
            np.hstack([last * sharpness, last @ axes]).astype(np.float32),
            np.concatenate([prior * sharpness, (prior - centre) @ axes]).astype(np.float32),
        ),
    )
    row_map = CoordinateMap(scaling, layers, forms, waved=True, n_posteriors=n_classes)
    coordinates = np.hstack([out_of_fold * sharpness, (out_of_fold - centre) @ axes]).astype(np.float32)
    row_kernels.softmax(coordinates, n_classes)
    columns = forms.columns(coordinates)
    return LearnedFeatures(kind="posteriors", map=row_map), OutOfFold(folds, {(0, 0): (columns, forms.forms)})


def _posterior_forms(n_classes: int, psi: Float64) -> Forms:
    """The four ``posteriors`` features of a pair, of its rows' posteriors and discriminant coordinates of their scores.

                            posteriors, n_classes    coordinates, psi.size
    inner product                 1 ... 1                  0 ... 0
    cosine                        1 ... 1                  0 ... 0          norms: the same line
    log-likelihood ratio          0 ... 0              `forms_of` psi, first line
    cosine of scores              0 ... 0              `forms_of` psi, second line
    """
    of_coordinates = forms_of(psi)
    q = n_classes + psi.size
    forms, norms, offsets = np.zeros((4, q), dtype=np.float32), np.zeros((4, q)), np.zeros((4, q))
    forms[:2, :n_classes] = 1.0
    norms[1, :n_classes] = 1.0
    forms[2:, n_classes:] = of_coordinates.forms[:2]
    norms[2:, n_classes:] = of_coordinates.norms[:2]
    offsets[2:, n_classes:] = of_coordinates.offsets[:2]
    return Forms(forms, norms, offsets)


def learn_kernel_discriminant(
    X: Float32, codes: Int64, n_classes: int, random: np.random.RandomState
) -> tuple[LearnedFeatures, OutOfFold]:
    """``kernel-discriminant`` features, and their out-of-fold values: a pair's from maps that saw neither fold."""
    folds = folds_of(codes, random)
    scaling, reach, ridge = _tuned_discriminant(X, codes, random)
    scaled = scaling.scaled(X)
    waves = _random_waves(X.shape[1], _n_waves(X.shape[0], n_classes), reach, random)
    sums = []
    for fold in range(FOLDS):
        rows, row_codes = some_rows(scaled[folds == fold], codes[folds == fold], random, FOLDS)
        sums.append(_sums(rows, row_codes, waves))
    rows, row_codes = some_rows(scaled[folds == 0], codes[folds == 0], random, FOLDS * _JUDGED_SHARE)
    pairs = judging_pairs(row_codes, random)
    highest_tpr, best_ridge = -np.inf, ridge
    if pairs is not None:
        wave_blocks = [
            waves.of(rows[start : start + _ROW_BLOCK]) for start in range(0, rows.shape[0], _ROW_BLOCK)
        ]
        # More rows and waves than were tuned on bear less of a ridge.
        for lower in (1.0, 0.1, 0.01):
            tpr = _reached(_discriminant(sums[1:], lower * ridge), wave_blocks, pairs)
            if tpr > highest_tpr:
                highest_tpr, best_ridge = tpr, lower * ridge
    maps = {
        (a, b): _discriminant([part for fold, part in enumerate(sums) if fold not in (a, b)], best_ridge)
        for a in range(FOLDS)
        for b in range(a, FOLDS)
    }
    in_folds = {key: (folds == key[0]) | (folds == key[1]) for key in maps}
    coordinates = {
        key: np.empty((int(in_folds[key].sum()), maps[key].psi.size), dtype=np.float32) for key in maps
    }
    n_done = dict.fromkeys(maps, 0)
    for start in range(0, X.shape[0], _ROW_BLOCK):
        block = waves.of(scaled[start : start + _ROW_BLOCK])
        for key, model in maps.items():
            block_coordinates = _coordinates(model, block[in_folds[key][start : start + _ROW_BLOCK]])
            end = n_done[key] + block_coordinates.shape[0]
            coordinates[key][n_done[key] : end] = block_coordinates
            n_done[key] = end
    columns = {}
    for key, model in maps.items():
        forms = forms_of(model.psi)
        columns[key] = forms.columns(coordinates[key]), forms.forms
    discriminant = _discriminant(sums, best_ridge)
    row_map = CoordinateMap(scaling, (waves, layer_of(discriminant)), forms_of(discriminant.psi), waved=True)
    return LearnedFeatures(kind="kernel-discriminant", map=row_map), OutOfFold(folds, columns)


def _n_waves(n: int, n_classes: int) -> int:
    """More waves tell more; solving takes their cube, and their square for each identity."""
    limit = next((w for k, w in _WAVES_OF_CLASSES if n_classes <= k), _LEAST_WAVES)
    return int(np.clip(n // 7, np.clip(n, 64, 1_024), limit))


def _random_waves(d: int, n_waves: int, reach: float, random: np.random.RandomState) -> _Waves:
    """Waves whose products stand for a Gaussian kernel of width ``reach``."""
    frequencies = random.standard_normal((d, n_waves)) / (2 * np.pi * reach)
    return _Waves(frequencies.astype(np.float32), random.random_sample(n_waves).astype(np.float32))


def _sums(scaled: Float32, codes: Int64, waves: _Waves) -> _Sums:
    w = waves.phases.size
    gram = np.zeros((w, w), dtype=np.float32, order="F")
    classes, place, counts = np.unique(codes, return_inverse=True, return_counts=True)
    by_class = np.zeros((classes.size, w))
    for start in range(0, scaled.shape[0], _ROW_BLOCK):
        h = waves.of(scaled[start : start + _ROW_BLOCK])
        # One triangle, at half the work.
        gram = ssyrk(1.0, h.T, beta=1.0, c=gram, overwrite_c=True)
        present, number = np.unique(place[start : start + _ROW_BLOCK], return_inverse=True)
        indicators = np.ones(number.size, dtype=np.float32)
        by_class[present] += (
            coo_array(
                (indicators, (number, np.arange(number.size))), shape=(present.size, number.size)
            ).tocsr()
            @ h
        )
    return _Sums(gram, classes, by_class, counts)


def _by_class(parts: Sequence[_Sums]) -> tuple[Int64, Float64, Int64]:
    """Classes, sums and numbers of the parts' rows together."""
    classes = np.unique(np.concatenate([part.classes for part in parts]))
    sums, counts = np.zeros((classes.size, parts[0].gram.shape[0])), np.zeros(classes.size, dtype=np.int64)
    for part in parts:
        place = np.searchsorted(classes, part.classes)
        sums[place] += part.by_class
        counts[place] += part.counts
    return classes, sums, counts


def _scores(waves: _Waves, scaled: Float32, weights: Float64) -> Float64:
    """(n, classes) waves times weights, a bounded block of rows at a time."""
    weights = weights.astype(np.float32)
    out = np.empty((scaled.shape[0], weights.shape[1]))
    for start in range(0, scaled.shape[0], _ROW_BLOCK):
        out[start : start + _ROW_BLOCK] = waves.of(scaled[start : start + _ROW_BLOCK]) @ weights
    return out


def _gram(parts: Sequence[_Sums]) -> Float64:
    """Sum over the parts, its upper triangle alone filled in; in Fortran's order."""
    gram = parts[0].gram.astype(np.float64, order="F")
    for part in parts[1:]:
        gram += part.gram
    return gram


def _classifier(parts: Sequence[_Sums], prior: Float64, ridge: float) -> Float64:
    """(w, classes) ridge regression of the classes, less their shares, on waves."""
    gram = _gram(parts)
    classes, by_class, _ = _by_class(parts)
    target = np.outer(-prior, by_class.sum(axis=0))
    target[classes] += by_class
    return np.asarray(cho_solve((_root(gram, ridge), False), target.T, check_finite=False))


def _discriminant(parts: Sequence[_Sums], ridge: float) -> TwoCovariance:
    """The two-covariance model of waves, as many coordinates as classes part."""
    _, means, counts = _by_class(parts)
    means /= counts[:, None]
    n, k, w = int(counts.sum()), counts.size, means.shape[1]
    within = _gram(parts)
    within -= (means * counts[:, None]).T @ means
    within /= max(n - k, 1)
    root = _root(within, ridge)
    between = solve_triangular(root, (means - means.mean(axis=0)).T, trans="T", check_finite=False)
    q = max(min(k - 1, w, COORDINATES), 1)
    share = 1.0 / max(k - 1, 1)
    if k <= w:
        values, axes = eigh(share * (between.T @ between), subset_by_index=(k - q, k - 1))
        axes = between @ axes
    else:
        values, axes = eigh(share * (between @ between.T), subset_by_index=(w - q, w - 1))
    values, axes = values[::-1], axes[:, ::-1]
    # Without any spread between classes no direction separates them.
    length = np.linalg.norm(axes, axis=0)
    defined = (values > 1e-9 * max(float(values[0]), 1e-9)) & (length > 0)
    axes = np.where(defined, axes / np.where(defined, length, 1.0), 0.0)
    return TwoCovariance(
        np.average(means, axis=0, weights=counts),
        orient(solve_triangular(root, axes, check_finite=False)),
        np.where(defined, np.maximum(values - float((1.0 / counts).mean()), 0.0), 0.0),
    )


def _root(squares: Float64, ridge: float) -> Float64:
    """The upper root of a matrix of squares, of which only the upper triangle counts, with a ridge on its diagonal.

    The ridge is a share of the mean square, and more where float32's rounding has left the matrix without a root.
    """
    w = squares.shape[0]
    mean_square = max(float(np.trace(squares)), 1e-6) / w
    while True:
        ridged = squares.copy(order="F")
        ridged[np.diag_indices(w)] += ridge * mean_square
        try:
            return np.asarray(cholesky(ridged, overwrite_a=True, check_finite=False))
        except LinAlgError:
            ridge *= 10.0


def _coordinates(model: TwoCovariance, h: Float32) -> Float32:
    coordinates = h @ model.axes.astype(np.float32) - (model.centre @ model.axes).astype(np.float32)
    return np.asarray(coordinates, dtype=np.float32)


def _reached(model: TwoCovariance, wave_blocks: Iterable[Float32], pairs: TrainingPairs) -> float:
    """What the model's log-likelihood ratio finds of the same pairs."""
    coordinates = np.concatenate([_coordinates(model, block) for block in wave_blocks])
    return reached(forms_of(model.psi), coordinates, pairs)


def _reach(scaled: Float32, times: float) -> float:
    """A kernel's width by the distance of two rows."""
    return max(times * float(np.sqrt(2 * scaled.var(axis=0, dtype=np.float64).sum())), 1e-6)


def _tuned_classifier(
    X: Float32, codes: Int64, n_classes: int, random: np.random.RandomState
) -> tuple[Scaling, float, float]:
    """Scaling, kernel width and ridge that classify best, on some rows."""
    looked_at = random.permutation(X.shape[0])[:TRIED_ROWS]
    cut = looked_at.size * 2 // 3
    codes = codes[looked_at]
    ways = scalings(X)
    n_waves = int(np.clip(cut, 32, _TRIED_WAVES))
    prior = np.bincount(codes[:cut], minlength=n_classes) / max(cut, 1)
    best, settings = np.inf, (ways[-1], 1.0, 1e-3)
    for scaling in ways:
        scaled = scaling.scaled(X[looked_at])
        for times in (0.3, 0.6, 1.2):
            reach = _reach(scaled, times)
            waves = _random_waves(X.shape[1], n_waves, reach, random)
            sums = [_sums(scaled[:cut], codes[:cut], waves)]
            unseen = waves.of(scaled[cut:])
            for ridge in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
                scores = unseen @ _classifier(sums, prior, ridge).astype(np.float32) + prior
                wrong = float((scores.argmax(axis=1) != codes[cut:]).mean()) if cut < codes.size else 0.0
                if wrong < best:
                    best, settings = wrong, (scaling, reach, ridge)
    return settings


def _tuned_discriminant(
    X: Float32, codes: Int64, random: np.random.RandomState
) -> tuple[Scaling, float, float]:
    """Scaling, kernel width and ridge that tell apart best: pairs of identities left out, or of rows where few."""
    folds = folds_of(codes, random)
    looked_at = random.permutation(X.shape[0])
    train_rows = np.sort(looked_at[folds[looked_at] != 0][: TRIED_ROWS * 3 // 4])
    test_rows = np.sort(looked_at[folds[looked_at] == 0][: TRIED_ROWS // 4])
    ways = scalings(X)
    best, settings = -np.inf, (ways[-1], _reach(ways[-1].scaled(X[looked_at[:TRIED_ROWS]]), 0.6), 1e-2)
    pairs = judging_pairs(codes[test_rows], random)
    if pairs is None or train_rows.size < 2:
        return settings
    n_waves = int(np.clip(train_rows.size, 32, _TRIED_WAVES))
    for scaling in ways:
        scaled, unseen = scaling.scaled(X[train_rows]), scaling.scaled(X[test_rows])
        for times in (0.3, 0.6, 1.2, 2.4):
            reach = _reach(scaled, times)
            waves = _random_waves(X.shape[1], n_waves, reach, random)
            sums = [_sums(scaled, codes[train_rows], waves)]
            wave_blocks = [waves.of(unseen)]
            for ridge in (1.0, 1e-1, 1e-2, 1e-3, 1e-4):
                tpr = _reached(_discriminant(sums, ridge), wave_blocks, pairs)
                if tpr > best:
                    best, settings = tpr, (scaling, reach, ridge)
    return settings


def _sharpness(scores: Float64, codes: Int64) -> float:
    """The factor of the scores under which their softmax is likeliest."""
    own_scores = scores[np.arange(codes.size), codes]

    def loss(factor: float) -> float:
        return float((logsumexp(factor * scores, axis=1) - factor * own_scores).mean())

    return min((float(factor) for factor in np.geomspace(1, 60, 25)), key=loss)
