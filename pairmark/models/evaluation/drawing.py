"""Plots of error rates as SVG and PNG, from the curves of a report."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from scipy.special import ndtri

from pairmark.models.core.arrays import Float64

Format = Literal["svg", "png"]
Curve = Mapping[str, Any]

MEDIA_TYPES: Final = {"svg": "image/svg+xml", "png": "image/png"}

_LINE, _OTHER, _THIRD, _GRID, _TEXT, _PAPER = "#2563eb", "#dc2626", "#15803d", "#d4d4d8", "#27272a", "#ffffff"
_DARK: Final = {
    _LINE: "#7aa2f7",
    _OTHER: "#f08a8a",
    _THIRD: "#7fc795",
    _GRID: "#45454d",
    _TEXT: "#e4e4e7",
    _PAPER: "#18181b",
}
_DET_TICKS: Final = (1e-6, 1e-5, 1e-4, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Rates that NIST's DET plots mark."""
_SMALLEST = 1e-7

# matplotlib shares font caches and mathtext parsers between figures, so one is drawn at a time.
_drawing = threading.RLock()


class Picture:
    """A drawn figure.

    Attributes
    ----------
    figure : the Matplotlib figure, for those who draw on.
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def encoded(self, format: Format, *, adaptive: bool = False) -> bytes:
        """The file's bytes; the same curve gives the same bytes.

        Parameters
        ----------
        adaptive : an SVG whose colours follow the reader's light or dark scheme.
        """
        import matplotlib

        stream = io.BytesIO()
        with _drawing, matplotlib.rc_context({"svg.hashsalt": "pairmark", "svg.fonttype": "none"}):
            self.figure.savefig(
                stream, format=format, dpi=144, metadata={"Date": None} if format == "svg" else None
            )
        return _adapt(stream.getvalue()) if adaptive and format == "svg" else stream.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write to a file whose ending, ``.svg`` or ``.png``, says the format.

        Raises
        ------
        ValueError
            For another ending.
        """
        file = Path(path)
        format = file.suffix.lower()[1:]
        if format not in MEDIA_TYPES:
            raise ValueError(f"{file.name!r} ends in {file.suffix!r}; expected .svg or .png")
        file.write_bytes(self.encoded("png" if format == "png" else "svg"))
        return file

    def _repr_svg_(self) -> str:
        return self.encoded("svg").decode()


def draw_roc(curve: Curve, title: str = "", *, ax: Any = None) -> Picture:
    """The true positive rate against the false positive rate, which is on a logarithmic axis, where thresholds live.

    Parameters
    ----------
    curve : ``fpr``, ``tpr`` and, for the band, ``bands`` with ``tpr_low`` and ``tpr_high``.
    ax : Matplotlib axes to draw in; None: a figure of its own.
    """
    with _drawing:
        picture, axes = _axes(ax, title, "false positive rate", "true positive rate")
        fpr = np.asarray(curve["fpr"], dtype=np.float64)
        smallest = max(float(fpr[fpr > 0].min(initial=1e-3)), _SMALLEST)
        # A logarithmic axis has no place for 0: the curve enters from the left edge.
        x, bands = np.maximum(fpr, smallest), curve.get("bands")
        if bands is not None:
            _band(axes, x, bands["tpr_low"], bands["tpr_high"], step="post")
        axes.step(x, curve["tpr"], where="post", color=_LINE, linewidth=1.6)
        # What guessing does: TPR = FPR, which a logarithmic axis bends.
        chance = np.geomspace(smallest, 1.0, 201)
        axes.plot(chance, chance, color=_GRID, linewidth=1, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlim(smallest, 1.0)
        axes.set_ylim(0.0, 1.02)
        return picture


def draw_det(curve: Curve, title: str = "", *, ax: Any = None) -> Picture:
    """Misses against false alarms, both on axes of normal deviates, as NIST draws them.

    Two Gaussian scores of one variance give a straight line there.

    Parameters
    ----------
    curve : ``fmr``, ``fnmr`` and perhaps ``bands`` with ``fnmr_low`` and ``fnmr_high``; rates of 0 and 1 have no
        deviate and are left out.
    """
    with _drawing:
        fmr, fnmr = (np.asarray(curve[name], dtype=np.float64) for name in ("fmr", "fnmr"))
        drawable = (fmr > 0) & (fmr < 1) & (fnmr > 0) & (fnmr < 1)
        picture, axes = _axes(ax, title, "false match rate (%)", "false non-match rate (%)")
        if not drawable.any():
            axes.text(
                0.5, 0.5, "no threshold makes errors of both kinds", ha="center", transform=axes.transAxes
            )
            return picture
        x, low = _deviate(fmr[drawable]), float(max(fmr[drawable].min(), _SMALLEST))
        bands = curve.get("bands")
        if bands is not None:
            sides = [_deviate(np.asarray(bands[name])[drawable]) for name in ("fnmr_low", "fnmr_high")]
            _band(axes, x, *sides)
        axes.plot(x, _deviate(fnmr[drawable]), color=_LINE, linewidth=1.6)
        lowest_fnmr = min(low, float(fnmr[drawable].min()), 0.01)
        for axis, lowest in ((axes.xaxis, min(low, 0.01)), (axes.yaxis, max(lowest_fnmr, 1e-4))):
            ticks = [tick for tick in _DET_TICKS if tick >= lowest * 0.9]
            axis.set_ticks(_deviate(np.array(ticks)), [f"{100 * tick:g}" for tick in ticks])
        axes.set_xlim(_deviate(np.array([min(low, 0.01)]))[0] - 0.05, _deviate(np.array([0.8]))[0])
        axes.set_ylim(_deviate(np.array([max(lowest_fnmr, 1e-4)]))[0] - 0.1, _deviate(np.array([0.95]))[0])
        axes.tick_params(axis="x", labelrotation=45)
        return picture


def draw_histograms(
    counts: Curve, title: str = "", *, thresholds: Mapping[str, float] | None = None, ax: Any = None
) -> Picture:
    """How scores of same and of different pairs are spread, each as a share of its own kind.

    Parameters
    ----------
    counts : ``edges`` (one more than there are bins), ``same`` and ``different``.
    thresholds : label -> threshold, marked by a line.
    """
    with _drawing:
        picture, axes = _axes(ax, title, "score", "share of pairs of the kind")
        edges = np.asarray(counts["edges"], dtype=np.float64)
        for name, colour in (("different", _OTHER), ("same", _LINE)):
            values = np.asarray(counts[name], dtype=np.float64)
            share = values / max(1.0, values.sum())
            axes.stairs(share, edges, color=colour, fill=True, alpha=0.3)
            axes.stairs(share, edges, color=colour, linewidth=1.4, label=name)
        for at, (label, threshold) in enumerate((thresholds or {}).items()):
            axes.axvline(
                threshold, color=_TEXT, linewidth=1, linestyle=("--", ":", "-.")[at % 3], label=label
            )
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        _legend(axes)
        return picture


def draw_cmc(curve: Curve, title: str = "", *, ax: Any = None) -> Picture:
    """The share of mated probes whose subject is within each rank, with its intervals.

    Parameters
    ----------
    curve : ``rank``, ``rate``, ``low`` and ``high``, lists of one length.
    """
    with _drawing:
        picture, axes = _axes(ax, title, "rank", "share of probes found within it")
        _band(axes, curve["rank"], curve["low"], curve["high"])
        axes.plot(curve["rank"], curve["rate"], color=_LINE, linewidth=1.6, marker="o", markersize=3)
        axes.set_xlim(0.5, len(curve["rank"]) + 0.5)
        axes.set_ylim(min(0.0 if not curve["low"] else min(curve["low"]) - 0.02, 0.95), 1.005)
        axes.locator_params(axis="x", integer=True)
        return picture


def draw_identification(curve: Curve, title: str = "", *, ax: Any = None) -> Picture:
    """Missed searches (FNIR) against searches of strangers that return somebody (FPIR), on logarithmic axes.

    Parameters
    ----------
    curve : ``fpir`` and ``fnir``, lists of one length.
    """
    with _drawing:
        picture, axes = _axes(
            ax, title, "false positive identification rate", "false negative identification rate"
        )
        fpir, fnir = np.asarray(curve["fpir"]), np.asarray(curve["fnir"])
        drawable = fpir > 0
        smallest = float(fnir[drawable & (fnir > 0)].min(initial=0.1))
        axes.step(
            fpir[drawable], np.maximum(fnir[drawable], smallest / 2), where="post", color=_LINE, linewidth=1.6
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(smallest / 2, 1.05)
        return picture


def draw_tippett(curve: Curve, title: str = "", *, ax: Any = None) -> Picture:
    """The share of same and of different pairs whose log likelihood ratio is at least each value.

    Parameters
    ----------
    curve : ``log_lr`` (ascending), ``same`` and ``different``, lists of one length.
    """
    with _drawing:
        picture, axes = _axes(ax, title, "log likelihood ratio, base 10", "share of pairs with at least that")
        x = np.asarray(curve["log_lr"], dtype=np.float64) / np.log(10)
        for name, colour in (("same", _LINE), ("different", _OTHER)):
            axes.step(x, curve[name], where="post", color=colour, linewidth=1.6, label=name)
        axes.axvline(0.0, color=_GRID, linewidth=1, linestyle="--")
        axes.set_ylim(0.0, 1.02)
        _legend(axes)
        return picture


def draw_calibration(curve: Curve, title: str = "", *, ax: Any = None) -> Picture:
    """Empirical cross-entropy by prior: what the likelihood ratios cost, against the best and against knowing nothing.

    Parameters
    ----------
    curve : ``prior_log_odds`` (natural), ``ece``, ``ece_min`` and ``ece_neutral``, lists of one length.
    """
    with _drawing:
        picture, axes = _axes(ax, title, "prior odds, base-10 logarithm", "empirical cross-entropy (bits)")
        x = np.asarray(curve["prior_log_odds"], dtype=np.float64) / np.log(10)
        for name, label, colour, line in (
            ("ece", "as given", _LINE, "-"),
            ("ece_min", "calibrated after the fact", _THIRD, "--"),
            ("ece_neutral", "without evidence", _TEXT, ":"),
        ):
            axes.plot(x, curve[name], color=colour, linewidth=1.6, linestyle=line, label=label)
        axes.set_xlim(float(x.min()), float(x.max()))
        axes.set_ylim(0.0, max(1.05, 1.05 * min(2.0, float(np.max(curve["ece"])))))
        _legend(axes)
        return picture


def draw_ranking_noise(
    disagreement: Sequence[Sequence[float | None]], labels: Sequence[str], title: str = "", *, ax: Any = None
) -> Picture:
    """How often the predicted order of two labels is not the observed one, label by label.

    Parameters
    ----------
    disagreement : (k, k) shares; None (or NaN) where no row orders the two. labels : (k,) names.
    """
    with _drawing:
        k = len(labels)
        picture, axes = _axes(ax, title, "", "")
        shares = np.array([[np.nan if value is None else value for value in row] for row in disagreement])
        image = axes.imshow(np.ma.masked_invalid(shares), cmap="Blues", vmin=0.0, vmax=0.5)
        axes.set_xticks(range(k), [_short(label) for label in labels], rotation=60, ha="right")
        axes.set_yticks(range(k), [_short(label) for label in labels])
        axes.grid(visible=False)
        if k <= 10:
            for at, value in np.ndenumerate(shares):
                if np.isfinite(value):
                    ink = _PAPER if value > 0.3 else _TEXT
                    axes.text(at[1], at[0], f"{value:.2f}", ha="center", va="center", color=ink, fontsize=8)
        bar = axes.figure.colorbar(image, ax=axes, label="share of rows in the other order (.5: chance)")
        bar.outline.set_visible(False)
        return picture


def _axes(ax: Any, title: str, x: str, y: str) -> tuple[Picture, Any]:
    if ax is None:
        # Imported here: it costs half a second, which a worker that only scores need not pay.
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 4.2), layout="constrained", facecolor=_PAPER)
        ax = figure.add_subplot()
        ax.set_facecolor(_PAPER)
        for spine in ax.spines.values():
            spine.set_color(_GRID)
        ax.tick_params(colors=_TEXT)
    ax.set_xlabel(x, color=_TEXT)
    ax.set_ylabel(y, color=_TEXT)
    # Names are written as they are: a dollar sign begins no formula.
    ax.set_title(title, fontsize=11, color=_TEXT, parse_math=False)
    ax.grid(visible=True, color=_GRID, linewidth=0.5)
    return Picture(ax.figure), ax


def _band(axes: Any, x: Any, low: Any, high: Any, **options: Any) -> None:
    axes.fill_between(x, low, high, color=_LINE, alpha=0.22, linewidth=0, **options)


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, labelcolor=_TEXT)


def _deviate(rates: Float64) -> Float64:
    return np.asarray(ndtri(np.clip(rates, 1e-9, 1 - 1e-9)), dtype=np.float64)


def _short(label: str) -> str:
    return label if len(label) <= 16 else f"{label[:15]}…"


def _adapt(svg: bytes) -> bytes:
    """Colours as variables that follow the reader's scheme."""
    text, light, dark = svg.decode(), [], []
    for at, (colour, dark_colour) in enumerate(_DARK.items()):
        text = text.replace(colour, f"var(--c{at})")
        light.append(f"--c{at}:{colour}")
        dark.append(f"--c{at}:{dark_colour}")
    style = (
        f"<style>svg{{{';'.join(light)}}}@media(prefers-color-scheme:dark){{svg{{{';'.join(dark)}}}}}</style>"
    )
    at = text.index("<defs>", text.index("<svg"))
    return (text[:at] + style + text[at:]).encode()
