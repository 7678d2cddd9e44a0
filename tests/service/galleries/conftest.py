"""Galleries whose segments are small, so that a few writes make several, what searches them, and rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pairmark.models import MetricSimilarity, Plda, SimilarityForest
from pairmark.service.db import Database
from pairmark.service.galleries import live_gallery
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.rows import Rows, VectorForm
from pairmark.service.runtime.catalogue import VersionEntry
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings
from pairmark.service.tables import ModelRow, ModelVersion


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


WIDTH = 4


def served(estimator: Any, version: int = 1, kind: str = "metric") -> LoadedVersion:
    """An estimator as if it had been loaded from the store."""
    return LoadedVersion(
        entry=VersionEntry(
            model_id="m" * 32,
            name="people",
            version=version,
            kind=kind,
            capabilities=frozenset({"search", "similarity"}),
            calibration_id=None,
            artefact_sha256="",
        ),
        estimator=estimator,
        n_features=int(estimator.n_features_in_),
        accepts_sparse=False,
    )


def add_model(database: Database, *versions: int) -> None:
    """Rows of versions that galleries may name."""
    with database.write() as session:
        session.add(ModelRow(id="m" * 32, name="people", next_version=9, created_at=0.0))
        session.flush()
        for version in versions:
            session.add(
                ModelVersion(
                    model_id="m" * 32,
                    version=version,
                    kind="metric",
                    capabilities=["search"],
                    params={},
                    metrics={},
                    lineage={},
                    facts={},
                    artefact_sha256="",
                    artefact="",
                    report=None,
                    calibration_id=None,
                    job_id=None,
                    created_at=0.0,
                )
            )


def rows(items: dict[str, tuple[np.ndarray, str | None, str | None]]) -> Rows:
    """Id -> (vector, subject, metadata) as checked rows."""
    vectors = np.array([one[0] for one in items.values()], dtype=np.float32)
    return Rows(
        ids=list(items),
        subjects=[one[1] for one in items.values()],
        vectors=vectors,
        metadata=[one[2] for one in items.values()],
        places=list(range(len(items))),
        form=VectorForm(vectors.shape[1] if items else WIDTH),
    )
