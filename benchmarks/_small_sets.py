"""Small sets, as people start with: few rows or few people, from data that scikit-learn or the data folder holds.

`SMALL` names them with rows, features, labels and what is held out. Rows and people are drawn with the seeds that stand
here; who trains and who tests is drawn by the repetition: half of either, five times.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from sklearn import datasets

from benchmarks._people import faces, keystroke
from benchmarks.common import needed_data

Rows = tuple[np.ndarray, np.ndarray]


class SmallSet(NamedTuple):
    """One of them: how it is read, and what new rows are of."""

    read: Callable[[], Rows]
    protocol: Literal["open-set", "closed-set"]
    size: str


def _table(name: str) -> Rows:
    with needed_data("uci", f"{name}.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    y = np.unique([line[-1] for line in lines], return_inverse=True)[1]
    return np.array([line[:-1] for line in lines], dtype=np.float32), y


def _some_people(read: Callable[[], Rows], n_people: int, each: int) -> Rows:
    X, y = read()
    rng = np.random.default_rng(n_people)
    people = rng.permutation(np.unique(y))[:n_people]
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == one))[:each] for one in people])
    return X[rows], np.unique(y[rows], return_inverse=True)[1]


SMALL = {
    "wine": SmallSet(lambda: datasets.load_wine(return_X_y=True), "closed-set", "178 x 13, 3 classes"),
    "iris": SmallSet(lambda: datasets.load_iris(return_X_y=True), "closed-set", "150 x 4, 3 classes"),
    "sonar": SmallSet(lambda: _table("sonar"), "closed-set", "208 x 60, 2 classes"),
    "ionosphere": SmallSet(lambda: _table("ionosphere"), "closed-set", "351 x 34, 2 classes"),
    "few at keyboards": SmallSet(
        lambda: _some_people(keystroke, 40, 8), "open-set", "320 x 31, 40 people of 8 samples"
    ),
    "few faces": SmallSet(lambda: _some_people(faces, 30, 10), "open-set", "300 x 1,024, 30 people of 10"),
}
