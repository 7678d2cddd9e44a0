"""The graph between rows. A new point is linked to it by its features, never by its label."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.state import Array, Fact

MAX_POINTS = 5_000
"""Paths between all pairs of so many points take 100 MB."""
LINKS = 5
"""Nearest points that each is linked to (section 4.1)."""
_SHORTEST = 1e-6
"""In units of the mean edge: equal points lie this far apart, since a length of 0 would read as no edge."""


class GraphFacts(BaseModel):
    """Numbers of a graph.

    Attributes
    ----------
    far : what unconnected points count as: twice the longest path there is and an edge more, so that a new point
        at the end of it is not yet as far.
    n_neighbours : links of a new point.
    top_degree : the largest degree.
    unit : the mean length of an edge.
    by_features : whether lengths are distances of features; else a new point's links have length ``unit``.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")

    far: float = Field(ge=0.0)
    n_neighbours: int = Field(ge=1, le=1_000)
    top_degree: int = Field(ge=0, le=MAX_POINTS)
    unit: float = Field(ge=0.0)
    by_features: bool


@dataclass(frozen=True, kw_only=True)
class Graph:
    """An undirected graph with lengths, and what is asked of it.

    Attributes
    ----------
    paths : (n, n) float32, symmetric; lengths of the shortest paths (SP_2 of section 3.9), at most ``far``.
    links : (n, n) bool, symmetric, False on the diagonal.
    facts : what else is known of it.
    """

    paths: Annotated[Float32, Array(shape=("rows", "rows"), low=0)]
    links: Annotated[Bool, Array(shape=("rows", "rows"))]
    facts: Annotated[GraphFacts, Fact(name="graph")]

    def __len__(self) -> int:
        return int(self.paths.shape[0])


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """How new points are linked to a graph: (n, k) places in it and lengths, inf where a point has fewer links."""

    places: Int64
    lengths: Float32


def nearest_graph(distances: Float32, n_neighbours: int = LINKS) -> Graph:
    """Link two points when either is among the other's nearest (section 3.9), by (n, n) symmetric distances."""
    n = distances.shape[0]
    k = min(n_neighbours, n - 1)
    gaps = distances.astype(np.float64, copy=True)
    np.fill_diagonal(gaps, np.inf)
    # Ties go to the lower row number, whatever the sorting.
    near = np.argsort(gaps, axis=1, kind="stable")[:, :k]
    rows = np.repeat(np.arange(n), k)
    return _graph(n, rows, near.ravel(), gaps[rows, near.ravel()], n_neighbours, by_features=True)


def given_graph(edges: ArrayLike, n: int, n_neighbours: int = LINKS) -> Graph:
    """A user's edges: (m, 2) row numbers, or (m, 3) with a positive length."""
    left, right, lengths = checked_edges(edges, n, n)
    if (left == right).any():
        raise ValueError(f"edges link row {int(left[left == right][0])} with itself; expected two rows each")
    return _graph(n, left, right, lengths, n_neighbours, by_features=False)


def checked_edges(edges: ArrayLike, n_left: int, n_right: int) -> tuple[Int64, Int64, Float64]:
    """Rows and lengths of a list of edges; see `given_graph`."""
    table = np.asarray(edges, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] not in (2, 3):
        raise ValueError(
            f"edges has shape {table.shape}; expected (m, 2) row numbers, or (m, 3) with lengths"
        )
    ends = table[:, :2]
    if not (np.isfinite(ends).all() and (ends == np.floor(ends)).all()):
        raise ValueError("edges holds ends that are no row numbers")
    if (ends < 0).any() or (ends >= (n_left, n_right)).any():
        raise ValueError(f"edges names rows beyond 0 to {n_left - 1} and 0 to {n_right - 1}")
    lengths = table[:, 2] if table.shape[1] == 3 else np.ones(table.shape[0])
    if not (np.isfinite(lengths).all() and (lengths > 0).all()):
        raise ValueError("edges holds lengths that are not above 0")
    return ends[:, 0].astype(np.int64), ends[:, 1].astype(np.int64), lengths


def attach_nearest(graph: Graph, distances: Float32) -> Attachment:
    """Link new points to their nearest in the graph; ``distances`` is (n_new, n)."""
    k = min(graph.facts.n_neighbours, len(graph))
    places = np.argsort(distances, axis=1, kind="stable")[:, :k].astype(np.int64)
    if graph.facts.by_features:
        lengths = np.ascontiguousarray(np.take_along_axis(distances, places, axis=1), dtype=np.float32)
    else:
        lengths = np.full(places.shape, graph.facts.unit, dtype=np.float32)
    return Attachment(places=places, lengths=lengths)


def attach_given(graph: Graph, edges: ArrayLike, nearest: Attachment) -> Attachment:
    """Link new points by a user's edges, (row of X, training row[, length]); those without any by their features."""
    n = nearest.places.shape[0]
    left, right, lengths = checked_edges(edges, n, len(graph))
    counts = np.bincount(left, minlength=n)
    k = max(int(counts.max(initial=0)), nearest.places.shape[1])
    places = np.zeros((n, k), dtype=np.int64)
    apart = np.full((n, k), np.inf, dtype=np.float32)
    order = np.argsort(left, kind="stable")
    slot = np.arange(left.size) - np.repeat(np.cumsum(counts) - counts, counts)
    places[left[order], slot] = right[order]
    apart[left[order], slot] = lengths[order]
    isolated = counts == 0
    width = nearest.places.shape[1]
    places[isolated, :width], apart[isolated, :width] = nearest.places[isolated], nearest.lengths[isolated]
    return Attachment(places=places, lengths=apart)


def paths_to_graph(graph: Graph, attached: Attachment) -> Float32:
    """(n_new, n) shortest paths from new points to the graph's."""
    out = np.full((attached.places.shape[0], len(graph)), graph.facts.far, dtype=np.float32)
    for places, lengths in zip(attached.places.T, attached.lengths.T, strict=True):
        np.minimum(out, lengths[:, None] + graph.paths[places], out=out)
    return out


def links_to_graph(graph: Graph, attached: Attachment) -> Bool:
    """(n_new, n) which points of the graph new points are linked to."""
    links = np.zeros((attached.places.shape[0], len(graph)), dtype=np.bool_)
    reachable = np.isfinite(attached.lengths)
    rows = np.broadcast_to(np.arange(links.shape[0])[:, None], reachable.shape)
    links[rows[reachable], attached.places[reachable]] = True
    return links


def _graph(n: int, left: Any, right: Any, lengths: Any, n_neighbours: int, *, by_features: bool) -> Graph:
    from scipy.sparse.csgraph import csgraph_from_dense, dijkstra

    unit = float(lengths.mean()) if lengths.size else 1.0
    unit = unit if unit > 0 else 1.0
    # An edge named twice is as long as its shorter mention.
    table = np.full((n, n), np.inf)
    ends = np.minimum(left, right), np.maximum(left, right)
    np.minimum.at(table, ends, np.maximum(lengths, _SHORTEST * unit))
    links = np.isfinite(table) | np.isfinite(table.T)
    longest_edge = float(table[np.isfinite(table)].max(initial=0.0))
    paths = dijkstra(csgraph_from_dense(table, null_value=np.inf), directed=False)
    # Both directions of a path are summed in their own order: the shorter one, so that both ends agree.
    paths = np.minimum(paths, paths.T)
    reached = np.isfinite(paths)
    longest = float(paths[reached].max(initial=0.0)) + longest_edge
    farthest = 2.0 * longest or 1.0
    return Graph(
        paths=np.where(reached, paths, farthest).astype(np.float32),
        links=links,
        facts=GraphFacts(
            far=farthest,
            n_neighbours=n_neighbours,
            top_degree=int(links.sum(axis=1).max(initial=0)),
            unit=unit,
            by_features=by_features,
        ),
    )
