"""The meta-features of GHOST by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pairmark.models.ghost.kernels import energy as kernels

Rows = Literal["raw", "scaled", "binary", "ranks"]
Between = Literal["distances", "paths", "links", "rows"]

FEATURES: Final = "features"
PATH: Final = "path"
MINKOWSKI_P: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class PairFeature:
    """A distance of two points.

    Attributes
    ----------
    rows : what the distance sees: the features as given; each divided by its mean difference (``scaled``), so that
        none drowns the others; as true and false (``binary``); or a row's ranks.
    """

    code: int
    rows: Rows


@dataclass(frozen=True, kw_only=True)
class SetFeature:
    """A feature of three or more points, the last of which is the centre.

    Attributes
    ----------
    between : what is known of every two of them; ``rows``: the points themselves.
    largest : size of the largest set it is defined for.
    """

    code: int
    between: Between
    largest: int = 5


PAIRS: Final[dict[str, PairFeature]] = {
    "euclidean": PairFeature(code=kernels.EUCLIDEAN, rows="scaled"),
    "minkowski": PairFeature(code=kernels.MINKOWSKI, rows="scaled"),
    "cityblock": PairFeature(code=kernels.CITYBLOCK, rows="scaled"),
    "chebyshev": PairFeature(code=kernels.CHEBYSHEV, rows="scaled"),
    "braycurtis": PairFeature(code=kernels.BRAYCURTIS, rows="raw"),
    "cosine": PairFeature(code=kernels.COSINE, rows="raw"),
    "correlation": PairFeature(code=kernels.CORRELATION, rows="raw"),
    "pearson": PairFeature(code=kernels.CORRELATION, rows="scaled"),
    "spearman": PairFeature(code=kernels.CORRELATION, rows="ranks"),
    "kendall": PairFeature(code=kernels.KENDALL, rows="raw"),
    "hamming": PairFeature(code=kernels.HAMMING, rows="raw"),
    "jaccard": PairFeature(code=kernels.JACCARD, rows="binary"),
    "matching": PairFeature(code=kernels.MATCHING, rows="binary"),
    "yule": PairFeature(code=kernels.YULE, rows="binary"),
    "dice": PairFeature(code=kernels.DICE, rows="binary"),
    "kulsinski": PairFeature(code=kernels.KULSINSKI, rows="binary"),
    "russellrao": PairFeature(code=kernels.RUSSELLRAO, rows="binary"),
}
SETS: Final[dict[str, SetFeature]] = {
    "perimeter": SetFeature(code=kernels.PERIMETER, between="distances"),
    "area": SetFeature(code=kernels.AREA, between="distances", largest=3),
    "mahalanobis": SetFeature(code=-1, between="rows", largest=3),
    "eccentricity": SetFeature(code=kernels.ECCENTRICITY, between="paths"),
    "hub": SetFeature(code=kernels.HUB, between="paths"),
    "cliques": SetFeature(code=kernels.CLIQUES, between="links"),
    "resilience": SetFeature(code=kernels.RESILIENCE, between="links"),
}
CLUSTERS: Final = ("cluster-distance", "cluster-spread")
CLUSTERS_OF_GRAPH: Final = ("cluster-path", "cluster-eccentricity", "cluster-links")


def known_names() -> tuple[str, ...]:
    """Everything that ``meta_features`` may name."""
    return (FEATURES, *PAIRS, PATH, *SETS)


@dataclass(frozen=True, kw_only=True)
class MetaFeatures:
    """The meta-features of one model, in the order of its weights (after the features' own)."""

    features: bool
    pairs: tuple[str, ...]
    sets: tuple[tuple[str, int], ...]
    clusters: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """One name a weight, after those of the features."""
        return (*self.pairs, *(f"{name}/{size}" for name, size in self.sets), *self.clusters)


def choose(names: Any, *, order: int, graph: bool, cluster_metric: bool) -> MetaFeatures:
    """What a model weighs, by its parameters."""
    wanted_names = list(_defaults(order, graph)) if names == "auto" else list(names)
    if len(set(wanted_names)) != len(wanted_names) or not wanted_names:
        raise ValueError(f"meta_features is {wanted_names}; expected each name once, and at least one")
    sizes = range(3, order + 1)
    pairs: list[str] = []
    sets: list[tuple[str, int]] = []
    for name in wanted_names:
        if name not in known_names():
            raise ValueError(f"meta_features names {name!r}; known: {', '.join(known_names())}")
        if not graph and (name == PATH or (name in SETS and SETS[name].between in ("paths", "links"))):
            raise ValueError(f"meta-feature {name!r} needs a graph: use graph='knn'")
        if name in PAIRS or name == PATH:
            pairs.append(name)
        elif name != FEATURES:
            if order < 3:
                raise ValueError(f"meta-feature {name!r} is of sets of three or more: use order=3")
            sets += [(name, size) for size in sizes if size <= SETS[name].largest]
    clusters = (*CLUSTERS, *(CLUSTERS_OF_GRAPH if graph else ())) if cluster_metric else ()
    return MetaFeatures(
        features=FEATURES in wanted_names, pairs=tuple(pairs), sets=tuple(sets), clusters=clusters
    )


def _defaults(order: int, graph: bool) -> tuple[str, ...]:
    names: tuple[str, ...] = (FEATURES,)
    if graph:
        names += (PATH,)
    if order >= 3:
        names += ("perimeter", "area")
        if graph:
            names += ("eccentricity", "hub", "cliques", "resilience")
    return names
