"""The CMC as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from pairmark.service.runtime.pictures import BAND, GRID, LINE, MEDIA_TYPES, TEXT, drawing_lock

__all__ = ["MEDIA_TYPES", "cmc_picture"]


def cmc_picture(curve: Mapping[str, Any], title: str, format: str) -> bytes:
    """Draw the share of mated probes whose subject is within each rank, with its intervals.

    Parameters
    ----------
    curve : ``rank``, ``rate``, ``low`` and ``high``, lists of one length; ``n_probes``.

    Returns
    -------
    The file's bytes, the same for the same curve.
    """
    # Imported here: it costs half a second, which a worker that only searches need not pay.
    import matplotlib
    from matplotlib.figure import Figure

    with drawing_lock:
        figure = Figure(figsize=(5.6, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.fill_between(curve["rank"], curve["low"], curve["high"], color=BAND, alpha=0.5, linewidth=0)
        axes.plot(curve["rank"], curve["rate"], color=LINE, linewidth=1.6, marker="o", markersize=3)
        axes.set_xlim(0.5, len(curve["rank"]) + 0.5)
        axes.set_ylim(min(0.0 if not curve["low"] else min(curve["low"]) - 0.02, 0.95), 1.005)
        axes.set_xlabel("rank", color=TEXT)
        axes.set_ylabel("share of probes found within it", color=TEXT)
        axes.set_title(
            f"{title}: {curve['n_probes']} enrolled people, one probe each", fontsize=11, color=TEXT
        )
        axes.grid(visible=True, color=GRID, linewidth=0.5)
        axes.locator_params(axis="x", integer=True)
        stream = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "pairmark", "svg.fonttype": "none"}):
            figure.savefig(
                stream, format=format, dpi=144, metadata={"Date": None} if format == "svg" else None
            )
        return stream.getvalue()
