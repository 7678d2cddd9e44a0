"""What a stored calibration holds, checked as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from pairmark.models.calibration.kernels.row_statistics import N_STATISTICS
from pairmark.models.core.state import Array, check_arrays, refuse, require

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
        "group_units": Array(kind="int64", shape=("grouped",), order="rising", optional=True),
        "group_codes": Array(kind="int64", shape=("grouped",), low=0, optional=True),
        "inputs_people": Array(kind="float32", shape=("neighbours", "features"), optional=True),
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
