"""Fitted label rankers as named arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.schema import Array, Facts, Loaded, State, StateSchema, refuse, require
from pairmark.models.label_ranking.base import RankerBase
from pairmark.models.label_ranking.candidates import Candidate, restore_candidate
from pairmark.models.label_ranking.pair_models import (
    FOREST_TREES,
    LogisticPairs,
    PairModels,
    TreePairs,
    restore_pairs,
)
from pairmark.models.label_ranking.rankings_data import MAX_LABELS
from pairmark.models.label_ranking.schema import logistic_layout, n_pairs, require_trees, trees_layout
from pairmark.models.label_ranking.trees import Trees


class TreesState(RankerBase):
    """Trees, and the training rankings that their leaves hold."""

    trees_: Trees
    positions_: Float32
    targets_: Float64

    def to_state(self) -> State:
        arrays, meta = super().to_state()
        arrays |= self.trees_.arrays()
        return arrays | {"positions": self.positions_, "targets": self.targets_}, meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        self.trees_ = Trees.restore(arrays)
        self.positions_, self.targets_ = arrays["positions"], arrays["targets"]
        return super().from_state(arrays, meta)


class PairwiseState(RankerBase):
    """The built-in pair models."""

    estimator: Any
    models_: PairModels
    modelled_: NDArray[np.intp]
    constant_: Float64
    unseen_pairs_: NDArray[np.intp]

    def to_state(self) -> State:
        """As `RankerBase.to_state`; a `ValueError` when the classifier is one of the user's own."""
        models = self.models_
        if not isinstance(models, LogisticPairs | TreePairs):
            raise ValueError(
                f"a PairwiseLabelRanker of {type(self.estimator).__name__} cannot be saved, since files hold plain "
                "arrays and no objects: use estimator='logistic', 'forest' or 'tree'"
            )
        arrays, meta = super().to_state()
        arrays |= {f"pairs_{name}": array for name, array in models.arrays().items()}
        arrays |= {
            "modelled": self.modelled_.astype(np.int64),
            "constant": self.constant_,
            "unseen_pairs": self.unseen_pairs_.astype(np.int64),
        }
        return arrays, meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        self.models_ = restore_pairs(self.estimator, arrays)
        self.modelled_ = np.asarray(arrays["modelled"], dtype=np.intp)
        self.constant_ = np.asarray(arrays["constant"])
        self.unseen_pairs_ = np.asarray(arrays["unseen_pairs"], dtype=np.intp)
        return super().from_state(arrays, meta)


class AutoState(RankerBase):
    """Every kept candidate's arrays, named by its number, and the weights."""

    members_: dict[str, Candidate]
    weights_: dict[str, float]
    tau_: dict[str, float]
    blend_tau_: float
    aggregation_: str

    def to_state(self) -> State:
        arrays, meta = super().to_state()
        for number, member in enumerate(self.members_.values()):
            arrays |= {f"member{number}_{name}": np.asarray(array) for name, array in member.arrays().items()}
        meta |= {
            "members": list(self.members_),
            "weights": self.weights_,
            "tau": self.tau_,
            "blend_tau": self.blend_tau_,
            "aggregation": self.aggregation_,
        }
        return arrays, meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        self.members_ = {}
        for number, name in enumerate(meta["members"]):
            self.members_[name] = restore_candidate(name, arrays, f"member{number}_")
        # Adding up the blend in another order would change its last bits.
        self.weights_ = {name: float(meta["weights"][name]) for name in meta["members"]}
        self.tau_ = {name: float(tau) for name, tau in meta["tau"].items()}
        self.blend_tau_ = float(meta["blend_tau"])
        self.aggregation_ = str(meta["aggregation"])
        return super().from_state(arrays, meta)


class RankerFacts(Facts):
    """What every saved ranker says beside its arrays."""

    n_labels: int = Field(ge=2, le=MAX_LABELS)


class AutoFacts(RankerFacts):
    """What a saved blend says beside its arrays."""

    members: list[Literal["extra-trees", "forest", "neighbours", "kernel", "boosting", "logistic"]] = Field(
        min_length=1
    )
    weights: dict[str, float]
    tau: dict[str, float]
    blend_tau: float
    aggregation: Literal["borda", "copeland", "kemeny"]


def _of_all(layout: Callable[[Loaded], dict[str, Array]]) -> Callable[[Loaded], dict[str, Array]]:
    """A layout with the arrays of every ranker."""

    def whole(loaded: Loaded) -> dict[str, Array]:
        k = loaded.facts.n_labels
        return {
            "label_order": Array(kind="int64", shape=(k,), below=k),
            "calibration": Array(kind="float64", shape=(2, "knots"), low=0, high=1),
        } | layout(loaded)

    return whole


def _labels(loaded: Loaded) -> None:
    order, knots = loaded.arrays["label_order"], loaded.arrays["calibration"]
    counts = np.bincount(order, minlength=loaded.facts.n_labels)
    require(counts[order] == 1, "label_order", order, "each label once")
    if knots.shape[1] < 1:
        raise refuse("calibration", None, "has no columns", "one or more")
    rising = np.diff(knots[0], prepend=knots[0, :1]) >= 0
    require(rising[None, :], "calibration", knots[:1], "shares that never fall")


def _trees(loaded: Loaded) -> dict[str, Array]:
    k = loaded.facts.n_labels
    return trees_layout("", loaded.n_features, "rows") | {
        "positions": Array(kind="float32", shape=("rows", k), nan=True),
        "targets": Array(kind="float64", shape=("rows", k)),
    }


def _grown(loaded: Loaded) -> None:
    require_trees(loaded, "")
    n, k = loaded.arrays["roots"].size, loaded.facts.n_labels
    each = 1 if loaded.params["outputs"] == "joint" else k
    if n == 0 or n % each:
        raise refuse("roots", None, f"has {n} rows", f"a multiple of {each}, and one tree at least")


def _pairs(loaded: Loaded) -> dict[str, Array]:
    k, d = loaded.facts.n_labels, loaded.n_features
    layout = {
        "modelled": Array(kind="int64", shape=("models",), below=n_pairs(k), order="rising"),
        "constant": Array(kind="float64", shape=(n_pairs(k),), low=0, high=1),
        "unseen_pairs": Array(kind="int64", shape=("unseen", 2), below=k),
    }
    if loaded.params["estimator"] == "logistic":
        return layout | logistic_layout("pairs_", d)
    return (
        layout
        | trees_layout("pairs_", d, "examples")
        | {"pairs_targets": Array(kind="float64", shape=("examples", 1))}
    )


def _paired(loaded: Loaded) -> None:
    kind = loaded.params["estimator"]
    if kind == "logistic":
        return
    require_trees(loaded, "pairs_")
    wanted = loaded.sizes["models"] * (FOREST_TREES if kind == "forest" else 1)
    if loaded.arrays["pairs_roots"].size != wanted:
        raise refuse("pairs_roots", None, f"has {loaded.arrays['pairs_roots'].size} rows", f"{wanted}")


def _members(loaded: Loaded) -> dict[str, Array]:
    layout: dict[str, Array] = {}
    for number, name in enumerate(loaded.facts.members):
        layout |= _member(loaded, f"member{number}_", name)
    return layout


def _member(loaded: Loaded, start: str, name: str) -> dict[str, Array]:
    k, d = loaded.facts.n_labels, loaded.n_features
    rows = f"rows of {start}"
    rankings = {
        f"{start}positions": Array(kind="float32", shape=(rows, k), nan=True),
        f"{start}targets": Array(kind="float64", shape=(rows, k)),
    }
    scaling = {
        f"{start}mean": Array(kind="float64", shape=(d,)),
        f"{start}scale": Array(kind="float64", shape=(d,), positive=True),
    }
    if name in ("extra-trees", "forest"):
        return trees_layout(start, d, rows) | rankings
    if name == "boosting":
        return trees_layout(start, d, rows) | {
            f"{start}values": Array(kind="float64", shape=(rows, k)),
            f"{start}base": Array(kind="float64", shape=(k,)),
        }
    if name == "neighbours":
        n = loaded.length(f"{start}points")
        return (
            rankings
            | scaling
            | {
                f"{start}points": Array(kind="float64", shape=(rows, d)),
                f"{start}n_neighbours": Array(kind="int64", shape=(), low=1, high=n),
            }
        )
    if name == "kernel":
        output = f"output of {start}"
        return scaling | {
            f"{start}centres": Array(kind="float64", shape=(f"centres of {start}", d)),
            f"{start}gamma": Array(kind="float64", shape=(), low=0),
            f"{start}coef": Array(kind="float64", shape=(f"centres of {start}", output)),
            f"{start}base": Array(kind="float64", shape=(output,)),
            f"{start}k": Array(kind="int64", shape=(), low=k, high=k),
        }
    return logistic_layout(start, d) | {
        f"{start}modelled": Array(
            kind="int64", shape=(f"models of {start}",), below=n_pairs(k), order="rising"
        ),
        f"{start}constant": Array(kind="float64", shape=(n_pairs(k),), low=0, high=1),
        f"{start}k": Array(kind="int64", shape=(), low=k, high=k),
    }


def _blended(loaded: Loaded) -> None:
    facts, k = loaded.facts, loaded.facts.n_labels
    if len(set(facts.members)) < len(facts.members) or set(facts.members) - facts.weights.keys():
        raise refuse("members", None, f"is {facts.members} in the manifest", "each once, with a weight")
    for number, name in enumerate(facts.members):
        start = f"member{number}_"
        if name in ("extra-trees", "forest", "boosting"):
            require_trees(loaded, start)
            if not loaded.arrays[f"{start}roots"].size:
                raise refuse(f"{start}roots", None, "has no rows", "one tree at least")
        if name == "kernel" and loaded.sizes[f"output of {start}"] not in (k, n_pairs(k)):
            found = loaded.sizes[f"output of {start}"]
            raise refuse(f"{start}base", None, f"has {found} rows", f"{k} or {n_pairs(k)}")


TREES = StateSchema(facts=RankerFacts, layout=_of_all(_trees), relations=(_labels, _grown))
PAIRWISE = StateSchema(facts=RankerFacts, layout=_of_all(_pairs), relations=(_labels, _paired))
AUTO = StateSchema(facts=AutoFacts, layout=_of_all(_members), relations=(_labels, _blended))
