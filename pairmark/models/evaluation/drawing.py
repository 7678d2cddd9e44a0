"""The ROC curve of a report as SVG and PNG."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

Format = Literal["svg", "png"]

MEDIA_TYPES: Final = {"svg": "image/svg+xml", "png": "image/png"}

_LINE, _GRID, _TEXT, _PAPER = "#2563eb", "#d4d4d8", "#27272a", "#ffffff"
_SMALLEST = 1e-7

# matplotlib shares font caches and mathtext parsers between figures, so one is drawn at a time.
_drawing = threading.Lock()


def draw_roc(curve: Mapping[str, Any], format: Format, title: str = "") -> bytes:
    """The true positive rate against the false positive rate, which is on a logarithmic axis, where thresholds live.

    Parameters
    ----------
    curve : ``fpr``, ``tpr`` and, for the band, ``bands`` with ``tpr_low`` and ``tpr_high``.

    Returns
    -------
    The file's bytes; the same curve gives the same bytes.
    """
    # Imported here: it costs half a second, which a worker that only scores need not pay.
    import matplotlib
    from matplotlib.figure import Figure

    fpr = np.asarray(curve["fpr"], dtype=np.float64)
    smallest = max(float(fpr[fpr > 0].min(initial=1e-3)), _SMALLEST)
    # A logarithmic axis has no place for 0: the curve enters from the left edge.
    x, bands = np.maximum(fpr, smallest), curve.get("bands")
    # What guessing does: TPR = FPR, which a logarithmic axis bends.
    chance = np.geomspace(smallest, 1.0, 201)
    stream = io.BytesIO()
    with _drawing, matplotlib.rc_context({"svg.hashsalt": "pairmark", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.6, 4.2), layout="constrained", facecolor=_PAPER)
        axes = figure.add_subplot()
        if bands is not None:
            axes.fill_between(
                x, bands["tpr_low"], bands["tpr_high"], step="post", color=_LINE, alpha=0.22, linewidth=0
            )
        axes.step(x, curve["tpr"], where="post", color=_LINE, linewidth=1.6)
        axes.plot(chance, chance, color=_GRID, linewidth=1, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlim(smallest, 1.0)
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel("false positive rate", color=_TEXT)
        axes.set_ylabel("true positive rate", color=_TEXT)
        # Names are written as they are: a dollar sign begins no formula.
        axes.set_title(title, fontsize=11, color=_TEXT, parse_math=False)
        axes.grid(visible=True, color=_GRID, linewidth=0.5)
        figure.savefig(stream, format=format, dpi=144, metadata={"Date": None} if format == "svg" else None)
    return stream.getvalue()
