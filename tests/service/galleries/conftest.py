"""Galleries whose segments are small, so that a few writes make several, and what searches them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pairmark.models import MetricSimilarity, Plda, SimilarityForest
from pairmark.service.db import Database
from pairmark.service.galleries import live_gallery
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.settings import Settings
from tests.service.galleries.gallery_cases import WIDTH, add_model


@pytest.fixture
def galleries(
    request: pytest.FixtureRequest, settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Galleries]:
    """Galleries of two versions; a module's ``SIZES`` are rows of a segment and of a memtable."""
    segment_rows, memtable_rows = getattr(request.module, "SIZES", (12, 5))
    monkeypatch.setattr(live_gallery, "SEGMENT_ROWS", segment_rows)
    monkeypatch.setattr(live_gallery, "MEMTABLE_ROWS", memtable_rows)
    add_model(database, 1, 2)
    made = Galleries(database, settings)
    yield made
    made.close()


@pytest.fixture(scope="session")
def estimators() -> dict[str, Any]:
    """Fitted learners, by kind."""
    X = np.random.default_rng(0).normal(size=(200, WIDTH)).astype(np.float32)
    learners = {
        "metric": MetricSimilarity(),
        "similarity-forest": SimilarityForest(
            n_estimators=3, n_pairs=1_000, max_depth=4, leaf_depth=2, random_state=0
        ),
        "plda": Plda(marginals="raw", length_norm=False, shrink_within=0.1, shrink_between=0.1),
    }
    return {kind: learner.fit(X, np.repeat(np.arange(40), 5)) for kind, learner in learners.items()}
