"""A normalised learner as named arrays: the learner's own under a prefix, and the cohort."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.auto.candidates import RACING
from pairmark.models.cohort.params import Normalisation
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.inner import InnerModel, check_inner, inner_model, inner_state
from pairmark.models.core.schema import Facts, State, Stateful, StateSchema, checked_model, refuse, require

_PREFIX = "learner-"


class CohortState(Stateful):
    """The learner's state under its own names with a prefix, the cohort and what is done with it."""

    model_: Any
    learner: str
    cohort_: NDArray[np.float32]
    normalisation_: Normalisation
    rates_: dict[str, Any]

    @abstractmethod
    def _set_cohort(self, cohort: Any) -> None: ...

    def to_state(self) -> State:
        """The learner's arrays, parameters and facts; the cohort; what was chosen."""
        spec = RACING[self.learner]
        arrays, kept = inner_state(spec, self.model_, _PREFIX)
        return {**arrays, "cohort": self.cohort_}, {
            "normalisation": self.normalisation_,
            "rates": self.rates_,
            "model": kept,
        }

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        self.model_ = inner_model(RACING, meta["model"], arrays, _PREFIX)
        self.model_.n_features_in_ = int(arrays["cohort"].shape[1])
        self.normalisation_, self.rates_ = meta["normalisation"], meta["rates"]
        self._set_cohort(arrays["cohort"])
        return self


class CohortFacts(Facts):
    """What a saved one says beside its arrays."""

    normalisation: Normalisation
    rates: dict[str, dict[str, float]]
    model: InnerModel


@dataclass(frozen=True, kw_only=True)
class CohortSchema(StateSchema):
    """The schema of the learner's family, for arrays whose names have a prefix, and of the cohort."""

    def check(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """See `StateSchema.check`."""
        facts = checked_model(CohortFacts, meta)
        kind = facts.model.kind
        if kind not in RACING or kind != params.get("learner"):
            raise ArtefactError(f"model.kind is {kind[:80]!r}; expected {str(params.get('learner'))[:80]!r}")
        stray = sorted(name for name in arrays if name != "cohort" and not name.startswith(_PREFIX))
        if stray:
            raise ArtefactError(f"array {stray[0]!r} is none of a normalised learner's")
        if "cohort" not in arrays:
            raise ArtefactError("array 'cohort' is missing")
        _check_cohort(arrays["cohort"], facts)
        check_inner(RACING[kind], facts.model, facts.n_features_in, arrays, _PREFIX)


def _check_cohort(cohort: NDArray[Any], facts: CohortFacts) -> None:
    if cohort.dtype != np.float32:
        raise refuse("cohort", None, f"dtype is {cohort.dtype}", "float32")
    least = 0 if facts.normalisation == "none" else 2
    if cohort.ndim != 2 or cohort.shape[1] != facts.n_features_in or cohort.shape[0] < least:
        raise refuse("cohort", None, f"shape is {cohort.shape}", f"(at least {least}, {facts.n_features_in})")
    require(np.isfinite(cohort), "cohort", cohort, "a finite number")


SCHEMA = CohortSchema(facts=CohortFacts, layout=lambda loaded: {})
