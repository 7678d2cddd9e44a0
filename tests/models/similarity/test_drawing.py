"""The drawing of a tree: what it shows, that any name is safe in it, and that deep trees stay readable."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.datasets import load_wine

from pairmark.models import SimilarityForest, SimilarityTree

SVG = "{http://www.w3.org/2000/svg}"
WINE = load_wine()
NAMES = [str(name) for name in WINE.feature_names]


def grown(**params: Any) -> SimilarityTree:
    return SimilarityTree(n_pairs=3_000, random_state=0, **params).fit(WINE.data, WINE.target)


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def boxes(svg: str) -> list[list[str]]:
    """The lines of every cell's box."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [[line.text or "" for line in group.iter(f"{SVG}text")] for group in groups]


def test_every_cell_is_drawn_with_its_question_counts_and_rates() -> None:
    model = grown(max_depth=3, leaf_depth=1)
    data = model.tree_data(NAMES)
    svg = model.tree_svg(NAMES, title="wine")
    drawn = boxes(svg)
    assert len(drawn) == len(data["cells"])
    assert texts(svg)[0] == "wine"
    assert drawn[0][0] == "same 100 % · different 100 %"
    assert {lines[1] for lines in drawn} == {
        f"{cell['same']:,} : {cell['different']:,} pairs".replace(",", "\u2009") for cell in data["cells"]
    }
    scores = sorted(line[2] for line in drawn if line[2].startswith("score"))
    assert scores == sorted(f"score {cell['score']:.4g}" for cell in data["cells"] if "score" in cell)
    # One question a cell: its border stands at both branches.
    root = data["nodes"][data["cells"][0]["split"]]
    assert root["feature"] in drawn[0][2]
    borders = [text for text in texts(svg) if text[1:] == f" {root['threshold']:.4g}"]
    assert {text[0] for text in borders} == {"≤", ">"}
    # The upper box is the more similar one.
    tops = {
        tuple(line.text or "" for line in group.iter(f"{SVG}text")): float(group.find(f"{SVG}rect").get("y"))
        for group in ElementTree.fromstring(svg).iter(f"{SVG}g")
    }
    best = max((cell for cell in data["cells"] if "score" in cell), key=lambda cell: cell["score"])
    assert min(tops, key=lambda lines: tops[lines])[2] == f"score {best['score']:.4g}"
    assert svg == model.tree_svg(NAMES, title="wine")


def test_deep_trees_are_collapsed_and_say_what_is_below() -> None:
    model = grown(max_depth=9, leaf_depth=1)
    data = model.tree_data()
    leaves = sum("score" in cell for cell in data["cells"])
    for depth in (1, 3, 5):
        drawn = boxes(model.tree_svg(depth=depth))
        hidden = [int(found[1]) for lines in drawn if (found := re.match(r"\+ (\d+) cells below", lines[2]))]
        assert len(drawn) <= 2 ** (depth + 1) - 1
        assert hidden
        assert sum(hidden) + sum(lines[2].startswith("score") for lines in drawn) == leaves
    for depth in (0, 9):
        with pytest.raises(ValueError, match="expected 1 to 8"):
            model.tree_svg(depth=depth)


def test_names_are_text_whatever_they_hold() -> None:
    odd = [
        "<script>alert(1)</script>",
        "a & b",
        "quote\"'",
        "\x00\x1b[31m\ud800",
        "名" * 80,
        "",
        "]]>",
        "x" * 500,
    ]
    names = odd + NAMES[len(odd) :]
    svg = grown(max_depth=6, leaf_depth=2).tree_svg(names, title="<b>&\x07")
    svg.encode("utf-8")
    root = ElementTree.fromstring(svg)
    assert {one.tag for one in root.iter()} <= {
        SVG + name for name in ("svg", "title", "desc", "rect", "text", "path", "g")
    }
    assert root.find(f"{SVG}title").text == "<b>&"
    assert max(map(len, (line for lines in boxes(svg) for line in lines))) < 40


@pytest.mark.parametrize("leaf_rank", ["linear", "boosting"])
def test_sums_are_described_by_their_largest_weights(leaf_rank: Any) -> None:
    model = grown(max_depth=2, leaf_rank=leaf_rank, pair_map="max-min")
    svg = model.tree_svg(NAMES)
    first = model.tree_data(NAMES)["nodes"][0]
    assert 1 < first["n_features"] <= 26
    assert [one["share"] for one in first["terms"]] == sorted(
        (one["share"] for one in first["terms"]), reverse=True
    )
    assert boxes(svg)[0][2].endswith(f"and {first['n_features'] - 1} more")
    step = model.explain(WINE.data[0], WINE.data[100], NAMES)["path"][0]
    whole = sum(term["contribution"] for term in step["terms"])
    if step["n_features"] <= len(step["terms"]):
        assert whole == pytest.approx(step["value"], rel=1e-4)
    assert step["above"] == (step["value"] > step["threshold"])


def test_any_tree_of_a_forest_and_trees_of_one_cell_are_drawn() -> None:
    forest = SimilarityForest(n_estimators=3, n_pairs=500, max_depth=3, random_state=0)
    forest.fit(WINE.data, WINE.target)
    assert forest.tree_svg(NAMES, tree=2) != forest.tree_svg(NAMES)
    with pytest.raises(ValueError, match="expected 0 to 2"):
        forest.tree_svg(tree=3)
    alone = SimilarityTree(random_state=0).fit(np.ones((5, 2)), [0, 0, 1, 1, 1])
    assert len(boxes(alone.tree_svg())) == 1
