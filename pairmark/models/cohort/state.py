"""The state of a normalised learner: the learner's, its arrays under a prefix, and the cohort."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any

from pairmark.models.auto.candidates import RACING
from pairmark.models.cohort.params import Normalisation
from pairmark.models.core.arrays import Float32
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.schema import Array, StateSchema, StoredState, refuse
from pairmark.models.core.state import DeclaredState, Fact, Inner


class CohortState(DeclaredState):
    """The learner, the cohort and what is done with it."""

    model_: Annotated[Any, Inner(specs=RACING, prefix="learner-", fact="model")]
    cohort_: Annotated[Float32, Array(shape=("cohort", "features"))]
    normalisation_: Annotated[Normalisation, Fact()]
    rates_: Annotated[dict[str, dict[str, float]], Fact()]

    @abstractmethod
    def _set_cohort(self, cohort: Any) -> None: ...

    def _restored(self) -> None:
        self._set_cohort(self.cohort_)

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        kind, learner, n = file.facts.model.kind, file.params.get("learner"), file.sizes["cohort"]
        if kind != learner:
            raise ArtefactError(f"model.kind is {kind[:80]!r}; expected {str(learner)[:80]!r}")
        least = 0 if file.facts.normalisation == "none" else 2
        if n < least:
            raise refuse("cohort", None, f"has {n} rows", f"at least {least}")


SCHEMA = StateSchema(CohortState)
