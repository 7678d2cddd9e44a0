"""The meta-feature space: from rows to one number per meta-feature for each pair or set.

Some are read off a graph between rows. A new point is linked to it by its features, never by its label.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.state import Array, Fact, require_offsets
from pairmark.models.ghost import kernels

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


FEATURES: Final = "features"
PATH: Final = "path"
MINKOWSKI_P: Final = 3.0


PAIRS: Final[dict[str, tuple[int, str]]] = {
    "euclidean": (kernels.EUCLIDEAN, "scaled"),
    "minkowski": (kernels.MINKOWSKI, "scaled"),
    "cityblock": (kernels.CITYBLOCK, "scaled"),
    "chebyshev": (kernels.CHEBYSHEV, "scaled"),
    "braycurtis": (kernels.BRAYCURTIS, "raw"),
    "cosine": (kernels.COSINE, "raw"),
    "correlation": (kernels.CORRELATION, "raw"),
    "pearson": (kernels.CORRELATION, "scaled"),
    "spearman": (kernels.CORRELATION, "ranks"),
    "kendall": (kernels.KENDALL, "raw"),
    "hamming": (kernels.HAMMING, "raw"),
    "jaccard": (kernels.JACCARD, "binary"),
    "matching": (kernels.MATCHING, "binary"),
    "yule": (kernels.YULE, "binary"),
    "dice": (kernels.DICE, "binary"),
    "kulsinski": (kernels.KULSINSKI, "binary"),
    "russellrao": (kernels.RUSSELLRAO, "binary"),
}
"""Distances of two points, and what each sees of rows: the features as given (``raw``); each divided by its mean
difference (``scaled``), so that none drowns the others; as true and false (``binary``); or a row's ``ranks``."""
SETS: Final[dict[str, tuple[int, str]]] = {
    "perimeter": (kernels.PERIMETER, "distances"),
    "area": (kernels.AREA, "distances"),
    "eccentricity": (kernels.ECCENTRICITY, "paths"),
    "hub": (kernels.HUB, "paths"),
    "cliques": (kernels.CLIQUES, "links"),
    "resilience": (kernels.RESILIENCE, "links"),
}
"""Features of three points, one of which is the center, by what is known of every two of them."""
CLUSTERS: Final = ("cluster-distance",)
CLUSTERS_OF_GRAPH: Final = ("cluster-path", "cluster-eccentricity", "cluster-links")


def known_names() -> tuple[str, ...]:
    """Everything that ``meta_features`` may name."""
    return (FEATURES, *PAIRS, PATH, *SETS)


@dataclass(frozen=True, kw_only=True)
class MetaFeatures:
    """The meta-features of one model, in the order of its weights (after the features' own)."""

    features: bool
    pairs: tuple[str, ...]
    sets: tuple[str, ...]
    clusters: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """One name a weight, after those of the features."""
        return (*self.pairs, *self.sets, *self.clusters)


def choose(names: Any, *, order: int, graph: bool, cluster_metric: bool) -> MetaFeatures:
    """What a model weighs, by its parameters."""
    if names == "auto":
        sets_of_all = [name for name, (_, quantity) in SETS.items() if graph or quantity == "distances"]
        names = [FEATURES, *([PATH] if graph else []), *(sets_of_all if order >= 3 else [])]
    wanted_names = list(names)
    if len(set(wanted_names)) != len(wanted_names) or not wanted_names:
        raise ValueError(f"meta_features is {wanted_names}; expected each name once, and at least one")
    for name in wanted_names:
        if not graph and (name == PATH or (name in SETS and SETS[name][1] != "distances")):
            raise ValueError(f"meta-feature {name!r} needs a graph: use graph='knn'")
        if name in SETS and order < 3:
            raise ValueError(f"meta-feature {name!r} is of sets of three: use order=3")
    return MetaFeatures(
        features=FEATURES in wanted_names,
        pairs=tuple(name for name in wanted_names if name in PAIRS or name == PATH),
        sets=tuple(name for name in wanted_names if name in SETS),
        clusters=(*CLUSTERS, *(CLUSTERS_OF_GRAPH if graph else ())) if cluster_metric else (),
    )


HOW = {"average": 0, "minimum": 1, "maximum": 2}
MAX_SETS = 256
"""Companions that are looked at for each class."""


@dataclass(frozen=True, kw_only=True)
class Scales:
    """What is remembered of the training rows to read others by.

    Attributes
    ----------
    differences : (d,) mean absolute difference of two rows; 0 for a feature that never varies.
    thresholds : (d,) above which a feature counts as true: the midpoint of a column with two values, else the median.
    """

    differences: Annotated[Float64, Array(shape=("features",), low=0)]
    thresholds: Annotated[Float64, Array(shape=("features",))]


def scales_of(X: Float32) -> Scales:
    """Scales of training rows.

    The mean absolute difference of all pairs comes from one sort a column (Gini's mean difference).
    """
    n = X.shape[0]
    ascending = np.sort(X, axis=0).astype(np.float64)
    ranks = 2.0 * np.arange(n) - n + 1
    size = np.abs(ascending).max(axis=0)
    unit = np.where(size > 0, size, 1.0)
    differences = np.maximum(ranks @ (ascending / unit), 0.0) * 2.0 / max(n * (n - 1), 1)
    # Below rounding, a feature is one number; dividing by its noise would make a feature of that.
    constant = (ascending[0] == ascending[-1]) | (differences < 1e-12)
    differences = np.where(constant, 0.0, differences * unit)
    middle = np.median(ascending, axis=0)
    two = ((ascending[0] == X) | (ascending[-1] == X)).all(axis=0)
    thresholds = np.where(two, ascending[0] / 2 + ascending[-1] / 2, middle)
    return Scales(differences=differences, thresholds=thresholds)


@dataclass(eq=False)
class GhostPoints:
    """Rows as meta-features see them, each view made when first needed.

    Attributes
    ----------
    ids : number of each row among the training rows; below 0, and different, for new ones.
    trained : places of the rows in the graph, None for new ones.
    """

    space: "Space"
    raw: Float32
    ids: Int64
    trained: Int64 | None = None

    def __len__(self) -> int:
        return int(self.raw.shape[0])

    @cached_property
    def scaled(self) -> Float64:
        """Features in units of their mean difference; those that never vary are 0."""
        return np.ascontiguousarray(self.raw.astype(np.float64) * self.space.inverse)

    @cached_property
    def binary(self) -> Float32:
        """1 where a feature counts as true."""
        return np.ascontiguousarray(self.raw > self.space.scales.thresholds, dtype=np.float32)

    @cached_property
    def ranks(self) -> Float64:
        """Ranks within each row, ties shared."""
        from scipy.stats import rankdata

        return np.ascontiguousarray(rankdata(self.raw, axis=1), dtype=np.float64)

    @cached_property
    def attached(self) -> Attachment:
        """How new rows are linked to the graph."""
        return attach_nearest(self.space.linked, self.space.graph_distances(self, self.space.training_points))

    @cached_property
    def paths(self) -> Float32:
        """(n, n_graph) shortest paths to the points of the graph."""
        graph = self.space.linked
        return graph.paths[self.trained] if self.trained is not None else paths_to_graph(graph, self.attached)

    @cached_property
    def links(self) -> Bool:
        """(n, n_graph) which points of the graph they are linked to."""
        graph = self.space.linked
        return graph.links[self.trained] if self.trained is not None else links_to_graph(graph, self.attached)

    def take(self, rows: Any) -> "GhostPoints":
        subset = GhostPoints(
            self.space, self.raw[rows], self.ids[rows], None if self.trained is None else self.trained[rows]
        )
        attached = vars(self).get("attached")
        if attached is not None:
            subset.attached = Attachment(places=attached.places[rows], lengths=attached.lengths[rows])
        return subset


@dataclass(frozen=True, kw_only=True)
class Companions:
    """The points of each class that stand beside p and q in a feature of three.

    Attributes
    ----------
    rows : (n_r,) training rows that occur.
    members : (n_sets, 1) places in ``rows``, sorted by class.
    first : (n_classes + 1,) where each class's companions begin.
    """

    rows: Annotated[Int64, Array(shape=("used",), below="rows")]
    members: Annotated[Int64, Array(shape=("sets", 1), below="used")]
    first: Annotated[Int64, Array(shape=("classes + 1",), low=0, order="never-falling")]

    @property
    def by_class(self) -> Int64:
        """The rows, those of a class side by side."""
        return self.rows[self.members[:, 0]]

    def relate(self, prefix: str) -> None:
        """Refuse offsets that do not fit."""
        require_offsets(f"{prefix}first", self.first, self.members.shape[0], f"{prefix}members")


def by_class(reduction: np.ufunc, table: Float64, codes: Int64, n_classes: int) -> Float64:
    """Sums, least or greatest of the columns of each class, (n, n_classes); every class has a column."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(n_classes))
    return np.asarray(reduction.reduceat(table[:, order], starts, axis=1), dtype=np.float64)


def reduce_by_class(table: Float64, is_own: Bool, codes: Int64, n_classes: int, reduction: str) -> Float64:
    """Mean, least or most of the columns of each class, a point's own column left out; 0 of a class without others."""
    if reduction == "average":
        sums = by_class(np.add, np.where(is_own, 0.0, table), codes, n_classes)
        return np.asarray(
            sums / np.maximum(by_class(np.add, (~is_own).astype(np.float64), codes, n_classes), 1)
        )
    if reduction == "maximum":
        return by_class(np.maximum, np.where(is_own, 0.0, table), codes, n_classes)
    lowest = by_class(np.minimum, np.where(is_own, np.inf, table), codes, n_classes)
    return np.where(np.isfinite(lowest), lowest, 0.0)


def draw_companions(codes: Int64, n_classes: int, rng: np.random.Generator) -> Companions:
    """All rows of each class, or `MAX_SETS` of them drawn at random where there are more."""
    drawn = []
    for c in range(n_classes):
        rows = np.flatnonzero(codes == c)
        drawn.append(rows if rows.size <= MAX_SETS else np.sort(rng.choice(rows, MAX_SETS, replace=False)))
    rows = np.concatenate(drawn)
    first = np.cumsum([0, *(part.size for part in drawn)])
    return Companions(rows=rows, members=np.arange(rows.size)[:, None], first=first.astype(np.int64))


@dataclass(eq=False)
class Space:
    """The meta-features of one model and what it takes to evaluate them."""

    meta_features: MetaFeatures
    scales: Scales
    rows: Float32 | None
    """Training rows as given, where new ones are compared with them."""
    graph: Graph | None = None
    inverse: Float64 = field(init=False)

    def __post_init__(self) -> None:
        varies = self.scales.differences > 0
        self.inverse = np.divide(1.0, self.scales.differences, out=np.zeros(varies.size), where=varies)
        self._all_features = np.arange(varies.size, dtype=np.int64)

    @property
    def linked(self) -> Graph:
        """The graph of a space that has one."""
        assert self.graph is not None
        return self.graph

    @cached_property
    def training_points(self) -> GhostPoints:
        assert self.rows is not None
        places = np.arange(self.rows.shape[0])
        return GhostPoints(self, self.rows, places, None if self.graph is None else places)

    def points(self, X: Float32, edges: ArrayLike | None = None) -> GhostPoints:
        """New rows, and a user's links of them to training rows."""
        points = GhostPoints(self, X, -1 - np.arange(X.shape[0]))
        if edges is not None and self.graph is not None:
            points.attached = attach_given(self.graph, edges, points.attached)
        return points

    def graph_distances(self, A: GhostPoints, B: GhostPoints) -> Float32:
        """The sum of all scaled feature distances, by which points are linked (section 3.9)."""
        out = np.zeros((len(A), len(B)))
        kernels.add_weighted_distances(A.raw, B.raw, True, self._all_features, self.inverse, out)
        return np.minimum(out, np.finfo(np.float32).max / 8).astype(np.float32)

    def pair_values(self, name: str, A: GhostPoints, B: GhostPoints, *, grid: bool = False) -> Float64:
        """A second-order meta-feature of pairs, (n,); one side may have a single row.

        ``grid`` : of every row with every row, (n_A, n_B); equal bit by bit, save that paths between training rows are
        the graph's own.
        """
        out = np.empty((len(A), len(B)) if grid else (max(len(A), len(B)), 1))
        if name != PATH:
            code, view = PAIRS[name]
            kernels.distances(code, MINKOWSKI_P, getattr(A, view), getattr(B, view), grid, out)
        elif grid and B.trained is not None:
            return A.paths[:, B.trained].astype(np.float64)
        elif grid and A.trained is not None:
            return B.paths[:, A.trained].T.astype(np.float64)
        else:
            a, b, graph = A.attached, B.attached, self.linked
            direct = np.full(out.shape, np.inf)
            if graph.facts.by_features:
                direct[:] = 0.0
                kernels.add_weighted_distances(A.raw, B.raw, grid, self._all_features, self.inverse, direct)
            kernels.paths_between(
                graph.paths, graph.facts.far, a.places, a.lengths, b.places, b.lengths, grid, direct, out
            )
        return out if grid else out[:, 0]

    def set_grid(
        self,
        name: str,
        P: GhostPoints,
        Q: GhostPoints,
        R: GhostPoints,
        sets: Companions,
        q_class: Int64,
        reduction: str = "average",
    ) -> Float64:
        """(n_P, n_Q) a feature of {p, r, q}, over the companions r of q's class.

        Parameters
        ----------
        R : the rows of ``sets``, by class.
        q_class : (n_Q,) class of each q.
        reduction : the mean, least or most over the sets; a class without companions gives 0.
        """
        out = np.zeros((len(P), len(Q)))
        code, quantity = SETS[name]
        PQ, PR, QR = (self._between(quantity, *pair) for pair in ((P, Q), (P, R), (Q, R)))
        top = float(self.graph.facts.top_degree) if self.graph is not None else 0.0
        kernels.sets_of_three(
            code, PQ, PR, QR, P.ids, Q.ids, R.ids, sets.first, q_class, top, HOW[reduction], out
        )
        return out

    def _between(self, quantity: str, A: GhostPoints, B: GhostPoints) -> Float32:
        if quantity == "distances":
            values: Any = self.pair_values("euclidean", A, B, grid=True)
        else:
            assert B.trained is not None, "centres and companions are training rows"
            values = (A.paths if quantity == "paths" else A.links)[:, B.trained]
        return np.ascontiguousarray(values, dtype=np.float32)

    def cluster_values(
        self, name: str, P: GhostPoints, members: GhostPoints, codes: Int64, n_classes: int
    ) -> Float64:
        """(n_P, n_classes) a metric between each point and each cluster, itself left out (section 3.8)."""
        is_own: Bool = np.equal(P.ids[:, None], members.ids[None, :])
        if name == "cluster-distance":
            values = self.pair_values("euclidean", P, members, grid=True)
        elif name == "cluster-links":
            values = 1.0 - self._between("links", P, members).astype(np.float64)
        else:
            values = self._between("paths", P, members).astype(np.float64)
        reduction = "maximum" if name == "cluster-eccentricity" else "average"
        return reduce_by_class(values, is_own, codes, n_classes, reduction)
