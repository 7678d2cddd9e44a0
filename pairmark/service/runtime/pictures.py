"""A version's report as pictures, each drawn once, and its trees as data and as drawings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from pairmark.models.evaluation.drawing import (
    MEDIA_TYPES,
    Format,
    Picture,
    draw_calibration,
    draw_cmc,
    draw_det,
    draw_histograms,
    draw_identification,
    draw_ranking_noise,
    draw_roc,
    draw_tippett,
)
from pairmark.service.caches import BoundedCache
from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.store.schemas import ReportOut, VersionOut

__all__ = ["MEDIA_TYPES", "Format", "PictureName", "picture_of", "pictures_of", "tree_data", "tree_svg"]

PictureName = Literal[
    "roc", "det", "histograms", "tippett", "calibration", "identification", "cmc", "ranking-noise"
]

_KEPT: Final = 128
_pictures: BoundedCache[tuple[str, ...], bytes] = BoundedCache(_KEPT)


def picture_of(
    version: VersionOut,
    name: PictureName,
    format: Format,
    report: Callable[[], ReportOut],
    *,
    adaptive: bool = False,
) -> bytes:
    """A picture of a version's report, from memory where it was drawn before.

    Parameters
    ----------
    report : gives the report; not called for a picture that is known.
    adaptive : an SVG whose colours follow the reader's light or dark scheme.
    """
    key = (
        version.lineage.artefact_sha256,
        version.model,
        str(version.version),
        str(version.calibration_id),
        name,
        format,
        str(adaptive),
    )
    picture = _pictures.get(key)
    if picture is not None:
        return picture
    figures = report()
    curve = _curve(figures, name)
    if curve is None:
        raise ModelNotCapable(
            f"the report of {version.model}:{version.version} ({version.kind}) has no figures for {name!r}; it has "
            + (", ".join(pictures_of(figures)) or "none")
        )
    title = "" if adaptive else f"{version.model}, version {version.version}"
    encoded = _DRAWN_BY[name](figures, curve, title).encoded(format, adaptive=adaptive)
    _pictures.put(key, encoded)
    return encoded


def pictures_of(report: ReportOut) -> list[PictureName]:
    return [name for name in _DRAWN_BY if _curve(report, name) is not None]


def _curve(report: ReportOut, name: PictureName) -> Any:
    """The figures of a picture; None where the report has none."""
    evidence = report.evidence
    ratios = None if evidence is None or not evidence.likelihood_ratios else evidence.likelihood_ratios[0]
    searched = None if evidence is None else evidence.identification
    curve: Any = {
        "roc": report.roc,
        "det": report.det,
        "histograms": report.histograms,
        "tippett": None if ratios is None else ratios.tippett,
        "calibration": None if ratios is None else ratios.ece,
        "identification": None if searched is None else searched.curve,
        "cmc": None if searched is None else searched.cmc,
        "ranking-noise": report.version.metrics.get("pair_disagreement"),
    }[name]
    return curve.model_dump() if hasattr(curve, "model_dump") else curve


def _histograms(report: ReportOut, curve: Any, title: str) -> Picture:
    thresholds = {
        f"FPR {promise.fpr:g}": promise.threshold
        for promise in report.promises
        if promise.threshold is not None
    }
    return draw_histograms(curve, title, thresholds=thresholds)


def _ranking_noise(report: ReportOut, curve: Any, title: str) -> Picture:
    names = report.version.facts.get("label_names") or [str(at) for at in range(len(curve))]
    return draw_ranking_noise(curve, names, title)


def _plain(draw: Callable[[Any, str], Picture]) -> Callable[[ReportOut, Any, str], Picture]:
    return lambda report, curve, title: draw(curve, title)


_DRAWN_BY: Final[dict[PictureName, Callable[[ReportOut, Any, str], Picture]]] = {
    "roc": _plain(draw_roc),
    "det": _plain(draw_det),
    "histograms": _histograms,
    "tippett": _plain(draw_tippett),
    "calibration": _plain(draw_calibration),
    "identification": _plain(draw_identification),
    "cmc": _plain(draw_cmc),
    "ranking-noise": _ranking_noise,
}


def tree_data(version: LoadedVersion, number: int = 0) -> dict[str, Any]:
    """The version's tree as JSON-able data; ``number`` picks one of a forest's."""
    _, which = _tree(version, number)
    tree: dict[str, Any] = version.estimator.tree_data(version.feature_names, **which)
    return tree


def tree_svg(version: LoadedVersion, number: int = 0, depth: int = 5) -> str:
    """The same tree as a drawing, SVG text: its first ``depth`` levels. Raises what `tree_data` does."""
    n_trees, which = _tree(version, number)
    title = f"{version.entry.name}, version {version.entry.version}"
    if which:
        title += f", tree {number} of 0 to {n_trees - 1}"
    svg: str = version.estimator.tree_svg(version.feature_names, depth=depth, title=title, **which)
    return svg


def _tree(version: LoadedVersion, number: int) -> tuple[int, dict[str, int]]:
    """How many trees there are, and how the learner is asked for one; a lone tree needs no number."""
    entry = version.entry
    if not hasattr(version.estimator, "tree_data"):
        raise ModelNotCapable(f"{entry.name}:{entry.version} is a {entry.kind}, which has no tree to show")
    n_trees = len(getattr(version.estimator, "trees_", [None]))
    if not 0 <= number < n_trees:
        raise InvalidInput(
            f"tree: {number}; {entry.name}:{entry.version} has trees 0 to {n_trees - 1}", field="tree"
        )
    return n_trees, {"tree": number} if n_trees > 1 else {}
