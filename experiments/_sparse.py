"""Sparse data for the RankBoost benchmarks: public sets, and rows made like those of the challenge."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from benchmarks.common import needed_data

ACTIVE_PER_ROW, BINARY, TOPICS = 115, 0.88, 60


@dataclass(frozen=True, kw_only=True)
class Sparse:
    """Labelled rows to learn from, rows with true labels to test on, and unlabelled rows; labels are 0 and 1."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    unlabelled: Any


def challenge_rows(n: int, n_columns: int, seed: int, *, noise: float = 0.0) -> tuple[csr_array, np.ndarray]:
    """Rows like the challenge's: about 115 active columns of a great many, a fifth of which ever occur, 88 % binary.

    A row mixes two of sixty topics, each with its own order of columns by frequency (Zipf), and a background. The true
    label is a noisy function of the topics and of some single columns. ``noise`` of the labels are flipped.
    """
    world = np.random.default_rng(7)
    active = max(1_000, n_columns // 5)
    shift, spread = world.integers(0, active, TOPICS + 1), 2 * world.integers(0, active // 2, TOPICS + 1) + 1
    topic_effect = world.normal(size=TOPICS)
    column_effect = world.normal(size=active) * (world.random(active) < 0.02)
    binary = world.random(active) < BINARY
    rng = np.random.default_rng(seed)
    frequency = np.cumsum(1.0 / np.arange(1, active + 1) ** 1.05)
    frequency /= frequency[-1]
    parts, labels = [], []
    for start in range(0, n, 20_000):
        m = min(20_000, n - start)
        topics = rng.integers(0, TOPICS, (m, 2))
        of = np.where(
            rng.random((m, ACTIVE_PER_ROW + 15)) < 0.4,
            TOPICS,
            np.take_along_axis(topics, rng.integers(0, 2, (m, ACTIVE_PER_ROW + 15)), 1),
        )
        rank = np.searchsorted(frequency, rng.random(of.shape))
        columns = ((rank * spread[of] + shift[of]) % active).astype(np.int32)
        columns.sort(axis=1)
        first = np.ones(columns.shape, dtype=bool)
        first[:, 1:] = columns[:, 1:] != columns[:, :-1]
        kept = columns[first]
        values = np.where(binary[kept], 1.0, rng.random(kept.size)).astype(np.float32)
        starts = np.concatenate([[0], np.cumsum(first.sum(axis=1))]).astype(np.int32)
        rows = csr_array((values, kept, starts), shape=(m, active))
        drive = topic_effect[topics].sum(axis=1) + 0.5 * (rows @ column_effect) + 0.3 * rng.normal(size=m)
        parts.append(rows)
        labels.append(drive > 0)
    data = np.concatenate([part.data for part in parts])
    # Active columns lie scattered among all.
    place = (np.arange(active, dtype=np.int64) * (n_columns // active)).astype(np.int32)
    indices = np.concatenate([place[part.indices] for part in parts])
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part.indptr) for part in parts]))])
    y = np.concatenate(labels).astype(np.int64)
    flipped = rng.random(n) < noise
    made = csr_array((data, indices, starts.astype(np.int32)), shape=(n, n_columns))
    return made, np.where(flipped, 1 - y, y)


def challenge(n: int, n_unlabelled: int, n_columns: int, noise: float) -> Sparse:
    """Training labels are noisy, as the challenge's were; test labels are true."""
    X, y = challenge_rows(n, n_columns, 1, noise=noise)
    X_test, y_test = challenge_rows(n, n_columns, 2)
    return Sparse(
        X=X, y=y, X_test=X_test, y_test=y_test, unlabelled=challenge_rows(n_unlabelled, n_columns, 3)[0]
    )


def a9a() -> Sparse:
    """Adult; the unlabelled rows are the training rows, there being no others."""
    return _svmlight("a9a", "a9a.t", 123)


def rcv1() -> Sparse:
    """A thousand rows of RCV1."""
    return _svmlight("rcv1_small.train.svm", "rcv1_small.test.svm", 47_236)


def _svmlight(train: str, test: str, width: int) -> Sparse:
    (X, y), (X_test, y_test) = (
        load_svmlight_file(str(needed_data("sparse", name)), n_features=width, dtype=np.float32)
        for name in (train, test)
    )
    X, X_test = csr_array(X), csr_array(X_test)
    return Sparse(X=X, y=_codes(y), X_test=X_test, y_test=_codes(y_test), unlabelled=X)


def sms() -> Sparse:
    """SMS spam as TF-IDF: a third labelled, a third to test on, a third unlabelled."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    with needed_data("sparse", "SMSSpamCollection").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t", 1) for line in file.readlines()[1:]]
    y = np.array([label == "spam" for label, _ in lines]).astype(np.int64)
    order = np.random.default_rng(0).permutation(len(lines))
    train, test, more = np.array_split(order, 3)
    words = [text for _, text in lines]
    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
    vectorizer.fit([words[at] for at in np.concatenate([train, more])])
    X, X_test, unlabelled = (
        csr_array(vectorizer.transform([words[at] for at in part])) for part in (train, test, more)
    )
    return Sparse(X=X, y=y[train], X_test=X_test, y_test=y[test], unlabelled=unlabelled)


def _codes(y: np.ndarray) -> np.ndarray:
    return (y > 0).astype(np.int64)
