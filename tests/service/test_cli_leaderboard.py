"""What the command line and the console show of a race between candidates."""

from __future__ import annotations

import io

import numpy as np
from rich.console import Console

from pairmark.models import SimilarityAuto
from pairmark.service.cli.training import show_leaderboard
from pairmark.service.console import frame


def test_the_chosen_candidate_and_the_others_are_shown() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 4)
    X = rng.normal(size=(40, 5))[y] + 0.4 * rng.normal(size=(160, 5))
    model = SimilarityAuto(candidates=["cosine", "plda"], random_state=0).fit(X, y)
    race = {"winner": model.winner_, "candidates": model.leaderboard_}
    text = io.StringIO()
    show_leaderboard(Console(file=text, width=200), {"race": race})
    said = text.getvalue()
    assert f"chosen by cross-validation: {model.winner_}" in said
    assert "cosine" in said
    assert "plda" in said.lower()
    # 10 people a fold: 45 pairs of people show 1 %, and not 0.3 %.
    (chosen,) = (one for one in model.leaderboard_ if one["chosen"])
    assert f"{chosen['validated_tpr']['0.01']:.3f} at FPR 1 %\n" in said

    board = {"items": [], "left_out": [], "verdict": None, "judged_by": "", "confidence": 0.95, "race": race}
    page = frame._templates().get_template("leaderboard.html").render(leaderboard=board, pages=[], version={})
    assert f"Chosen by cross-validation: {model.winner_}, of 2 candidates" in page
    assert page.count('class="wins"') == 1
    assert "at FPR 1 %. Each fold" in page
    # Versions trained earlier say nothing of samples.
    assert "Samples of a subject" not in page

    board["race"] = model.model_facts()["race"]
    rules = "of a subject are compared by plda (2 and 1), plda (2 and 2), plda otherwise"
    page = frame._templates().get_template("leaderboard.html").render(leaderboard=board, pages=[], version={})
    assert f"Samples {rules}." in page
    show_leaderboard(Console(file=text, width=200), {"race": board["race"]})
    assert "several samples of a subject are compared by plda\n" in text.getvalue()
