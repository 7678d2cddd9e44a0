"""How right links are: where it is known which records are the same, and by judging records.

Precision, recall and B-cubed are by pair, by record, and by cut.
Every share has an interval by entity: what goes wrong with one entity goes wrong with several of its pairs. A share
A / (A + B) of pairs varies with the entities as the sum of its influences, (1 - share) a - share b over A + B for an
entity with a and b of them (a pair of two entities counts with both: it is there if both are). The exact interval of a
binomial share is taken with as many draws as have this variance, at most one an entity (Korn and Graubard 1998,
"Confidence intervals for proportions with small expected number of positive counts estimated from survey data").

Records that are judged are drawn at random, each held against its nearest in all tables, whatever rules say. A record's
partners are those of its own links and of its `N_SHOWN` nearest that a person says are the same; how many of them its
links have is averaged over records (`pairmark.models.reviews.evidence.recall_bound`). So what no rule made a candidate
counts as missed; a partner that is neither linked nor among the nearest is not seen.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import betaincinv

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.evaluation.pairs import LINE, Format, picture
from pairmark.models.linking.candidates import Sides
from pairmark.models.linking.texts import Terms, read_texts
from pairmark.models.records.compare import LinkField
from pairmark.models.reviews.evidence import expected_records, recall_bound
from pairmark.schemas.link_shares import LinkRecall
from pairmark.schemas.links import Interval, LinkEvaluation, LinkFigures

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
    """Precision, recall, F1 and B-cubed of links, as decided and by cut; of pairs, what no candidate was made of is
    missed. By record (Bagga and Baldwin 1998) they are of the records that each is joined with, itself included.

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
    decided = figures(entity, None)
    by_cut = [figures(_join_links(a[kept], b[kept], n), cut) for cut, kept in above]
    return LinkEvaluation(
        basis="identities" if isinstance(truth, Identities) else "pairs",
        confidence=confidence,
        entities=int(np.count_nonzero(np.bincount(units[units != UNKNOWN]) > 1)),
        decided=decided,
        by_cut=by_cut,
        # Of several cuts, the highest.
        best_cut=max(reversed([decided, *by_cut]), key=lambda figures: figures.f1[0] or 0.0).cut,
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

    def share(wrong: Float64, n_wrong: float) -> Interval:
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


def _with_interval(value: float, influences: Float64, n_units: int, confidence: float) -> Interval:
    if not n_units:
        return None, 0.0, 1.0
    moved = influences[influences != 0]
    variance = np.square(moved).sum() - influences.sum() ** 2 / influences.size
    n = min(n_units, value * (1 - value) / variance) if variance > 1e-18 else n_units
    tail = (1 - confidence) / 2
    low = betaincinv(value * n, (1 - value) * n + 1, tail) if value else 0.0
    high = betaincinv(value * n + 1, (1 - value) * n, 1 - tail) if value < 1 else 1.0
    return float(value), float(low), float(high)


N_SHOWN: Final = 5
"""Nearest records that a drawn one is held against."""


class DrawnRecord(NamedTuple):
    """A record to judge: its ``row``, and the rows that it is held against with whether each is linked with it."""

    row: int
    others: tuple[tuple[int, bool], ...]


def draw_records(
    connection: Any,
    fields: Sequence[LinkField],
    sides: Sides,
    n: int,
    random: np.random.Generator,
) -> tuple[int, list[DrawnRecord]]:
    """Draw records of tables that `Linking.run` has linked, to be judged for the recall of the links.

    Parameters
    ----------
    connection, fields, sides : of the run: its tables ``source``, ``hashes`` and ``members`` are read.
    n : records to draw, at most. random : nobody else may know its seed, or draws can be foreseen.

    Returns
    -------
    How many records there are to draw from (those with a cell that equal no earlier one of their table), and the drawn
    ones. One that has no others has no partner either: it counts without being shown.
    """
    rows = connection.execute("SELECT row FROM hashes ORDER BY row").fetchnumpy()["row"].astype(np.int64)
    drawn = random.permutation(rows.size)[:n]
    is_alone = np.isin(np.arange(len(sides.sizes)), sides.apart)
    tables = sides.side_of(np.arange(sides.n_rows))
    near = Terms.of(*read_texts(connection, fields), drawn).nearest(drawn, tables[rows], is_alone, N_SHOWN)
    entities = connection.execute(
        "SELECT row, list(row) OVER (PARTITION BY first) FROM members SEMI JOIN hashes USING (row)"
    )
    members: dict[int, list[int]] = dict(entities.fetchall())
    records = []
    for row, nearest in zip(rows[drawn].tolist(), near, strict=True):
        linked = [
            other
            for other in sorted(members.get(row, []))
            if other != row and not (tables[other] == tables[row] and is_alone[tables[row]])
        ]
        others = dict.fromkeys([*linked, *rows[nearest[nearest >= 0]].tolist()], False)
        records.append(DrawnRecord(row, tuple((others | dict.fromkeys(linked, True)).items())))
    return int(rows.size), records


def recall_so_far(
    size: int, answers: Sequence[Sequence[tuple[bool, bool | None]]], at_least: float, confidence: float
) -> LinkRecall:
    """The recall that judgements of drawn records show, at any look, however many there will be.

    Parameters
    ----------
    size : records that were drawn from, as `draw_records` has it.
    answers : of each record in the order of the draws, up to the first that is not judged yet: whether each of its
        others is linked with it, and what a person said, that they are the same or not. None, nobody could tell, counts
        against the recall: as another thing where they are linked, and as the same where they are not.
    """
    partners_of = [
        [linked for linked, same in others if same or (same is None and not linked)] for others in answers
    ]
    linked_shares = [float(np.mean(partners)) if partners else np.nan for partners in partners_of]
    bound = recall_bound(size, linked_shares, confidence)
    expected_more = 0 if bound >= at_least else expected_records(size, linked_shares, at_least, confidence)
    recall = (
        float(np.mean([share for share in linked_shares if not np.isnan(share)]))
        if any(partners_of)
        else None
    )
    return LinkRecall(
        judged=len(linked_shares),
        recall=recall,
        bound=bound,
        confidence=confidence,
        enough=bound >= at_least,
        expected_more=expected_more,
    )


def measured_recall(connection: Any, sides: Sides, identities: Int64) -> tuple[int, int]:
    """Of entities of two records or more, as (n,) ``identities`` has them (-1: nobody knows), how many candidates
    connect, and how many there are. Of two tables those count that have records in both."""
    row = np.flatnonzero(identities >= 0)
    who = identities[row]
    candidates = connection.execute(
        "SELECT a, b, false AS equal FROM compared UNION ALL SELECT first, row, true FROM twins"
    ).fetchnumpy()
    a, b = (np.asarray(candidates[side], dtype=np.int64) for side in ("a", "b"))
    joins = candidates["equal"] | ((identities[a] == identities[b]) & (identities[a] >= 0))
    part, side = _join_links(a[joins], b[joins], sides.n_rows)[row], sides.side_of(row)
    n_parts, n_sides = (
        np.bincount(np.unique(np.stack([who, group]), axis=1)[0], minlength=int(who.max(initial=-1)) + 1)
        for group in (part, side)
    )
    counts, inside = n_sides > 1, np.isin(side, list(sides.within))
    twice, n = np.unique(np.stack([who[inside], side[inside]]), axis=1, return_counts=True)
    counts[twice[0][n > 1]] = True
    return int((counts & (n_parts == 1)).sum()), int(counts.sum())
