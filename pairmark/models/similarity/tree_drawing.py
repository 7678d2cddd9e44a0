"""A similarity tree as a drawing: SVG text from the data that `explain.tree_data` gives.

Cells are boxes, from left (all pairs) to right; of a cell's two children the upper one is the more similar. Colour says
how a cell's pairs divide, at equal numbers of both kinds. Deeper cells than are asked for are counted, not drawn.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

DEEPEST = 8
"""Most levels drawn: 256 boxes one above the other."""
_WIDTH, _HEIGHT, _ACROSS, _BETWEEN, _EDGE, _TOP = 216, 52, 64, 12, 20, 78
_CHARACTERS = 32
_SAME, _DIFFERENT, _LINE, _TEXT, _QUIET = (37, 99, 235), (217, 119, 6), "#a1a1aa", "#18181b", "#52525b"


def tree_svg(data: Mapping[str, Any], *, depth: int = 5, title: str = "") -> str:
    """Draw a tree.

    Parameters
    ----------
    data : what `explain.tree_data` gives.
    depth : levels of splits that are drawn, 1 to `DEEPEST`; below, boxes say how many cells there are.
    title : what to call it.

    Returns
    -------
    SVG text; the same tree gives the same text.

    Raises
    ------
    ValueError
        When ``depth`` is out of bounds.
    """
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth is {depth}; expected 1 to {DEEPEST}")
    cells, nodes = data["cells"], data["nodes"]
    place: dict[int, tuple[float, int]] = {}
    rows = _lay_out(cells, 0, depth, place, 0)
    columns = 1 + max(level for _, level in place.values())
    height = _TOP + rows * (_HEIGHT + _BETWEEN) - _BETWEEN + _EDGE
    width = max(2 * _EDGE + columns * _WIDTH + (columns - 1) * _ACROSS, 860)
    root = cells[0]
    summary = (
        f"{_grouped(root['same'])} same and {_grouped(root['different'])} different pairs to learn from, "
        f"training AUC {data['auc']:.3f}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="12">',
        f'<title id="t">{_words(title or "Similarity tree")}</title>',
        f'<desc id="d">{_words(summary)}</desc>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_EDGE}" y="26" font-size="15" font-weight="600" fill="{_TEXT}">{_words(title or "Similarity tree")}'
        "</text>",
        f'<text x="{_EDGE}" y="44" fill="{_QUIET}">{_words(summary)}</text>',
        *_legend(),
    ]
    for draw in (_links, _box):
        for cell in place:
            parts += draw(cells, nodes, cell, place)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lay_out(
    cells: list[Any], cell: int, depth: int, place: dict[int, tuple[float, int]], row: int, level: int = 0
) -> int:
    """Rows from the top for a cell and all drawn below it; returns the next free row."""
    if "split" not in cells[cell] or level == depth:
        place[cell] = (row, level)
        return row + 1
    place[cell] = (0.0, level)
    for side in ("left", "right"):
        row = _lay_out(cells, cells[cell][side], depth, place, row, level + 1)
    above, below = (place[cells[cell][side]][0] for side in ("left", "right"))
    place[cell] = ((above + below) / 2, level)
    return row


def _corner(row: float, level: int) -> tuple[float, float]:
    return _EDGE + level * (_WIDTH + _ACROSS), _TOP + row * (_HEIGHT + _BETWEEN)


def _links(cells: list[Any], nodes: list[Any], cell: int, place: dict[int, tuple[float, int]]) -> list[str]:
    """Curves to both children, with what leads there where one question decides."""
    out = []
    entry = cells[cell]
    if entry.get("left") not in place:
        return []
    x, y = _corner(*place[cell])
    single = _single(nodes, entry)
    for side in ("left", "right"):
        child = entry[side]
        to_x, to_y = _corner(*place[child])
        start, end = y + _HEIGHT / 2, to_y + _HEIGHT / 2
        middle = x + _WIDTH + _ACROSS / 2
        out.append(
            f'<path d="M{x + _WIDTH:g} {start:g}C{middle:g} {start:g} {middle:g} {end:g} {to_x:g} {end:g}" fill="none" '
            f'stroke="{_LINE}"/>'
        )
        if single is not None:
            to_y = end - 5 if side == "left" else end + 12
            sign = "≤" if single["low"] == {"cell": child} else ">"
            out.append(
                f'<text x="{to_x - 6:g}" y="{to_y:g}" text-anchor="end" font-size="10" fill="{_QUIET}">'
                f"{sign} {_number(single['threshold'])}</text>"
            )
    return out


def _box(cells: list[Any], nodes: list[Any], cell: int, place: dict[int, tuple[float, int]]) -> list[str]:
    entry = cells[cell]
    x, y = _corner(*place[cell])
    hidden = "split" in entry and entry["left"] not in place
    if hidden:
        last = f"+ {_grouped(_below(cells, cell))} cells below"
    elif "split" in entry:
        last = _question(nodes, entry)
    else:
        last = f"score {_number(entry['score'])}"
    lines = [
        f"same {_share(entry['tpr'])} · different {_share(entry['fpr'])}",
        f"{_grouped(entry['same'])} : {_grouped(entry['different'])} pairs",
        last,
    ]
    hint = "\n".join([*lines[:2], *_hints(nodes, entry)]) if "split" in entry else "\n".join(lines)
    dash = ' stroke-dasharray="4 3"' if hidden else ""
    out = [
        f"<g><title>{_words(hint)}</title>",
        f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{_colour(entry)}" stroke="{_LINE}"'
        f"{dash}/>",
    ]
    for number, line in enumerate(lines):
        style = ('font-weight="600" ' if number == 0 else "") + f'fill="{_QUIET if number == 1 else _TEXT}"'
        out.append(
            f'<text x="{x + 9:g}" y="{y + 16 + 15 * number:g}" font-size="11" {style}>{_words(_short(line))}</text>'
        )
    return [*out, "</g>"]


def _single(nodes: list[Any], cell: Mapping[str, Any]) -> Any | None:
    """The only question of a cell's split, where it has one and that has a border."""
    first = nodes[cell["split"]]
    is_conjunction = "node" in first["low"] or "node" in first["high"]
    return None if is_conjunction or first["map"] in ("plane", "boosting") else first


def _tests_of(nodes: list[Any], cell: Mapping[str, Any]) -> list[Any]:
    """The questions of a cell's split, the first one first."""
    tests, todo = [], [cell["split"]]
    while todo:
        node = nodes[todo.pop(0)]
        tests.append(node)
        todo += [node[way]["node"] for way in ("low", "high") if "node" in node[way]]
    return tests


def _question(nodes: list[Any], cell: Mapping[str, Any]) -> str:
    first = nodes[cell["split"]]
    if "terms" in first:
        name = _name(first["terms"][0]) if first["terms"] else first["feature"]
        n_hidden = first["n_features"] - 1
    else:
        name = _name(first)
        n_hidden = len({_name(node) for node in _tests_of(nodes, cell)}) - 1
    if not n_hidden:
        return name
    # The count matters more than the end of a long name.
    tail = f" and {n_hidden} more"
    return _short(name, _CHARACTERS - len(tail)) + tail


def _hints(nodes: list[Any], cell: Mapping[str, Any]) -> list[str]:
    first = nodes[cell["split"]]
    if "terms" in first:
        return [f"{first['feature']}, most by:", *(_name(term) for term in first["terms"][:8])]
    return [f"{_name(node)} ≤ {_number(node['threshold'])}?" for node in _tests_of(nodes, cell)]


def _name(node: Mapping[str, Any]) -> str:
    """A pair feature in the feature's own name: |age - age'| for |x - x'| of age."""
    name, half = str(node["feature"]), str(node["map"])
    if "x" not in half or half in ("learned", "boosting", "plane"):
        return name
    if half.startswith(("max", "min")):
        return f"{half[:3]}({name})"
    return {"|x - x'|": f"|Δ {name}|", "x + x'": f"Σ {name}", "x x'": f"Π {name}"}[half]


def _below(cells: list[Any], cell: int) -> int:
    """How many leaves a cell ends in."""
    n_leaves, todo = 0, [cell]
    while todo:
        entry = cells[todo.pop()]
        if "split" in entry:
            todo += [entry["left"], entry["right"]]
        else:
            n_leaves += 1
    return n_leaves


def _colour(cell: Mapping[str, Any]) -> str:
    """From orange (different) by white to blue (same), by its shares of both kinds; pale, for text stands on it."""
    total = cell["tpr"] + cell["fpr"]
    lean = 2.0 * cell["tpr"] / total - 1.0 if total else 0.0
    towards = _SAME if lean > 0 else _DIFFERENT
    return "#" + "".join(f"{round(255 + 0.42 * abs(lean) * (value - 255)):02x}" for value in towards)


def _legend() -> list[str]:
    y = 58
    out = []
    for x, rates, text in (
        (_EDGE, {"tpr": 1.0, "fpr": 0.0}, "mostly same"),
        (_EDGE + 100, {"tpr": 0.0, "fpr": 1.0}, "mostly different"),
    ):
        out.append(
            f'<rect x="{x}" y="{y - 8}" width="10" height="10" rx="2" fill="{_colour(rates)}" stroke="{_LINE}"/>'
            f'<text x="{x + 15}" y="{y + 1}" font-size="11" fill="{_QUIET}">{text}</text>'
        )
    out.append(
        f'<text x="{_EDGE + 220}" y="{y + 1}" font-size="11" fill="{_QUIET}">% of all pairs of that kind · upper '
        "branch: more similar · |Δ a| difference, Σ a sum, Π a product · point at a box for more</text>"
    )
    return out


def _words(text: str) -> str:
    """Text as XML holds it: what it cannot hold, control characters and lone surrogates, left out."""
    printable = "".join(
        character
        for character in text
        if character in "\t\n"
        or (ord(character) >= 32 and unicodedata.category(character) not in ("Cc", "Cs"))
    )
    return escape(printable.replace("\ufffe", "").replace("\uffff", ""), {'"': "&quot;"})


def _short(text: str, limit: int = _CHARACTERS) -> str:
    """As much as fits into a box; wide letters count twice."""
    width = 0
    for at, character in enumerate(text):
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width > limit:
            return text[: max(at - 1, 1)].rstrip() + "…"
    return text


def _number(value: float) -> str:
    return f"{value:.4g}"


def _grouped(count: int) -> str:
    return f"{count:,}".replace(",", "\u2009")


def _share(rate: float) -> str:
    percent = 100.0 * rate
    if percent == 0.0 or percent >= 99.95:
        return f"{percent:.0f} %"
    digits = min(max(0, 1 - math.floor(math.log10(percent))), 3) if percent < 10 else 0
    return f"{percent:.{digits}f} %" if percent >= 0.001 else "<0.001 %"
