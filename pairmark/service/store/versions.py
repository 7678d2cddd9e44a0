"""A version: its rows, how it is found and loaded, what its report holds, and how answers show it."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Select, func, select, true
from sqlalchemy.orm import Session

from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.core.artefact import ArtefactError, OutdatedModel, read_artefact, write_artefact
from pairmark.models.core.inputs import label_of
from pairmark.models.evaluation.pairs import BAND_NAMES, CURVE_NAMES, EvaluationReport, roc_lists
from pairmark.models.evaluation.precision import pr_lists
from pairmark.models.pairs.sampling import HeldOutPairs
from pairmark.models.registry import KINDS, spec_of
from pairmark.models.registry import load as load_artefact
from pairmark.schemas.datasets import Promise
from pairmark.schemas.models import (
    AliasOut,
    CalibrationOut,
    Imported,
    Lineage,
    OverlapOut,
    PrOut,
    RocOut,
    VersionOut,
    VersionSummary,
)
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.guarantees import expected_guarantee, list_guarantee, population_of
from pairmark.service.datasets.held_out import rows_for
from pairmark.service.db import Database, bump_revision, insert_into, name_filter
from pairmark.service.errors import Conflict, CorruptArtefact, UnknownModel
from pairmark.service.names import MAX_VERSION, PRODUCTION, ModelRef, VisibleNames, same_tenant, tenant_of
from pairmark.service.settings import Settings
from pairmark.service.tables import AliasRow, CalibrationLedger, CalibrationRow, ModelRow, ModelVersion


def find_model(session: Session, name: str, *, lock: bool = False) -> ModelRow | None:
    """The model of that name; ``lock``: held until the transaction ends, so that moves and registrations wait."""
    query = select(ModelRow).where(ModelRow.name == name)
    return session.scalar(query.with_for_update() if lock else query)


def ensure_model(session: Session, name: str, now: float) -> ModelRow:
    """The model of that name, made when there is none, locked until the transaction ends."""
    row = {"id": secrets.token_hex(16), "name": name, "next_version": 1, "created_at": now}
    session.execute(
        insert_into(session, ModelRow).values(row).on_conflict_do_nothing(index_elements=["name"])
    )
    model = find_model(session, name, lock=True)
    assert model is not None
    return model


def add_calibration(
    session: Session, new: CalibrationRow, now: float, *, model_id: str | None, version: int | None
) -> CalibrationRow:
    """Add a copy of a calibration whose blob is stored, of a version or of scores made elsewhere; a version's gets the
    next number among those on its dataset version."""
    own = {"id": secrets.token_hex(16), "model_id": model_id, "version": version, "created_at": now}
    row = CalibrationRow(**{**new.values(), **own})
    session.add(row)
    session.flush()
    if row.dataset_sha256 is not None and model_id is not None:
        # Whoever else enters one in the ledger waits here until this transaction ends.
        bump_revision(session)
        table, name = CalibrationLedger, session.get_one(ModelRow, model_id).name
        of_tenant = name_filter(same_tenant(name), table.model) if tenant_of(name) else true()
        last = select(func.max(table.number)).where(table.dataset_sha256 == row.dataset_sha256, of_tenant)
        entry = table(
            calibration_id=row.id,
            number=(session.scalar(last) or 0) + 1,
            dataset_sha256=row.dataset_sha256,
            model=name,
            version=version,
            created_at=now,
        )
        session.add(entry)
        session.flush()
    return row


def models_with_versions(names: VisibleNames) -> Select[ModelRow]:
    """Models of ``names`` that have a version."""
    return select(ModelRow).where(versions_of(ModelRow.id).exists(), name_filter(names, ModelRow.name))


def versions_of(model_id: Any) -> Select[ModelVersion]:
    """Versions of a model."""
    return select(ModelVersion).where(ModelVersion.model_id == model_id)


def aliases_of(session: Session, model_id: str) -> list[AliasRow]:
    """Aliases of a model, by name."""
    query = select(AliasRow).where(AliasRow.model_id == model_id).order_by(AliasRow.alias)
    return list(session.scalars(query))


_KNOWN_SHOWN = 20
_COSTS = TypeAdapter(list[dict[str, Any]])


class VersionStore:
    """Rows and fitted learners by name; errors that say what there is instead."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self.db, self.blobs, self.settings = db, blobs, settings

    def row(self, name: str, version: int) -> ModelVersion:
        """The version's row, or `UnknownModel`."""
        with self.db.read() as session:
            return self.resolved(session, ModelRef(name=name, version=version))[1]

    def load(self, name: str, version: int) -> Any:
        """The fitted learner of a version, every byte checked against what was stored; `CorruptArtefact` when the
        artefact is missing or was changed, `Conflict` when its format has gone."""
        folder = self.blobs.folder(self.row(name, version).artefact)
        try:
            return load_artefact(folder)
        except OutdatedModel as error:
            raise Conflict(f"{name}:{version} is of an earlier version: {error}") from error
        except ArtefactError as error:
            raise CorruptArtefact(
                f"{name}:{version} cannot be loaded: {error}", model=name, version=version
            ) from error

    def load_with_rows(self, name: str, version: int, data: LabelledData) -> tuple[Any, Any]:
        """The fitted learner of a version, as by `load`, and a dataset's rows as it takes them, or `InvalidInput`."""
        estimator = self.load(name, version)
        return estimator, rows_for(estimator, data, self.settings.max_dense_bytes)

    def report(self, row: ModelVersion) -> "StoredReport | None":
        """The version's report; None where it scores no pairs."""
        return None if row.report is None else StoredReport(self.blobs.folder(row.report))

    def model_row(self, session: Session, name: str, *, lock: bool = False) -> ModelRow:
        """A model that has a version, or `UnknownModel`; ``lock`` as `find_model`."""
        model = find_model(session, name, lock=lock) if _askable(name) else None
        if model is None or session.scalar(versions_of(model.id).limit(1)) is None:
            others = models_with_versions(same_tenant(name)).order_by(ModelRow.name).limit(_KNOWN_SHOWN)
            names = ", ".join(other.name for other in session.scalars(others))
            raise UnknownModel(f"there is no model {name[:100]!r}; known: {names or 'none'}", field="model")
        return model

    def version_row(self, session: Session, model: ModelRow, version: int) -> ModelVersion:
        """A version of the model, or `UnknownModel`."""
        row = session.get(ModelVersion, (model.id, version)) if 1 <= version <= MAX_VERSION else None
        if row is None:
            newest = versions_of(model.id).order_by(ModelVersion.version.desc()).limit(10)
            numbers = ", ".join(str(version_row.version) for version_row in session.scalars(newest))
            raise UnknownModel(
                f"model {model.name!r} has no version {version}; it has: {numbers or 'none'}", field="version"
            )
        return row

    def alias_row(self, session: Session, model: ModelRow, alias: str) -> AliasRow:
        """An alias of the model, or `UnknownModel`."""
        row = session.get(AliasRow, (model.id, alias)) if _askable(alias) else None
        if row is None:
            aliases = ", ".join(other.alias for other in aliases_of(session, model.id)[:_KNOWN_SHOWN])
            raise UnknownModel(
                f"model {model.name!r} has no alias {alias[:100]!r} (it has: {aliases or 'none'}); promote a version "
                f"to it, or name one as '{model.name}:VERSION'",
                field="alias",
            )
        return row

    def resolved(self, session: Session, ref: ModelRef) -> tuple[ModelRow, ModelVersion]:
        """The model and version that a reference means, or `UnknownModel`."""
        model = self.model_row(session, ref.name)
        if ref.version is not None:
            return model, self.version_row(session, model, ref.version)
        alias = self.alias_row(session, model, ref.alias or PRODUCTION)
        return model, self.version_row(session, model, alias.version)


def _askable(word: str) -> bool:
    # What cannot be a name is not asked for: a database may refuse the very characters.
    return word.isascii() and word.isprintable()


def alias_out(model: str, row: AliasRow) -> AliasOut:
    return AliasOut.model_validate({**row.values(), "model": model})


def calibration_out(row: CalibrationRow, model: str | None) -> CalibrationOut:
    return CalibrationOut.model_validate({**row.values(), "model": model, "imported": imported_as(row)})


def imported_as(row: CalibrationRow) -> Imported | None:
    """How a calibration came in a file; None: it was made here. Those of versions are made here from a dataset; imports
    of earlier releases, which kept no mark, name none."""
    if row.model_id is None or row.dataset_id is not None:
        return None
    return "signed" if row.summary.get("imported") == "signed" else "unsigned"


def version_summary(row: ModelVersion, aliases: Iterable[AliasRow]) -> VersionSummary:
    names = [alias.alias for alias in aliases if alias.version == row.version]
    return VersionSummary.model_validate({**row.values(), "aliases": names})


def version_out(
    model: str, row: ModelVersion, aliases: Iterable[AliasRow], calibrations: Iterable[CalibrationRow]
) -> VersionOut:
    calibration_rows = list(calibrations)
    spec = spec_of(row.kind) if row.kind in KINDS else None
    facts = {name: value for name, value in row.facts.items() if name not in ("n_features", "feature_names")}
    return VersionOut(
        **version_summary(row, aliases).model_dump(),
        model=model,
        title=row.kind if spec is None else spec.title,
        params=row.params,
        n_features=int(row.facts["n_features"]),
        feature_names=row.facts.get("feature_names"),
        metrics=row.metrics,
        lineage=Lineage.model_validate({**row.lineage, "artefact_sha256": row.artefact_sha256}),
        facts=facts,
        calibrations=[calibration_out(calibration_row, model) for calibration_row in calibration_rows],
        promise=version_guarantee(row, calibration_rows),
        has_roc=row.report is not None,
        has_tree=spec is not None and spec.has_tree,
    )


def without_origin(version: VersionOut) -> VersionOut:
    """A version as those see it who may use it, and not the data it came from."""
    lineage = Lineage(
        dataset=None,
        dataset_sha256=None,
        job=None,
        code_version=version.lineage.code_version,
        artefact_sha256=version.lineage.artefact_sha256,
    )
    calibrations = [calibration_without_origin(calibration) for calibration in version.calibrations]
    return version.model_copy(update={"lineage": lineage, "calibrations": calibrations})


def calibration_without_origin(calibration: CalibrationOut) -> CalibrationOut:
    """A calibration without the name and digest of its dataset, and without what earlier versions kept of scores."""
    hidden = "dataset", "score_range"
    summary = {name: value for name, value in calibration.summary.items() if name not in hidden}
    name = calibration.name.partition(" held out of ")[0]
    return calibration.model_copy(update={"name": name, "dataset_sha256": None, "summary": summary})


_PARTS = ("train", "calibration", "test")


def version_guarantee(row: ModelVersion, calibrations: Iterable[CalibrationRow]) -> Promise | None:
    """What the calibration that answers by default can promise; None for lists that guarantee something, and scores."""
    calibration = next((each for each in calibrations if each.id == row.calibration_id), None)
    parts = row.facts.get("parts", {})
    if calibration is None or "n_units" not in calibration.summary or imported_as(calibration) == "unsigned":
        return None
    if calibration.summary.get("independent_rows"):
        return None
    if nothing_guaranteed(calibration.summary.get("origin", "")) is not None:
        return list_guarantee(int(calibration.summary["n_units"]), calibration.summary["origin"])
    if "calibration_rows" not in parts:
        return None
    # Known are the units that calibrate; of a dataset that was split, their share says how many it has.
    is_split = calibration.summary.get("dataset") == row.lineage.get("dataset")
    fraction = float(row.lineage.get("evaluation", {}).get("calibration_fraction", 1.0)) if is_split else 1.0
    units = int(calibration.summary["n_units"])
    smallest = (calibration.summary.get("smallest_fpr") or {}).get("0.95", {}).get("finite-sample")
    whole = round(units / fraction)
    n_in_parts = sum(
        int(parts.get(f"{part}_{'identities' if calibration.protocol == 'open-set' else 'rows'}", 0))
        for part in _PARTS
    )
    return expected_guarantee(
        # Shares are rounded; a dataset that was split whole is counted by its parts.
        n_in_parts if is_split and abs(n_in_parts - whole) <= 2 else whole,
        fraction,
        protocol=calibration.protocol,
        different_share=float(calibration.summary.get("different_share", 1.0)),
        calibration_units=units,
        population=None
        if "classes" not in calibration.summary
        else population_of(calibration.summary["classes"]),
        smallest_fpr=smallest,
    )


DIGEST_BYTES = 16
NAMED = 20
"""Overlapping rows and identities that are named."""
Digests = NDArray[np.bytes_]


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """Digests of what a version was trained on.

    Attributes
    ----------
    rows : one a training row.
    identities : one a training identity, made with `salt`; empty when there were no identities.
    """

    rows: Digests
    identities: Digests
    salt: str


def trained_on(data: LabelledData, rows: NDArray[np.int64], salt: str) -> TrainedOn:
    """Digests of some rows of a dataset and of the identities among them."""
    names: Iterable[str] = ()
    if data.y is not None:
        names = (data.identities[code] for code in np.unique(np.asarray(data.y)[rows]))
    return TrainedOn(rows=data.row_hashes[rows], identities=identity_digests(names, salt), salt=salt)


def identity_digests(names: Iterable[str], salt: str) -> Digests:
    """Salted digest of each identity's name, (n,): the names themselves are not kept with a model."""
    key = hashlib.sha256(salt.encode()).digest()
    digests = [
        hashlib.blake2b(label_of(name).encode(), digest_size=DIGEST_BYTES, key=key).digest() for name in names
    ]
    return np.array(digests, dtype=f"S{DIGEST_BYTES}")


def overlap_with(training: TrainedOn, data: LabelledData) -> OverlapOut:
    """Which rows and identities of a dataset are among those trained on: how many, and the first of them."""
    rows = np.flatnonzero(np.isin(data.row_hashes, training.rows))
    names = np.flatnonzero(np.isin(identity_digests(data.identities, training.salt), training.identities))
    return OverlapOut(
        rows=int(rows.size),
        identities=int(names.size),
        first_rows=rows[:NAMED].tolist(),
        first_identities=[data.identities[at] for at in names[:NAMED]],
    )


def overlapping_rows(training: TrainedOn, data: LabelledData, *, identities: bool) -> NDArray[np.bool_]:
    """Which rows of a dataset were trained on, (n,); with ``identities``, also every row of an identity that was."""
    overlap = np.isin(data.row_hashes, training.rows)
    if identities and data.y is not None:
        trained = np.isin(identity_digests(data.identities, training.salt), training.identities)
        overlap |= trained[np.asarray(data.y)]
    return np.asarray(overlap)


HARDEST = 200
"""Hardest pairs of each kind that a report keeps."""
SIDES = {"false-match": "hardest_different", "false-non-match": "hardest_same"}


def error_arrays(pairs: HeldOutPairs, scores: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """The hardest pairs of both kinds, and how many there are of each, as arrays for a report."""
    arrays: dict[str, NDArray[Any]] = {}
    for kind, name in SIDES.items():
        mine = np.flatnonzero(~pairs.same if kind == "false-match" else pairs.same)
        hardest = -scores[mine] if kind == "false-match" else scores[mine]
        order = mine[np.argsort(hardest, kind="stable")[:HARDEST]]
        arrays[f"{name}_rows"] = np.stack([pairs.left[order], pairs.right[order]], axis=1)
        arrays[f"{name}_scores"] = scores[order]
        arrays[f"{name}_of"] = np.array([mine.size])
    return arrays


def _pair_keys(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each pair of rows, whichever side is left."""
    return np.minimum(left, right).astype(np.int64) << 32 | np.maximum(left, right)


def fold_arrays(
    pairs: HeldOutPairs, scores: NDArray[np.float32], data: LabelledData
) -> dict[str, NDArray[Any]]:
    """What folds said of their pairs, rows by digest: a later version is compared with this, not with who knows all."""
    rows, place = np.unique(data.row_hashes, return_inverse=True)
    ends = np.stack([place[pairs.left], place[pairs.right]])
    return {"fold_rows": rows, "fold_pairs": ends.astype(np.int32), "fold_scores": scores}


def fold_scores(
    arrays: Mapping[str, NDArray[Any]], pairs: HeldOutPairs, data: LabelledData
) -> NDArray[np.float32]:
    """(n,) what production's own folds said of these pairs when it was trained on them, as `fold_arrays` has it; NaN of
    others."""
    scores = np.full(len(pairs), np.nan, dtype=np.float32)
    rows, own = arrays["fold_rows"], data.row_hashes
    place = np.minimum(np.searchsorted(rows, own), rows.size - 1)
    is_there = rows[place] == own
    keys = _pair_keys(*arrays["fold_pairs"])
    order = np.argsort(keys)
    wanted = _pair_keys(place[pairs.left], place[pairs.right])
    at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
    is_scored = is_there[pairs.left] & is_there[pairs.right] & (keys[at] == wanted)
    scores[is_scored] = arrays["fold_scores"][at[is_scored]]
    return scores


REPORT = "report"
_EXPECTED = {*CURVE_NAMES, *BAND_NAMES, "trained_rows", "trained_identities"}


def write_report(
    path: Path,
    report: EvaluationReport,
    trained_on: TrainedOn,
    errors: Mapping[str, NDArray[Any]],
    calibration_rows: NDArray[np.int64],
    columns: list[dict[str, Any]],
) -> None:
    """Write the report folder.

    Parameters
    ----------
    errors : those of `error_arrays`, and of `PrecisionReport.arrays` for records.
    calibration_rows : rows of the dataset that were held out to calibrate on.
    columns : what leaving columns of records out costs; JSON-able.
    """
    write_artefact(
        path,
        kind=REPORT,
        params={},
        meta={
            "salt": trained_on.salt,
            "confidence": report.confidence,
            "evidence": {"columns": columns},
        },
        arrays={
            **report.arrays(),
            **errors,
            "calibration_rows": calibration_rows,
            "trained_rows": np.unique(trained_on.rows),
            "trained_identities": np.unique(trained_on.identities),
        },
    )


class StoredReport:
    """What a version's report folder holds. `CorruptArtefact` for what no training writes.

    Attributes
    ----------
    arrays : all that are stored.
    """

    def __init__(self, folder: Path) -> None:
        try:
            artefact = read_artefact(folder, mmap=False)
            if (
                artefact.kind != REPORT
                or not artefact.arrays.keys() >= _EXPECTED
                or not {"salt", "confidence"} <= artefact.meta.keys()
            ):
                raise ArtefactError(f"{folder.name} is not a report")
        except ArtefactError as error:
            raise CorruptArtefact(f"the report cannot be read: {error}") from error
        self.arrays: Mapping[str, NDArray[Any]] = artefact.arrays
        self._meta = artefact.meta

    def roc(self, points: int | None = None) -> RocOut:
        """The ROC; with ``points`` at most so many of it, dense at low rates."""
        return RocOut.model_validate(roc_lists(self.arrays, self._meta["confidence"], points))

    def pr(self, points: int | None = None) -> PrOut | None:
        """Precision and recall, with ``points`` at most so many; None where they were not measured."""
        curve = pr_lists(self.arrays, points)
        return None if curve is None else PrOut.model_validate(curve)

    @property
    def columns(self) -> list[dict[str, Any]]:
        """What leaving columns of records out costs."""
        try:
            return _COSTS.validate_python((self._meta.get("evidence") or {}).get("columns", []))
        except (AttributeError, ValidationError) as error:
            raise CorruptArtefact(f"the report cannot be read: {error}") from error

    @property
    def trained_on(self) -> TrainedOn:
        """Digests of what the version was trained on."""
        rows, identities = self.arrays["trained_rows"], self.arrays["trained_identities"]
        return TrainedOn(rows=rows, identities=identities, salt=str(self._meta["salt"]))

    @property
    def calibration_rows(self) -> NDArray[np.int64]:
        """Rows of the version's dataset that were held out to calibrate on; none in reports that did not keep them."""
        return np.asarray(self.arrays.get("calibration_rows", ()), dtype=np.int64)
