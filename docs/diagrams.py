"""Draws the pictures of the explanations, light and dark: ``python -m docs.figures`` writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from benchmarks.tables import read
from pairmark.models.evaluation.drawing import Picture

# The colours that `Picture.encoded` turns into those of the reader's scheme.
BLUE, RED, GREEN, GRID, TEXT, PAPER = "#2563eb", "#dc2626", "#15803d", "#d4d4d8", "#27272a", "#ffffff"


def people_picture() -> bytes:
    """TPR at the promised threshold by the number of people, with its range over draws, from the result of `price`."""
    rows = read("price")["rows"]
    figure, axes = _figure(6.4, 4.0)
    axes.axhline(
        rows[0]["oracle"], color=TEXT, linestyle="--", linewidth=1, label="oracle: knows the true rate"
    )
    for method, colour in (("finite-sample", BLUE), ("bootstrap", RED)):
        answered = [row for row in rows if row["method"] == method and row["TPR, median"] is not None]
        people = [row["people"] for row in answered]
        axes.plot(people, [row["TPR, median"] for row in answered], marker="o", color=colour, label=method)
        low, high = ([row[f"TPR, {side} %"] for row in answered] for side in (10, 90))
        axes.fill_between(people, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    sizes = sorted({row["people"] for row in rows})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
    axes.set_xticks([], minor=True)
    axes.set_ylim(0.5, 1)
    axes.set_xlabel("people calibrated on", color=TEXT)
    axes.set_ylabel("TPR at the promised threshold", color=TEXT)
    axes.grid(visible=True, color=GRID, linewidth=0.5)
    axes.legend(loc="lower right", frameon=False, labelcolor=TEXT)
    return Picture(figure).encoded("svg", adaptive=True)


def pairs_picture() -> bytes:
    """All pairs of 14 people, two of whom resemble many: their false matches lie in their rows and columns."""
    n_people = 14
    rng = np.random.default_rng(3)
    likeness = np.zeros(n_people)
    likeness[[4, 10]] = 2.2
    scores = rng.normal(size=(n_people, n_people)) * 0.7 + likeness[:, None] + likeness[None, :]
    figure, axes = _figure(4.6, 4.2)
    for first in range(n_people):
        for second in range(first):
            colour = RED if scores[first, second] > 1.6 else GRID
            axes.scatter(second, first, s=110, marker="s", color=colour, linewidth=0)
    names = [chr(ord("A") + number) for number in range(n_people)]
    axes.set_xticks(range(n_people - 1), names[:-1])
    axes.set_yticks(range(1, n_people), names[1:])
    axes.invert_yaxis()
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0)
    axes.set_title("91 pairs of 14 people; red: a false match", fontsize=11, color=TEXT)
    return Picture(figure).encoded("svg", adaptive=True)


STEPS = (
    ("Client", "two sides, and a rate (fpr)"),
    ("Edge", "key and scopes, size limits, fair shares, request id"),
    ("Handler", "finds the model's version by alias or number"),
    ("Runtime", "loaded version: both sides are prepared and scored"),
    ("Operating point", "threshold and guarantee of this rate, or a refusal"),
    ("Answer", "score, match, operating_point"),
)
BESIDE = {
    1: ("Keys", "scopes, tenant, quotas"),
    2: ("Database", "versions, aliases"),
    3: ("Artefacts", "arrays, read once, sha256 checked"),
    4: ("Calibration", "scores of held-out people"),
}


def request_picture() -> bytes:
    """The way of a decision through a serving process, and what each step reads."""
    figure, axes = _figure(7.2, 5.2)
    axes.set_axis_off()
    axes.set_xlim(0, 10)
    axes.set_ylim(-len(STEPS), 0)
    for at, (title, text) in enumerate(STEPS):
        _box(axes, 0.1, -at - 0.82, 5.9, title, text, BLUE)
        if at + 1 < len(STEPS):
            _arrow(axes, (3.0, -at - 0.82), (3.0, -at - 1.2))
        if at in BESIDE:
            _box(axes, 6.7, -at - 0.82, 3.2, *BESIDE[at], GREEN)
            _arrow(axes, (6.7, -at - 0.51), (6.0, -at - 0.51))
    return Picture(figure).encoded("svg", adaptive=True)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    axes.set_facecolor(PAPER)
    for spine in axes.spines.values():
        spine.set_color(GRID)
    axes.tick_params(colors=TEXT)
    return figure, axes


def _box(axes: Any, left: float, bottom: float, width: float, title: str, text: str, colour: str) -> None:
    shape = FancyBboxPatch(
        (left, bottom),
        width,
        0.62,
        boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=PAPER,
        edgecolor=colour,
    )
    axes.add_patch(shape)
    axes.text(left + 0.2, bottom + 0.4, title, fontsize=10, weight="bold", color=TEXT, va="center")
    axes.text(left + 0.2, bottom + 0.17, text, fontsize=8.5, color=TEXT, va="center")


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=11, color=TEXT, linewidth=1))
