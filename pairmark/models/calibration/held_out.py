"""What held-out scores say about every threshold: the rates, what the bounds count, and the bootstrap's table."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.bootstrap import (
    CONFIDENCES,
    BootstrapTable,
    bootstrap_table,
    empty_table,
    n_above,
)
from pairmark.models.calibration.finite_sample import AllPairs, FiniteSample, ListedPairs, ScoredGraph
from pairmark.models.calibration.kernels.row_statistics import N_STATISTICS
from pairmark.models.calibration.operating_point import Origin
from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.state import Array, check_arrays, refuse, require
from pairmark.models.pairs.samples import PairSample, matched_scores

_ROUNDING = 1e-9


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


Arrays = dict[str, NDArray[Any]]

STATE_VERSION = 2


class HeldOutScores:
    """The scores of held-out pairs, reduced to what thresholds are chosen from; it can be saved.

    Attributes
    ----------
    arrays, facts : what `to_state` writes, without the bootstrap's table.
    thresholds : (k,) float32, the distinct scores of different pairs, descending.
    finite : the finite-sample bounds, by threshold number.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], table: BootstrapTable | None
    ) -> None:
        self.arrays = dict(arrays)
        self.facts = dict(facts)
        self._table = table
        self._sample: PairSample | None = None
        self._n_jobs: int | None = None
        self._lock = threading.Lock()
        self.thresholds: Float32 = self.arrays["thresholds"]
        self.finite = FiniteSample(
            above=self.arrays["above"],
            n=int(facts["n_independent"]),
            n_matched=int(facts["n_matched"]),
            different_share=float(facts["different_share"]),
            counts_rows=bool(facts["counted"]),
            product=_product(self.arrays, facts),
            population=facts["population"],
            n_same=int(facts["n_same_pairs"]),
        )

    @classmethod
    def of(
        cls,
        sample: PairSample,
        *,
        n_replicates: int,
        n_jobs: int | None = None,
        origin: Origin,
        population: int | None = None,
    ) -> Self:
        """Count what bounds need. The bootstrap, which takes longest, waits until somebody asks for it."""
        n_different = len(sample.different)
        thresholds, above = sample.different.steps()
        same_scores, same_above = sample.same.steps()
        n_matched, n, share = sample.different.n_blocks, sample.different.n_blocks, 1.0
        matched_same = np.sort(sample.same.scores)
        # Pairs that share no unit, by the list alone: what the floor is counted in, and the bound of missed matches.
        if not sample.rows_independent:
            matched_same, n_matched = matched_scores(sample)
        if sample.protocol == "closed-set":
            share = sample.different.total()
        # Pairs that share no unit are independent, and counted as such.
        counts_rows = sample.rows_independent or n_matched == n_different + len(sample.same) * (share < 1)
        # Rows are counted as they are: A over B is then the plain share of different rows above.
        if counts_rows:
            n, above, share = n_different, above / share, 1.0
        facts: dict[str, Any] = {
            "state_version": STATE_VERSION,
            "protocol": sample.protocol,
            "n_units": sample.n_units,
            "n_independent": n,
            "n_negative_pairs": n_different,
            "n_same_pairs": len(sample.same),
            "n_same_independent": sample.same.n_blocks,
            "independent_rows": sample.rows_independent,
            "weighted": False,
            "different_share": share,
            "counted": counts_rows,
            "origin": origin,
            "population": population,
            "n_matched": n if counts_rows else n_matched,
            "n_replicates": n_replicates,
        }
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
        held_out = cls(arrays, facts, None)
        held_out._sample, held_out._n_jobs = sample, n_jobs
        return held_out

    def to_state(self) -> tuple[Arrays, dict[str, Any]]:
        table = self.bootstrap()
        arrays = {
            **self.arrays,
            "bootstrap_thresholds": table.thresholds,
            "bootstrap_upper": table.upper,
            "bootstrap_admitted": table.admitted,
        }
        return arrays, dict(self.facts)

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        with reading_state("the calibration", meta, STATE_VERSION):
            check_calibration(arrays, len(CONFIDENCES))
            table = BootstrapTable(
                thresholds=arrays["bootstrap_thresholds"],
                upper=arrays["bootstrap_upper"],
                admitted=arrays["bootstrap_admitted"],
            )
            # The arrays of later versions are kept as they are.
            facts = {**meta, "state_version": STATE_VERSION}
            if facts.get("origin") not in get_args(Origin):
                raise ValueError(
                    "the calibration's origin is not produced by fit (any more): calibrate the version again"
                )
            own_arrays = {name: array for name, array in arrays.items() if not name.startswith("bootstrap_")}
            return cls(own_arrays, facts, table)

    @property
    def origin(self) -> Origin:
        """How the pairs came about."""
        return cast(Origin, self.facts["origin"])

    @property
    def protocol(self) -> str:
        """``open-set`` or ``closed-set``."""
        return str(self.facts["protocol"])

    @property
    def counted(self) -> str:
        """What the units are, in words."""
        if self.facts["independent_rows"]:
            return "pairs"
        return "people" if self.protocol == "open-set" else "samples"

    def share_above(self, threshold: np.float32) -> float:
        """The share of same pairs above a threshold."""
        above = self.arrays["same_above"]
        at = n_above(self.arrays["same_scores"], threshold)
        return min(1.0, float(above[at])) if at < above.size else 1.0

    def share_of_rows(self, threshold: np.float32) -> float | None:
        """The share of scored different pairs above a threshold, each counted once; None where it was not kept."""
        above = self.arrays.get("rows_above")
        if above is None:
            return None
        at = n_above(self.thresholds, threshold)
        return float(above[at]) if at < above.size else 1.0

    def bootstrap(self) -> BootstrapTable:
        """The bootstrap's table, made when it is first asked for."""
        with self._lock:
            if self._table is None:
                assert self._sample is not None
                self._table = (
                    empty_table()
                    if self.origin == "population"
                    else bootstrap_table(
                        self._sample,
                        n_replicates=int(self.facts["n_replicates"]),
                        n_jobs=self._n_jobs,
                    )
                )
                self._sample = None
            return self._table


def _product(arrays: Arrays, facts: Mapping[str, Any]) -> AllPairs | ListedPairs | None:
    """The bound for pairs that are not independent of each other; None where they are counted."""
    if facts["counted"]:
        return None
    graph = ScoredGraph.from_arrays(arrays)
    kind = AllPairs if graph.cell.size else ListedPairs
    return kind(graph, arrays["above"])


def pick_points(ascending: Float64, max_points: int) -> Int64:
    """Indices of at most ``max_points`` values, first and last among them: half even, half dense at the low end."""
    n = ascending.size
    if n <= max_points:
        return np.arange(n, dtype=np.int64)
    half = max_points // 2
    low = np.geomspace(1, n - 1, half).astype(np.int64)
    even = np.linspace(0, n - 1, max_points - half).astype(np.int64)
    return np.unique(np.concatenate([[0], low, even]))[:max_points] if half else even
