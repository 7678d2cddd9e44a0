"""The ROC as a picture."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import Literal

from pairmark.service.heldout.schemas import RocOut

Format = Literal["svg", "png"]

MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png"}
LINE, BAND, GRID, TEXT = "#2563eb", "#93c5fd", "#d4d4d8", "#27272a"

# matplotlib shares font caches and mathtext parsers between figures, so one is drawn at a time.
drawing_lock = threading.Lock()
_drawn: OrderedDict[tuple[str, str], bytes] = OrderedDict()
_KEPT = 64


def roc_picture(roc: RocOut, title: str, format: Format, *, key: str) -> bytes:
    """Draw a ROC with a logarithmic axis of false positive rates, where operating points live.

    Parameters
    ----------
    roc : the curve; its pointwise bands of the true positive rate are drawn too.
    key : names the (immutable) curve; a second request for it is answered from memory.

    Returns
    -------
    The file's bytes. The same curve gives the same bytes.
    """
    with drawing_lock:
        known = _drawn.get((key, format))
        if known is not None:
            _drawn.move_to_end((key, format))
            return known
        picture = _draw(roc, title, format)
        _drawn[(key, format)] = picture
        while len(_drawn) > _KEPT:
            _drawn.popitem(last=False)
        return picture


def _draw(roc: RocOut, title: str, format: Format) -> bytes:
    # Imported here: it costs half a second, which a worker that only scores need not pay.
    import matplotlib
    from matplotlib.figure import Figure

    positive = [value for value in roc.fpr if value > 0]
    smallest = max(min(positive, default=1e-3), 1e-7)
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    axes = figure.add_subplot()
    # A logarithmic axis has no place for 0: the curve enters from the left edge.
    x = [max(value, smallest) for value in roc.fpr]
    if roc.bands is not None:
        axes.fill_between(
            x, roc.bands.tpr_low, roc.bands.tpr_high, color=BAND, alpha=0.5, linewidth=0, step="post"
        )
    axes.step(x, roc.tpr, where="post", color=LINE, linewidth=1.6)
    # What guessing does: TPR = FPR, which a logarithmic axis bends.
    chance = [smallest ** (1 - step / 200) for step in range(201)]
    axes.plot(chance, chance, color=GRID, linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(smallest, 1.0)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("false positive rate", color=TEXT)
    axes.set_ylabel("true positive rate", color=TEXT)
    axes.set_title(title, fontsize=11, color=TEXT)
    axes.grid(visible=True, color=GRID, linewidth=0.5)
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "pairmark", "svg.fonttype": "none"}):
        figure.savefig(stream, format=format, dpi=144, metadata={"Date": None} if format == "svg" else None)
    return stream.getvalue()
