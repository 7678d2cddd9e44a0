"""Candidate pairs of two stored tables, scored and decided among their rivals."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.client import Client, InsufficientCalibration, InvalidInput
from tests.models.records.test_context import LEFT, RIGHT, SAME, TABLES, N
from tests.serving import RunningServer, serving

SMALL: dict[str, Any] = {"n_estimators": 40, "n_forest": 40, "random_state": 0}
N_CHOSEN = 200


def write(file: Path, names: list[str], lines: Any) -> Path:
    """A CSV."""
    with file.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(names)
        rows.writerows(lines)
    return file


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two shops that number their products alike, with a list of pairs of which some were drawn; and the same pairs,
    all chosen."""
    home = tmp_path_factory.mktemp("candidates")
    titles = TABLES["title"]
    left = write(home / "left.csv", ["id", "title"], [(f"p{row}", titles[row]) for row in range(N)])
    right = write(home / "right.csv", ["id", "title"], [(f"p{row}", titles[N + row]) for row in range(N)])
    order = np.random.default_rng(0).permutation(LEFT.size)
    lines = [
        (f"p{LEFT[at]}", f"p{RIGHT[at] - N}", int(SAME[at]), 0 if place < N_CHOSEN else LEFT.size - N_CHOSEN)
        for place, at in enumerate(order)
    ]
    columns = ["--column", "id:id", "--column", "title:text"]
    with serving(home / "home", f"sqlite:///{home / 'candidates.db'}") as server:
        for name, pairs in (("shops", lines), ("chosen", [(*line[:3], 0) for line in lines])):
            file = write(home / f"{name}.csv", ["left", "right", "same", "drawn_from"], pairs)
            added = server.cli(
                "datasets", "add", name, str(left), "--right-file", str(right), "--pairs", str(file), *columns
            )
            assert added.returncode == 0, added.stderr
            server.train(dataset=name, model=name, params=SMALL, promote=True)
        yield server


@pytest.fixture
def client(served: RunningServer) -> Any:
    with Client(served.url) as client:
        yield client


def named(rows: Any) -> list[list[str]]:
    return [[f"p{LEFT[at]}", f"p{RIGHT[at] - N}"] for at in rows]


def test_decisions_promise_a_rate_among_the_list(client: Client) -> None:
    decided = client.score_candidates("shops", 1, "shops", named(range(LEFT.size)), fpr=0.1, confidence=0.9)
    point = decided.operating_point
    assert point is not None
    assert decided.matches is not None
    assert (point.guarantee, point.population["pairs"]) == ("finite-population", LEFT.size - N_CHOSEN)
    assert point.aggregation == "candidates"
    assert decided.matches.tolist() == (decided.scores > np.float32(point.threshold)).tolist()
    assert decided.matches[~SAME].mean() <= 0.1
    # A lone pair has a threshold of its own.
    sides = ({"title": TABLES["title"][0]}, {"title": TABLES["title"][N]})
    alone = client.match(*sides, model="shops", fpr=0.1, confidence=0.9)
    assert alone.operating_point.calibration_id != point.calibration_id


def test_a_list_that_nothing_was_drawn_from_is_scored_and_not_decided(client: Client) -> None:
    assert client.score_candidates("chosen", 1, "chosen", named([0])).scores.size == 1
    with pytest.raises(InsufficientCalibration, match="drawn_from"):
        client.score_candidates("chosen", 1, "chosen", named([0]), fpr=0.1)
    # Of other tables nothing is known.
    assert client.score_candidates("shops", 1, "chosen", named([0])).scores.size == 1
    with pytest.raises(InvalidInput, match="another dataset"):
        client.score_candidates("shops", 1, "chosen", named([0]), fpr=0.1, confidence=0.9)
