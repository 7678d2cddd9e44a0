"""How several samples of a subject are compared: the way that identities held out of the race's folds tell.

Exact PLDA takes samples of one identity to be independent. Where they are not (photos of one sitting), it counts them
more than they tell, and the best or the mean of the scores of samples may recognise more. So the winner of the race is
fitted on folds once more, and its ways are compared on held-out subjects of two, five and ten samples against one
sample and against as many, and on subjects of different numbers. The learner's own way stays unless another one is
ahead by more than a standard error of the mean difference, fold by fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.auto.race import IdentityTask
from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.subjects import OF_SCORES, SampleSets, scored
from pairmark.models.evaluation.validation import Fold, fold_means, resolved_tpr
from pairmark.models.pairs.sampling import SubjectPairs, TooFewSamples, subject_pairs

SIZES: Final = (2, 5, 10)
"""Numbers of samples that ways are compared at, if `LEAST_PEOPLE` held-out people have one more."""
LEAST_PEOPLE: Final = 15
_PAIRS, _CELLS = 2_000, 50_000
"""Most pairs of subjects of a fold and a number of samples, and about how many pairs of samples they make."""
_FEWEST_PAIRS = 500

Way = Literal["mean", "plda", "best", "median"]


class SampleRule(BaseModel):
    """What ``aggregation="auto"`` does for subjects of so many samples, and what folds say of each way.

    Attributes
    ----------
    samples : of the two sides, the larger number first; None: of different numbers.
    aggregation : the way chosen. mean_tpr : by way, over ``folds`` folds and the rates that they resolve.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    samples: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2, max_length=2)] | None
    aggregation: Way
    mean_tpr: dict[Way, Annotated[float, Field(ge=0, le=1)]]
    folds: Annotated[int, Field(ge=2)]


class _SampleClass(NamedTuple):
    """Subjects of k samples, or of 1 to k, against p."""

    k: int
    p: int
    varies: bool = False

    def draw(self, codes: Int64, seed: int) -> tuple[SubjectPairs, SampleSets]:
        """Pairs of rows' subjects, and the numbers of their rows."""
        n_pairs = max(_FEWEST_PAIRS, min(_PAIRS, _CELLS // (self.k * self.p)))
        pairs = subject_pairs(codes, self.k, self.p, n_pairs=n_pairs, random_state=seed)
        index, counts = pairs.index, pairs.counts
        if self.varies:
            n = counts.size // 2
            sizes = np.random.default_rng(seed).integers(1, self.k + 1, n)
            enrolled = index[: n * self.k].reshape(n, self.k)[np.arange(self.k) < sizes[:, None]]
            index, counts = np.append(enrolled, index[n * self.k :]), np.append(sizes, counts[n:])
        return pairs, SampleSets(rows=np.arange(codes.size), index=index, counts=counts)


def sample_rules(
    task: IdentityTask,
    folds: Sequence[Fold],
    build: Callable[[], Any],
    at: tuple[float, ...],
    seed: int,
    n_jobs: int | None,
) -> list[SampleRule]:
    """Rules of a learner by number of samples, last for different numbers; none where too few people have several.

    Parameters
    ----------
    folds : those of ``task`` to judge on; of shared classes nothing is compared.
    build : makes the learner, unfitted.
    at : false positive rates, falling, over those of which that a fold resolves the TPR is averaged.
    """
    classes = _classes(folds)
    if not classes:
        return []
    ways: tuple[Way, ...] = build().aggregations
    rates = np.stack(
        Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_rates)(task, build(), fold, classes, at, [seed, number])
            for number, fold in enumerate(folds)
        )
    )
    rules = [_rule(cls, ways, rates[:, number]) for number, cls in enumerate(classes)]
    return [rule for rule in rules if rule is not None]


def _classes(folds: Sequence[Fold]) -> list[_SampleClass]:
    """What enough people of a repeat have the samples for."""
    own = [fold.test_codes for fold in folds if not fold.closed and fold.repeat == folds[0].repeat]
    counts = np.concatenate([np.bincount(codes) for codes in own]) if own else np.empty(0, dtype=np.int64)

    def suffices(n_samples: int) -> bool:
        return bool(np.count_nonzero(counts >= n_samples) >= LEAST_PEOPLE)

    sizes = [size for size in SIZES if suffices(size + 1)]
    classes = [_SampleClass(k, p) for k in sizes for p in (1, k) if suffices(k + p)]
    return [*classes, _SampleClass(sizes[-1], 1, varies=True)] if sizes else []


def _rates(
    task: IdentityTask,
    estimator: Any,
    fold: Fold,
    classes: Sequence[_SampleClass],
    at: tuple[float, ...],
    seed: list[int],
) -> Float64:
    """Mean TPR of each class and way, (n_classes, n_ways); NaN where the fold has no pairs of both kinds."""
    ways, rows = estimator.aggregations, task.X[fold.test]
    rates = np.full((len(classes), len(ways)), np.nan)
    try:
        estimator.fit(task.X[fold.train], task.codes[fold.train])
    except ValueError:
        # Nothing to learn in this fold.
        return rates
    square = estimator.score_against(rows, rows)
    for number, cls in enumerate(classes):
        try:
            pairs, sets = cls.draw(
                fold.test_codes, int(np.random.default_rng([*seed, number]).integers(2**31))
            )
        except TooFewSamples:
            continue
        if not pairs.same.any() or pairs.same.all():
            continue
        for column, way in enumerate(ways):
            if way in OF_SCORES:
                scores = scored(lambda a, b: square[a, b], sets.take(pairs.left), sets.take(pairs.right), way)
            else:
                subjects = estimator._prepared_subjects(
                    SampleSets(rows=rows, index=sets.index, counts=sets.counts), way
                )
                scores = estimator._subject_score(subjects.take(pairs.left), subjects.take(pairs.right), way)
            tpr = resolved_tpr(scores[pairs.same], scores[~pairs.same], at)
            rates[number, column] = float(fold_means(tpr))
    return rates


def _rule(cls: _SampleClass, ways: tuple[Way, ...], rates: Float64) -> SampleRule | None:
    """The choice by rates, (n_folds, n_ways): the first way, unless another is ahead beyond chance."""
    rates = rates[~np.isnan(rates).any(axis=1)]
    if rates.shape[0] < 2:
        return None
    best = int(rates.mean(axis=0).argmax())
    lead = rates[:, best] - rates[:, 0]
    if lead.mean() <= lead.std(ddof=1) / np.sqrt(lead.size):
        best = 0
    return SampleRule(
        samples=None if cls.varies else [cls.k, cls.p],
        aggregation=ways[best],
        mean_tpr=dict(zip(ways, rates.mean(axis=0).tolist(), strict=True)),
        folds=rates.shape[0],
    )
