"""`SimilarityAuto`: compares candidates on held-out identities, and fits the winner on all rows."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from pairmark.models.auto.average import AVERAGE, average, model_of, restore
from pairmark.models.auto.candidates import (
    CANDIDATES,
    DENSE_CELLS,
    FEW_NUMBERS,
    RACING,
    Candidate,
    CandidateName,
    Data,
    raced_rows,
    work_within,
)
from pairmark.models.auto.race import (
    RACE_SHARE,
    Entry,
    IdentityTask,
    PairTask,
    Race,
    fit_estimator,
    leaderboard,
    winner,
)
from pairmark.models.classes.estimator import CLASSES, SimilarityClasses, check_classes
from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, Matrix, NDArray
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.base import GalleryIndex, PairScorerMixin
from pairmark.models.core.inputs import codes_by_appearance
from pairmark.models.core.progress import as_part, one_blas_thread
from pairmark.models.core.scores import Aggregation, PairsOfRows, SampleSets
from pairmark.models.core.search import Rows, SearchLimits, TopK
from pairmark.models.core.spec import (
    LearnerSpec,
    RandomState,
    Threads,
    document_parameters,
    jsonable_params,
    keep_arguments,
)
from pairmark.models.core.state import Fact, State, add_prefix, checked_model
from pairmark.models.evaluation.validation import (
    REPEATS,
    GroupedRows,
    judged_rates,
    learner_protocol,
    pair_folds,
    row_units,
    some_rows,
    validation_folds,
)
from pairmark.models.metric.estimator import METRIC
from pairmark.models.pairs.lists import some_pairs

_KINDS = {**RACING, AVERAGE.kind: AVERAGE}
_WINNER = "winner-"
"""Begins the names of the winner's arrays."""


class _Winner(BaseModel):
    """What is kept of the winner beside its arrays."""

    model_config = ConfigDict(strict=True)

    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]


_SAMPLES_SHARE = 0.25
"""Of the work, what a winner's race took at most whose folds show how samples are put together."""
_MANY_REPEATS = 4
"""How often folds are drawn of a small data set."""


def _winner_has(name: str) -> Any:
    return available_if(lambda self: hasattr(self, "model_") and hasattr(self.model_, name))


@document_parameters
class SimilarityAuto(GroupedRows, BaseEstimator):
    """Race simple and strong similarities on held-out identities, and be the winner.

    Candidates race, the cheapest first, as long as their work fits into the budget. Work is counted beforehand from the
    size of the data, so the same data, budget and seed give the same model on any machine. Everybody is judged on the
    same folds, twice four, of people with at most 10,000 numbers four times four. They hold identities out, or rows,
    where classes are shared: twice halves of few rows, whose quarters would not show low rates. What counts is the mean
    true positive rate at low false positive rates, at thresholds from the negative pairs of all folds together. The
    simplest candidate within one standard error of the best, paired fold by fold, and at most .01 behind it, wins and
    learns from all rows. Of fewer than 40 people, the mean of up to four is the winner instead, by their ranks among
    the folds' negative pairs: the best, and those of the next that raise what they reach together. Of up to 2,000 rows
    of shared classes too, with trees of classes and the pool of classifiers that has them, unless one is ahead of their
    mean by ``1 / sqrt(n)``, since folds of so few do not tell which is better. What takes .3 seconds or more leaves
    halfway when a simpler one is level, or another far ahead. Where classes are shared, classifiers and cosine race
    alone, if the budget is twice what they take. Of identities a forest races where trees over PLDA's ratio help. What
    has trees races with fewer than a winner has: 500 for classes, 100 over the ratio, or a forest of 200 of little
    data.

    ``protocol="auto"`` cannot ask what ``y`` is. From 15 identities on it takes them for people or things that new ones
    will join (open-set), below that for classes that are all there are (closed-set). Name the protocol where ``y`` is
    the other: it decides which candidate wins.

    Attributes
    ----------
    model_ : the winner, fitted to all rows. winner_ : its name.
    leaderboard_ : list of dicts, best first; see `pairmark.models.auto.race.leaderboard`.
    aggregation_ : how people of several samples are compared, by folds; None where too few have four.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import SimilarityAuto
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 4)  # 30 people, 4 samples each
    >>> X = rng.normal(size=(30, 6))[y] + 0.3 * rng.normal(size=(120, 6))
    >>> model = SimilarityAuto(candidates=["cosine", "plda"]).fit(X[:80], y[:80])
    >>> sorted(entry["name"] for entry in model.leaderboard_)
    ['cosine', 'plda']
    >>> model.score(X[80:], y[80:]) > 0.9  # the AUC of pairs of people never seen
    True
    """

    def __init__(
        self,
        *,
        candidates: Annotated[
            list[CandidateName] | None,
            Field(description="candidates to compare; null: all that take the data"),
        ] = None,
        budget_seconds: Annotated[
            float,
            Field(
                gt=0.0,
                le=86_400.0,
                description="about how many seconds the comparison and the winner's fit take, counted beforehand at a "
                "fixed reference speed: which candidates race depends on the data and the budget, never on the machine",
            ),
        ] = 120.0,
        protocol: Annotated[
            Literal["auto", "open-set", "closed-set"],
            Field(
                description="what folds hold out: identities (open-set), or rows of shared classes (closed-set); auto: "
                "open-set from 15 training identities on"
            ),
        ] = "auto",
        target_fpr: Annotated[
            Annotated[float, Field(gt=0.0, lt=1.0)] | None,
            Field(
                description="false positive rate near which candidates are compared; null: the mean over 0.1, 0.03, "
                "0.01 and 0.003"
            ),
        ] = None,
        max_rows: Annotated[
            int,
            Field(
                ge=100,
                le=1_000_000,
                description="maximum number of rows for the comparison, fewer of wide rows with a small budget; the "
                "winner is fitted on all rows",
            ),
        ] = 10_000,
        random_state: Annotated[RandomState, Field(description="seed of folds and candidates")] = 0,
        n_jobs: Annotated[Threads, Field(description="threads for candidates that use several")] = None,
        verbose: Annotated[
            int, Field(ge=0, le=100, description="1: print a line when a candidate finishes")
        ] = 0,
    ) -> None:
        keep_arguments(self, locals())

    model_: PairScorerMixin
    winner_: Annotated[str, Fact()]
    leaderboard_: Annotated[list[dict[str, Any]], Fact()]
    aggregation_: Annotated[Aggregation | None, Fact()]
    _accepts_sparse = True
    _missing = "median"
    _choice: Self | None = None

    def _learn_identities(self, rows: Any, codes: Int64, identities: NDArray[Any]) -> None:
        rows, labels, groups = _dense_enough(rows), identities[codes], self._groups
        if not _is_sparse(rows):
            # Which fold a row is in must not depend on where it stands.
            order = _order_by_content(rows)
            rows, labels, codes = rows[order], labels[order], codes_by_appearance(codes[order])[0]
            groups = None if groups is None else groups[order]
        seed = self._seed()
        random = np.random.default_rng(seed)
        n_classes = int(codes.max()) + 1
        protocol = learner_protocol(self.protocol, n_classes)
        width = (rows.nnz if _is_sparse(rows) else rows.size) / rows.shape[0]
        most = raced_rows(min(self.max_rows, codes.size), width, self.budget_seconds)
        race_rows = some_rows(codes, random, most)
        place = np.unique(codes[race_rows], return_inverse=True)[1]
        raced = rows[race_rows]
        # Of few people folds are small and differ much; they are quick to judge, too.
        few = protocol == "open-set" and raced.shape[0] * raced.shape[1] <= FEW_NUMBERS
        raced_groups = None if groups is None else groups[race_rows]
        # Of shared classes, a row that is there twice must not be on both sides.
        units = row_units(raced, raced_groups) if protocol == "closed-set" else raced_groups
        task = IdentityTask(
            X=raced,
            codes=place,
            groups=raced_groups,
            folds=validation_folds(
                place, protocol, random, repeats=_MANY_REPEATS if few else REPEATS, groups=units
            ),
            data=self._data(rows, race_rows.size, n_classes, closed=protocol == "closed-set", pairs=False),
        )
        self._race(task, seed, lambda model: fit_estimator(model, rows, labels, groups))

    def _learn_pairs(self, left: Any, right: Any, same: Bool, weight: Float64) -> None:
        a, b = _dense_enough(left), _dense_enough(right)
        if _is_sparse(a) != _is_sparse(b):
            a, b = _dense(a), _dense(b)
        seed = self._seed()
        random = np.random.default_rng(seed)
        race_pairs = some_pairs(same, weight, 2 * self.max_rows, random)
        left, right, weights = a[race_pairs], b[race_pairs], weight[race_pairs]
        # Connected groups of points that same pairs join are held out (open-set), or points, with the pairs among them;
        # pairs across are left out of that fold.
        folds, n_points, n_groups, closed = pair_folds(
            left, right, same[race_pairs], weights, self.protocol, random
        )
        task = PairTask(
            left=left,
            right=right,
            same=same[race_pairs],
            weight=weights,
            folds=folds,
            data=self._data(a, n_points, n_groups, closed=closed, pairs=True),
        )
        sample_weight = None if (weight == 1).all() else weight
        self._race(task, seed, lambda model: model.fit_pairs(a, b, same, sample_weight=sample_weight))

    def _data(self, rows: Any, raced: int, n_classes: int, *, closed: bool, pairs: bool) -> Data:
        return Data(
            n=int(rows.shape[0]),
            d=int(rows.shape[1]),
            raced=raced,
            cells=int(rows.nnz if _is_sparse(rows) else np.count_nonzero(rows)),
            n_classes=n_classes,
            closed=closed,
            sparse=_is_sparse(rows),
            pairs=pairs,
            work=work_within(self.budget_seconds),
        )

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """See `PairScorerMixin.score`; a `ValueError` names a class that a winner of shared classes did not see."""
        check_is_fitted(self)
        for model in getattr(self.model_, "models_", [self.model_]):
            if isinstance(model, SimilarityClasses):
                check_classes(model.classes_, y)
        return super().score(X, y)

    def settled(self) -> Self:
        """An unfitted one that learns this one's winner with its settings, and compares nobody."""
        unfitted: Self = clone(self)
        unfitted._choice = self
        return unfitted

    def _race(self, task: IdentityTask | PairTask, seed: int, fit: Any) -> None:
        if self._choice is not None:
            self.model_ = fit(clone(self._choice.model_))
            self.winner_, self.leaderboard_ = self._choice.winner_, self._choice.leaderboard_
            self.aggregation_ = self._choice.aggregation_
            return
        fprs, self.aggregation_ = judged_rates(self.target_fpr), None
        racing, out = self._racing(task.data)
        shared = {
            "random_state": seed,
            "n_jobs": self.n_jobs,
            "protocol": "closed-set" if task.data.closed else "open-set",
            "target_fpr": self.target_fpr,
        }
        nothing = np.empty((0, len(fprs)))
        # Matrices of a few hundred features gain nothing from several threads, which would stand in others' way.
        with one_blas_thread():
            if task.folds:
                entries = Race(task, fprs=fprs, shared=shared, verbose=self.verbose).run(racing)
                best = winner(entries) if any(entry.rates.size for entry in entries) else entries[0]
                mean = average(entries, task.data, task.folds, fprs, shared)
                if mean is not None:
                    entries, best = [*entries, mean], mean
            else:
                # Too little to hold any of it out: the simplest.
                status = "not raced: too few rows to hold any out"
                entries = [best := Entry(candidate=racing[0], rates=nothing, status=status)]
            if best.work <= _SAMPLES_SHARE * task.data.work:
                model = best.model or best.candidate.build(best.params, shared)
                self.aggregation_ = task.usual_aggregation(clone(model), fprs)
            params = {**best.params, **best.candidate.grown(task.data)}
            model = best.model or best.candidate.build(params, shared)
            with as_part(RACE_SHARE, 1.0, f"learning {best.name}"):
                self.model_ = fit(model)
        self.winner_ = best.name
        for one in out:
            alone = "classifiers of the shared classes race alone"
            why = alone if one.takes(task.data) else f"it takes {one.needs}"
            entries.append(Entry(candidate=one, rates=nothing, status=f"not tried: {why}"))
        self.leaderboard_ = leaderboard(entries, best, fprs, task.folds)

    def _racing(self, data: Data) -> tuple[list[Candidate], list[Candidate]]:
        """Who races, the simplest first, and who does not take the data."""
        if self.candidates is not None and not self.candidates:
            raise ValueError("candidates is empty; expected at least one name, or None for all")
        asked = [one for one in CANDIDATES if self.candidates is None or one.name in self.candidates]
        racing = [candidate for candidate in asked if candidate.takes(data)]
        classifiers = [one for one in racing if one.kind == CLASSES.kind and 2 * one.cost(data) <= data.work]
        if self.candidates is None and classifiers:
            # On no set of shared classes did PLDA or a forest add to classifiers; here these surely race.
            racing = [candidate for candidate in racing if candidate.kind in (METRIC.kind, CLASSES.kind)]
        if not racing:
            raise ValueError(
                f"none of the candidates {sorted(self.candidates or ())} takes this data ({data.d} features, "
                f"{'sparse' if data.sparse else 'dense'}): name others, or leave candidates out"
            )
        names = {one.name for one in racing}
        return racing, list({one.name: one for one in asked if one.name not in names}.values())

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def model_facts(self, feature_names: Sequence[str] | None = None) -> dict[str, Any]:
        """What a version says of itself: the winner and the race."""
        check_is_fitted(self)
        facts = _KINDS[self._kind].facts(self.model_, feature_names)
        return {**facts, "race": {"winner": self.winner_, "candidates": self.leaderboard_}}

    @property
    def unavailable_(self) -> frozenset[str]:
        """Capabilities that the winner lacks."""
        return frozenset({"embed"}) - _KINDS[self._kind].capabilities

    @property
    def _kind(self) -> str:
        return next(kind for kind, spec in _KINDS.items() if type(self.model_) is spec.estimator)

    @_winner_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: ArrayLike) -> Float32:
        """The winner's vectors; where it has none, there is no such method."""
        winner: Any = copy(self.model_)
        winner.set_output(transform=vars(self).get("_sklearn_output_config", {}).get("transform"))
        return winner.transform(self._validated(X, "X"))  # type: ignore[no-any-return]

    @_winner_has("transform")  # type: ignore[untyped-decorator]
    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Names of the columns of `transform`, of the winner's kind."""
        model: Any = self.model_
        return np.asarray(model.get_feature_names_out(input_features))

    @available_if(lambda self: not hasattr(self, "model_") or hasattr(self.model_, "transform"))  # type: ignore[untyped-decorator]
    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` returns: see scikit-learn's ``set_output``."""
        if transform is not None:
            # The name by which `clone` takes it along.
            self._sklearn_output_config = {"transform": transform}
        return self

    @_winner_has("explain")  # type: ignore[untyped-decorator]
    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The winner's account of one pair's score."""
        winner: Any = self.model_
        described = winner.explain(*self._one_pair(left, right), feature_names=feature_names)
        return {"learner": self._kind, **described}

    @property
    def aggregations(self) -> tuple[str, ...]:
        """The winner's, see `PairScorerMixin.aggregations`, the one that folds showed to be the best first."""
        ways = self.model_.aggregations
        usual = self.aggregation_ or ways[0]
        return (usual, *(way for way in ways if way != usual))

    def _prepared_subjects(self, sets: SampleSets, how: str) -> Any:
        return self.model_._prepared_subjects(self._taken_sets(sets), how)

    def _subject_score(self, left: Any, right: Any, how: str) -> Float32:
        return self.model_._subject_score(self._taken_sets(left), self._taken_sets(right), how)

    def _taken_sets(self, sets: Any) -> Any:
        return replace(sets, rows=self._as_taken(sets.rows)) if isinstance(sets, SampleSets) else sets

    def _validated(self, X: Any, name: str) -> Matrix:
        return self._as_taken(super()._validated(X, name))

    def _as_taken(self, rows: Any) -> Matrix:
        """Rows as the winner takes them, which dense ones it always does."""
        matrix: Matrix = rows if _KINDS[self._kind].accepts_sparse else _dense(rows)
        return matrix

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        return self.model_._pair_score(self._as_taken(left), self._as_taken(right))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        return self.model_._pairs_of(self._as_taken(rows))

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        return self.model_._index_arrays(self._as_taken(vectors))

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        return self.model_._score_rows(self._as_taken(queries), index, rows)

    def _top_k(self, queries: Matrix, index: GalleryIndex, limits: SearchLimits) -> TopK:
        return self.model_._top_k(self._as_taken(queries), index, limits)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        (arrays, facts), (own_arrays, meta) = super().to_state(), self.model_.to_state()
        params = jsonable_params(_KINDS[self._kind], self.model_)
        winner = {"kind": self._kind, "params": params, "meta": meta}
        return arrays | add_prefix(own_arrays, _WINNER), facts | {"model": winner}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave; an `ArtefactError` names the fact, or the array and its
        row, that no fit writes."""
        own = {name: arrays[name] for name in arrays if not name.startswith(_WINNER)}
        # Versions before 1.0 did not look at several samples.
        super().from_state(own, {"aggregation": None, **meta})
        if self.winner_ not in [entry.get("name") for entry in self.leaderboard_]:
            raise ArtefactError(
                f"winner is {self.winner_!r}; expected a candidate of leaderboard: restore the artefact or train again"
            )
        stored = checked_model(_Winner, meta["model"], "model.")
        model = model_of(_KINDS, stored.kind, stored.params, "model.")
        self.model_ = restore(model, arrays, _WINNER, stored.meta, self.n_features_in_)
        return self


def _is_sparse(rows: Any) -> bool:
    return bool(issparse(rows))


def _dense(rows: Any) -> Any:
    return rows.toarray() if _is_sparse(rows) else rows


def _order_by_content(rows: Float32) -> Int64:
    """Order of rows, (n, d), by their bytes; equal ones as they stand."""
    # Adding 0 rids rows of negative zeros, whose bytes are others.
    plain = np.ascontiguousarray(rows + np.float32(0.0))
    return np.argsort(plain.view(f"V{plain.itemsize * plain.shape[1]}").ravel(), kind="stable")


def _dense_enough(rows: Any) -> Any:
    """Sparse rows of few features as dense ones, which every candidate takes."""
    small = _is_sparse(rows) and rows.shape[0] * rows.shape[1] <= DENSE_CELLS and rows.shape[1] <= 4_096
    return _dense(rows) if small else rows


AUTO = LearnerSpec(
    kind="similarity-auto",
    title="Automatic: compares cosine, PLDA, forests and others on held-out people, keeps the simplest of the best",
    estimator=SimilarityAuto,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    distributes=True,
    facts=SimilarityAuto.model_facts,
    settled=SimilarityAuto.settled,
)
