"""A declaration of state writes, reads and refuses: what a family says in a line holds for every file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import Field
from sklearn.base import BaseEstimator

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.schema import Array, StateSchema, StoredState, refuse
from pairmark.models.core.state import DeclaredState, Fact, Record


@dataclass
class Layer:
    weights: Annotated[Float64, Array(shape=("features", "units"))]
    active: Annotated[Int64, Array(shape=("some",), below="units")]
    rate: Annotated[float, Fact(name="rates"), Field(gt=0)]

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        name = prefix.replace("*", "active")
        if np.unique(file.arrays[name]).size != file.arrays[name].size:
            raise refuse(name, None, "repeats a unit", "each once")


class Learner(DeclaredState, BaseEstimator):
    centre_: Annotated[Float64 | None, Array(shape=("features",))]
    classes_: Annotated[NDArray[Any], Array(kind="labels", shape=("classes",))]
    layers_: Annotated[list[Layer], Record(prefix="*_{0}", each=lambda file: range(len(file.facts.rates)))]


class Unbounded(DeclaredState, BaseEstimator):
    codes_: Annotated[Int64, Array(shape=("rows",), below="classes")]


def fitted() -> Learner:
    learner = Learner()
    learner.n_features_in_, learner.centre_ = 3, None
    learner.classes_ = np.array(["a", "bcd"], dtype=object)
    learner.layers_ = [
        Layer(weights=np.ones((3, n)), active=np.arange(n)[::2], rate=np.float64(0.5)) for n in (4, 5)
    ]
    return learner


FACTS = {"n_features_in": 3, "feature_names_in": None}


def test_what_is_written_is_checked_and_read() -> None:
    arrays, meta = fitted().to_state()
    assert sorted(arrays) == ["active_0", "active_1", "classes", "weights_0", "weights_1"]
    assert arrays["classes"].dtype.str == "<U3"
    assert meta == {"rates": [0.5, 0.5]}
    StateSchema(Learner).check({}, {**FACTS, **meta}, arrays)
    again = Learner().from_state(arrays, {**FACTS, **meta})
    assert again.centre_ is None
    assert again.n_features_in_ == 3
    assert [layer.weights.shape for layer in again.layers_] == [(3, 4), (3, 5)]
    other, other_meta = again.to_state()
    assert other_meta == meta
    assert all(other[name].tobytes() == arrays[name].tobytes() for name in arrays)
    again.layers_[0].weights[:] = 0
    assert arrays["weights_0"].all(), "arrays of a file are copied unless a family says otherwise"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"active_1": np.array([5])}, "'active_1', row 0: is 5; expected less than 5"),
        ({"active_0": np.array([-1])}, "'active_0', row 0: is -1; expected at least 0"),
        ({"active_0": np.array([1, 1])}, "'active_0': repeats a unit"),
        ({"weights_1": np.ones((2, 5))}, r"'weights_1': shape is \(2, 5\)"),
        ({"weights_0": np.ones((3, 4), dtype=np.float32)}, "'weights_0': dtype is float32"),
        ({"centre": np.ones(2)}, "'centre': shape is"),
        ({"weights_2": np.ones((3, 4))}, "'weights_2' is none of this learner's"),
        ({"weights_0": None}, "'weights_0' is missing"),
    ],
)
def test_what_is_not_as_declared_is_refused(change: dict[str, Any], message: str) -> None:
    arrays, meta = fitted().to_state()
    arrays = {name: array for name, array in {**arrays, **change}.items() if array is not None}
    with pytest.raises(ArtefactError, match=message):
        StateSchema(Learner).check({}, {**FACTS, **meta}, arrays)


@pytest.mark.parametrize("rates", [[0.5], [0.5, 0.0], [0.5, "x"], [0.5] * 3, None])
def test_facts_of_records_are_as_declared(rates: Any) -> None:
    arrays, _ = fitted().to_state()
    with pytest.raises(ArtefactError, match=r"rates|_1|_2"):
        StateSchema(Learner).check({}, {**FACTS, "rates": rates}, arrays)


def test_a_bound_that_nothing_states_refuses_instead_of_passing() -> None:
    with pytest.raises(ArtefactError, match="'codes': has no bound"):
        StateSchema(Unbounded).check({}, FACTS, {"codes": np.array([2**40])})
