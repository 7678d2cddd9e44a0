"""What tests of galleries share: a served version without training, and rows."""

from typing import Any

import numpy as np

from pairmark.service.db import Database
from pairmark.service.galleries.rows import Rows, VectorForm
from pairmark.service.runtime.catalogue import VersionEntry
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.tables import ModelRow, ModelVersion

WIDTH = 4


def served(estimator: Any, version: int = 1, kind: str = "metric") -> LoadedVersion:
    """An estimator as if it had been loaded from the store."""
    entry = VersionEntry(
        model_id="m" * 32,
        name="people",
        version=version,
        kind=kind,
        capabilities=frozenset({"search", "similarity"}),
        calibration_id=None,
        artefact_sha256="",
    )
    return LoadedVersion(
        entry=entry, estimator=estimator, n_features=int(estimator.n_features_in_), accepts_sparse=False
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
