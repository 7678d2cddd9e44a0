"""Finding and loading versions: what every part of the store starts from."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from pairmark.models.core.artefact import ArtefactError
from pairmark.models.registry import load as load_artefact
from pairmark.service.blobs import Blobs
from pairmark.service.db import Database
from pairmark.service.errors import CorruptArtefact, UnknownModel
from pairmark.service.names import beside
from pairmark.service.settings import Settings
from pairmark.service.store import repository
from pairmark.service.store.refs import MAX_VERSION, ModelRef
from pairmark.service.tables import AliasRow, ModelRow, ModelVersion

_KNOWN_SHOWN = 20


class VersionStore:
    """Rows and fitted learners by name; errors that say what there is instead."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self.db = db
        self.blobs = blobs
        self.settings = settings

    def row(self, name: str, version: int) -> ModelVersion:
        """The version's row, or `UnknownModel`."""
        with self.db.read() as session:
            return self.resolved(session, ModelRef(name=name, version=version))[1]

    def load(self, row: ModelVersion, name: str) -> Any:
        """The fitted learner of a version, every byte checked against what was stored; `CorruptArtefact` when the
        artefact is missing or was changed."""
        folder = self.blobs.folder(row.artefact)
        try:
            return load_artefact(folder)
        except ArtefactError as error:
            raise CorruptArtefact(
                f"{name}:{row.version} cannot be loaded: {error}", model=name, version=row.version
            ) from error

    def model(self, session: Session, name: str) -> ModelRow:
        """A model that has a version, or `UnknownModel`."""
        model = repository.find_model(session, name) if _askable(name) else None
        if model is None or not repository.page_versions(session, model.id, limit=1):
            others = repository.page_models(session, limit=_KNOWN_SHOWN, after=None, names=beside(name))
            names = ", ".join(other.name for other in others)
            raise UnknownModel(f"there is no model {name[:100]!r}; known: {names or 'none'}", field="model")
        return model

    def version(self, session: Session, model: ModelRow, version: int) -> ModelVersion:
        """A version of the model, or `UnknownModel`."""
        row = repository.find_version(session, model.id, version) if 1 <= version <= MAX_VERSION else None
        if row is None:
            newest = repository.page_versions(session, model.id, limit=10)
            numbers = ", ".join(str(version_row.version) for version_row in newest)
            raise UnknownModel(
                f"model {model.name!r} has no version {version}; it has: {numbers or 'none'}", field="version"
            )
        return row

    def alias(self, session: Session, model: ModelRow, alias: str) -> AliasRow:
        """An alias of the model, or `UnknownModel`."""
        row = repository.find_alias(session, model.id, alias) if _askable(alias) else None
        if row is None:
            others = repository.aliases_of(session, [model.id])[model.id][:_KNOWN_SHOWN]
            aliases = ", ".join(other.alias for other in others)
            raise UnknownModel(
                f"model {model.name!r} has no alias {alias[:100]!r} (it has: {aliases or 'none'}); promote a version "
                f"to it, or name one as '{model.name}:VERSION'",
                field="alias",
            )
        return row

    def resolved(self, session: Session, ref: ModelRef) -> tuple[ModelRow, ModelVersion]:
        """The model and version that a reference means, or `UnknownModel`."""
        model = self.model(session, ref.name)
        if ref.version is not None:
            return model, self.version(session, model, ref.version)
        assert ref.alias is not None
        return model, self.version(session, model, self.alias(session, model, ref.alias).version)


def _askable(word: str) -> bool:
    # What cannot be a name is not asked for: a database may refuse the very characters.
    return word.isascii() and word.isprintable()
