"""How right links are, where it is known which records are the same: by pair, by record, and by cut.

Every share has an interval by entity: what goes wrong with one entity goes wrong with several of its pairs. A share
A / (A + B) of pairs varies with the entities as the sum of its influences, (1 - share) a - share b over A + B for an
entity with a and b of them (a pair of two entities counts with both: it is there if both are). The exact interval of a
binomial share is taken with as many draws as have this variance, at most one an entity (Korn and Graubard 1998,
"Confidence intervals for proportions with small expected number of positive counts estimated from survey data").
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import betaincinv

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.evaluation.pairs import LINE, Format, picture

_MOST_CUTS: Final = 30
_RECALL: Final = "#b45309"
UNKNOWN: Final = -1


@dataclass(frozen=True)
class Identities:
    """What each row is a record of, (n,) numbers; `UNKNOWN` where nobody said: such rows do not count."""

    codes: Int64

    def units(self, n: int) -> Int64:
        return self.codes

    def count(self, entity: Int64, units: Int64, tables: Int64, within: bool) -> "_Counts":
        known = units != UNKNOWN
        made, true, table = (np.unique(of[known], return_inverse=True)[1] for of in (entity, units, tables))
        n_true = np.bincount(true)
        right, touched = _pairs_by_unit(true, made)
        same = _pairs_by_unit(true, np.zeros_like(true))[0]
        if not within:
            # Pairs of rows of one table are none.
            right_within, touched_within = _pairs_by_unit(true, made * (table.max(initial=0) + 1) + table)
            right, touched = right - right_within, touched - touched_within
            same = same - _pairs_by_unit(true, table)[0]
        unit, joined, n_in = _cells(true, made)
        precise, recalled = (
            np.bincount(unit, weights=n_in**2 / n_all, minlength=n_true.size)
            for n_all in (np.bincount(made)[joined], n_true[unit])
        )
        return _Counts(right, touched, same - right, float(touched.sum()) / 2, (precise, recalled, n_true))


@dataclass(frozen=True)
class ListedPairs:
    """Pairs of rows of which somebody said whether they are the same; no other pair counts."""

    a: Int64
    b: Int64
    same: Bool

    def units(self, n: int) -> Int64:
        return _join_links(self.a[self.same], self.b[self.same], n)

    def count(self, entity: Int64, units: Int64, tables: Int64, within: bool) -> "_Counts":
        made = entity[self.a] == entity[self.b]

        def count(which: Bool, side: Int64) -> Float64:
            return np.bincount(units[side[which]], minlength=units.size).astype(np.float64)

        false = made & ~self.same
        touched = count(false, self.a) + count(false & (units[self.a] != units[self.b]), self.b)
        right, missed = count(made & self.same, self.a), count(~made & self.same, self.a)
        return _Counts(right, touched, missed, float(false.sum()))


class Share(NamedTuple):
    """A share with its interval; NaN, from 0 to 1, where there is nothing that it is a share of."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class LinkFigures:
    """Figures of the links above a cut.

    Attributes
    ----------
    cut : links score above it; None: as they were decided.
    joined, right, same : pairs of records that are joined, of those that count; of these that are the same; and all
        that are the same.
    precision, recall, f1 : of these pairs; what no candidate was made of is missed.
    b_cubed : the same three by record (Bagga and Baldwin 1998): of the records that each is joined with, itself
        included, those that it belongs with, and the other way round. None where pairs are listed.
    """

    cut: float | None
    joined: int
    right: int
    same: int
    precision: Share
    recall: Share
    f1: Share
    b_cubed: tuple[Share, Share, Share] | None


@dataclass(frozen=True, kw_only=True)
class LinkEvaluation:
    """Links against what is known.

    Attributes
    ----------
    basis : what is known. confidence : of every interval.
    entities : how many of two records or more are known.
    decided : of the links as they were decided. by_cut : of those above some cuts, ascending.
    """

    basis: Literal["identities", "pairs"]
    confidence: float
    entities: int
    decided: LinkFigures
    by_cut: tuple[LinkFigures, ...]

    @property
    def best(self) -> LinkFigures:
        """Where F1 is largest; of several cuts, the highest."""
        return max(
            reversed([self.decided, *self.by_cut]), key=lambda figures: np.nan_to_num(figures.f1.value)
        )


class _Counts(NamedTuple):
    """Pairs by entity: joined and the same, joined and different (with both entities), and missed; how many are joined
    and different in all; and of identities, the sums of B-cubed's precision and recall over an entity's records, and
    how many records those are."""

    right: Float64
    touched: Float64
    missed: Float64
    n_false: float
    by_record: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None


def evaluate_links(
    links: Mapping[str, NDArray[Any]],
    members: Mapping[str, NDArray[Any]],
    truth: Identities | ListedPairs,
    tables: Int64,
    *,
    within: bool = True,
    confidence: float = 0.95,
) -> LinkEvaluation:
    """Precision, recall, F1 and B-cubed of links, as decided and by cut.

    Parameters
    ----------
    links : ``a``, ``b``, ``score`` and ``kept`` of each. members : ``row`` and ``first`` of rows in an entity.
    truth : what is known. tables : (n,) the table of each row.
    within : whether two rows of one table can be linked; else only pairs across tables count.
    """
    n = tables.size
    units = truth.units(n)

    def figures(entity: Int64, cut: float | None) -> LinkFigures:
        return _figures(truth.count(entity, units, tables, within), cut, confidence)

    entity = np.arange(n)
    entity[members["row"]] = members["first"]
    kept = np.asarray(links["kept"], dtype=np.bool_)
    a, b, score = (np.asarray(links[name])[kept] for name in ("a", "b", "score"))
    cuts = (
        np.unique(np.quantile(score, np.linspace(0, 1, _MOST_CUTS), method="lower")) if score.size else score
    )
    above = [(cut, score > cut) for cut in cuts[:-1].tolist()]
    return LinkEvaluation(
        basis="identities" if isinstance(truth, Identities) else "pairs",
        confidence=confidence,
        entities=int(np.count_nonzero(np.bincount(units[units != UNKNOWN]) > 1)),
        decided=figures(entity, None),
        by_cut=tuple(figures(_join_links(a[kept], b[kept], n), cut) for cut, kept in above),
    )


def draw_cuts(evaluation: Mapping[str, Any], format: Format, title: str) -> bytes:
    """Precision and recall by cut with their intervals, and as decided, dashed; of `LinkEvaluation` as JSON has it."""
    by_cut, stream = evaluation["by_cut"], io.BytesIO()
    cuts = np.array([line["cut"] for line in by_cut])
    with picture(stream, format, title, "links score above", "share") as axes:
        for name, color in (("precision", LINE), ("recall", _RECALL)):
            value, low, high = np.array([line[name] for line in by_cut], dtype=np.float64).reshape(-1, 3).T
            axes.fill_between(cuts, low, high, color=color, alpha=0.22, linewidth=0)
            axes.plot(cuts, value, color=color, linewidth=1.6, label=name)
            decided = evaluation["decided"][name][0]
            axes.axhline(np.nan if decided is None else decided, color=color, linewidth=1, linestyle="--")
        if cuts.size and cuts.min() > 0 and cuts.max() < 1:
            # Chances crowd near 1.
            axes.set_xscale("logit")
            axes.xaxis.set_major_formatter(lambda cut, _: f"{cut:g}")
            axes.xaxis.set_minor_formatter(lambda cut, _: "")
        axes.legend(loc="lower left", frameon=False)
    return stream.getvalue()


def _join_links(a: Int64, b: Int64, n: int) -> Int64:
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _pairs_by_unit(true: Int64, made: Int64) -> tuple[Float64, ...]:
    """Pairs of rows with one ``made`` number, by the unit of their rows: within it, and of it and another."""
    unit, joined, n = _cells(true, made)
    others = np.bincount(made)[joined] - n
    return tuple(
        np.bincount(unit, weights=pairs).astype(np.float64) for pairs in (n * (n - 1) / 2, n * others)
    )


def _cells(true: Int64, made: Int64) -> tuple[Int64, Int64, Int64]:
    """Of the pairs of numbers that rows have, either number and how many rows."""
    codes, n = np.unique(true * (made.max(initial=0) + 1) + made, return_counts=True)
    return *np.divmod(codes, made.max(initial=0) + 1), n


def _figures(counts: _Counts, cut: float | None, confidence: float) -> LinkFigures:
    right, touched, missed, n_false, by_record = counts

    def share(wrong: Float64, n_wrong: float) -> Share:
        total = right.sum() + n_wrong
        value = right.sum() / total if total else np.nan
        influences = ((1 - value) * right - value * wrong) / max(total, 1)
        return _with_interval(value, influences, int(np.count_nonzero(right + wrong)), confidence)

    b_cubed = None
    if by_record is not None and by_record[2].size:
        *sums, n_records = by_record
        p, r = (sum_of_records.sum() / n_records.sum() for sum_of_records in sums)
        shifts = [
            (sum_of_records - at * n_records) / n_records.sum()
            for sum_of_records, at in zip(sums, (p, r), strict=True)
        ]
        f1_shifts = 2 * (r**2 * shifts[0] + p**2 * shifts[1]) / (p + r) ** 2
        measures = zip((p, r, 2 * p * r / (p + r)), (*shifts, f1_shifts), strict=True)
        precise, recalled, both = (
            _with_interval(value, shift, n_records.size, confidence) for value, shift in measures
        )
        b_cubed = (precise, recalled, both)
    return LinkFigures(
        cut=cut,
        joined=round(right.sum() + n_false),
        right=round(right.sum()),
        same=round(right.sum() + missed.sum()),
        precision=share(touched, n_false),
        recall=share(missed, missed.sum()),
        f1=share((touched + missed) / 2, (n_false + missed.sum()) / 2),
        b_cubed=b_cubed,
    )


def _with_interval(value: float, influences: Float64, n_units: int, confidence: float) -> Share:
    if not n_units:
        return Share(np.nan, 0.0, 1.0)
    moved = influences[influences != 0]
    variance = np.square(moved).sum() - influences.sum() ** 2 / influences.size
    n = min(n_units, value * (1 - value) / variance) if variance > 1e-18 else n_units
    tail = (1 - confidence) / 2
    low = betaincinv(value * n, (1 - value) * n + 1, tail) if value else 0.0
    high = betaincinv(value * n + 1, (1 - value) * n, 1 - tail) if value < 1 else 1.0
    return Share(float(value), float(low), float(high))
