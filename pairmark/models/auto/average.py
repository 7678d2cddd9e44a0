"""The mean of similarities that are as good together, each by its ranks among the folds' negative pairs.

Picking one of several that are level is a lottery of rows and seeds; their mean is as good as the best of them, and
better where they err on other pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from sklearn.base import BaseEstimator

from pairmark.models.auto.candidates import RACING, Candidate, Data
from pairmark.models.auto.race import FAR_AHEAD, Entry, fit_estimator, to_the_end
from pairmark.models.classes.estimator import CLASSES
from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, Matrix, NDArray
from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.scores import PairsOfRows
from pairmark.models.core.search import GalleryIndex, Rows
from pairmark.models.core.spec import LearnerSpec, document_parameters, jsonable_params
from pairmark.models.core.state import (
    Fact,
    State,
    add_prefix,
    checked_model,
    current_params,
    without_prefix,
)
from pairmark.models.evaluation.validation import GroupedRows, fold_means, other_folds, pooled_rates

_MOST, _KNOTS, _FAR = 4, 96, 1e6
"""Members; knots of a scale, and how many widths of it the outermost are away."""
AVERAGE_NAME = "average"


class Member(BaseModel):
    """One of them; ``knots``, ascending scores, and what each stands for."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    kind: str
    params: dict[str, Any]
    knots: list[float] = Field(min_length=2, max_length=_KNOTS + 2)
    values: list[float] = Field(min_length=2, max_length=_KNOTS + 2)

    def on_scale(self, scores: NDArray[np.floating] | float) -> Float64:
        """Minus the log of the share of negative pairs above each score."""
        return np.asarray(np.interp(scores, self.knots, self.values))


def scale_of(negative: NDArray[np.floating]) -> dict[str, list[float]]:
    """Knots and values from scores of negative pairs; beyond them it rises as from the median to the highest."""
    scores = np.sort(negative.astype(np.float64))
    n = scores.size
    # Knots: a third evenly through the scores, the others denser and denser towards the highest, where rates are asked.
    below = np.unique(
        np.r_[np.linspace(0, n - 1, _KNOTS // 3), n - np.geomspace(1, n, _KNOTS - _KNOTS // 3)].astype(int)
    )
    knots, inverse = np.unique(scores[below], return_inverse=True)
    # Of equal scores the last one says how many are above.
    values = np.full(knots.size, -np.inf)
    np.maximum.at(values, inverse, -np.log((n - below) / (n + 1.0)))
    width = max(float(np.ptp(knots)), 1e-9)
    # Straight on from the median to the highest.
    middle = int(np.searchsorted(values, min(np.log(2.0), values[-1])))
    slope = max(float(values[-1] - values[middle]), 0.01) / max(
        float(knots[-1] - knots[middle]), 1e-3 * width
    )
    return {
        "knots": [knots[0] - _FAR * width, *knots.tolist(), knots[-1] + _FAR * width],
        "values": [values[0] - 0.01 * _FAR, *values.tolist(), values[-1] + slope * _FAR * width],
    }


def finalists(means: Float64, mean_rate: Callable[[list[int]], float], reach: float) -> list[int]:
    """The best of candidates, (n_candidates, n_folds), and of the next ones those that raise what they reach together;
    one far behind raises it by luck.

    ``mean_rate`` : of the mean of candidates by number, what it reaches on the same folds. ``reach`` : what it may lose
    by another one: of few rows, a loss that small is luck.
    """
    order = [int(number) for number in np.argsort(-means.mean(axis=1), kind="stable")]
    chosen, reached = order[:1], float(means[order[0]].mean())
    others = [one for one in order[1:] if reached - means[one].mean() <= max(FAR_AHEAD, reach)]
    for number in others[: _MOST - 1]:
        together = mean_rate([*chosen, number])
        if together > reached - reach:
            chosen, reached = [*chosen, number], together
    return chosen


def average(
    entries: Sequence[Entry],
    data: Data,
    folds: Sequence[Any],
    fprs: tuple[float, ...],
    shared: dict[str, Any],
) -> Entry | None:
    """The mean of those that are as good together, as an entry; None where one is better alone."""
    eligible, reach = to_the_end(entries), data.reach
    if data.closed:
        eligible = [entry for entry in eligible if entry.candidate.kind == CLASSES.kind]
    if reach is None or len(eligible) < 2:
        return None
    # 1. One scale: learners share no unit, so each score stands for the share of negative pairs above it.
    means, members, values = np.stack([entry.means for entry in eligible]), [], []
    for entry in eligible:
        model = entry.candidate.build({**entry.params, **entry.candidate.grown(data)}, shared)
        params = jsonable_params(RACING[entry.candidate.kind], model)
        scale = scale_of(np.concatenate([negative for _, negative in entry.scores]))
        members.append(Member(kind=entry.candidate.kind, params=params, **scale))
        values.append([[members[-1].on_scale(side) for side in fold] for fold in entry.scores])

    def mean_scores(fold: int, numbers: Sequence[int]) -> Any:
        return tuple(np.mean([values[number][fold][side] for number in numbers], axis=0) for side in (0, 1))

    def chosen_on(some: NDArray[Any]) -> list[int]:
        def mean_rate(numbers: list[int]) -> float:
            return float(fold_means(pooled_rates([mean_scores(fold, numbers) for fold in some], fprs)).mean())

        return finalists(means[:, some], mean_rate, reach)

    # 2. Who is in it: by all folds for the model that is kept, ...
    chosen = chosen_on(np.arange(len(folds)))
    if len(chosen) < 2:
        return None
    scores = [mean_scores(fold, chosen) for fold in range(len(folds))]
    # 3. ... and for figures without the optimism of a choice, on each fold by the others alone.
    nested = [
        mean_scores(fold, chosen_on(np.flatnonzero(is_other)))
        for fold, is_other in enumerate(other_folds(folds))
    ]
    return Entry(
        candidate=Candidate(name=AVERAGE_NAME, kind=AVERAGE.kind),
        params={"members": [eligible[number].name for number in chosen]},
        rates=pooled_rates(scores, fprs),
        scores=scores,
        nested_rates=pooled_rates(nested, fprs),
        model=AverageSimilarity(members=[members[number].model_dump() for number in chosen]),
    )


@document_parameters
class AverageSimilarity(GroupedRows, BaseEstimator):
    """The mean of similarities on one scale. `SimilarityAuto` makes it."""

    states_: Annotated[list[dict[str, Any]], Fact()]
    models_: list[Any]
    _missing = "median"

    def __init__(
        self,
        *,
        members: Annotated[
            list[dict[str, Any]],
            Field(min_length=2, max_length=_MOST, description="kind, parameters and scale of each"),
        ],
    ) -> None:
        self.members = members

    def _learn_identities(self, rows: Float32, codes: Int64, identities: NDArray[Any]) -> None:
        self._begin()
        self.models_ = [fit_estimator(model, rows, identities[codes], self._groups) for model in self.models_]

    def _learn_pairs(self, left: Float32, right: Float32, same: Bool, weight: Float64) -> None:
        self._begin()
        self.models_ = [model.fit_pairs(left, right, same, sample_weight=weight) for model in self.models_]

    def _begin(self) -> None:
        """Members without anything learned; an `OutdatedModel` names a kind that there is none of."""
        self._scales = [checked_model(Member, member, "params.members.") for member in self.members]
        self.models_ = [
            model_of(RACING, scale.kind, scale.params, "params.members.") for scale in self._scales
        ]

    def _mean(self, scores: Sequence[NDArray[np.floating]]) -> Float32:
        parts = [scale.on_scale(part) for scale, part in zip(self._scales, scores, strict=True)]
        return np.asarray(np.mean(parts, axis=0), dtype=np.float32)

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        return self._mean([model._pair_score(left, right) for model in self.models_])

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """What each of the ``members`` says of one pair; a ``contribution`` is its part of the ``score``, their sum."""
        sides = self._one_pair(left, right)
        scores = [float(model._pair_score(*sides)[0]) for model in self.models_]
        members = [
            {"kind": scale.kind, "score": score, "contribution": float(scale.on_scale(score) / len(scores))}
            for scale, score in zip(self._scales, scores, strict=True)
        ]
        return {"score": float(self._pair_score(*sides)[0]), "members": members}

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        scorers = [model._pairs_of(rows) for model in self.models_]
        return lambda left, right: self._mean([score(left, right) for score in scorers])

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        return _join_arrays([model._index_arrays(vectors) for model in self.models_])

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        scores = []
        for number, model in enumerate(self.models_):
            part = GalleryIndex(vectors=index.vectors, arrays=without_prefix(index.arrays, f"{number}-"))
            scores.append(model._score_rows(queries, part, rows))
        return self._mean(scores)

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        states = [model.to_state() for model in self.models_]
        self.states_ = [meta for _, meta in states]
        own_arrays, facts = super().to_state()
        return _join_arrays([arrays for arrays, _ in states]) | own_arrays, facts

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """This estimator, fitted with what `to_state` gave; see `Stateful.from_state`."""
        self._begin()
        prefixes = tuple(f"{number}-" for number in range(len(self.models_)))
        own = {name: array for name, array in arrays.items() if not name.startswith(prefixes)}
        super().from_state(own, meta)
        for model, prefix, its_meta in zip(self.models_, prefixes, self.states_, strict=True):
            restore(model, arrays, prefix, its_meta, self.n_features_in_)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")


def _join_arrays(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Arrays of every member, by its number and their names."""
    return {
        name: array
        for number, part in enumerate(parts)
        for name, array in add_prefix(part, f"{number}-").items()
    }


def model_of(kinds: Mapping[str, LearnerSpec], kind: str, params: Mapping[str, Any], before: str) -> Any:
    """An unfitted model of stored parameters; an `OutdatedModel` names, behind ``before``, a kind that is not known."""
    if kind not in kinds:
        raise OutdatedModel(f"{before}kind is {kind[:80]!r}; expected one of {', '.join(kinds)}")
    return kinds[kind].estimator(**current_params(kinds[kind], params, f"{before}params."))


def restore(
    model: Any, arrays: Mapping[str, Any], prefix: str, meta: Mapping[str, Any], n_features: int
) -> Any:
    """The model, fitted with its arrays among those of the other; an `ArtefactError` names them as they stand there."""
    own_meta = {**meta, "n_features_in": n_features, "feature_names_in": None}
    try:
        return model.from_state(without_prefix(arrays, prefix), own_meta)
    except ArtefactError as error:
        raise type(error)(str(error).replace("array '", f"array '{prefix}")) from error


AVERAGE = LearnerSpec(
    kind="average",
    title="The mean of similarities that are level",
    estimator=AverageSimilarity,
    capabilities=frozenset({"similarity", "match", "search"}),
)
