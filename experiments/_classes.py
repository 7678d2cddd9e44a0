"""Classification sets of the RSBL paper, and any like them: read, divided into folds, told as the paper tells them."""

import csv
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import stdtrit
from sklearn.model_selection import StratifiedKFold

from benchmarks.common import Skip, needed_data

FOLDS = 10


@dataclass(frozen=True)
class ClassSet:
    """A set of rows and their classes; ``nominal`` columns hold names."""

    name: str
    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    nominal: list[int] | None = None


def read_sets() -> list[ClassSet]:
    """The folder or file that ``--data`` names, else the shared copies of the paper's sets."""
    given = os.environ.get("PAIRMARK_CLASSES")
    if given:
        path = Path(given)
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files or not all(file.exists() for file in files):
            raise Skip(f"--data names {path}, where there is no CSV")
        return [_csv(file) for file in files]
    monks = [needed_data("uci", f"monks-1.{part}") for part in ("train", "test")]
    return [
        _csv(needed_data("uci", "ionosphere.csv")),
        _monks(monks),
        _csv(needed_data("uci", "sonar.csv")),
    ]


def _csv(path: Path) -> ClassSet:
    """Numbers, the class in the last column, no header."""
    with path.open(newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    try:
        X = np.array([line[:-1] for line in lines], dtype=np.float32)
    except ValueError as error:
        raise Skip(
            f"{path}: expected lines of numbers with the class last and no header ({error})"
        ) from error
    return ClassSet(path.stem, X, np.unique([line[-1] for line in lines], return_inverse=True)[1])


def _monks(parts: list[Path]) -> ClassSet:
    lines = [line.strip() for path in parts for line in path.read_text().splitlines()]
    rows = [
        [int(word) for word in re.split(r"[,\s]+", line)] for line in lines if line and line[0] not in "@%"
    ]
    table = np.array(rows)
    return ClassSet(
        "monks-problems-1", table[:, 1:].astype(np.float32), table[:, 0], list(range(table.shape[1] - 1))
    )


def divisions(data: ClassSet, repeats: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """(repeat, training rows, test rows) of repeated stratified 10-fold cross-validation."""
    found = []
    for repeat in range(repeats):
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=repeat)
        found += [(repeat, train, test) for train, test in folds.split(data.X, data.y)]
    return found


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """Mean difference of two accuracies over the same folds, and half its 95 % interval.

    The variance is corrected for training sets that overlap (Nadeau and Bengio 2003).
    """
    apart = ours - theirs
    n = apart.size
    error = float(np.sqrt((1 / n + 1 / (FOLDS - 1)) * apart.var(ddof=1)))
    return float(apart.mean()), float(stdtrit(n - 1, 0.975)) * error
