"""The state of fused learners: each one's, its arrays under a prefix, and the weights."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.schema import Array, StateSchema, StoredState, refuse
from pairmark.models.core.state import DeclaredState, Fact, Inner
from pairmark.models.fusion.params import FUSED


def _numbers(file: StoredState) -> range:
    return range(len(file.facts.models))


def prefix_of(number: int) -> str:
    """What the names of a learner's arrays begin with."""
    return f"model-{number}-"


class FusionState(DeclaredState):
    """The learners and their weights."""

    models_: Annotated[list[Any], Inner(specs=FUSED, prefix="model-{0}-", fact="models", each=_numbers)]
    weights_: Annotated[Float64, Array(shape=("weights",), low=0)]
    intercept_: Annotated[float, Fact()]
    rates_: Annotated[dict[str, Any], Fact()]

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        weights, models, asked = file.arrays["weights"], file.facts.models, file.params.get("models")
        if weights.size != len(models):
            raise refuse("weights", None, f"shape is {weights.shape}", f"({len(models)},)")
        present = np.array([model is not None for model in models])
        if not present.any() or ((weights > 0) != present).any():
            raise refuse(
                "weights", None, "does not say which learners there are", "weights above 0 for those alone"
            )
        if asked is not None and [None if m is None else m.kind for m in models] != [
            None if m is None else each["learner"] for m, each in zip(models, asked, strict=False)
        ]:
            raise ArtefactError(
                f"models has {len(models)} entries; expected the {len(asked)} learners of the parameter `models`"
            )


SCHEMA = StateSchema(FusionState)
