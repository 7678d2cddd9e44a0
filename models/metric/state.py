"""A fitted metric as named arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.schema import Array, Loaded, State, Stateful, StateSchema


class MetricState(Stateful):
    """The whitening, where there is one."""

    whiten: bool
    mean_: NDArray[np.float64]
    whitening_: NDArray[np.float64]

    @abstractmethod
    def _finish(self) -> Self: ...

    def to_state(self) -> State:
        """Mean and matrix of the whitening."""
        if not self.whiten:
            return {}, {}
        return {"mean": self.mean_, "whitening": self.whitening_}, {}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        if self.whiten:
            # Copies, so that kernels meet one kind of array whether the file was mapped or read.
            self.mean_ = np.array(arrays["mean"], dtype=np.float64)
            self.whitening_ = np.array(arrays["whitening"], dtype=np.float64, order="C")
        return self._finish()


def _layout(loaded: Loaded) -> dict[str, Array]:
    if not loaded.params["whiten"]:
        return {}
    d = loaded.n_features
    return {"mean": Array(kind="float64", shape=(d,)), "whitening": Array(kind="float64", shape=(d, d))}


SCHEMA = StateSchema(layout=_layout)
