"""Scored held-out pairs, checked and brought into the form that all statistics on pairs share.

Pairs that share a person are not independent. What is independent are the *sampling units* (identities in
open-set use, samples in closed-set use), so pairs become edges of a graph over units: rows of one edge are
averaged first, edges weigh equally, and the graph gives the number of independent observations.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, NDArray
from pairmark.models.core.inputs import (
    checked_same,
    checked_weight,
    codes_by_appearance,
    like_labels,
    merged_labels,
    refuse_placeholders,
)
from pairmark.models.pairs.kernels import greedy_matching
from pairmark.models.pairs.splits import Protocol, permutation_of

_FIXED_POINT = float(2**60)
"""Weights are summed as whole multiples of 2^-60: the same sum in every order, rounded against ourselves."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """The different (or the same) pairs, best score first; ties in a fixed order whatever order they came in.

    Attributes
    ----------
    scores : (n,) float32, descending.
    weight : (n,) each row's share; sums to the share of edges (weighted) that are of this side.
    edge : (n,) which edge the row is part of, 0..n_edges-1.
    edge_units : (n_edges, 2) unit codes of an edge; equal for same-identity edges.
    row : (n,) number of the row among all that were given.
    n_blocks : independent observations among these edges.
    """

    scores: Float32 = field(repr=False)
    weight: Float64 = field(repr=False)
    edge: Int64 = field(repr=False)
    edge_units: Int64 = field(repr=False)
    row: Int64 = field(repr=False)
    n_blocks: int

    def __len__(self) -> int:
        return int(self.scores.size)

    def steps(self) -> tuple[Float32, Float64]:
        """Distinct scores, descending, and the weight strictly above each (exact, never rounded down)."""
        if not len(self):
            return np.empty(0, dtype=np.float32), np.empty(0)
        first = np.flatnonzero(np.append(True, self.scores[1:] != self.scores[:-1]))
        # Up here and down in `total`: a rate that is the one over the other is never told too low.
        fixed = np.ceil(self.weight * _FIXED_POINT).astype(np.int64)
        return self.scores[first], (np.cumsum(fixed) - fixed)[first] / _FIXED_POINT

    def total(self) -> float:
        """All weight, never rounded up."""
        return min(1.0, int(np.floor(self.weight * _FIXED_POINT).astype(np.int64).sum()) / _FIXED_POINT)


@dataclass(frozen=True, kw_only=True)
class PairSample:
    """Validated pairs. Units are numbered in the order in which they first appear: names play no part.

    Attributes
    ----------
    protocol : open-set or closed-set.
    rows_independent : no units were given: every row is an observation of its own.
    n_units : m, units among the pairs that the false positive rate is measured on.
    different, same : the two sides.
    """

    protocol: Protocol
    rows_independent: bool
    n_units: int
    different: Side
    same: Side

    @property
    def complete(self) -> bool:
        """Whether every two units are there: in open-set use as a different pair, in closed-set use as either."""
        n_edges = self.different.edge_units.shape[0]
        if self.protocol == "closed-set":
            n_edges += self.same.edge_units.shape[0]
        return not self.rows_independent and n_edges == self.n_units * (self.n_units - 1) // 2


def pair_sample(
    scores: ArrayLike,
    same: ArrayLike,
    units: ArrayLike | None = None,
    *,
    protocol: str | None = None,
    sample_weight: ArrayLike | None = None,
    both_kinds: bool = False,
) -> PairSample:
    """Check scored pairs and group them by edges of units.

    Parameters
    ----------
    scores : (n,) finite; taken as float32.
    same : (n,) 0 or 1.
    units : (n, 2) whole numbers or strings, or None when rows are independent.
    protocol : when None: closed-set if any same pair carries two different units, else open-set.
    sample_weight : (n,) not negative, chosen without looking at scores; rows of weight 0 are left out.
    both_kinds : whether same pairs are needed too.
    """
    values = _checked_scores(scores)
    is_same, weight = checked_same(same, values.size), checked_weight(sample_weight, values.size)
    pairs = None if units is None else unit_codes(units, values.size)
    # 1. A row of weight 0 was not drawn: it counts neither as a pair nor as one of its units.
    if not weight.all():
        has_weight = weight > 0
        values, is_same, weight = values[has_weight], is_same[has_weight], weight[has_weight]
        pairs = None if pairs is None else pairs[has_weight]
    if is_same.all():
        raise ValueError(
            "there is no pair marked different; expected some, the false positive rate is measured on them"
        )
    if both_kinds and not is_same.any():
        raise ValueError("there is no pair marked same; expected both kinds")
    if values.size > 1 and values.min() == values.max():
        raise ValueError(
            f"all {values.size} scores are equal ({values[0]}): they cannot tell same from different"
        )
    # 2. Independent rows have two units each that no other row has: one way of counting serves all three cases.
    independent = pairs is None
    if pairs is None:
        resolved_protocol = _checked_protocol(protocol or "open-set")
        pairs = np.arange(2 * values.size, dtype=np.int64).reshape(-1, 2)
    else:
        resolved_protocol = _protocol_of(pairs, is_same, protocol)
    # 3. Either side by edges, pairs of units: an edge weighs the same however many rows it has.
    relative = weight / weight.max()
    mates = _side(values, relative, pairs, is_same)
    if independent or resolved_protocol == "open-set":
        different = _side(values, relative, pairs, ~is_same)
        n_units = different.n_blocks if independent else int(np.unique(different.edge_units).size)
    else:
        # Edges of both kinds count: labels are part of what was drawn, so they may not be conditioned on.
        edges = np.unique(np.sort(pairs, axis=1), axis=0)
        different = _side(values, relative, pairs, ~is_same, edges)
        if different.edge_units.shape[0] + mates.edge_units.shape[0] != edges.shape[0]:
            raise ValueError("a pair of samples is marked both same and different: correct the labels")
        n_units = int(np.unique(edges).size)
    return PairSample(
        protocol=resolved_protocol,
        rows_independent=independent,
        n_units=n_units,
        different=different,
        same=mates,
    )


def independent_blocks(edges: Int64) -> int:
    """How many independent observations an average over these distinct edges is at least worth.

    All pairs of m units: floor(m/2) (Hoeffding 1963, section 5a: a U-statistic is an average of averages over
    floor(m/2) disjoint pairs). P edges with at most D at any unit: floor(P/(D+1)), since such a graph has an
    edge colouring with D+1 colours of equal size, give or take one (Vizing 1964; de Werra 1971), and disjoint
    edges are independent. Disjoint edges need one colour: P.
    """
    n_edges, degree = int(edges.shape[0]), np.unique(edges, return_counts=True)[1]
    m, largest = int(degree.size), int(degree.max(initial=1))
    if largest == 1 or (edges[:, 0] == edges[:, 1]).all():
        return n_edges
    return m // 2 if n_edges == m * (m - 1) // 2 else n_edges // (largest + 1)


def matched_scores(sample: PairSample) -> tuple[Float32, int]:
    """Scores of same pairs that share no unit, lowest first (in open-set use one pair of each person), and how many
    pairs share no unit, in closed-set use same and different ones.

    The matching is greedy along a permutation of the scored pairs of units, same and different alike, so neither
    scores nor labels have a say; one row stands for each pair of units.
    """
    different, same = sample.different, sample.same
    n_different = different.edge_units.shape[0]
    edges = different.edge_units
    if sample.protocol == "closed-set":
        edges = np.concatenate([different.edge_units, same.edge_units])
    units, codes = np.unique(edges, return_inverse=True)
    codes = codes.reshape(-1, 2).astype(np.int64)
    # By units before they are permuted: their order so far says which pairs are the same.
    walk = np.lexsort((codes[:, 1], codes[:, 0]))[permutation_of(codes.shape[0])]
    matching = greedy_matching(codes, walk, int(units.size))
    mates = matching[matching >= n_different] - n_different
    if sample.protocol == "open-set":
        mates = np.arange(same.edge_units.shape[0])
    # Of each edge one row: its first along a permutation of the rows as they were given.
    order = np.argsort(same.row)[permutation_of(len(same))]
    row_of = np.full(same.edge_units.shape[0], -1, dtype=np.int64)
    # Written from the last to the first: of an edge's rows the first along the permutation stays.
    row_of[same.edge[order][::-1]] = order[::-1]
    return np.sort(same.scores[row_of[mates]]), int(matching.size)


def _side(
    scores: Float32, weight: Float64, pairs: Int64, selection: Bool, edges: Int64 | None = None
) -> Side:
    """One side; weights are shared out over ``edges``, where these are not the side's own."""
    scores, weight, ends = scores[selection], weight[selection], np.sort(pairs[selection], axis=1)
    # One number stands for both ends of an edge, whichever of them was on the left.
    span = int(ends.max()) + 1 if ends.size else 1
    keys, edge, rows = np.unique(ends[:, 0] * span + ends[:, 1], return_inverse=True, return_counts=True)
    edge_units = np.stack([keys // span, keys % span], axis=1)
    shared = edge_units if edges is None else edges
    share = weight / (rows[edge] * max(1, len(shared)))
    # The highest score first; equal ones in an order that does not depend on that of the rows.
    order = np.lexsort((share, edge, -scores))
    return Side(
        scores=scores[order],
        weight=share[order],
        edge=edge[order].astype(np.int64),
        edge_units=edge_units,
        row=np.flatnonzero(selection)[order],
        n_blocks=independent_blocks(shared),
    )


def _checked_scores(scores: ArrayLike) -> Float32:
    raw = np.asarray(scores)
    if raw.ndim != 1 or raw.size == 0 or raw.dtype.kind not in "fiub":
        raise ValueError(
            f"scores have shape {raw.shape} and dtype {raw.dtype}; expected one number a pair, shape (n_pairs,), and "
            "at least one pair"
        )
    with np.errstate(over="ignore"):
        values = raw.astype(np.float32)
    if not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"scores[{bad}] is {raw[bad]}; expected finite float32 numbers")
    refuse_collapsed(raw, values)
    # -0.0 and 0.0 compare equal, so they must also sort and print alike.
    return values + np.float32(0)


def refuse_collapsed(raw: NDArray[Any], values: NDArray[np.float32]) -> None:
    """Refuse scores that float32, in which scores are compared, hardly tells apart."""
    if raw.dtype.itemsize <= values.dtype.itemsize:
        return
    n, n_left = np.unique(raw).size, np.unique(values).size
    if n_left < n / 2:
        raise ValueError(
            f"scores: {n:,} different ones become {n_left:,} as float32, in which they are compared; subtract their "
            "mean and rescale them first"
        )


def unit_codes(units: ArrayLike, n: int) -> Int64:
    """(n, 2) the number of each side's unit, in the order in which units first appear."""
    columns = two_columns(units)
    if columns.shape != (n, 2):
        raise ValueError(
            f"units have shape {columns.shape}; expected ({n}, 2), the sampling unit on each side of a pair, or a "
            "tuple of two columns"
        )
    if columns.dtype.kind not in "iuUSb" and not (columns.dtype.kind == "f" and np.isfinite(columns).all()):
        raise ValueError(f"units have dtype {columns.dtype}; expected whole numbers or strings, none missing")
    codes, first = codes_by_appearance(columns.ravel())
    names, merged = merged_labels(columns.ravel()[first], codes)
    refuse_placeholders(names, np.bincount(merged), "sides of pairs")
    warning = like_labels(names.tolist()) if names.dtype.kind == "U" else None
    if warning is not None:
        warnings.warn(f"units: {warning}", UserWarning, stacklevel=5)
    if names.size < first.size:
        codes, first = codes_by_appearance(merged)
    if first.size < 2:
        raise ValueError("units name a single unit; expected at least two")
    return codes.reshape(n, 2)


def two_columns(units: Any) -> NDArray[Any]:
    """Units as an array: a tuple of two columns, a frame, or rows of two; objects as the words or numbers they are."""
    if isinstance(units, tuple) and len(units) == 2:
        sides = [_plain(np.asarray(side)) for side in units]
        if sides[0].ndim != 1 or sides[0].shape != sides[1].shape:
            raise ValueError(
                f"units are two columns of shapes {sides[0].shape} and {sides[1].shape}; expected one unit a pair "
                "in each"
            )
        return _plain(np.stack([side.astype(object) for side in sides], axis=1))
    columns = np.asarray(units)
    if (
        columns.dtype == object
        and columns.ndim == 1
        and all(isinstance(row, tuple | list) for row in columns)
    ):
        columns = np.array([[*row] for row in columns], dtype=object)
    return _plain(columns)


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    """Objects that are all words, or all numbers, as such."""
    if column.dtype != object or not column.size:
        return column
    kinds = {type(value) for value in column.ravel()}
    if all(issubclass(kind, str) for kind in kinds):
        return column.astype(np.str_)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        # Such as hashes of 64 bits, of which float64 would take many for one.
        return column.astype(np.uint64 if column.max() >= 2**63 else np.int64)
    if all(issubclass(kind, int | np.integer | float | np.floating) for kind in kinds):
        return column.astype(np.float64)
    raise ValueError(
        f"units hold {', '.join(sorted(kind.__name__ for kind in kinds))} together; expected words, or whole numbers, "
        "none missing: use .astype(str) where both occur"
    )


def _checked_protocol(protocol: str) -> Protocol:
    if protocol not in ("open-set", "closed-set"):
        raise ValueError(f"protocol is {protocol!r}; expected 'open-set' or 'closed-set'")
    return cast(Protocol, protocol)


def _protocol_of(pairs: Int64, is_same: Bool, protocol: str | None) -> Protocol:
    is_within = pairs[:, 0] == pairs[:, 1]
    crossing = is_same & ~is_within
    resolved_protocol = _checked_protocol(protocol or ("closed-set" if crossing.any() else "open-set"))
    is_open = resolved_protocol == "open-set"
    for is_wrong, words in (
        (~is_same & is_within, "is marked different but carries the same unit twice: correct same or units"),
        (
            crossing & is_open,
            "is marked same but carries two units: in open-set use the unit is the identity; if units are samples, the "
            "protocol is 'closed-set'",
        ),
        (
            is_within & (not is_open),
            "carries the same unit twice, a sample with itself in closed-set use: leave such pairs out",
        ),
    ):
        if is_wrong.any():
            raise ValueError(f"pair {int(np.argmax(is_wrong))} {words}")
    return resolved_protocol
