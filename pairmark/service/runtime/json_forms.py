"""JSON bodies of vectors, pairs and scores, as the OpenAPI document shows them; `parsing.py` decodes them."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pairmark.models.records.schema import RESERVED
from pairmark.service.names import UNSEEN

FLOAT32_MAX = float(np.finfo(np.float32).max)

EXPECTED = (
    'a vector (a list of numbers), a list of vectors, or sparse vectors {"indices": [..], "values": [..]}; for a model '
    'of records {"column": value, ..}'
)
_FAST = Field(fail_fast=True)


Number = Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
"""A number that float32 holds; NaN and infinities are outside these bounds."""


class JsonRequest(BaseModel):
    # Unlike in a `Body`, values are coerced: "5" is a number.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Body(BaseModel):
    """What a client sends, taken as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class AskingBody(Body):
    """A request to a model."""

    model: str | None = Field(
        None, description="`name`, `name@alias` or `name:version`; optional if only one model can answer"
    )


class SparseVector(Body):
    """A vector by its non-zero entries; `indices` are 0-based and distinct."""

    indices: list[int] = Field(examples=[[0, 17]])
    values: list[Number] = Field(examples=[[0.5, 2.0]])


Cell = bool | float | str | None | list[float]


def _named_freely(record: dict[str, Cell]) -> dict[str, Cell]:
    if not RESERVED.isdisjoint(record):
        # A sparse vector or a subject that is not quite one: what is wrong with that is said instead.
        raise ValueError(f"no column is called {' or '.join(sorted(RESERVED))}")
    return record


Record = Annotated[dict[str, Cell], AfterValidator(_named_freely)]
"""A record of a table: from column to value. No column is called ``indices``, ``values`` or ``samples``."""
Dense = Annotated[list[Number], _FAST]
Vectors = Annotated[
    Dense
    | Annotated[list[Dense], _FAST]
    | SparseVector
    | Annotated[list[SparseVector], _FAST]
    | Record
    | Annotated[list[Record], _FAST],
    Field(union_mode="left_to_right"),
]


class Subject(Body):
    """One person or thing with several samples; `aggregation` says how their scores are combined."""

    samples: Annotated[
        Annotated[list[Dense], _FAST] | Annotated[list[SparseVector], _FAST] | Annotated[list[Record], _FAST],
        Field(union_mode="left_to_right", examples=[[[0.1, 0.2, 0.3], [0.1, 0.25, 0.3]]]),
    ]


Side = Annotated[
    Dense
    | Annotated[list[Dense], _FAST]
    | SparseVector
    | Annotated[list[SparseVector], _FAST]
    | Subject
    | Annotated[list[Subject], _FAST]
    | Record
    | Annotated[list[Record], _FAST],
    Field(union_mode="left_to_right"),
]
EXPECTED_SIDE = f'{EXPECTED}, or a subject {{"samples": [vector, ..]}} or a list of subjects'


LONGEST_REF = 512


def _plain_text(ref: str) -> str:
    if UNSEEN.search(ref):
        raise ValueError(
            "expected a name without control characters and characters that set the direction of text"
        )
    return ref


StoredRef = Annotated[str, Field(min_length=1, max_length=LONGEST_REF)]
Ref = Annotated[StoredRef, AfterValidator(_plain_text)]
"""A caller's own name of a side."""
RefPair = Annotated[list[Ref], Field(min_length=2, max_length=2)]
REFS_TEXT = "kept with decisions for reviews, if the model's policy keeps any; at most 512 characters each"


class PairsFields(AskingBody):
    """What a request of pairs holds beside them."""

    refs: Annotated[list[RefPair], _FAST] | None = Field(
        None, description=f"`/match`: your names of both sides of each pair, {REFS_TEXT}"
    )


class PairsBody(PairsFields):
    """Pairs to score: the same number of vectors (or subjects) on both sides, or a single one on one side."""

    left: Side = Field(description=EXPECTED_SIDE, examples=[[0.1, 0.2, 0.3]])
    right: Side = Field(description=EXPECTED_SIDE, examples=[[0.1, 0.25, 0.3]])


class FeaturesBody(AskingBody):
    """Points: one vector, or several."""

    features: Vectors = Field(description=EXPECTED, examples=[[[0.1, 0.2, 0.3]]])


class ScoresBody(Body):
    """Scores of another system, to be decided with `calibration=`."""

    scores: Annotated[
        Annotated[list[Number], Field(min_length=1), _FAST]
        | Annotated[list[Dense], Field(min_length=1), _FAST],
        Field(union_mode="left_to_right"),
    ] = Field(
        examples=[[0.91, 0.12]],
        description="one number per pair or, for a calibration that combines several systems, one list per pair",
    )
