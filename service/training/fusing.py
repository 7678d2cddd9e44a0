"""Registered versions named in a fusion job: resolved when it is submitted, to what they were trained with.

A job learns them anew on its own training part, since a version that had seen people of the calibration part would make
the promise too good.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from pairmark.models.core.registry import spec_of
from pairmark.models.fusion.params import FUSED
from pairmark.service.blobs import open_blobs
from pairmark.service.db import Database
from pairmark.service.errors import ModelNotCapable
from pairmark.service.settings import Settings
from pairmark.service.store.refs import name_of, parse_ref
from pairmark.service.store.versions import VersionStore
from pairmark.service.training.schemas import JobRequest

FUSION = "fusion"
_FIELD = "params.models"


def models_named(request: JobRequest) -> list[str]:
    """Names of the registered models that a fusion job combines."""
    return [name_of(one) for one in _given(request) if isinstance(one, str)]


def with_versions(
    request: JobRequest, session: Session, database: Database, settings: Settings
) -> JobRequest:
    """The request with each registered version by its kind, parameters and number.

    Raises
    ------
    InvalidInput, UnknownModel
        For a reference that names no version.
    ModelNotCapable
        For a version whose scores cannot be combined.
    """
    given = _given(request)
    if not any(isinstance(one, str) for one in given):
        return request
    versions = VersionStore(database, open_blobs(settings), settings)
    models = [_component(one, versions, session) if isinstance(one, str) else one for one in given]
    return request.model_copy(update={"params": {**request.params, "models": models}})


def _given(request: JobRequest) -> list[Any]:
    given = request.params.get("models")
    return given if request.learner == FUSION and isinstance(given, list) else []


def _component(text: str, versions: VersionStore, session: Session) -> dict[str, Any]:
    model, row = versions.resolved(session, parse_ref(text, _FIELD))
    name = f"{model.name}:{row.version}"
    if row.kind not in FUSED:
        raise ModelNotCapable(
            f"{name} is a {row.kind}, whose scores cannot be combined; expected a version of {', '.join(FUSED)}",
            field=_FIELD,
        )
    retired = spec_of(row.kind).retired
    params = {key: value for key, value in row.params.items() if key not in retired}
    return {"learner": row.kind, "params": params, "version": name}
