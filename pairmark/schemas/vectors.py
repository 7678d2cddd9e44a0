"""Vectors, records and names of sides, as JSON bodies hold them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
)

from pairmark.schemas.base import Body

RESERVED = frozenset({"samples", "indices", "values"})
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (Unicode's Cc), those that set the direction of text (Bidi_Control), and halves of characters."""
FLOAT32_MAX = 3.4028234663852886e38
EXPECTED = (
    'a vector (a list of numbers), a list of vectors, or sparse vectors {"indices": [..], "values": [..]}; for a model '
    'of records {"column": value, ..}'
)
FAST = Field(fail_fast=True)
Number = Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
"""A number that float32 holds; NaN and infinities are outside these bounds."""


class SparseVector(Body):
    """A vector by its non-zero entries; `indices` are 0-based and distinct."""

    indices: list[int] = Field(
        description="0-based columns of the entries, all different", examples=[[0, 17]]
    )
    values: list[Number] = Field(description="the entries, in the order of `indices`", examples=[[0.5, 2.0]])


Cell = bool | float | str | None | list[float]


def _named_freely(record: dict[str, Cell]) -> dict[str, Cell]:
    if not RESERVED.isdisjoint(record):
        # A sparse vector or a subject that is not quite one: what is wrong with that is said instead.
        raise ValueError(f"no column is called {' or '.join(sorted(RESERVED))}")
    return record


Record = Annotated[dict[str, Cell], AfterValidator(_named_freely)]
"""A record of a table: from column to value. No column is called ``indices``, ``values`` or ``samples``."""
Dense = Annotated[list[Number], FAST]
Vectors = Annotated[
    Dense
    | Annotated[list[Dense], FAST]
    | SparseVector
    | Annotated[list[SparseVector], FAST]
    | Record
    | Annotated[list[Record], FAST],
    Field(union_mode="left_to_right"),
]


class Subject(Body):
    """One person or thing with several samples; `aggregation` says how their scores are combined."""

    samples: Annotated[
        Annotated[list[Dense], FAST] | Annotated[list[SparseVector], FAST] | Annotated[list[Record], FAST],
        Field(
            union_mode="left_to_right",
            description="vectors, sparse vectors or records of the same person or thing",
            examples=[[[0.1, 0.2, 0.3], [0.1, 0.25, 0.3]]],
        ),
    ]


Side = Annotated[
    Dense
    | Annotated[list[Dense], FAST]
    | SparseVector
    | Annotated[list[SparseVector], FAST]
    | Subject
    | Annotated[list[Subject], FAST]
    | Record
    | Annotated[list[Record], FAST],
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
