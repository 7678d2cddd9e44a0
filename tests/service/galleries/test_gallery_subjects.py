"""Subjects of a gallery searched as wholes: exact after every write, erasure, block and restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pairmark.models import MetricSimilarity, Plda
from pairmark.service.db import Database
from pairmark.service.galleries import live_gallery as live_module
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.live_gallery import LiveGallery
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.settings import Settings
from tests.service.galleries.gallery_cases import WIDTH, add_model, rows, served

RANDOM = np.random.default_rng(0)
X = (RANDOM.normal(size=(40, 1, WIDTH)) + 0.5 * RANDOM.normal(size=(40, 5, WIDTH))).reshape(-1, WIDTH)
Y = np.repeat(np.arange(40), 5)
ESTIMATORS: dict[str, Any] = {
    "plda": Plda(marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1).fit(X, Y),
    "mean": MetricSimilarity().fit(X, Y),
}


@pytest.fixture
def galleries(settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Galleries]:
    monkeypatch.setattr(live_module, "SEGMENT_ROWS", 12)
    monkeypatch.setattr(live_module, "MEMTABLE_ROWS", 5)
    add_model(database, 1, 2)
    made = Galleries(database, settings)
    yield made
    made.close()


def brute(estimator: Any, truth: dict[str, Any], query: np.ndarray, k: int) -> list[Any]:
    people: dict[tuple[str, str], list[np.ndarray]] = {}
    for name, (vector, whose, _) in truth.items():
        people.setdefault(("item", name) if whose is None else ("subject", whose), []).append(vector)
    if not people:
        return []
    scores = estimator.subject_score([query[None]], [np.array(samples) for samples in people.values()])
    reported = [
        (
            None if kind == "item" else name,
            name if kind == "item" else None,
            len(samples),
            float(score),
        )
        for ((kind, name), samples), score in zip(people.items(), scores, strict=True)
    ]
    return sorted(reported, key=lambda hit: (-hit[3], hit[0] or hit[1]))[:k]


@pytest.mark.parametrize("how", ESTIMATORS)
def test_every_interleaving_gives_what_scoring_everybody_gives(galleries: Galleries, how: str) -> None:
    estimator, random = ESTIMATORS[how], np.random.default_rng(3)
    galleries.put("g", served(estimator))
    state = galleries.state("g")
    live = LiveGallery(galleries.database, galleries.views.disk(state), state, estimator)
    truth: dict[str, Any] = {}
    for _ in range(25):
        step = random.choice(
            ["upsert", "upsert", "erase", "subject", "compact", "restart"], p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1]
        )
        if step == "upsert":
            new = {
                f"id-{random.integers(30):02}": (
                    X[random.integers(len(X))].astype(np.float32),
                    random.choice(["a", "b", "c", "d", "e", "f", "g", None]),
                    None,
                )
                for _ in range(random.integers(1, 8))
            }
            galleries.write("g", [rows(new)], RowErrors(), None)
            truth.update(new)
        elif step == "erase" and truth:
            name = str(random.choice(sorted(truth)))
            galleries.erase("g", id=name)
            del truth[name]
        elif step == "subject":
            whose = str(random.choice(["a", "b"]))
            galleries.erase("g", subject=whose)
            truth = {name: item for name, item in truth.items() if item[1] != whose}
        elif step == "compact":
            while live.compact():
                pass
        elif step == "restart":
            live = LiveGallery(galleries.database, galleries.views.disk(state), state, estimator)
        view = live.view(galleries.state("g").seq)
        queries = X[random.integers(len(X), size=2)].astype(np.float32)
        k = int(random.integers(1, 12))
        found = view.subjects(how).search(queries, k)
        for query, hits in zip(queries, found, strict=True):
            got = [(hit.subject, hit.id, hit.items, hit.score) for hit in hits]
            assert got == brute(estimator, truth, query, k)


def test_erasing_a_sample_takes_its_part_out_of_the_subject(galleries: Galleries) -> None:
    estimator = ESTIMATORS["plda"]
    galleries.put("g", served(estimator))
    items = {f"i{at}": (X[at].astype(np.float32), "zoe", None) for at in range(4)}
    galleries.write("g", [rows(items)], RowErrors(), None)
    state = galleries.state("g")
    live = galleries.views.live(state, estimator)
    query = X[4:5].astype(np.float32)

    def score() -> tuple[int, float]:
        hit = live.view(galleries.state("g").seq).subjects("plda").search(query, 1)[0][0]
        return hit.items, hit.score

    assert score() == (4, float(estimator.subject_score([query], [X[:4].astype(np.float32)])[0]))
    galleries.erase("g", id="i2")
    assert score() == (3, float(estimator.subject_score([query], [X[[0, 1, 3]].astype(np.float32)])[0]))
