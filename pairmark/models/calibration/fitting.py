"""From scored pairs to what a calibration keeps: arrays by threshold, and facts, of all pairs and of those within
groups of people, within each of which the rate holds, too. Both are checked as they are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, get_args

import numpy as np

from pairmark.models.calibration.finite_sample import MOST_BLOCKS, ScoredGraph, order_pairs_needed
from pairmark.models.calibration.guarantees import askable, units_needed
from pairmark.models.calibration.kernels import N_STATISTICS
from pairmark.models.calibration.operating_point import (
    ANSWERING,
    Declared,
    InsufficientCalibrationData,
    Origin,
    guarantee_of,
    nothing_guaranteed,
)
from pairmark.models.core.arrays import ArrayLike, Int64, NDArray
from pairmark.models.core.inputs import label_of
from pairmark.models.core.state import Array, add_prefix, check_arrays, refuse, require, without_prefix
from pairmark.models.pairs.samples import PairSample, matched_scores, pair_sample, two_columns, unit_codes
from pairmark.models.pairs.splits import Protocol

if TYPE_CHECKING:
    from pairmark.models.calibration.calibration import Calibration
if TYPE_CHECKING:
    from pairmark.models.calibration.calibration import Calibration


MOST_GROUPS = 100
OF_GROUP = re.compile(r"group\d+_")
"""How the arrays of a group's calibration are called in a stored state."""
_LISTINGS = {"all": "all", "drawn": "drawn", "random": "random-people", "random-rows": "random-rows"}
"""The origin of pairs within a group, by that of all."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of the calibration units.

    Attributes
    ----------
    name : its value.
    n_units : how many units are in it.
    calibration : of the pairs within it; None where these say nothing.
    """

    name: str
    n_units: int
    calibration: Calibration | None = field(repr=False)


def group_names(values: Any) -> NDArray[np.str_]:
    """Values as the names of groups, of the same shape; what is missing has the empty name."""
    array = np.asarray(values, dtype=object)
    names = {
        value: "" if value is None or value != value else label_of(f"{value}") for value in set(array.ravel())
    }
    return np.array([names[value] for value in array.ravel()], dtype=np.str_).reshape(array.shape)


def fit_groups(
    whole: Calibration, scores: ArrayLike, same: ArrayLike, units: Any, groups: ArrayLike
) -> tuple[Group, ...]:
    """The groups of a calibration, each with the calibration of the pairs within it; see `Calibration.fit`."""
    values, is_same, fitted = np.asarray(scores), np.asarray(same), []
    for name, n_units, rows in rows_by_group(groups, units, values.size):
        part = None
        with suppress(ValueError):
            part = whole.fit(
                values[rows],
                is_same[rows],
                two_columns(units)[rows],
                protocol=whole.protocol,
                listing=_LISTINGS.get(whole.facts.origin),
                units_assumed=whole.facts.origin == "assumed",
            ).without_bootstrap()
        fitted.append(Group(name=name, n_units=n_units, calibration=part))
    return tuple(fitted)


def groups_state(groups: Sequence[Group]) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
    """Plain arrays and JSON-able facts; `read_groups` reads them."""
    arrays: dict[str, NDArray[Any]] = {}
    facts = []
    for number, group in enumerate(groups):
        of_part, part_facts = ({}, None) if group.calibration is None else group.calibration.to_state()
        arrays |= add_prefix(of_part, f"group{number}_")
        facts.append({"name": group.name, "n_units": group.n_units, "facts": part_facts})
    return arrays, facts


def read_groups(
    kind: type[Calibration], arrays: Mapping[str, NDArray[Any]], facts: Sequence[Mapping[str, Any]]
) -> tuple[Group, ...]:
    """The groups that `groups_state` wrote; ``kind`` : what their calibrations are."""
    parts = [without_prefix(arrays, f"group{number}_") for number in range(len(facts))]
    return tuple(
        Group(
            name=str(group["name"]),
            n_units=int(group["n_units"]),
            calibration=None if group["facts"] is None else kind.from_state(part, group["facts"]),
        )
        for group, part in zip(facts, parts, strict=True)
    )


def rows_by_group(groups: ArrayLike, units: ArrayLike | None, n: int) -> list[tuple[str, int, Int64]]:
    """Of each group its name, how many units it has, and the numbers of the pairs within it.

    Parameters
    ----------
    groups, units : (n, 2) or two columns: the group, and the unit, of each side of a pair.

    Raises
    ------
    ValueError
        Without units, for other shapes, a unit of two groups, or more than `MOST_GROUPS`.
    """
    if units is None:
        raise ValueError("groups are of units; expected units, the person on each side of a pair")
    is_pair = isinstance(groups, tuple) and len(groups) == 2
    columns = np.asarray(groups, dtype=object).T if is_pair else np.asarray(groups, dtype=object)
    if columns.shape != (n, 2):
        raise ValueError(
            f"groups have shape {columns.shape}; expected ({n}, 2), the group of the person on each side of a pair"
        )
    codes = unit_codes(units, n).ravel()
    values, value = np.unique(group_names(columns).ravel(), return_inverse=True)
    group_of = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    group_of[codes] = value
    differing = np.flatnonzero(group_of[codes] != value)
    if differing.size:
        side = differing[0]
        one, other = values[[value[side], group_of[codes[side]]]].tolist()
        raise ValueError(
            f"groups: pair {side // 2} puts a unit into group {one!r}, another pair into {other!r}; "
            "expected one group for each unit"
        )
    if values.size > MOST_GROUPS:
        raise ValueError(f"groups have {values.size} values; expected at most {MOST_GROUPS}")
    sides = group_of[codes].reshape(n, 2)
    return [
        (str(name), int((group_of == code).sum()), np.flatnonzero((sides == code).all(axis=1)))
        for code, name in enumerate(values)
        if name
    ]


def guaranteed_groups(whole: Calibration, fpr: float, confidence: float) -> tuple[float, tuple[str, ...]]:
    """The confidence of each single guarantee, and the groups within which the rate is guaranteed, by sizes alone.

    G of them, the largest, and the whole share the failure probability evenly; G is the largest number that all of
    them can be answered with.
    """
    able = [(group.name, group.calibration) for group in whole.groups if group.calibration is not None]
    able.sort(key=lambda entry: -entry[1].facts.n_matched)
    for n in range(len(able), 0, -1):
        level = 1 - (1 - confidence) / (n + 1)
        # Sizes alone refuse most, at once.
        if all(part.answers(fpr, level) for part in (*(part for _, part in able[:n]), whole)):
            return level, tuple(name for name, _ in able[:n])
    return confidence, ()


def group_facts(
    groups: Sequence[Group],
    threshold: np.float32,
    fpr: float,
    confidence: float,
    *,
    guaranteed: Sequence[str] | None,
    like_share: float,
) -> list[dict[str, Any]]:
    """What is known of each group at a threshold, JSON-able; see `OperatingPoint`.

    Parameters
    ----------
    guaranteed : groups within which the rate is guaranteed; None: this answer is of all pairs alone, however many
        people a group has.
    like_share : of positive pairs, how many have no unlike row.
    """
    within = guaranteed or ()
    needed = 2 * order_pairs_needed(fpr, 1 - (1 - confidence) / (len(within) + 2))
    facts = []
    for group in groups:
        part = group.calibration
        tpr = None if part is None else part.share_of_positives(threshold)
        entry: dict[str, Any] = {
            "group": group.name,
            "n_units": group.n_units,
            "fpr": None if part is None else part.observed_rate(threshold),
            "tpr": None if tpr is None else like_share * tpr,
            "guarantee": "finite-sample" if group.name in within else "none",
        }
        if group.name in within:
            entry["fpr_upper_bound"] = fpr
        elif guaranteed is not None:
            entry["needs"] = max(1, needed - group.n_units)
        facts.append(entry)
    return facts


Arrays = dict[str, NDArray[Any]]
_ROUNDING = 1e-9
FEWEST_TURNED = 20
"""So many positive pairs that score lower than negative ones are no chance."""


@dataclass(frozen=True, kw_only=True)
class CalibrationFacts:
    """What a calibration keeps beside its arrays, JSON-able.

    Attributes
    ----------
    protocol, n_units, n_negative_pairs, origin : as in `OperatingPoint`.
    n_independent, n_matched, different_share, counted, population : as `FiniteSample` takes them, ``counted`` being
        whether rows are.
    n_same_pairs, n_same_independent : positive pairs, and how many independent ones an average over them is worth.
    independent_rows : whether every row is an observation of its own.
    n_replicates : of the bootstrap.
    inputs : of `RowRanges`. records, records_aggregation : of `CalibrationRecords`. None where these are not kept.
    groups : of each `Group` its ``name``, ``n_units`` and the ``facts`` of the calibration of its pairs.
    group_names : names by the codes of the ``group_codes`` of units. None where no groups were asked for.
    n_strangers : units that are unlabeled rows, each taken for another person.
    folds : how many models scored the pairs, each those of which it saw nobody; None where the one that is kept did.
    """

    protocol: Protocol
    n_units: int
    n_independent: int
    n_negative_pairs: int
    n_same_pairs: int
    n_same_independent: int
    independent_rows: bool
    different_share: float
    counted: bool
    origin: Origin
    population: int | None
    n_matched: int
    n_replicates: int
    inputs: dict[str, Any] | None = None
    records: dict[str, Any] | None = None
    records_aggregation: str | None = None
    groups: list[dict[str, Any]] | None = None
    group_names: list[str] | None = None
    n_strangers: int = 0
    folds: int | None = None

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Self:
        """Read what `as_dict` wrote; what later versions may add is left out."""
        if meta.get("origin") not in get_args(Origin):
            raise ValueError(
                "the calibration's origin is not produced by fit (any more): calibrate the version again"
            )
        # One that a default stands for may be missing; the others are a KeyError.
        return cls(
            **{
                field.name: meta[field.name]
                for field in fields(cls)
                if field.default is MISSING or field.name in meta
            }
        )

    @property
    def unit_name(self) -> str:
        """What the units are, in words."""
        return "pairs" if self.independent_rows else "people" if self.protocol == "open-set" else "samples"

    def as_dict(self) -> dict[str, Any]:
        """Without what is None for want of anything to keep."""
        return {name: fact for name, fact in asdict(self).items() if fact is not None or name == "population"}


def fit_arrays(
    scores: ArrayLike, same: ArrayLike, units: ArrayLike | None, declared: Declared, n_replicates: int
) -> tuple[PairSample, Arrays, CalibrationFacts]:
    """The sample, arrays and facts of a calibration; see `Calibration.fit`."""
    if n_replicates < 1000:
        raise ValueError(f"n_replicates is {n_replicates}; expected at least 1000")
    population = declared.population
    sample = pair_sample(scores, same, units if population is None else None, protocol=declared.protocol)
    if len(sample.same) >= FEWEST_TURNED and np.median(sample.same.scores) < np.quantile(
        sample.different.scores, 0.05
    ):
        raise ValueError(
            "positive pairs score lower than negative ones, as distances do; expected scores that are higher for "
            "more similar pairs: negate them"
        )
    n_pairs = len(sample.different) + len(sample.same)
    if population is not None and population < n_pairs:
        raise ValueError(
            f"population is {population}; expected at least the {n_pairs} pairs that are a sample of it"
        )
    origin = declared.origin(sample)
    n_different = len(sample.different)
    thresholds, above = sample.different.steps()
    same_scores, same_above = sample.same.steps()
    n, matched_same = sample.different.n_blocks, np.sort(sample.same.scores)
    n_matched, share = n, sample.different.total() if sample.protocol == "closed-set" else 1.0
    # Pairs that share no unit, by the list alone: what the floor is counted in, and the bound of missed matches.
    if not sample.rows_independent:
        matched_same, n_matched = matched_scores(sample)
    # Pairs that share no unit are independent, and counted as such.
    counts_rows = sample.rows_independent or n_matched == n_different + len(sample.same) * (share < 1)
    # Rows are counted as they are: A over B is then the plain share of different rows above.
    if counts_rows:
        n, above, share = n_different, above / share, 1.0
    facts = CalibrationFacts(
        protocol=sample.protocol,
        n_units=sample.n_units,
        n_independent=n,
        n_negative_pairs=n_different,
        n_same_pairs=len(sample.same),
        n_same_independent=sample.same.n_blocks,
        independent_rows=sample.rows_independent,
        different_share=share,
        counted=counts_rows,
        origin=origin,
        population=population,
        n_matched=n if counts_rows else n_matched,
        n_replicates=n_replicates,
    )
    arrays: Arrays = {
        "thresholds": thresholds,
        "above": above,
        "rows_above": np.searchsorted(-sample.different.scores, -thresholds) / n_different,
        "same_scores": same_scores,
        "same_above": same_above,
        "matched_same": matched_same,
    }
    if not counts_rows:
        arrays |= ScoredGraph.of(sample, thresholds, cells=origin == "drawn").arrays()
    return sample, arrays, facts


def refusal(
    calibration: Calibration, fpr: float, confidence: float, tried: list[str]
) -> InsufficientCalibrationData:
    """The error that says what the tried methods lack, and what the others would answer."""
    facts, smallest = calibration.facts, calibration.smallest_fpr(confidence)
    counted = facts.unit_name
    required = units_needed(
        fpr, confidence, different_share=facts.different_share, rows_independent=facts.independent_rows
    )
    reached, expected = smallest["bootstrap"], required["bootstrap"]
    if expected is not None and reached is not None and reached > fpr:
        # These data fall short by more than chance: scale what they reach (pairs grow with units squared).
        projection = facts.n_units * (reached / fpr) ** (1.0 if facts.independent_rows else 0.5)
        required["bootstrap"] = max(expected, math.ceil(min(projection, MOST_BLOCKS)))
    nothing = nothing_guaranteed(facts.origin)
    sentences = [] if nothing is None else [nothing]
    for name in tried:
        floor, n_required, about = smallest[name], required[name], "about " if name == "bootstrap" else ""
        rates = "no rate" if floor is None else f"rates of {askable(floor):g} and above"
        takes = "" if n_required is None else f"; {fpr:g} takes {about}{n_required:,} {counted}"
        sentences.append(f"{name} {'answers' if nothing else 'supports'} {rates}{takes}")
    alternatives: dict[str, dict[str, Any]] = {
        name: {
            "refused": True,
            "guarantee": guarantee_of(name, facts.origin),
            "smallest_fpr": smallest.get(name),
        }
        if (point := calibration.answer(name, fpr, confidence)) is None
        else point.as_dict()
        for name in ANSWERING
        if name not in tried
    }
    return InsufficientCalibrationData(
        f"{facts.n_units:,} held-out {counted} ({facts.n_negative_pairs:,} negative pairs) "
        f"cannot support a false positive rate of {fpr:g} at confidence {confidence:g}: {'. '.join(sentences)}. "
        f"Ask for a higher rate, or calibrate with more {counted}",
        smallest_fpr=smallest,
        required_units=required,
        alternatives=alternatives,
    )


@contextmanager
def reading_state(title: str, meta: Mapping[str, Any], newest: int) -> Iterator[None]:
    """For the time in which a stored state is read: newer versions and missing parts are a ValueError that says so.

    ``title`` : the state, as a message begins. ``newest`` : the latest state version that is understood.
    """
    try:
        if int(meta["state_version"]) > newest:
            raise ValueError(
                f"{title} has state version {meta['state_version']}, this code reads up to {newest}: upgrade pairmark"
            )
        yield
    except KeyError as error:
        raise ValueError(f"{title} lacks {error}: expected what to_state() returned") from error


def check_calibration(arrays: Mapping[str, NDArray[Any]], n_confidences: int) -> None:
    """Refuse arrays that no fit writes; `ArtefactError`, a `ValueError`, names the array and the row."""
    share = Array(kind="float64", shape=("thresholds",), low=0, high=1 + _ROUNDING, order="never-falling")
    layout = {
        "thresholds": Array(kind="float32", shape=("thresholds",)),
        "above": share,
        "rows_above": replace(share, optional=True),
        "same_scores": Array(kind="float32", shape=("same",)),
        "same_above": Array(kind="float64", shape=("same",), low=0, high=1 + _ROUNDING),
        "bootstrap_thresholds": Array(kind="float32", shape=("stops",)),
        "bootstrap_upper": Array(kind="float64", shape=(n_confidences, "stops"), low=0, infinite=True),
        "bootstrap_admitted": Array(kind="bool", shape=("stops",)),
        "graph_different": Array(kind="int32", shape=("edges", 2), low=0, optional=True),
        "graph_same": Array(kind="int32", shape=("mates", 2), low=0, optional=True),
        "graph_cell": Array(kind="int32", shape=("cells",), low=0, optional=True),
        "graph_row_edge": Array(kind="int32", shape=("rows",), below="edges", optional=True),
        "graph_row_at": Array(kind="int32", shape=("rows",), low=0, order="never-falling", optional=True),
        "inputs_scales": Array(kind="float32", shape=(2, "features"), optional=True),
        "inputs_ranges": Array(kind="float64", shape=(2, N_STATISTICS), optional=True),
        "inputs_reference": Array(kind="float64", shape=("people", N_STATISTICS), optional=True),
        "group_units": Array(kind="int64", shape=("grouped",), order="rising", optional=True),
        "group_codes": Array(kind="int64", shape=("grouped",), low=0, optional=True),
        "inputs_people": Array(kind="float32", shape=("neighbors", "features"), optional=True),
        "inputs_near": Array(kind="float64", shape=(2,), low=0, order="never-falling", optional=True),
        "records_cells": Array(kind="uint8", shape=("bytes",), optional=True),
        "records_left": Array(kind="int64", shape=("pairs",), low=0, optional=True),
        "records_right": Array(kind="int64", shape=("pairs",), low=0, optional=True),
        "records_same": Array(kind="bool", shape=("pairs",), optional=True),
        "records_units": Array(kind="int64", shape=("pairs", 2), optional=True),
        "records_index": Array(kind="int64", shape=("samples",), low=0, optional=True),
        "records_counts": Array(kind="int64", shape=("subjects",), low=1, optional=True),
        "records_patterns": Array(kind="bool", shape=("patterns", 2, "columns"), optional=True),
        "records_scores": Array(kind="float32", shape=("patterns", "pairs"), optional=True),
    }
    # What later versions may add is not read.
    read = {name: array for name, array in arrays.items() if name in layout}
    sizes: dict[str, int] = {}
    check_arrays(read, layout, sizes)
    for name in ("thresholds", "bootstrap_thresholds"):
        values = arrays[name]
        require(values[1:] < values[:-1], name, values[1:], "less than the row before it", first_row=1)
    if sizes["thresholds"] < 1:
        raise refuse("thresholds", None, "has no rows", "one or more")
    n_units = sizes.get("cells", 0)
    for name in ("graph_different", "graph_same"):
        if n_units:
            require(arrays[name] < n_units, name, arrays[name], f"less than {n_units}")
