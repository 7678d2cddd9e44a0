"""The states of fitted label rankers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.artefact import OutdatedModel
from pairmark.models.core.state import Array, Fact, State, StateRecord, StoredState, refuse
from pairmark.models.label_ranking.base import RankerBase
from pairmark.models.label_ranking.candidates import CANDIDATE_CLASSES, Candidate
from pairmark.models.label_ranking.pair_models import STORED, PairModels, UserPairs
from pairmark.models.label_ranking.trees import Trees, require_trees


class TreesState(RankerBase):
    """Trees, and the training rankings that their leaves hold."""

    trees_: Annotated[Trees, StateRecord()]
    positions_: Annotated[Float32, Array(shape=("rows", "n_labels"), nan=True)]
    targets_: Annotated[Float64, Array(shape=("rows", "n_labels"))]

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        super()._relate(file)
        require_trees(file, "")


class PairwiseState(RankerBase):
    """The built-in pair models."""

    estimator: Any
    models_: Annotated[
        PairModels, StateRecord(prefix="pairs_", of=lambda file, _: STORED[file.params["estimator"]])
    ]
    modelled_: Annotated[NDArray[np.int64], Array(shape=("models",), below="pairs", order="rising")]
    constant_: Annotated[Float64, Array(shape=("pairs",), low=0, high=1)]
    unseen_pairs_: Annotated[NDArray[np.int64], Array(shape=("unseen", 2), below="n_labels")]

    def to_state(self) -> State:
        """As `Stateful.to_state`; a `ValueError` when the classifier is one of the user's own."""
        if isinstance(self.models_, UserPairs):
            raise ValueError(
                f"a PairwiseLabelRanker of {type(self.estimator).__name__} cannot be saved, since files hold plain "
                "arrays and no objects: use estimator='logistic', 'forest' or 'tree'"
            )
        return super().to_state()

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        return {**super()._sizes(file), "models": file.length("modelled")}


class LabelRankingAutoState(RankerBase):
    """Every kept candidate, its number in the names of its arrays, and the weights."""

    _member_names: Annotated[list[str], Fact(name="members"), Field(min_length=1)]
    members_: Annotated[
        dict[str, Candidate],
        StateRecord(
            prefix="member{0}_",
            each=lambda file: file.facts.members,
            of=lambda _, name: _candidate_class(name),
        ),
    ]
    weights_: Annotated[dict[str, float], Fact()]
    tau_: Annotated[dict[str, float], Fact()]
    blend_tau_: Annotated[float, Fact()]
    aggregation_: Annotated[Literal["borda", "copeland", "kemeny"], Fact()]

    def _restored(self) -> None:
        # Adding up the blend in another order would change its last bits.
        self.weights_ = {name: self.weights_[name] for name in self._member_names}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        super()._relate(file)
        names = file.facts.members
        if len(set(names)) < len(names) or set(names) - file.facts.weights.keys():
            raise refuse("members", None, f"is {names} in the manifest", "each once, with a weight")


def _candidate_class(name: str) -> Any:
    """What holds the state of a candidate of that name; an `OutdatedModel` where there is none any more."""
    if name not in CANDIDATE_CLASSES:
        raise OutdatedModel(f"members has {name[:80]!r}; expected some of {', '.join(CANDIDATE_CLASSES)}")
    return CANDIDATE_CLASSES[name]
