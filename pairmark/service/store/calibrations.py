"""Calibrations: of a version on another dataset, and of scores made elsewhere."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.artefact import ArtefactError, read_artefact, write_artefact
from pairmark.models.core.inputs import label_of, like_labels, refuse_placeholders
from pairmark.models.pairs.sampling import HeldOutPairs, held_out_pairs
from pairmark.schemas.base import Page
from pairmark.schemas.jobs import ListOrigin, Protocol
from pairmark.schemas.models import CalibrationOut, OverlapOut
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.held_out import (
    groups_of_rows,
    rows_for,
    stack_rows,
    stranger_rows,
    whole_dataset,
)
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import bump_revision, name_filter, read_page
from pairmark.service.errors import (
    CalibrationOverlap,
    Conflict,
    CorruptArtefact,
    InvalidInput,
    ModelNotCapable,
    TooLarge,
    UnknownCalibration,
    refusals,
)
from pairmark.service.names import EVERY_NAME, VisibleNames, checked_name, tenant_of
from pairmark.service.store.versions import (
    VersionStore,
    add_calibration,
    calibration_out,
    imported_as,
    overlap_with,
)
from pairmark.service.tables import CalibrationRow, ModelRow, ModelVersion

KIND = "calibration"
REFUSED = "these scores cannot be calibrated"
DEFAULT_PAIRS = 200_000


class Calibrations:
    """Makes, stores and loads calibrations."""

    def __init__(self, versions: VersionStore) -> None:
        self._versions = versions
        self.datasets = Datasets(versions.db, versions.blobs, versions.settings)

    def calibrate(
        self,
        name: str,
        version: int,
        dataset: str | None,
        *,
        protocol: Protocol = "auto",
        n_pairs: int | None = None,
        default: bool | None = None,
        listing: ListOrigin | None = None,
        strangers: str | None = None,
        groups: str | None = None,
    ) -> CalibrationOut:
        """Calibrate a version on a dataset it was not trained on.

        Parameters
        ----------
        dataset : reference, ``name`` or ``name:version``.
        protocol : ``auto`` is the protocol that the version was trained under.
        n_pairs : most pairs scored; default 200,000.
        default : whether it answers from now on when a request names no calibration; by default only if the
            version has none.
        listing : for a dataset that lists pairs, how the list came about.
        strangers : reference of a dataset of rows, each of another person, who join the negative pairs; with no
            ``dataset`` they calibrate alone.
        groups : a column of the dataset that puts each person into a group.

        Raises
        ------
        CalibrationOverlap
            When the dataset holds rows or (open-set) identities that the version was trained on: rates measured
            on them would guarantee too much.
        ModelNotCapable, InvalidInput, UnknownModel, UnknownDataset
        """
        main = dataset or strangers
        if main is None:
            raise InvalidInput("dataset is missing; expected a dataset, or strangers", field="dataset")
        if self.datasets.get(main).chosen:
            raise InvalidInput(
                f"the pairs of {main} were chosen by looking at them: they may train, and calibrate nothing. "
                "Expected a dataset of pairs or people that nobody chose",
                field="dataset",
            )
        row, data = self.version_and_data(name, version, main)
        protocol_name = self.protocol_of(row, protocol)
        self.refuse_overlap(row, name, data, protocol_name)
        others = None
        if strangers is not None:
            others = data if dataset is None else self.version_and_data(name, version, strangers)[1]
            self.refuse_overlap(row, name, others, "open-set")
        scorer = self._versions.load(name, row.version)
        with refusals(REFUSED):
            scores, pairs, X = self.score_dataset(
                scorer,
                None if dataset is None else data,
                protocol=protocol_name,
                n_pairs=n_pairs,
                listing=listing,
                strangers=others,
                groups=groups,
            )
            calibration = Calibration.of_pairs(scores, X, pairs, scorer=scorer)
        return self.register(
            calibration,
            name=f"{data.name}:{data.version}",
            facts={
                "dataset": f"{data.name}:{data.version}",
                **({} if others is None else {"strangers": f"{others.name}:{others.version}"}),
                **class_count(data, calibration.protocol),
            },
            dataset_id=data.dataset_id,
            dataset_sha256=data.sha256,
            model=(name, version),
            default=default,
        )

    def add_scores(
        self,
        name: str,
        scores: Any,
        same: Any,
        left_unit: Any = None,
        right_unit: Any = None,
        *,
        protocol: str | None = None,
        independent: bool = False,
        listing: str | None = None,
        population: int | None = None,
    ) -> CalibrationOut:
        """Calibrate scores of another system.

        Parameters
        ----------
        scores, same : (n,) numbers, and 0 or 1.
        left_unit, right_unit : (n,) sampling unit on each side, strings or whole numbers. Same-identity pairs carry the
            same unit twice in open-set use.
        protocol, independent, listing, population : as `pairmark.operating_point` takes them: what units are,
            and what is known of how the pairs came about. Where nothing is known, nothing is guaranteed.

        Raises
        ------
        InvalidInput, TooLarge
        """
        checked_name(name)
        limit = self._versions.settings.max_calibration_pairs
        if len(scores) > limit:
            raise TooLarge(f"scores: {len(scores)} of them; expected at most {limit}", limit=limit)
        if (left_unit is None) != (right_unit is None):
            raise InvalidInput(
                "left_unit and right_unit go together: give both, or neither when pairs are independent",
                field="right_unit" if right_unit is None else "left_unit",
            )
        units = None if left_unit is None else _units(left_unit, right_unit, len(scores))
        facts: dict[str, Any] = {}
        with refusals(REFUSED):
            calibration = Calibration.fit(
                scores,
                same,
                units,
                protocol=protocol,
                independent=independent,
                listing=listing,
                population=population,
            )
            if protocol is None:
                calibration.check_protocol()
        if units is not None:
            warning = like_labels({str(unit) for side in (left_unit, right_unit) for unit in side})
            facts["warnings"] = [] if warning is None else [warning]
        return self.register(calibration, name=name, facts=facts)

    def load(self, calibration_id: str) -> tuple[Calibration, CalibrationOut]:
        """A calibration, loaded, and its facts, or `UnknownCalibration`."""
        row, model = self.row(calibration_id)
        if "combined" in row.summary or row.summary.get("origin") == "blocks":
            raise Conflict(
                f"calibration {calibration_id} counts blocks of pairs, or weighs scores of several systems, which is "
                "no longer done: calibrate one score a pair again (POST /calibrations, or POST "
                "/models/NAME/versions/VERSION/calibrations)"
            )
        calibration = read_calibration(self._versions.blobs.folder(row.blob))
        if imported_as(row) == "unsigned":
            calibration = calibration.without_guarantee()
        return calibration, calibration_out(row, model)

    def page(
        self, limit: int = 50, cursor: str | None = None, *, names: VisibleNames = EVERY_NAME
    ) -> Page[CalibrationOut]:
        """Calibrations, newest first: of ``names``."""
        row = CalibrationRow
        query = (
            select(row, ModelRow.name)
            .outerjoin(ModelRow, ModelRow.id == row.model_id)
            .where(name_filter(names, func.coalesce(ModelRow.name, row.name)))
        )
        with self._versions.db.read() as session:
            return read_page(
                session,
                Page[CalibrationOut],
                lambda found: calibration_out(*found),
                query,
                (row.created_at, row.id),
                limit,
                cursor,
                newest_first=True,
            )

    def score_dataset(
        self,
        scorer: Any,
        data: LabelledData | None,
        *,
        protocol: str,
        n_pairs: int | None,
        listing: ListOrigin | None = None,
        strangers: LabelledData | None = None,
        groups: str | None = None,
    ) -> tuple[NDArray[np.float32], HeldOutPairs, Any]:
        """Scores of the pairs of a whole dataset, and of strangers, the pairs, and the rows that they number."""
        settings, more = self._versions.settings, None
        limit = min(n_pairs or DEFAULT_PAIRS, settings.max_calibration_pairs)
        X = None if data is None else rows_for(scorer, data, settings.max_dense_bytes)
        if strangers is not None:
            if data is not None and data.pairs is not None:
                raise ValueError("strangers go with identities, not with a list of pairs")
            rows = stranger_rows(strangers, data, "strangers")
            theirs = rows_for(scorer, strangers, settings.max_dense_bytes)[rows]
            X, more = theirs if data is None else stack_rows(X, theirs), np.arange(rows.size)
        if data is None:
            assert more is not None
            alone = held_out_pairs(more, protocol="open-set", n_pairs=limit, random_state=0)
            pairs = replace(alone, n_strangers=more.size)
        else:
            pairs = whole_dataset(
                data,
                protocol=protocol,
                n_pairs=limit,
                random_state=0,
                listing=listing,
                strangers=None if more is None else len(data) + more,
            )
        if groups is not None:
            if data is None or data.pairs is not None or pairs.protocol != "open-set":
                raise InvalidInput(
                    "groups goes with identities in open-set use, not with classes, a list of pairs or strangers "
                    "alone: leave it out, or name a dataset with identities",
                    field="groups",
                )
            names = groups_of_rows(data, groups, pairs.n_strangers)
            pairs = replace(pairs, groups=names[np.stack([pairs.left, pairs.right], axis=1)])
        return scorer.score_pairs(X, pairs.left, pairs.right), pairs, X

    def version_and_data(self, name: str, version: int, dataset: str) -> tuple[ModelVersion, LabelledData]:
        """A version that scores pairs, and a dataset whose vectors it takes."""
        row = self._versions.row(name, version)
        if "similarity" not in row.capabilities:
            raise ModelNotCapable(f"{name}:{version} ({row.kind}) does not score pairs")
        data = self.datasets.load(self.datasets.get(dataset).id)
        n_features = int(row.facts["n_features"])
        if data.schema is None and data.n_features != n_features:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has {data.n_features} features; {name}:{row.version} takes "
                f"{n_features}",
                field="dataset",
            )
        return row, data

    def protocol_of(self, row: ModelVersion, protocol: str) -> str:
        """``auto`` means the protocol that the version was trained under."""
        return str(row.facts.get("protocol", "auto")) if protocol == "auto" else protocol

    def refuse_overlap(
        self, row: ModelVersion, name: str, data: LabelledData, protocol: str
    ) -> OverlapOut | None:
        """Raise `CalibrationOverlap` when rates measured on the dataset would guarantee too much; else what of it the
        version was trained on, None when that was not kept."""
        stored = self._versions.report(row)
        if stored is None:
            return None
        overlap = overlap_with(stored.trained_on, data)
        reason = f"{name}:{row.version} was trained on"
        if overlap.rows:
            raise CalibrationOverlap(
                f"{overlap.rows} of the {len(data)} rows of {data.name}:{data.version} are rows that {reason}: leave "
                "them out, since rates measured on them would guarantee too much",
                rows=overlap.rows,
                first_rows=overlap.first_rows,
            )
        if protocol == "open-set" and overlap.identities:
            raise CalibrationOverlap(
                f"{overlap.identities} of the {len(data.identities)} identities of {data.name}:{data.version} are ones "
                f"that {reason}, and it was evaluated for identities it never saw: leave them out",
                identities=overlap.identities,
                first_identities=overlap.first_identities,
            )
        return overlap

    def register(
        self,
        calibration: Calibration,
        *,
        name: str,
        facts: dict[str, Any],
        dataset_id: str | None = None,
        dataset_sha256: str | None = None,
        model: tuple[str, int] | None = None,
        default: bool | None = None,
        parent_id: str | None = None,
        subjects: str | None = None,
    ) -> CalibrationOut:
        """Store a calibration, of scores made elsewhere where no model is given; ``parent_id`` and ``subjects`` are of
        one of subjects: whose people it is from, and their class."""
        db, blobs = self._versions.db, self._versions.blobs
        # The file before the row, so that no row names a file that is not there; a file without a row is deleted below,
        # or by the collector where this process is killed in between.
        blob = store_calibration(blobs, calibration)
        new = CalibrationRow(
            name=name,
            blob=blob,
            protocol=calibration.protocol,
            summary={**calibration.summary(), **facts},
            dataset_id=dataset_id,
            dataset_sha256=dataset_sha256,
            parent_id=parent_id,
            subjects=subjects,
        )
        try:
            with db.write() as session:
                hold(session, blobs, blob)
                now = db.now(session)
                if model is None:
                    row = add_calibration(session, new, now, model_id=None, version=None)
                else:
                    owner = self._versions.model_row(session, model[0], lock=True)
                    version = self._versions.version_row(session, owner, model[1])
                    row = add_calibration(session, new, now, model_id=owner.id, version=model[1])
                    if default or (default is None and version.calibration_id is None):
                        version.calibration_id = row.id
                after = {
                    "name": name,
                    "version": None if model is None else f"{model[0]}:{model[1]}",
                    "dataset_sha256": dataset_sha256,
                    "blob": blob,
                    "default": default,
                }
                tenant = tenant_of(name if model is None else model[0])
                record(
                    session, now, "calibration.create", f"calibration:{row.id}", after=after, tenant=tenant
                )
                bump_revision(session)
        except BaseException:
            delete_unused(db, blobs, [blob])
            raise
        return calibration_out(row, None if model is None else model[0])

    def mark_moved(self, calibration_id: str, words: str) -> None:
        """Keep that inputs have moved: from now on operating points of the calibration guarantee nothing."""
        with self._versions.db.write() as session:
            row = session.get(CalibrationRow, calibration_id)
            if row is None or row.moved is not None:
                return
            row.moved = words
            record(
                session,
                self._versions.db.now(session),
                "inputs.moved",
                f"calibration:{calibration_id}",
                after={"moved": words},
                tenant=tenant_of(row.name),
            )
            bump_revision(session)

    def row(self, calibration_id: str) -> tuple[CalibrationRow, str | None]:
        """A calibration's row and its model's name, or `UnknownCalibration`."""
        askable = calibration_id.isascii() and calibration_id.isalnum() and len(calibration_id) <= 32
        with self._versions.db.read() as session:
            row = session.get(CalibrationRow, calibration_id) if askable else None
            model = None if row is None or row.model_id is None else session.get(ModelRow, row.model_id)
        if row is None:
            raise unknown_calibration(calibration_id)
        return row, None if model is None else model.name


def unknown_calibration(calibration_id: str) -> UnknownCalibration:
    """What to raise where no calibration of that id is to be seen."""
    return UnknownCalibration(f"there is no calibration {calibration_id[:64]!r}", field="calibration")


def class_count(data: LabelledData, protocol: str) -> dict[str, int]:
    """The number of classes among which a closed-set guarantee holds, as a fact of a calibration's summary."""
    return {} if protocol == "open-set" or data.y is None else {"classes": len(data.identities)}


def store_calibration(blobs: Blobs, calibration: Calibration) -> str:
    """Store a calibration; returns its blob's key."""
    arrays, meta = calibration.to_state()
    with blobs.workspace() as folder:
        write_artefact(folder / KIND, kind=KIND, params={}, meta=meta, arrays=arrays)
        return blobs.put_folder(folder / KIND)


def read_calibration(folder: Path) -> Calibration:
    """Read what `store_calibration` stored, or `CorruptArtefact`."""
    try:
        artefact = read_artefact(folder)
        if artefact.kind != KIND:
            raise ArtefactError(f"{folder.name} holds a {artefact.kind}, not a calibration")
        return Calibration.from_state(artefact.arrays, artefact.meta)
    except (ArtefactError, KeyError, ValueError, TypeError) as error:
        raise CorruptArtefact(f"the calibration cannot be read: {error}") from error


def _units(left: Any, right: Any, n: int) -> NDArray[np.int64]:
    """(n, 2) the number of each side's unit; 1 and "1" are one."""
    sides = []
    for values, field in ((left, "left_unit"), (right, "right_unit")):
        if len(values) != n:
            raise InvalidInput(f"{field}: {len(values)} units; expected {n}, one a score", field=field)
        sides.append([label_of(str(unit)) for unit in values])
    counts = Counter([*sides[0], *sides[1]])
    try:
        refuse_placeholders(counts, counts.values(), "sides of pairs")
    except ValueError as error:
        raise InvalidInput(f"left_unit and right_unit: {error}", field="left_unit") from None
    codes = {unit: code for code, unit in enumerate(counts)}
    return np.array([[codes[unit] for unit in side] for side in sides], dtype=np.int64).T
