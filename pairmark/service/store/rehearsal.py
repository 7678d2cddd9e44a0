"""Builds the report of an imported version once, before it is registered.

Its facts, report and calibration come from the file. Whatever is wrong with them must refuse the import: later it would
be an error of every request that shows the version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.core.artefact import ArtefactError
from pairmark.service.errors import CorruptArtefact
from pairmark.service.heldout.errors import KEPT, hard_pairs, histograms
from pairmark.service.heldout.report import read_arrays, read_evidence, read_roc, read_trained_on
from pairmark.service.heldout.schemas import RocOut
from pairmark.service.store.reports import leaderboard_of, report_of
from pairmark.service.store.schemas import HardPair, NewVersion, ReportOut
from pairmark.service.store.views import version_out
from pairmark.service.tables import CalibrationRow, ModelVersion

_SHARES = ("fpr", "tpr", "fpr_low", "fpr_high", "tpr_low", "tpr_high")
_LATER = tuple(f"simultaneous_{name}" for name in _SHARES[2:])
"""Reports written before they were kept lack them."""
_SUMMARY_FACTS = ("protocol", "n_units", "n_negative_pairs", "n_same_pairs", "score_range")
_MIDDLE, _ODD = 0.3, 0.005
"""Where a calibration's rate is in the middle, the rate on other people of the same dataset is not at an end."""


def rehearse(new: NewVersion, report: Path | None, calibration: Calibration | None) -> None:
    """Make every document about a version that is not registered yet, or `ArtefactError` that says which cannot be
    made; ``report`` is its report's folder."""
    stage = "the facts of the version"
    try:
        row, rows = _rows(new, report is not None)
        summaries = [calibration_row.summary for calibration_row in rows]
        json.dumps([new.metrics, new.lineage, new.facts, new.params, summaries], allow_nan=False)
        version = version_out(new.model, row, [], rows)
        stage = "the leaderboard"
        board = leaderboard_of(row)
        stage = "the report"
        roc = score_histograms = evidence = None
        if report is not None:
            roc = read_roc(report).model_copy(update={"groups": row.metrics.get("groups")})
            evidence, score_histograms = read_evidence(report), _of_report(report)
        stage = "the calibration"
        if calibration is not None:
            _of_calibration(calibration)
            if new.calibration is not None:
                _check_summary(new.calibration.summary, calibration)
            if roc is not None and _is_held_out(new):
                _check_against_roc(calibration, roc)
        stage = "the report"
        document = report_of(version, [], board, roc, score_histograms, evidence)
        ReportOut.model_validate_json(document.model_dump_json())
    except CorruptArtefact as error:
        raise ArtefactError(error.detail) from error
    except Exception as error:
        # Whatever it is: it is in the file, and would come again with every request.
        raise ArtefactError(f"{stage} cannot be read: {type(error).__name__}: {str(error)[:300]}") from error


def _rows(new: NewVersion, reported: bool) -> tuple[ModelVersion, list[CalibrationRow]]:
    calibration = new.calibration
    rows = []
    if calibration is not None:
        rows = [CalibrationRow(id="-", version=1, created_at=0.0, **vars(calibration))]
    columns = {**new.columns(), "report": "-" if reported else None}
    return ModelVersion(version=1, calibration_id="-" if rows else None, created_at=0.0, **columns), rows


def _of_report(report: Path) -> dict[str, Any] | None:
    arrays = read_arrays(report)
    n = arrays["fpr"].shape
    later = _LATER if any(name in arrays for name in _LATER) else ()
    for name in (*_SHARES, *later, "thresholds"):
        array = arrays[name]
        is_curve = array.ndim == 1 and array.shape == n and array.size > 1 and array.dtype.kind == "f"
        if not is_curve or np.isnan(array).any():
            raise ArtefactError(f"array {name!r} does not have the length of the other curves")
        if name != "thresholds" and not ((array >= 0) & (array <= 1)).all():
            raise ArtefactError(f"array {name!r} holds a rate outside 0 to 1")
    read_trained_on(report)
    for kind in ("false-match", "false-non-match"):
        pairs = hard_pairs(arrays, kind)
        if pairs is not None:
            wrong = pairs.wrong_at(0.0, kind)
            for pair in (*pairs.first(KEPT), *wrong.first(KEPT)):
                HardPair(**pair)
    return histograms(arrays)


def _check_summary(summary: dict[str, Any], calibration: Calibration) -> None:
    """Hold what a file says of its calibration against what follows from the scores."""
    computed = calibration.summary()
    for name in _SUMMARY_FACTS:
        if name in summary and summary[name] != computed[name]:
            raise ArtefactError(
                f"the file gives {name} as {str(summary[name])[:60]}, but its calibration's scores give "
                f"{computed[name]}"
            )


def _is_held_out(new: NewVersion) -> bool:
    """Whether the calibration and the ROC are of parts of one dataset."""
    dataset = new.lineage.get("dataset_sha256")
    return dataset is not None and new.calibration is not None and new.calibration.dataset_sha256 == dataset


def _check_against_roc(calibration: Calibration, roc: RocOut) -> None:
    """Refuse thresholds that are on another scale than the scores of the ROC, which is of other people."""
    curve = calibration.curve()
    for threshold, rate in zip(curve["thresholds"], curve["fpr"], strict=True):
        if not _MIDDLE < rate < 1 - _MIDDLE:
            continue
        above = sum(limit > threshold for limit in roc.thresholds)
        fpr = roc.fpr[above - 1] if above else 0.0
        if not _ODD <= fpr <= 1 - _ODD:
            raise ArtefactError(
                f"at the score {threshold:g} the calibration's false positive rate is {rate:.3g} and the ROC's "
                f"{fpr:.3g}: they are not of the same scores"
            )


def _of_calibration(calibration: Calibration) -> None:
    calibration.curve()
    calibration.summary()
    for rate in (0.5, 0.1, 0.001):
        for method in ("finite-sample", "estimate"):
            try:
                calibration.operating_point(rate, method=method)
            except InsufficientCalibrationData:
                continue
