"""What a learner is to the house: its kind, what it can serve, its parameters, how its state is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

Capability = Literal["similarity", "match", "search", "embed", "classify", "rank-labels"]
Arrays = dict[str, np.ndarray[Any, Any]]


class Params(BaseModel):
    """Base of every learner's parameter model: names are those of the estimator, unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class LearnerSpec:
    """Everything the house needs to know of a learner.

    Attributes
    ----------
    kind : public name, e.g. ``similarity-forest``.
    title : one line for people.
    estimator : the class; ``estimator(**params.model_dump())`` builds it.
    capabilities : what a fitted one can serve.
    params : pydantic model of the JSON-able parameters; its JSON Schema is public.
    to_state : fitted estimator -> (arrays, meta); meta is JSON-serialisable.
    from_state : (unfitted estimator, arrays, meta) -> fitted estimator.
    needs : what a training dataset must bring.
    accepts_sparse : whether CSR input is taken as it is.
    """

    kind: str
    title: str
    estimator: type
    capabilities: frozenset[Capability]
    params: type[Params]
    to_state: Callable[[Any], tuple[Arrays, dict[str, Any]]]
    from_state: Callable[[Any, Mapping[str, np.ndarray[Any, Any]], Mapping[str, Any]], Any]
    needs: Literal["identities", "rankings"] = "identities"
    accepts_sparse: bool = False
