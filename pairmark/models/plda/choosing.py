"""Preparing rows, and choosing how by cross-validation over identities.

Coarse to fine: first how rows are prepared, each way with three strengths of shrinkage; then how many principal
components; then both shrinkages. Every setting is judged on the same folds (`pairmark.models.evaluation.validation`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from pairmark.models.core import kernels as row_kernels
from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.scaling import NormalMarginals
from pairmark.models.core.state import Array, Fact, StateRecord
from pairmark.models.evaluation.validation import Fold, fold_means, nested_rates, shown_rates
from pairmark.models.plda.two_covariance import (
    Residual,
    TwoCovariance,
    fit_residual,
    moments,
    orient,
    pair_terms,
    shrunk_model,
)

Marginals = Literal["raw", "normal"]
MAX_COMPONENTS = 1_024
_ROW_BLOCK = 4_096
_LIMIT = 1e6
"""Columns stay within this, so that no product of them overflows float32."""


class Shape(NamedTuple):
    """How rows are prepared for the model."""

    marginals: Marginals
    length_norm: bool
    n_components: int


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Marginals and principal components, which need no labels.

    Attributes
    ----------
    normal : broken lines to normal quantiles, or None: then ``(x - centre) * scale``.
    centre, scale : (d,).
    components : (d, p) orthonormal, of the largest variance first; None where features are used as they are.
    """

    normal: Annotated[NormalMarginals | None, StateRecord()] = field(repr=False)
    centre: Annotated[Float64, Array(shape=("features",))] = field(repr=False)
    scale: Annotated[Float64, Array(shape=("features",))] = field(repr=False)
    components: Annotated[Float32 | None, Array(shape=("features", "prepared"))] = field(repr=False)

    @classmethod
    def of_marginals(cls, X: Float32, marginals: Marginals) -> "Preparation":
        """From rows (n, d), without components."""
        d = X.shape[1]
        if marginals == "normal":
            normal = NormalMarginals.of_rows(X)
            centre = normal.transform(X).mean(axis=0, dtype=np.float64)
            return cls(normal=normal, centre=centre, scale=np.ones(d), components=None)
        # One unit for all: how much features vary is theirs to tell.
        deviation = float(np.sqrt(np.mean(X.var(axis=0, dtype=np.float64))))
        scale = np.full(d, 1.0 / max(deviation, 1e-30))
        return cls(normal=None, centre=X.mean(axis=0, dtype=np.float64), scale=scale, components=None)

    def comparable(self, X: Float32) -> Float32:
        """Rows with marginals made comparable, centred, (n, d)."""
        if self.normal is not None:
            return np.asarray(self.normal.transform(X) - self.centre.astype(np.float32))
        return np.clip((X - self.centre) * self.scale, -_LIMIT, _LIMIT).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class LatentMap:
    """Rows to latent coordinates, each row as if alone.

    Attributes
    ----------
    length : what centred rows are scaled to, or None.
    weights, bias : (p, q) and (q,), the model's axes; of the features themselves where nothing comes in between.
    """

    preparation: Annotated[Preparation, StateRecord()]
    length: Annotated[float | None, Fact(), Field(gt=0.0, le=1e6)]
    weights: Annotated[Float32, Array(shape=("prepared", "coordinates"))] = field(repr=False)
    bias: Annotated[Float32, Array(shape=("coordinates",))] = field(repr=False)

    def prepared(self, X: Float32) -> Float32:
        """Rows in principal components, where there are any, before lengths: (n, p) float32."""
        # Plain arrays: one compiled version serves matrices that are mapped, read-only or views.
        rows = self.preparation.comparable(np.array(X, dtype=np.float32, order="C"))
        components = self.preparation.components
        if components is None:
            return rows
        coordinates = np.zeros((rows.shape[0], components.shape[1]), dtype=np.float32)
        row_kernels.add_products(rows, components, coordinates)
        return coordinates

    def of_prepared(self, rows: Float32) -> Float32:
        """Latent coordinates of `prepared` rows, (n, q) float32."""
        if self.length is not None:
            rows = rows.copy()
            row_kernels.unit_lengths(rows, self.length)
        coordinates = np.repeat(self.bias[None], rows.shape[0], axis=0)
        row_kernels.add_products(rows, self.weights, coordinates)
        return np.clip(coordinates, -_LIMIT, _LIMIT, out=coordinates)

    def latent(self, X: Float32) -> Float32:
        """(n, q) float32."""
        out = np.empty((X.shape[0], self.weights.shape[1]), dtype=np.float32)
        for start in range(0, X.shape[0], _ROW_BLOCK):
            block = slice(start, start + _ROW_BLOCK)
            out[block] = self.of_prepared(self.prepared(X[block]))
        return out


def shape_rows(rows: Float32, shape: Shape) -> Float32:
    """What the model is fitted to, (n, p), from rows in as many principal components or more."""
    rows = rows[:, : shape.n_components]
    if not shape.length_norm:
        return np.asarray(rows)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(
        rows * (np.sqrt(rows.shape[1]) / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    )


def principal_components(rows: Float32, n_components: int, random: np.random.Generator) -> Float32:
    """Directions of most variance of rows, (d, p), orthonormal; p is ``n_components`` at most."""
    from sklearn.utils.extmath import randomized_svd

    p = min(n_components, rows.shape[1])
    seed = int(random.integers(2**31))
    turned = randomized_svd(rows - rows.mean(axis=0), p, n_oversamples=20, n_iter=3, random_state=seed)[2]
    return np.ascontiguousarray(orient(turned.T), dtype=np.float32)


WITHIN = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.8, 0.95)
BETWEEN = (0.0, 0.1, 0.2, 0.5)
WIDTHS = (256, 128, 64)
"""Principal components that are tried."""
ROTATED_FROM = 96
"""With fewer features than this they are used as they are."""
_FIRST_WITHIN, _FIRST_BETWEEN = (0.05, 0.2, 0.5, 0.8), (0.1,)
_UNJUDGED_WITHIN, _UNJUDGED_BETWEEN = 0.3, 0.1


class Setting(NamedTuple):
    """Everything that is chosen."""

    shape: Shape
    shrink_within: float
    shrink_between: float

    def as_params(self) -> dict[str, Any]:
        """For people, JSON-able."""
        shrinkages = {"shrink_within": self.shrink_within, "shrink_between": self.shrink_between}
        return {**self.shape._asdict(), **shrinkages}


@dataclass(frozen=True, kw_only=True)
class SettingGrid:
    """What may be chosen: each a tuple of candidates, of one where it is given."""

    marginals: tuple[Marginals, ...]
    length_norm: tuple[bool, ...]
    n_components: tuple[int, ...]
    within: tuple[float, ...]
    between: tuple[float, ...]

    @property
    def open(self) -> bool:
        """Whether anything is left to choose."""
        return any(len(getattr(self, setting.name)) > 1 for setting in fields(self))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The setting chosen.

    Attributes
    ----------
    preparation : its marginals.
    rotates : whether rows are turned to principal components.
    validated : false positive rate to TPR of choosing, each fold's of the setting that the others choose
        (`nested_rates`), of the rates that the folds can show.
    """

    setting: Setting
    preparation: Preparation = field(repr=False)
    rotates: bool
    validated: dict[float, float] = field(repr=False, default_factory=dict)


SettingRates = dict[tuple[Setting, bool], Float64]
"""Rates on every fold, (n_folds, n_rates), of a setting scored by log-likelihood ratios, or by cosines where true."""


class Chooser:
    """Judges settings on folds of rows (n, d) with identities 0, 1, ...

    Parameters
    ----------
    cosine : whether scores are cosines.
    shared_rates : rates of settings judged so far, and where new ones are put, for both ways to score. Finding a model
        takes most of the time and serves both, so choosers of the same rows, folds, rates and seed share it.
    """

    def __init__(
        self,
        X: Float32,
        codes: Int64,
        folds: Sequence[Fold],
        grid: SettingGrid,
        rates: tuple[float, ...],
        random: np.random.Generator,
        *,
        cosine: bool = False,
        shared_rates: SettingRates | None = None,
    ) -> None:
        self._X, self._codes, self._folds, self._grid, self._at = X, codes, folds, grid, rates
        self._components_seed = int(random.integers(2**63))
        self._random, self._cosine, self._shared_rates = random, cosine, shared_rates
        self._max_components = min(max(grid.n_components), MAX_COMPONENTS)
        if len(grid.n_components) > 1 and folds:
            # Rows of a fold lie in no more directions: beyond them components would be any.
            fewest = min(fold.train.size for fold in folds)
            self._max_components = min(self._max_components, max(fewest - 1, ROTATED_FROM))
        self._rotates = X.shape[1] >= min(ROTATED_FROM, self._max_components + 1)
        self._marginals = {way: Preparation.of_marginals(X, way) for way in grid.marginals}
        self._way: Marginals | None = None
        self._rows: list[Float32] = []
        self._rates: dict[Setting, Float64] = {}
        self._rates_of: SettingRates = {} if shared_rates is None else shared_rates

    def choose(self) -> Choice:
        """The best setting."""
        grid = self._grid
        shapes = [
            self._shape(way, unit, max(grid.n_components))
            for way in grid.marginals
            for unit in grid.length_norm
        ]
        if not self._folds:
            setting = Setting(
                shapes[0],
                grid.within[0] if len(grid.within) == 1 else _UNJUDGED_WITHIN,
                grid.between[0] if len(grid.between) == 1 else _UNJUDGED_BETWEEN,
            )
            return self._choice_of(setting)
        within = _FIRST_WITHIN if len(grid.within) > 1 else grid.within
        between = _FIRST_BETWEEN if len(grid.between) > 1 else grid.between
        for number, shape in enumerate(dict.fromkeys(shapes)):
            report(0.05 + 0.5 * number / len(shapes), "choosing marginals and lengths")
            self._judge_grid(shape, within, between)
        best = self._best().shape
        widths = {self._shape(best.marginals, best.length_norm, width) for width in grid.n_components} - {
            best
        }
        for shape in sorted(widths):
            report(0.6, "choosing principal components")
            self._judge_grid(shape, within, between)
        report(0.75, "choosing shrinkages")
        self._judge_grid(self._best().shape, grid.within, grid.between)
        return self._choice_of(self._best())

    def _shape(self, way: Marginals, unit: bool, width: int) -> Shape:
        d = self._X.shape[1]
        return Shape(way, unit, min(width, self._max_components, d) if self._rotates else d)

    def _best(self) -> Setting:
        return max(self._rates, key=lambda setting: float(fold_means(self._rates[setting]).mean()))

    def _choice_of(self, setting: Setting) -> Choice:
        validated = {}
        if self._rates:
            nested = nested_rates(np.stack(list(self._rates.values())), self._folds)
            validated = shown_rates(nested, self._folds, self._at)
        preparation = self._marginals[setting.shape.marginals]
        return Choice(setting=setting, preparation=preparation, rotates=self._rotates, validated=validated)

    def _judge_grid(self, shape: Shape, within: tuple[float, ...], between: tuple[float, ...]) -> None:
        """Rates of settings of one shape, among those that are known."""
        settings = [Setting(shape, a, b) for a in within for b in between]
        new = [setting for setting in settings if (setting, self._cosine) not in self._rates_of]
        ways = (self._cosine,) if self._shared_rates is None else (False, True)
        rates = np.empty((len(ways), len(new), len(self._folds), len(self._at)))
        for number, fold in enumerate(self._folds if new else ()):
            self._turn(shape.marginals)
            rows = shape_rows(self._rows[number % len(self._rows)], shape)
            train_moments = moments(rows[fold.train], self._codes[fold.train])
            for place, setting in enumerate(new):
                model = shrunk_model(train_moments, setting.shrink_within, setting.shrink_between)
                for way, cosine in enumerate(ways):
                    square = _square(model, rows[fold.test], cosine)
                    rates[way, place, number] = fold.rates(square, self._at)
        for way, cosine in enumerate(ways):
            self._rates_of.update({(setting, cosine): rates[way, place] for place, setting in enumerate(new)})
        self._rates.update({setting: self._rates_of[setting, self._cosine] for setting in settings})

    def _turn(self, way: Marginals) -> None:
        """Rows as each fold's principal components have them: held-out identities must not shape those."""
        if way == self._way:
            return
        comparable = self._marginals[way].comparable(self._X)
        self._way, self._rows = way, [comparable]
        if self._rotates:
            # Of a seed of their own, so that rates do not depend on which settings were judged before.
            random = np.random.default_rng(self._components_seed)
            self._rows = [
                comparable @ principal_components(comparable[fold.train], self._max_components, random)
                for fold in self._folds
            ]


def fitted_model(
    X: Float32, codes: Int64, choice: Choice, rounds: int, random: np.random.Generator
) -> tuple[LatentMap, Float64, Residual | None]:
    """The model of all rows with a setting that was chosen: how rows become latent coordinates, how much these vary
    between identities, and ``rounds`` trees over the ratio."""
    setting, preparation = choice.setting, choice.preparation
    rows = preparation.comparable(X)
    if choice.rotates:
        components = principal_components(rows, setting.shape.n_components, random)
        preparation, rows = replace(preparation, components=components), rows @ components
    model_rows = shape_rows(rows, setting.shape)
    shrinkages = (setting.shrink_within, setting.shrink_between)
    (centre, axes, psi), trees = shrunk_model(moments(model_rows, codes), *shrinkages), None
    if rounds:
        report(0.95, "growing trees over the ratio")
        trees = fit_residual(model_rows, rows, codes, shrinkages, rounds, random)
    bias, length = (-(centre @ axes)).astype(np.float32), None
    if setting.shape.length_norm:
        length = float(np.sqrt(centre.size))
    elif preparation.components is not None and trees is None:
        # Without lengths in between, two linear maps are one.
        axes = preparation.components.astype(np.float64) @ axes
        preparation = replace(preparation, components=None)
    weights = np.ascontiguousarray(axes, dtype=np.float32)
    return LatentMap(preparation=preparation, length=length, weights=weights, bias=bias), psi, trees


def _square(model: TwoCovariance, rows: Float32, cosine: bool) -> Float32:
    """Log-likelihood ratios (or cosines) of all pairs of rows, good to float32."""
    latent = (rows - model.centre.astype(np.float32)) @ model.axes.astype(np.float32)
    if cosine:
        latent /= np.maximum(np.linalg.norm(latent, axis=1, keepdims=True), np.float32(1e-30))
        return np.asarray(latent @ latent.T)
    weight, square, _ = pair_terms(model.psi)
    weighted = latent * np.sqrt(weight).astype(np.float32)
    offset = -(latent * latent) @ square.astype(np.float32)
    return np.asarray(weighted @ weighted.T + offset[:, None] + offset[None, :])
