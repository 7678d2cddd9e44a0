"""What is asked: two sides or points as they were sent, and at which rate to decide."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.core.arrays import Float32
from pairmark.schemas.base import EXPECTED, EXPECTED_SIDE
from pairmark.schemas.scoring import AskingBody, PairsFields
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.scoring.json import (
    Counts,
    NothingElse,
    RecordRows,
    SideRows,
    SparseRows,
    read_numbers,
    read_rows,
    read_side,
    split_request,
    split_vectors,
)

_SCORES_FIELD = re.compile(rb'"scores"\s*:')


class PairRequest(NamedTuple):
    """Two sides of vectors, and the model that a JSON body names. Dense sides are (n, d), finite float32.

    Attributes
    ----------
    counts : where sides hold subjects of several samples, the number of samples of each subject of the left and the
        right side; vectors lie subject after subject.
    """

    left: SideRows
    right: SideRows
    counts: tuple[Counts, Counts] | None = None
    model: str | None = None
    refs: list[list[str]] | None = None
    """The caller's names of both sides of each pair."""

    @property
    def sizes(self) -> tuple[int, int]:
        """How many vectors, records or subjects the left and the right side have."""
        left, right = (self.left, self.right) if self.counts is None else self.counts
        return len(left), len(right)

    @property
    def n_pairs(self) -> int:
        return max(self.sizes)

    @property
    def n_scored(self) -> int:
        """How many pairs of samples that takes."""
        if self.counts is None:
            return self.n_pairs
        left, right = self.counts
        return int(np.sum(left * right)) if 1 in (left.size, right.size) else int(left @ right)

    @property
    def broadcast(self) -> bool:
        """Whether one of a side meets several of the other."""
        n_left, n_right = self.sizes
        return n_left != n_right and 1 in (n_left, n_right)

    def as_sent(self, place: int) -> dict[str, Any] | None:
        """The two sides of a pair as they were sent; None for sparse vectors and subjects of several samples."""
        sides = {}
        for name, side in (("left", self.left), ("right", self.right)):
            if self.counts is not None or isinstance(side, SparseRows):
                return None
            rows = side.rows if isinstance(side, RecordRows) else side
            row = rows[place if len(rows) > 1 else 0]
            sides[name] = row if isinstance(row, dict) else [float(number) for number in row]
        return sides

    def check_sizes(self, max_pairs: int, max_samples: int = 100) -> None:
        """Refuse sizes that make no pairs, or too many."""
        counts = self.counts
        what = "vectors" if counts is None else "subjects"
        n_left, n_right = self.sizes
        if n_left != n_right and 1 not in (n_left, n_right):
            raise InvalidInput(
                f"left has {n_left} {what} and right {n_right}; expected equal numbers, or a single one on one side",
                field="right",
            )
        if counts is not None:
            for name, side in zip(("left", "right"), counts, strict=True):
                if side.max() > max_samples:
                    subject = int(np.argmax(side > max_samples))
                    raise InvalidInput(
                        f"{name}[{subject}] has {side[subject]} samples; expected at most {max_samples} "
                        "(PAIRMARK_MAX_SUBJECT_SAMPLES)",
                        field=f"{name}[{subject}].samples",
                        limit=max_samples,
                    )
            if self.n_scored > max_pairs:
                raise TooLarge(
                    f"the subjects make {self.n_scored} pairs of samples; at most {max_pairs} are taken at a time",
                    limit=max_pairs,
                )
        n_pairs = max(n_left, n_right)
        if self.refs is not None and len(self.refs) != n_pairs:
            raise InvalidInput(
                f"refs names {len(self.refs)} pairs; expected one [left, right] for each of the {n_pairs} pairs",
                field="refs",
            )
        if n_pairs > max_pairs:
            raise TooLarge(
                f"the request has {n_pairs} pairs; at most {max_pairs} are taken at a time",
                limit=max_pairs,
            )


@dataclass(frozen=True, slots=True)
class Features:
    """Points, and the model that a JSON body names. Dense ones are (n, d), finite float32."""

    rows: SideRows
    model: str | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def check_sizes(self, limit: int, *_: int) -> None:
        """Refuse more points than are taken at a time."""
        if len(self) > limit:
            raise TooLarge(
                f"the request has {len(self)} points; at most {limit} are taken at a time", limit=limit
            )


def parse_pairs(body: bytes) -> PairRequest:
    """Pairs of any form, or `InvalidInput` that names the field and what was expected."""
    request, texts = split_vectors(PairsFields, body, {"left": EXPECTED_SIDE, "right": EXPECTED_SIDE})
    (a, n_a), (b, n_b) = read_side(texts["left"], "left"), read_side(texts["right"], "right")
    counts = None
    if n_a is not None or n_b is not None:
        # Vectors beside subjects are subjects of one sample.
        both = tuple(
            np.ones(len(rows), dtype=np.int64) if counts is None else counts
            for rows, counts in ((a, n_a), (b, n_b))
        )
        counts = None if both[0].max() == both[1].max() == 1 else (both[0], both[1])
    return PairRequest(a, b, counts, request.model, request.refs)


def parse_features(body: bytes) -> Features:
    """Points, or `InvalidInput` that names the field and what was expected."""
    request, texts = split_vectors(AskingBody, body, {"features": EXPECTED})
    return Features(read_rows(texts["features"], "features"), request.model)


def parse_scores(body: bytes) -> Float32:
    """Read a JSON body of scores made elsewhere, (n,)."""
    _, texts = split_request(NothingElse, body, {"scores": "a list of numbers"})
    return read_numbers(texts["scores"], "scores")


def holds_scores(body: bytes) -> bool:
    """Whether a JSON body speaks of scores, not of vectors (a cheap look before the real parse)."""
    # Finding plain bytes is far cheaper than an expression, and vectors have none of them.
    return body.find(b'"scores"', 0, 4096) >= 0 and _SCORES_FIELD.search(body, 0, 4096) is not None
