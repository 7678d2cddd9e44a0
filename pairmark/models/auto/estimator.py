"""`SimilarityAuto`: compares candidates on held-out identities, and fits the winner on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from pairmark.models.auto.candidates import CANDIDATES, DENSE_CELLS, RACING, Candidate, Data
from pairmark.models.auto.params import CandidateName, SimilarityAutoParams
from pairmark.models.auto.race import Entry, IdentityTask, PairTask, Race, Task, leaderboard, winner
from pairmark.models.auto.state import AutoState
from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.core.base import Float32, GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.core.checkpoints import Checkpoints, checkpoints_of
from pairmark.models.core.progress import preparing, report
from pairmark.models.core.row_pairs import PairsOfRows
from pairmark.models.core.spec import check_params
from pairmark.models.core.subjects import SampleSets, SubjectIndex
from pairmark.models.evaluation.pair_folds import pair_folds
from pairmark.models.evaluation.validation import (
    judged_rates,
    learner_protocol,
    some_rows,
    validation_folds,
)
from pairmark.models.pairs.listed import some_pairs
from pairmark.models.search.index import Found, Rows

RACE_VERSION = 6
"""Raised when a race of the same seed would come out otherwise, so that none goes on from parts of another kind."""


def _winner_has(name: str) -> Any:
    return available_if(lambda self: hasattr(self, "model_") and hasattr(self.model_, name))


class SimilarityAuto(AutoState, PairScorerMixin, BaseEstimator):
    """Race simple and strong similarities on held-out identities, and be the winner.

    Cosine, whitened cosine, cosine of discriminant coordinates, PLDA and trees over its ratio always race; forests and
    others follow as the budget allows, by successive halving. Everybody is judged on the same twice four folds, which
    hold identities out (rows, where classes are shared), by the mean true positive rate at low false positive rates.
    The simplest candidate within one standard error of the best, paired fold by fold, wins and learns from all rows.

    Parameters
    ----------
    candidates : names of those that race; None: all that take the data.
    budget_seconds : wall seconds after which no slow candidate is begun, so what races then depends on the machine;
        ``leaderboard_`` records it. The quick ones depend on data and seed alone.
    protocol : ``open-set`` holds identities out, ``closed-set`` rows; ``auto``: open-set from 15 identities on.
    target_fpr : false positive rate to judge around; None: the mean over .1, .03, .01 and .003.
    max_rows : most rows of the race.
    random_state : seed of folds and candidates.
    n_jobs : threads of candidates that use several.
    verbose : 1 prints a line a candidate.

    Attributes
    ----------
    model_ : the winner, fitted to all rows. winner_ : its name.
    leaderboard_ : list of dicts, best first; see `pairmark.models.auto.race.leaderboard`.
    """

    def __init__(
        self,
        *,
        candidates: list[CandidateName] | None = None,
        budget_seconds: float = 120.0,
        protocol: str = "auto",
        target_fpr: float | None = None,
        max_rows: int = 10_000,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.candidates = candidates
        self.budget_seconds = budget_seconds
        self.protocol = protocol
        self.target_fpr = target_fpr
        self.max_rows = max_rows
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    _accepts_sparse = True

    def _check_params(self) -> None:
        check_params(self, SimilarityAutoParams)

    def _learn_identities(self, rows: Any, codes: Int64, identities: NDArray[Any]) -> None:
        rows = _dense_enough(rows)
        seed = self._seed()
        random = np.random.default_rng(seed)
        n_classes = int(codes.max()) + 1
        protocol = learner_protocol(self.protocol, n_classes)
        some = some_rows(codes, random, self.max_rows)
        place = np.unique(codes[some], return_inverse=True)[1]
        raced = rows[some]
        task = IdentityTask(
            X=raced,
            codes=place,
            folds=validation_folds(place, protocol, random),
            data=_data(rows, n_classes, protocol == "closed-set", pairs=False),
        )
        self._race(task, self._shelf(seed, raced, place), seed, lambda model: model.fit(rows, codes))

    def _learn_pairs(self, left: Any, right: Any, same: Bool, weight: Float64) -> None:
        a, b = _dense_enough(left), _dense_enough(right)
        if _is_sparse(a) != _is_sparse(b):
            a, b = _dense(a), _dense(b)
        seed = self._seed()
        random = np.random.default_rng(seed)
        some = some_pairs(same, weight, 2 * self.max_rows, random)
        left, right, weights = a[some], b[some], weight[some]
        # Connected groups of points that same pairs join are held out (open-set), or points, with the pairs among them;
        # pairs across are left out of that fold.
        held = pair_folds(left, right, same[some], weights, self.protocol, random)
        task = PairTask(
            left=left,
            right=right,
            same=same[some],
            weight=weights,
            folds=held.folds,
            data=_data(a, held.n_groups, held.closed, pairs=True),
        )
        kept = self._shelf(seed, left, same[some])
        sample_weight = None if (weight == 1).all() else weight
        self._race(task, kept, seed, lambda model: model.fit_pairs(a, b, same, sample_weight=sample_weight))

    def _race(self, task: Task, kept: Checkpoints | None, seed: int, fit: Any) -> None:
        at = judged_rates(self.target_fpr)
        racing = self._racing(task.data)
        shared = {
            "random_state": seed,
            "n_jobs": self.n_jobs,
            "protocol": "closed-set" if task.data.closed else "open-set",
            "target_fpr": self.target_fpr,
        }
        # Matrices of a few hundred features gain nothing from several threads, which would stand in others' way.
        with one_blas_thread():
            if task.folds:
                race = Race(
                    task,
                    at=at,
                    shared=shared,
                    budget_seconds=self.budget_seconds,
                    kept=kept,
                    verbose=self.verbose,
                )
                entries = race.run(racing)
                chosen = winner(entries)
            else:
                # Too little to hold any of it out: the simplest.
                entries = [Entry(candidate=racing[0], params={}, rates=np.empty((0, len(at))))]
                chosen = entries[0]
                chosen.status = "not raced: too few rows to hold any out"
            report(0.75, f"learning {chosen.candidate.name}")
            model = chosen.candidate.build(task.data, chosen.params, shared)
            with preparing(f"learning {chosen.candidate.name}"):
                self.model_ = fit(model)
        self.winner_ = chosen.candidate.name
        self.leaderboard_ = leaderboard(entries, chosen, at)

    def _racing(self, data: Data) -> list[Candidate]:
        asked = None if self.candidates is None else set(self.candidates)
        if asked is not None and not asked:
            raise ValueError("candidates is empty; expected at least one name, or None for all")
        found = [one for one in CANDIDATES if (asked is None or one.name in asked) and one.takes(data)]
        if not found:
            raise ValueError(
                f"none of the candidates {sorted(asked or ())} takes this data ({data.d} features, "
                f"{'sparse' if data.sparse else 'dense'}): name others, or leave candidates out"
            )
        return found

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _shelf(self, seed: int, rows: Any, codes: NDArray[Any]) -> Checkpoints | None:
        described = {
            "learner": "similarity-auto",
            "race": RACE_VERSION,
            "seed": seed,
            "protocol": self.protocol,
            "target_fpr": self.target_fpr,
            "max_rows": self.max_rows,
        }
        if _is_sparse(rows):
            return checkpoints_of(described, rows.data, rows.indices, rows.indptr, codes)
        return checkpoints_of(described, rows, codes)

    def model_facts(self, feature_names: Sequence[str] | None = None) -> dict[str, Any]:
        """What a version says of itself: the winner and the race."""
        check_is_fitted(self)
        facts = self._winner.model_facts(feature_names) if hasattr(self.model_, "model_facts") else {}
        return {**facts, "race": {"winner": self.winner_, "candidates": self.leaderboard_}}

    @property
    def _winner(self) -> Any:
        """The winner, with what it has beyond scores of pairs."""
        return self.model_

    @property
    def unavailable_(self) -> frozenset[str]:
        """Capabilities that the winner lacks."""
        return frozenset({"embed"}) - RACING[self._kind].capabilities

    @property
    def _kind(self) -> str:
        return next(kind for kind, spec in RACING.items() if type(self.model_) is spec.estimator)

    @_winner_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: ArrayLike) -> Float32:
        """The winner's vectors; where it has none, there is no such method."""
        return np.asarray(self._winner.transform(self._validated(X, "X")))

    @_winner_has("explain")  # type: ignore[untyped-decorator]
    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """The winner's account of one pair's score."""
        described: dict[str, Any] = self._winner.explain(left, right, feature_names=feature_names)
        return {"learner": self._kind, **described}

    @property
    def aggregations(self) -> tuple[str, ...]:
        """The winner's, see `PairScorerMixin.aggregations`."""
        return self.model_.aggregations

    def _prepared_subjects(self, sets: SampleSets, how: str) -> Any:
        return self.model_._prepared_subjects(self._taken_sets(sets), how)

    def _subject_score(self, left: Any, right: Any, how: str) -> Float32:
        return self.model_._subject_score(self._taken_sets(left), self._taken_sets(right), how)

    def _indexed_subjects(self, sets: SampleSets, how: str) -> SubjectIndex:
        return self.model_._indexed_subjects(self._taken_sets(sets), how)

    def _top_k_subjects(
        self,
        queries: SampleSets,
        index: SubjectIndex,
        k: int,
        allowed: NDArray[np.bool_] | None,
        above: np.float32 | None,
    ) -> Found:
        return self.model_._top_k_subjects(self._taken_sets(queries), index, k, allowed, above)

    def _taken_sets(self, sets: Any) -> Any:
        return replace(sets, rows=self._taken(sets.rows)) if isinstance(sets, SampleSets) else sets

    def _validated(self, X: Any, name: str) -> Matrix:
        return self._taken(super()._validated(X, name))

    def _taken(self, rows: Any) -> Matrix:
        """Rows as the winner takes them, which dense ones it always does."""
        taken: Matrix = rows if RACING[self._kind].accepts_sparse else _dense(rows)
        return taken

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        return self.model_._pair_score(self._taken(left), self._taken(right))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        return self.model_._pairs_of(self._taken(rows))

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        return self.model_._index_arrays(self._taken(vectors))

    def _passing_index(self, vectors: Matrix) -> GalleryIndex:
        return self.model_._passing_index(self._taken(vectors))

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        return self.model_._score_rows(self._taken(queries), index, rows)

    def _top_k(
        self,
        queries: Matrix,
        index: GalleryIndex,
        k: int,
        allowed: NDArray[np.bool_] | None,
        above: np.float32 | None,
    ) -> Found:
        return self.model_._top_k(self._taken(queries), index, k, allowed, above)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def _data(rows: Any, n_classes: int, closed: bool, *, pairs: bool) -> Data:
    return Data(
        n=int(rows.shape[0]),
        d=int(rows.shape[1]),
        n_classes=n_classes,
        closed=closed,
        sparse=_is_sparse(rows),
        pairs=pairs,
    )


def _is_sparse(rows: Any) -> bool:
    return bool(issparse(rows))


def _dense(rows: Any) -> Any:
    return rows.toarray() if _is_sparse(rows) else rows


def _dense_enough(rows: Any) -> Any:
    """Sparse rows of few features as dense ones, which every candidate takes."""
    small = _is_sparse(rows) and rows.shape[0] * rows.shape[1] <= DENSE_CELLS and rows.shape[1] <= 4_096
    return _dense(rows) if small else rows
