"""Real people and things with identities, which the benchmarks of evidence look at."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass, field

import numpy as np

from benchmarks.common import needed_data

SETS = ("keystroke", "faces", "digits never met")
SHARES = {"keystroke": (20, 18), "faces": (14, 12), "digits never met": (4, 3)}
"""Identities that train, and that calibrate; the others test."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Rows with identities; nobody is in two parts."""

    train: tuple[np.ndarray, np.ndarray] = field(repr=False)
    calibration: tuple[np.ndarray, np.ndarray] = field(repr=False)
    test: tuple[np.ndarray, np.ndarray] = field(repr=False)


def parts(name: str, repetition: int, digits: int = 1_500) -> Parts:
    """One random division of the people of a set into three parts."""
    rng = np.random.default_rng([repetition, SETS.index(name)])
    X, y = {"keystroke": keystroke, "faces": faces}.get(name, lambda: mnist(digits, rng))()
    train, calibration = SHARES[name]
    place = np.empty(int(y.max()) + 1, dtype=np.int64)
    place[rng.permutation(place.size)] = np.arange(place.size)

    def of(low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        rows = (place[y] >= low) & (place[y] < high)
        return X[rows], y[rows]

    return Parts(
        train=of(0, train),
        calibration=of(train, train + calibration),
        test=of(train + calibration, place.size),
    )


def keystroke() -> tuple[np.ndarray, np.ndarray]:
    """Typing rhythms, and whose each is."""
    with needed_data("keystroke", "keystroke.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    y = np.unique([line[0] for line in lines], return_inverse=True)[1]
    return np.array([line[1:] for line in lines], dtype=np.float32), y


def faces() -> tuple[np.ndarray, np.ndarray]:
    """Photographs, and whose each is."""
    with np.load(needed_data("faces", "yaleb.npz")) as file:
        return file["X"].astype(np.float32), np.unique(file["y"], return_inverse=True)[1]


def mnist(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """``n`` handwritten digits drawn from the training images of MNIST, and which each is."""
    with gzip.open(needed_data("mnist", "train-images-idx3-ubyte.gz")) as file:
        X = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(needed_data("mnist", "train-labels-idx1-ubyte.gz")) as file:
        y = np.frombuffer(file.read(), dtype=np.uint8, offset=8)
    some = rng.permutation(y.size)[:n]
    return X[some].astype(np.float32), y[some].astype(np.int64)
