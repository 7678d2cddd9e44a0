"""PLDA as a scikit-learn estimator: log-likelihood ratios of same against different identity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field, PlainSerializer
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core import kernels as row_kernels
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64, Matrix
from pairmark.models.core.base import EmbedderMixin, PairScorerMixin
from pairmark.models.core.inputs import one_of_equals
from pairmark.models.core.progress import one_blas_thread
from pairmark.models.core.scores import (
    OF_SCORES,
    PairsOfRows,
    SampleSets,
    sample_sums,
    sides_of,
)
from pairmark.models.core.search import (
    GalleryIndex,
    Rows,
    SearchForm,
    encode,
    same_measure,
    seal_array,
)
from pairmark.models.core.spec import (
    LearnerSpec,
    RandomState,
    check_params,
    document_parameters,
    keep_arguments,
)
from pairmark.models.core.state import Array, Fact, StateRecord, StoredState, refuse
from pairmark.models.evaluation.validation import (
    Fold,
    judged_rates,
    learner_protocol,
    some_rows,
    validation_folds,
)
from pairmark.models.pairs.lists import labeled_rows_of_pairs
from pairmark.models.plda import kernels
from pairmark.models.plda.choosing import (
    BETWEEN,
    MAX_COMPONENTS,
    WIDTHS,
    WITHIN,
    Choice,
    Chooser,
    LatentMap,
    Marginals,
    SettingGrid,
    SettingRates,
    fitted_model,
)
from pairmark.models.plda.two_covariance import Residual, contributions, pair_terms, subject_ratios

_Rate = Annotated[list[float], Field(min_length=2, max_length=2)]


JUDGED_TRAINING_ROWS: Final = 10_000
"""Most rows that settings are chosen on; the model itself is fitted to all."""
_COLUMNS = "columns"


_Shrinkage = Literal["auto"] | Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True, kw_only=True)
class Subjects:
    """Sufficient statistics of subjects in latent coordinates; new samples add to both.

    Attributes
    ----------
    counts : (n,) int64, samples of each.
    sums : (n, q) float64, sums of their latent coordinates.
    rows : (n, p) float32, means of prepared rows, whose differences boosted trees see; None where there are no trees.
    """

    counts: Int64
    sums: Float64 = field(repr=False)
    rows: Float32 | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.counts.size)

    def take(self, which: NDArray[Any] | slice) -> "Subjects":
        return Subjects(
            counts=self.counts[which],
            sums=self.sums[which],
            rows=None if self.rows is None else self.rows[which],
        )


@document_parameters
class Plda(PairScorerMixin, EmbedderMixin, BaseEstimator):
    """Probabilistic linear discriminant analysis: the two-covariance model of identities.

    Identities are Gaussian around centres that are Gaussian themselves. A pair's score is the natural logarithm of
    ``p(left, right | same identity) / p(left, right | different identities)``; a few samples a side are scored by the
    same rule (`subject_score`). In latent coordinates the covariance within identities is the identity matrix and the
    one between them diagonal, so a score is an inner product plus a number of each row: galleries are searched by a
    scan.

    Every parameter that is ``auto`` is chosen by twice four folds of identities that are held out in turn (of rows,
    where classes are shared), by the mean true positive rate at low false positive rates.

    From explicit pairs, points that same pairs join, at one or more removes, are one identity. Weights above 0 play no
    part: identities are learned from, not pairs.

    Attributes
    ----------
    settings_ : dict, what was chosen.
    validated_tpr_ : dict, false positive rate to mean TPR on held-out folds, each with the setting that the other folds
        choose. Rates that folds of so few identities cannot show are left out; empty where the data was too small to
        hold any out, where no setting was left to choose, and with trees, which are not judged.
    psi_ : (q,) variances between identities of the latent coordinates, falling; within identities they are 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import Plda
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = Plda().fit(X[:80], y[:80])
    >>> log_ratios = model.pair_score(X[[80, 80]], X[[81, 84]])  # a same and a different pair
    >>> log_ratios > 0
    array([ True, False])
    >>> model.score(X[80:], y[80:]) > 0.9  # the AUC of pairs of people never seen
    True
    """

    settings_: Annotated[dict[str, Any], Fact(kind=dict[str, bool | int | float | str])]
    validated_tpr_: Annotated[
        dict[float, float],
        Fact(
            kind=Annotated[list[_Rate], AfterValidator(dict), PlainSerializer(lambda rates: [*rates.items()])]
        ),
    ]
    psi_: Annotated[Float64, Array(shape=("coordinates",), low=0)]
    _map: Annotated[LatentMap, StateRecord()]
    _trees: Annotated[
        Residual | None,
        StateRecord(prefix="residual_"),
    ]

    _missing = "median"

    def __init__(
        self,
        *,
        marginals: Annotated[
            Literal["auto", Marginals],
            Field(
                description="features as they are (raw), or each mapped to a normal distribution by its quantiles "
                "(normal)"
            ),
        ] = "auto",
        length_norm: Annotated[
            Literal["auto"] | bool, Field(description="whether centred rows are scaled to one length")
        ] = "auto",
        n_components: Annotated[
            Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_COMPONENTS)],
            Field(
                description="principal components that the model is fitted in, where there are more features; auto "
                "tries 64, 128 and 256"
            ),
        ] = "auto",
        shrink_within: Annotated[
            _Shrinkage,
            Field(description="how far the covariance within identities is shrunk to a ball: 0 to 1"),
        ] = "auto",
        shrink_between: Annotated[
            _Shrinkage,
            Field(description="how far the covariance between identities is shrunk to a ball: 0 to 1"),
        ] = "auto",
        residual_rounds: Annotated[
            int,
            Field(
                ge=0,
                le=1_000,
                description="boosted trees that correct the log-likelihood ratio by differences of features; 100 suit "
                "most data",
            ),
        ] = 0,
        scoring: Annotated[
            Literal["llr", "cosine"],
            Field(
                description="the log-likelihood ratio, or the cosine of latent coordinates (of discriminant analysis)"
            ),
        ] = "llr",
        protocol: Annotated[
            Literal["auto", "open-set", "closed-set"],
            Field(
                description="what cross-validation holds out: identities (open-set), or rows of shared classes "
                "(closed-set); auto: open-set from 15 training identities on"
            ),
        ] = "auto",
        target_fpr: Annotated[
            Annotated[float, Field(gt=0.0, lt=1.0)] | None,
            Field(
                description="false positive rate for which settings are chosen; null: the mean over 0.1, 0.03, 0.01 "
                "and 0.003"
            ),
        ] = None,
        random_state: Annotated[
            RandomState, Field(description="seed of the folds; the same seed gives the same model")
        ] = 0,
    ) -> None:
        keep_arguments(self, locals())

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        random = np.random.default_rng(_seed(self.random_state))
        judged = some_rows(codes, random, JUDGED_TRAINING_ROWS)
        place = np.unique(codes[judged], return_inverse=True)[1]
        protocol = learner_protocol(self.protocol, identities.size)
        # A race fits settings that it has chosen, fold by fold: judging them again would take longer than the fit.
        folds = validation_folds(place, protocol, random) if self._grid().open else []
        # Hundreds of small matrices: several threads would only stand in each other's way.
        with one_blas_thread():
            self.refit(rows, codes, self.choose(rows[judged], place, folds))

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Float64) -> None:
        # A point of many pairs is one row, or its identity would seem to vary less than it does.
        points, codes = labeled_rows_of_pairs(left, right, same, weight)
        if np.bincount(codes).max() < 2:
            raise ValueError("positive pairs hold equal rows only: expected some of rows that differ")
        self._learn_identities(points, codes, np.unique(codes))

    def _check_params(self) -> None:
        check_params(self)
        if self.scoring == "cosine" and self.residual_rounds != 0:
            raise ValueError("residual_rounds corrects log-likelihood ratios: use scoring='llr', or 0 rounds")

    def choose(
        self,
        X: Float32,
        codes: Int64,
        folds: Sequence[Fold],
        judged: SettingRates | None = None,
    ) -> Choice:
        """The setting that is best on given folds of checked rows (n, d) with identities 0, 1, ...

        ``judged`` : shared by estimators that choose on the same rows, folds, rates and seed; see `Chooser`.
        """
        random = np.random.default_rng(_seed(self.random_state))
        rates = judged_rates(self.target_fpr)
        cosine = self.scoring == "cosine"
        return Chooser(
            X, codes, folds, self._grid(), rates, random, cosine=cosine, shared_rates=judged
        ).choose()

    def refit(self, X: Float32, codes: Int64, choice: Choice) -> Self:
        """Fit checked rows with a setting that was chosen before."""
        self.n_features_in_ = X.shape[1]
        random = np.random.default_rng(_seed(self.random_state))
        self.settings_ = choice.setting.as_params()
        # What has been judged is the ratio without trees.
        self.validated_tpr_ = {} if self.residual_rounds else choice.validated
        self._map, self.psi_, self._trees = fitted_model(X, codes, choice, self.residual_rounds, random)
        self._restored()
        return self

    def _grid(self) -> SettingGrid:
        def candidates_of(value: Any, candidates: tuple[Any, ...]) -> tuple[Any, ...]:
            return candidates if value == "auto" and isinstance(value, str) else (value,)

        return SettingGrid(
            marginals=candidates_of(self.marginals, ("normal", "raw")),
            length_norm=candidates_of(self.length_norm, (False, True)),
            n_components=candidates_of(self.n_components, WIDTHS),
            within=candidates_of(self.shrink_within, WITHIN),
            between=candidates_of(self.shrink_between, BETWEEN),
        )

    def _restored(self) -> None:
        psi = self.psi_
        if self.scoring == "cosine":
            self._roots, self._square, self._constant = np.ones(psi.size), np.zeros(psi.size), 0.0
        else:
            weight, self._square, self._constant = pair_terms(psi)
            self._roots = np.sqrt(weight)
        self._width = -(-psi.size // row_kernels.LANES) * row_kernels.LANES

    def transform(self, X: ArrayLike) -> Float32:
        """Latent coordinates: covariance 1 within identities, `psi_` between them.

        Returns
        -------
        (n, q) float32.
        """
        check_is_fitted(self)
        return self._map.latent(self._validated(X, "X"))

    @property
    def aggregations(self) -> tuple[str, ...]:
        """See `PairScorerMixin.aggregations`: ``plda`` is the model's own, exact log-likelihood ratio of subjects."""
        return OF_SCORES if self.scoring == "cosine" else ("plda", *OF_SCORES)

    def _prepared_subjects(self, sets: SampleSets, how: str) -> Any:
        if how != "plda":
            return sets
        prepared = self._map.prepared(sets.rows)
        sums, rows = sample_sums(self._map.of_prepared(prepared), sets), None
        if self._trees is not None:
            rows = (sample_sums(prepared, sets) / sets.counts[:, None]).astype(np.float32)
        return Subjects(counts=sets.counts, sums=sums, rows=rows)

    def _subject_score(self, left: Any, right: Any, how: str) -> Float32:
        if how != "plda":
            return super()._subject_score(left, right, how)
        a, b = (
            side if isinstance(side, Subjects) else self._prepared_subjects(side, how)
            for side in (left, right)
        )
        return self._corrected(self._subject_ratios(a, b), a.rows, b.rows)

    def _subject_ratios(self, a: Subjects, b: Subjects) -> Float64:
        sides_of(len(a), len(b))
        scores = subject_ratios(a.counts, a.sums, b.counts, b.sums, self.psi_)
        single = np.flatnonzero((a.counts == 1) & (b.counts == 1))
        if single.size:
            sums = (side.sums if len(side) == 1 else side.sums[single] for side in (a, b))
            scores[single] = self._ratios(*(self._columns_of(np.asarray(of, np.float32)) for of in sums))
        return scores

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What each latent coordinate contributes to one pair's score; see `contributions`.

        Parameters
        ----------
        left, right : (d,) or (1, d), one pair.
        feature_names : (d,) names to use; those of training when None.
        """
        a, b = self._one_pair(left, right)
        rows = [self._map.prepared(side) for side in (a, b)]
        latent = [self._map.of_prepared(side)[0].astype(np.float64) for side in rows]
        if self.scoring == "cosine":
            latent = [z / max(float(np.linalg.norm(z)), 1e-30) for z in latent]
        correction = 0.0 if self._trees is None else float(self._trees.corrections(*rows)[0])
        return contributions(
            self, latent[0], latent[1], float(self._pair_score(a, b)[0]), correction, feature_names
        )

    @property
    def loadings_(self) -> Float32:
        """(d, q) how latent coordinates follow from prepared features, before lengths."""
        check_is_fitted(self)
        components = self._map.preparation.components
        return self._map.weights if components is None else components @ self._map.weights

    def _columns_of(self, latent: Float32) -> Float32:
        columns = np.zeros((latent.shape[0], self._width + row_kernels.LANES), dtype=np.float32)
        if self.scoring == "cosine":
            latent = latent.copy()
            row_kernels.unit_lengths(latent, 1.0)
        kernels.complete(latent, self._roots, self._square, self._width, columns)
        return columns

    def _columns(self, X: Matrix) -> Float32:
        return self._columns_of(self._map.latent(X))

    def _ratios(self, a: Float32, b: Float32) -> Float64:
        """Of pairs of columns; one side may have a single row."""
        scores = np.empty(max(a.shape[0], b.shape[0]))
        kernels.score(a, seal_array(b), False, self._width, self._constant, scores[:, None])
        return scores

    def _corrected(self, ratios: Float64, a: Float32 | None, b: Float32 | None) -> Float32:
        """Scores from ratios and, where there are trees, prepared rows."""
        if self._trees is not None and a is not None and b is not None:
            ratios = ratios + self._trees.corrections(a, b)
        return ratios.astype(np.float32)

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        n = left.shape[0]
        rows = [self._map.prepared(one_of_equals(side)) for side in (left, right)]
        ratios = self._ratios(*(self._columns_of(self._map.of_prepared(side)) for side in rows))
        scores = self._corrected(ratios, *rows)
        return scores if scores.size == n else np.repeat(scores, n)

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        prepared = self._map.prepared(rows)
        columns = self._columns_of(self._map.of_prepared(prepared))
        if self._trees is None:
            return lambda left, right: self._ratios(columns[left], columns[right]).astype(np.float32)
        return lambda left, right: self._corrected(
            self._ratios(columns[left], columns[right]), prepared[left], prepared[right]
        )

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        columns = self._columns(vectors)
        return {_COLUMNS: columns, **encode(columns)}

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        columns = seal_array(index.arrays[_COLUMNS][rows])
        ratios = np.empty((queries.shape[0], columns.shape[0]))
        kernels.score(self._columns(queries), columns, True, self._width, self._constant, ratios)
        if self._trees is None:
            return ratios.astype(np.float32)
        query_rows, gallery_rows = self._map.prepared(queries), self._map.prepared(index.vectors[rows])
        scores = np.empty(ratios.shape, dtype=np.float32)
        for at in range(ratios.shape[0]):
            scores[at] = self._corrected(ratios[at], query_rows[at : at + 1], gallery_rows)
        return scores

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        vectors = self._columns(queries)
        # The query's one meets the row's offset and the other way round.
        vectors[:, [self._width, self._width + 1]] = vectors[:, [self._width + 1, self._width]]
        return SearchForm(
            measure="inner",
            queries=vectors,
            gallery=index.arrays[_COLUMNS],
            least_measure=self._least_measure,
        )

    def _least_measure(self, score: float) -> float:
        # Trees may have lifted the score by as much as their bound.
        lift = 0.0 if self._trees is None else self._trees.bound * (1.0 + 2.0**-40)
        return same_measure(score) - lift - self._constant - 2.0**-40 * abs(self._constant)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_map")

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        width = file.length("components", 1) if "components" in file.arrays else file.sizes["features"]
        return {"prepared": width}

    def _relate(self, file: StoredState) -> None:
        if file.sizes["coordinates"] < 1:
            raise refuse("psi", None, "has no rows", "one or more")
        if "components" not in file.arrays:
            return
        if file.facts.residual_bound is None and file.facts.length is None:
            # With nothing in between, components are part of the weights.
            raise refuse("components", None, "is there", "none, without lengths or trees")
        if not 1 <= file.sizes["prepared"] <= MAX_COMPONENTS:
            raise refuse(
                "components", None, f"has {file.sizes['prepared']} columns", f"1 to {MAX_COMPONENTS}"
            )


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31))


PLDA = LearnerSpec(
    kind="plda",
    title="PLDA: log-likelihood ratios of identities as Gaussians around Gaussian centres; settings by "
    "cross-validation",
    estimator=Plda,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    renamed={("residual_rounds", "auto"): 100},
)
