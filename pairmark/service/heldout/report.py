"""A version's report on disk: the ROC on held-out pairs, the hardest of them, and what training saw, as digests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from pairmark.models.calibration.held_out import pick_points
from pairmark.models.core.artefact import Artefact, ArtefactError, read_artefact, write_artefact
from pairmark.models.evaluation.pairs import BAND_NAMES, CURVE_NAMES, EvaluationReport, roc_lists
from pairmark.schemas.evidence import Evidence, RocOut
from pairmark.service.errors import CorruptArtefact
from pairmark.service.heldout.overlap import TrainedOn

KIND = "report"
_EXPECTED = {*CURVE_NAMES, *BAND_NAMES, "trained_rows", "trained_identities"}


def write_report(
    path: Path,
    report: EvaluationReport,
    trained_on: TrainedOn,
    errors: Mapping[str, NDArray[Any]],
    calibration_rows: NDArray[np.int64],
    evidence: Evidence | None = None,
) -> None:
    """Write the report folder.

    Parameters
    ----------
    errors : those of `pairmark.service.heldout.errors.error_arrays`.
    calibration_rows : rows of the dataset that were held out to calibrate on.
    """
    write_artefact(
        path,
        kind=KIND,
        params={},
        meta={
            "salt": trained_on.salt,
            "confidence": report.confidence,
            **({} if evidence is None else {"evidence": evidence.model_dump(mode="json")}),
        },
        arrays={
            **report.arrays(),
            **errors,
            "calibration_rows": calibration_rows,
            "trained_rows": np.unique(trained_on.rows),
            "trained_identities": np.unique(trained_on.identities),
        },
    )


def read_roc(folder: Path, points: int | None = None) -> RocOut:
    """The ROC of a report folder; with ``points`` at most so many of it, dense at low rates."""
    artefact = _read(folder)
    fpr = artefact.arrays["fpr"]
    part = slice(None) if points is None else pick_points(fpr, points)
    return RocOut.model_validate(roc_lists(artefact.arrays, artefact.meta["confidence"], part))


def read_evidence(folder: Path) -> Evidence | None:
    """What a report folder holds beside the ROC; None where it was written before that was measured.

    Raises
    ------
    CorruptArtefact
        For what no training writes.
    """
    reported = _read(folder).meta.get("evidence")
    try:
        return None if reported is None else Evidence.model_validate(reported)
    except ValidationError as error:
        raise CorruptArtefact(f"the report cannot be read: {error}") from error


def read_arrays(folder: Path) -> Mapping[str, NDArray[Any]]:
    return _read(folder).arrays


def read_trained_on(folder: Path) -> TrainedOn:
    artefact = _read(folder)
    return TrainedOn(
        rows=artefact.arrays["trained_rows"],
        identities=artefact.arrays["trained_identities"],
        salt=str(artefact.meta["salt"]),
    )


def read_calibration_rows(folder: Path) -> NDArray[np.int64] | None:
    """Rows of the version's dataset that were held out to calibrate on; None in reports that did not keep them."""
    rows = _read(folder).arrays.get("calibration_rows")
    return None if rows is None else np.asarray(rows, dtype=np.int64)


def _read(folder: Path) -> Artefact:
    try:
        artefact = read_artefact(folder, mmap=False)
        if (
            artefact.kind != KIND
            or not artefact.arrays.keys() >= _EXPECTED
            or not {"salt", "confidence"} <= artefact.meta.keys()
        ):
            raise ArtefactError(f"{folder.name} is not a report")
    except ArtefactError as error:
        raise CorruptArtefact(f"the report cannot be read: {error}") from error
    return artefact
