"""From a request to the rows that its version takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pairmark.service.datasets.data import name_list
from pairmark.service.errors import InvalidInput
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scoring.requests import PairRequest
from pairmark.service.scoring.rows import Counts, RecordRows, SideRows, to_rows
from pairmark.service.store.subjects import SubjectClass

Warnings = tuple[dict[str, str], ...]


@dataclass(slots=True)
class Resolved:
    """Two sides as a version takes them.

    Attributes
    ----------
    left, right : (n, d) rows; one of a side meets every one of the other.
    counts : of subjects of several samples, how many each of the left and the right side has; rows lie subject after
        subject.
    aggregation : how subjects are compared. warnings : of categories that training did not have.
    """

    version: LoadedVersion
    left: Any
    right: Any
    counts: tuple[Counts, Counts] | None = None
    aggregation: str = "auto"
    warnings: Warnings = ()

    @property
    def n_rows(self) -> int:
        return int(self.left.shape[0] + self.right.shape[0])

    def subjects(self) -> SubjectClass | None:
        """The class of subjects that a decision is about; None for plain rows."""
        if self.counts is None:
            return None
        a, b = np.broadcast_arrays(*self.counts)
        larger, smaller = np.maximum(a, b), np.minimum(a, b)
        differing = np.flatnonzero((larger != larger[0]) | (smaller != smaller[0]))
        if differing.size:
            pair = int(differing[0])
            raise InvalidInput(
                f"pair 0 has {a[0]} and {b[0]} samples, and pair {pair} {a[pair]} and {b[pair]}: a decision is "
                "calibrated for fixed numbers of samples; send pairs with other numbers in a separate request",
                field="left",
                pair=pair,
            )
        return SubjectClass(int(larger[0]), int(smaller[0]), self.aggregation)


def resolve(request: PairRequest, version: LoadedVersion, aggregation: str = "auto") -> Resolved:
    """The sides of a request as a version takes them; `InvalidInput` for rows that it does not take."""
    sides = to_rows(version, request.left, "left"), to_rows(version, request.right, "right")
    if request.counts is not None or aggregation != "auto":
        aggregation = version.aggregation(aggregation)
    return Resolved(
        version,
        *sides,
        request.counts,
        aggregation,
        unseen_categories(version, request.left, request.right),
    )


def unseen_categories(version: LoadedVersion, *sides: SideRows) -> Warnings:
    """A warning for each column of records as sent that holds categories which training did not have, of a learner that
    takes them encoded; one that compares texts needs none."""
    if version.encoder is None:
        return ()
    records = [record for side in sides if isinstance(side, RecordRows) for record in side.rows]
    return tuple(
        {
            "code": "unseen-category",
            "detail": f"column {column!r}: training did not have {name_list(values)}; the answer rests on the other "
            "columns",
        }
        for column, values in version.encoder.unseen(records).items()
    )
