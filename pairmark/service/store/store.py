"""The life of a version, in the order in which it happens.

1. *Trained*: a job stores its artefact, report and calibration as blobs, then registers the version that names them in
   one transaction (`ModelStore.register`). An import does the same with what a file holds (`ModelStore.import_file`).
2. *Calibrated*: on held-out people as it is trained, later on other datasets (`Calibrations.calibrate`). The version's
   row says which calibration answers a request that names none.
3. *Promoted*: an alias moves to it (`ModelStore.promote`); ``name`` means ``name@production``. Each move enters the
   alias' history and the audit log, and raises the revision that serving processes watch.
4. *Served*: a process resolves a name and loads the version, every byte checked (`ModelStore.load`).
5. *Retired*: deleted when no alias holds it and no gallery searches with it (`ModelStore.delete`), with the blobs that
   nothing else names.

`VersionStore` finds rows and loads learners, `Calibrations` makes thresholds, `transfer` moves a version between
services, `Reports` says what is known of it.
"""

from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from pairmark.schemas.base import Page, iso
from pairmark.schemas.models import (
    LONGEST_REASON,
    AliasChangeOut,
    AliasOut,
    ModelOut,
    OverlapOut,
    Policy,
    VersionOut,
    VersionSummary,
)
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.datasets.data import LabelledData
from pairmark.service.db import Database, bump_revision, read_page
from pairmark.service.errors import Conflict, PreconditionFailed
from pairmark.service.names import (
    EVERY_NAME,
    PRODUCTION,
    ModelRef,
    VisibleNames,
    checked_alias,
    parse_ref,
)
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import Calibrations
from pairmark.service.store.reports import Reports
from pairmark.service.store.transfer import export_version, import_version
from pairmark.service.store.versions import (
    VersionStore,
    add_calibration,
    alias_out,
    aliases_of,
    ensure_model,
    models_with_versions,
    version_out,
    version_summary,
    versions_of,
)
from pairmark.service.tables import (
    AliasChange,
    AliasRow,
    CalibrationLedger,
    CalibrationRow,
    DecisionCount,
    GalleryRow,
    KeptDecision,
    ModelRow,
    ModelVersion,
)

VERSIONS_SHOWN = 100


class ModelStore(VersionStore):
    """Immutable versions under names, and the aliases that move between them.

    A version is a name and a number that is never used twice. Its artefact, report and calibration are blobs,
    stored before the row that names them is committed.
    """

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        super().__init__(db, blobs, settings)
        self.calibrations = Calibrations(self)

    @cached_property
    def reports(self) -> Reports:
        """What is known of versions, which jobs do not ask for."""
        return Reports(self, self.calibrations)

    # Versions

    def register(
        self,
        session: Session,
        name: str,
        new: ModelVersion,
        calibration: CalibrationRow | None,
        *,
        promote: str | None,
        actor: str,
        only_from: int | None = None,
        reason: str | None = None,
    ) -> VersionSummary:
        """Add a version, its calibration and, with ``promote``, the move of that alias to it.

        Everything happens in the caller's transaction, so it appears as one or not at all.

        Parameters
        ----------
        new, calibration : rows whose blobs are stored, without number, id and time.
        only_from : the version that the alias must stand at to be moved, 0 for nowhere; None moves it in any case.
        reason : why the alias is moved, for its history.
        """
        # Held first: from here on the collector waits for this transaction and does not take the files for unused.
        hold(session, self.blobs, *_blobs_of(new, [] if calibration is None else [calibration]))
        now = self.db.now(session)
        model = ensure_model(session, name, now)
        # A copy: what a lost commit has to repeat stays as it is.
        own = {"model_id": model.id, "version": model.next_version, "calibration_id": None, "created_at": now}
        row = ModelVersion(**{**new.values(), **own})
        model.next_version += 1
        session.add(row)
        session.flush()
        facts: dict[str, Any] = {}
        if calibration is not None:
            added = add_calibration(session, calibration, now, model_id=model.id, version=row.version)
            row.calibration_id = added.id
            if "imported" in calibration.summary:
                facts = {"calibration_imported": calibration.summary["imported"]}
        record(session, now, "version.create", f"model:{name}:{row.version}", after={**_facts(row), **facts})
        if promote is not None:
            _check_promotable(model.name, row)
            alias_row = session.get(AliasRow, (model.id, checked_alias(promote)))
            if only_from in (None, 0 if alias_row is None else alias_row.version):
                self._move_alias(session, model, promote, row.version, actor=actor, now=now, reason=reason)
        bump_revision(session)
        return version_summary(row, aliases_of(session, model.id))

    def resolve(self, ref: str | ModelRef) -> tuple[str, int]:
        """Name and version that a reference means, or `UnknownModel`."""
        parsed = parse_ref(ref) if isinstance(ref, str) else ref
        with self.db.read() as session:
            model, row = self.resolved(session, parsed)
            return model.name, row.version

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        contains: str | None = None,
        names: VisibleNames = EVERY_NAME,
    ) -> Page[ModelOut]:
        """Models, by name: of ``names``, and with ``contains`` in theirs, whatever its case."""
        query = models_with_versions(names)
        if contains:
            query = query.where(ModelRow.name.icontains(contains, autoescape=True))
        with self.db.read() as session:
            make, order = partial(self._model_out, session), (ModelRow.name,)
            return read_page(session, Page[ModelOut], make, query, order, limit, cursor)

    def model(self, name: str) -> ModelOut:
        """A model with its aliases and newest versions, or `UnknownModel`."""
        with self.db.read() as session:
            return self._model_out(session, self.model_row(session, name))

    def calibration_ages(self, limit: int) -> dict[str, float]:
        """Seconds since the calibration of what each model's production alias holds was made; of the oldest ones."""
        held = (AliasRow.model_id == ModelVersion.model_id) & (AliasRow.version == ModelVersion.version)
        oldest = (
            select(ModelRow.name, CalibrationRow.created_at)
            .join(ModelVersion, ModelVersion.model_id == ModelRow.id)
            .join(CalibrationRow, CalibrationRow.id == ModelVersion.calibration_id)
            .join(AliasRow, held)
            .where(AliasRow.alias == PRODUCTION)
            .order_by(CalibrationRow.created_at)
            .limit(limit)
        )
        with self.db.read() as session:
            now = self.db.now(session)
            return {name: now - created_at for name, created_at in session.execute(oldest)}

    def set_policy(self, name: str, policy: Policy) -> Policy:
        """Decide what a model may guarantee, or `UnknownModel`."""
        with self.db.write() as session:
            model = self.model_row(session, name)
            before = _policy(model)
            after = before.model_copy(
                update={name: getattr(policy, name) for name in policy.model_fields_set}
            )
            record(
                session,
                self.db.now(session),
                "policy.set",
                f"model:{name}",
                before=before.model_dump(include=policy.model_fields_set),
                after=after.model_dump(include=policy.model_fields_set),
            )
            for field, value in after.model_dump().items():
                setattr(model, field, value)
            if after.reviews is None:
                for table in (KeptDecision, DecisionCount):
                    session.execute(delete(table).where(table.model_id == model.id))
            bump_revision(session)
        return after

    def versions(self, name: str, limit: int = 50, cursor: str | None = None) -> Page[VersionSummary]:
        """A model's versions, newest first."""
        with self.db.read() as session:
            model = self.model_row(session, name)
            query, order = versions_of(model.id), (ModelVersion.version,)
            make = partial(version_summary, aliases=aliases_of(session, model.id))
            return read_page(
                session, Page[VersionSummary], make, query, order, limit, cursor, newest_first=True
            )

    def version(self, name: str, version: int) -> VersionOut:
        """Everything about a version, or `UnknownModel`."""
        with self.db.read() as session:
            model, row = self.resolved(session, ModelRef(name=name, version=version))
            aliases = aliases_of(session, model.id)
            newest = (
                select(CalibrationRow)
                .where(*_of_version(model, version), CalibrationRow.parent_id.is_(None))
                .order_by(CalibrationRow.created_at.desc(), CalibrationRow.id)
            )
            calibrations = session.scalars(newest.limit(VERSIONS_SHOWN)).all()
        return version_out(model.name, row, aliases, calibrations)

    def names(
        self, name: str, version: int, fact: Literal["feature_names", "label_names", "class_names"]
    ) -> list[str] | None:
        """Names of a version's features, labels or classes, in order; None where there are none or not all are kept."""
        facts = self.row(name, version).facts
        names: list[str] | None = facts.get(fact)
        complete = fact != "feature_names" or (names is not None and len(names) == facts["n_features"])
        return names if complete else None

    def delete(self, name: str, version: int) -> None:
        """Delete a version with its calibrations and files; `Conflict` when an alias holds it, or a gallery uses it or
        moves to it."""
        with self.db.write() as session:
            model = self.model_row(session, name, lock=True)
            row = self.version_row(session, model, version)
            holding = [alias.alias for alias in aliases_of(session, model.id) if alias.version == version]
            if holding:
                raise Conflict(
                    f"{name}:{version} is held by the alias {', '.join(holding)}: move the alias first",
                    aliases=holding,
                )
            served = GalleryRow.model_id == model.id, GalleryRow.version == version
            galleries = select(GalleryRow.name).where(*served).order_by(GalleryRow.name).limit(101)
            using = session.scalars(galleries).all()
            if using:
                raise Conflict(
                    f"{name}:{version} searches the gallery {', '.join(using[:20])}: move it to another version "
                    "(PUT /galleries/NAME), or delete it first",
                    galleries=using[:100],
                )
            of_version = _of_version(model, version)
            keys = _blobs_of(row, session.scalars(select(CalibrationRow).where(*of_version)))
            now = self.db.now(session)
            record(session, now, "version.delete", f"model:{name}:{version}", before=_facts(row))
            session.execute(delete(CalibrationRow).where(*of_version))
            one = ModelVersion.model_id == model.id, ModelVersion.version == version
            session.execute(delete(ModelVersion).where(*one))
            bump_revision(session)
        delete_unused(self.db, self.blobs, keys)

    # Aliases

    def alias(self, name: str, alias: str) -> AliasOut:
        """Where an alias points, or `UnknownModel`."""
        with self.db.read() as session:
            model = self.model_row(session, name)
            return alias_out(model.name, self.alias_row(session, model, alias))

    def promote(
        self,
        name: str,
        alias: str,
        version: int,
        *,
        actor: str,
        if_match: frozenset[int] | Literal["*"] | None = None,
        reason: str | None = None,
    ) -> AliasOut:
        """Point an alias at a version, making the alias when there is none.

        Parameters
        ----------
        actor : who asked, for the history.
        if_match : the alias is moved only from one of these `revision`; ``"*"``: from any, if it exists.
        reason : why, for the history and the audit log; at most 500 characters.

        Raises
        ------
        PreconditionFailed
            When the alias is not at that revision (any more).
        Conflict
            When the version scores pairs and has no calibration.
        """
        checked_alias(alias)
        with self.db.write() as session:
            model = self.model_row(session, name, lock=True)
            row = self.version_row(session, model, version)
            alias_row = session.get(AliasRow, (model.id, alias))
            if if_match is not None and (
                alias_row is None or (if_match != "*" and alias_row.revision not in if_match)
            ):
                stands = (
                    "does not exist"
                    if alias_row is None
                    else f"is at revision {alias_row.revision}, version {alias_row.version}"
                )
                raise PreconditionFailed(
                    f"{name}@{alias} {stands}: look again, then repeat with the new ETag"
                )
            _check_promotable(name, row)
            if alias_row is None or alias_row.version != version:
                alias_row = self._move_alias(
                    session, model, alias, version, actor=actor, now=self.db.now(session), reason=reason
                )
                bump_revision(session)
            return alias_out(name, alias_row)

    def history(
        self, name: str, alias: str, limit: int = 50, cursor: str | None = None
    ) -> Page[AliasChangeOut]:
        """Moves of an alias, newest first."""
        with self.db.read() as session:
            model = self.model_row(session, name)
            self.alias_row(session, model, alias)
            moves = select(AliasChange).where(AliasChange.model_id == model.id, AliasChange.alias == alias)
            make, order = AliasChangeOut.model_validate, (AliasChange.id,)
            return read_page(
                session, Page[AliasChangeOut], make, moves, order, limit, cursor, newest_first=True
            )

    def overlap(self, name: str, version: int, data: LabelledData) -> OverlapOut | None:
        """How much of a dataset the version was trained on, None when that was not kept; `CalibrationOverlap` when it
        holds what a calibration may not."""
        row = self.row(name, version)
        return self.calibrations.refuse_overlap(row, name, data, self.calibrations.protocol_of(row, "auto"))

    def ledger_number(self, calibration_id: str) -> int | None:
        """A calibration's number among those made on its dataset version; None when it is of no version."""
        with self.db.read() as session:
            entry = session.get(CalibrationLedger, calibration_id)
        return None if entry is None else entry.number

    # Moving versions between houses: see `transfer`

    def export(self, name: str, version: int, folder: Path) -> Path:
        """Write a version with its calibration and report into one file in ``folder``; returns its path."""
        return export_version(self, name, version, folder)

    def import_file(
        self, file: BinaryIO, *, actor: str, name: str | None = None, promote: str | None = None
    ) -> tuple[str, int]:
        """Register the version that an exported file holds, verified, under its own or another name; returns name and
        number. `InvalidInput` or `TooLarge` when it is not a whole, unchanged export within bounds."""
        with import_version(self, file, name) as imported, self.db.write() as session:
            return imported[0], self.register(session, *imported, promote=promote, actor=actor).version

    def _move_alias(
        self,
        session: Session,
        model: ModelRow,
        alias: str,
        version: int,
        *,
        actor: str,
        now: float,
        reason: str | None,
    ) -> AliasRow:
        """Point the alias at a version, and enter that in its history. The model's row must be locked."""
        row = session.get(AliasRow, (model.id, alias))
        before = None if row is None else {"version": row.version, "revision": row.revision}
        if row is None:
            row = AliasRow(model_id=model.id, alias=alias, revision=0)
            session.add(row)
        row.version, row.revision, row.updated_at = version, row.revision + 1, now
        words = {"reason": reason[:LONGEST_REASON]} if reason else {}
        previous = None if before is None else before["version"]
        move = {"model_id": model.id, "alias": alias, "version": version, "previous": previous}
        session.add(AliasChange(**move, by=actor[:200], at=now, **words))
        session.flush()
        after: dict[str, Any] = {"version": version, "revision": row.revision, **words}
        record(session, now, "alias.move", f"model:{model.name}@{alias}", before=before, after=after)
        return row

    def _model_out(self, session: Session, model: ModelRow) -> ModelOut:
        aliases: list[AliasRow] = aliases_of(session, model.id)
        newest = versions_of(model.id).order_by(ModelVersion.version.desc()).limit(VERSIONS_SHOWN)
        versions = session.scalars(newest).all()
        return ModelOut(
            name=model.name,
            created_at=iso(model.created_at),
            latest_version=versions[0].version,
            policy=_policy(model),
            aliases=[alias_out(model.name, row) for row in aliases],
            versions=[version_summary(row, aliases) for row in versions],
        )


def _blobs_of(version: ModelVersion, calibrations: Iterable[CalibrationRow]) -> list[str]:
    keys: list[Any] = [version.artefact, version.report, *(row.blob for row in calibrations)]
    return [key for key in keys if key]


def _of_version(model: ModelRow, version: int) -> tuple[ColumnElement[bool], ...]:
    """Whether a calibration is of a version."""
    return CalibrationRow.model_id == model.id, CalibrationRow.version == version


def _policy(model: ModelRow) -> Policy:
    return Policy.model_validate(model, from_attributes=True)


def _facts(row: ModelVersion) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "artefact": row.artefact,
        "calibration": row.calibration_id,
        "job": row.job_id,
        "dataset_sha256": row.lineage.get("dataset_sha256"),
    }


def _check_promotable(name: str, row: ModelVersion) -> None:
    if "similarity" in row.capabilities and row.calibration_id is None:
        raise Conflict(
            f"{name}:{row.version} has no calibration, so it could not answer /match: calibrate it first "
            f"(POST /models/{name}/versions/{row.version}/calibrations)"
        )
