"""Races for jobs, versions and galleries, met at every step of whoever was first."""

import contextlib
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from pairmark.models import MetricSimilarity
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, UnknownGallery, UnknownModel
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import AliasRow, ModelRow, ModelVersion
from tests.interleaving import every_preemption
from tests.service.conftest import Deployment
from tests.service.galleries.conftest import WIDTH, add_model, rows, served

pytestmark = pytest.mark.each_database


def url_of(deployment: Deployment) -> str:
    return deployment.settings.resolved_database_url


def versions(deployment: Deployment) -> None:
    """A model with versions 1 (in production) and 2, no matter what was there."""
    with deployment.db.write() as session:
        for table in (AliasRow, ModelVersion):
            for row in session.scalars(select(table)):
                session.delete(row)
        session.flush()
    with deployment.db.read() as session:
        known = session.scalar(select(func.count()).select_from(ModelRow))
    if not known:
        add_model(deployment.db, 1, 2)
    else:
        with deployment.db.write() as session:
            for number in (1, 2):
                session.add(version_row(number))
    deployment.store.promote("people", "production", 1, actor="test")


def version_row(number: int) -> ModelVersion:
    empty: dict[str, Any] = {key: {} for key in ("params", "metrics", "lineage", "facts")}
    return ModelVersion(
        model_id="m" * 32, version=number, kind="metric", capabilities=["search"], artefact_sha256="", artefact="",
        report=None, calibration_id=None, job_id=None, created_at=0.0, **empty,
    )  # fmt: skip


@pytest.mark.parametrize("promotes_first", [True, False])
def test_an_alias_never_points_at_a_version_that_is_deleted_meanwhile(
    deployment: Deployment, promotes_first: bool
) -> None:
    def store(db: Database) -> ModelStore:
        return ModelStore(db, deployment.blobs, deployment.settings)

    def prepared() -> Any:
        versions(deployment)
        calls = (
            lambda db: store(db).promote("people", "production", 2, actor="test"),
            lambda db: store(db).delete("people", 2),
        )
        return calls if promotes_first else calls[::-1]

    for at, *both in every_preemption(url_of(deployment), prepared):
        promoted, deleted = both if promotes_first else both[::-1]
        with deployment.db.read() as session:
            there = set(session.scalars(select(ModelVersion.version)))
            pointed = session.scalars(select(AliasRow.version)).one()
        assert pointed in there, at
        if promoted.error is None:
            assert isinstance(deleted.error, Conflict), at
            assert (there, pointed) == ({1, 2}, 2), at
        else:
            assert isinstance(promoted.error, UnknownModel), at
            assert deleted.error is None, at
            assert (there, pointed) == ({1}, 1), at


class Writers:
    """A gallery, and writers of it in the manner of two servers."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        rng = np.random.default_rng(0)
        self.estimator = MetricSimilarity().fit(rng.normal(size=(40, WIDTH)), np.repeat(np.arange(8), 5))
        add_model(deployment.db, 1)

    def galleries(self, db: Database) -> Galleries:
        return Galleries(db, self.deployment.settings)

    def fresh(self) -> None:
        made = self.galleries(self.deployment.db)
        with contextlib.suppress(UnknownGallery):
            made.delete("people")
        made.put("people", served(self.estimator))
        made.close()

    def write(self, db: Database, mine: str, value: float) -> Any:
        made = self.galleries(db)
        items = {name: (np.full(WIDTH, value), "s", None) for name in (mine, "shared")}
        try:
            return made.write("people", [rows(items)], RowErrors(), None)
        finally:
            made.close()

    def delete(self, db: Database) -> None:
        made = self.galleries(db)
        try:
            made.delete("people")
        finally:
            made.close()

    def items(self) -> dict[str, list[float]]:
        made = self.galleries(self.deployment.db)
        try:
            return {
                one.id: list(one.vector)
                for one in made.items("people", 10, None, subject=None, vectors=True).items
            }
        finally:
            made.close()


def test_two_writers_of_a_gallery_lose_nothing(deployment: Deployment) -> None:
    writers = Writers(deployment)

    def prepared() -> Any:
        writers.fresh()
        return lambda db: writers.write(db, "a", 1.0), lambda db: writers.write(db, "b", 2.0)

    for at, first, second in every_preemption(url_of(deployment), prepared):
        assert (first.error, second.error) == (None, None), at
        found = writers.items()
        assert set(found) == {"a", "b", "shared"}, at
        assert found["a"] == [1.0] * WIDTH, at
        assert found["b"] == [2.0] * WIDTH, at
        # What both wrote is as one of them wrote it, whole.
        assert found["shared"] in ([1.0] * WIDTH, [2.0] * WIDTH), at
