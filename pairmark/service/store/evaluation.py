"""Measuring a version on another dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.evaluation.pairs import FPR_TARGETS, pair_report, rates_at
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.schemas.evidence import OverlapOut, RocOut
from pairmark.schemas.jobs import GroupRole, Protocol
from pairmark.schemas.models import EvaluationOut, SeenOperatingPoint
from pairmark.service.errors import refusals
from pairmark.service.heldout.groups import rates_by_group, without_groups
from pairmark.service.heldout.overlap import overlap_with
from pairmark.service.heldout.report import read_trained_on
from pairmark.service.store.calibrations import Calibrations
from pairmark.service.store.versions import VersionStore
from pairmark.service.tables import ModelVersion

MANY_UNLIKE = 0.05
"""A larger share of rows unlike the calibration's is warned of."""


class Evaluations:
    """Reports on data that came later."""

    def __init__(self, versions: VersionStore, calibrations: Calibrations) -> None:
        self._versions = versions
        self._calibrations = calibrations

    def evaluate(
        self,
        name: str,
        version: int,
        dataset: str,
        *,
        protocol: Protocol = "auto",
        n_pairs: int | None = None,
        random_state: int = 0,
        groups: GroupRole = "together",
    ) -> EvaluationOut:
        """Score held-out pairs of a dataset and report on them; nothing is stored. Data that the version was trained on
        is not refused, but counted and warned of: the figures are then too good."""
        row, data = self._calibrations.version_and_data(name, version, dataset)
        scores, pairs, X = self._calibrations.score_dataset(
            row,
            name,
            without_groups(data, groups),
            protocol=self._calibrations.protocol_of(row, protocol),
            n_pairs=n_pairs,
            random_state=random_state,
        )
        same, units, resolved = pairs.same, pairs.units, pairs.protocol
        with refusals(f"dataset {data.name}:{data.version}", field="dataset"):
            report = pair_report(scores, same, units, protocol=resolved, random_state=random_state)
        by_group = None
        calibration = None if row.calibration_id is None else self._calibrations.load(row.calibration_id)[0]
        if groups == "compare" and calibration is not None:
            by_group = rates_by_group(calibration, scores, pairs, data)
        flags, inputs, unlike_words = None, None, []
        if calibration is not None and calibration.inputs is not None:
            flags = calibration.inputs.flags(X)
            seen = np.unique([pairs.left, pairs.right])
            inputs = {"rows": int(seen.size), "unlike": int(flags[seen].sum())}
            if inputs["unlike"] > MANY_UNLIKE * inputs["rows"]:
                unlike_words = [
                    f"{inputs['unlike']} of {inputs['rows']} rows are unlike those of the calibration, so their pairs "
                    "never match: check units and preprocessing, or calibrate on rows like these"
                ]
        overlap = OverlapOut(rows=0, identities=0)
        if row.report is not None:
            overlap = overlap_with(read_trained_on(self._versions.blobs.folder(row.report)), data)
        return EvaluationOut(
            model=name,
            version=version,
            dataset=f"{data.name}:{data.version}",
            dataset_sha256=data.sha256,
            protocol=resolved,
            metrics=report.metrics,
            roc=RocOut.model_validate({**report.roc(), "groups": by_group}),
            operating_points=self._operating_points(row, scores, pairs, flags),
            overlap=overlap,
            inputs=inputs,
            warnings=_warnings(overlap, resolved) + unlike_words + (by_group["warnings"] if by_group else []),
        )

    def _operating_points(
        self,
        row: ModelVersion,
        scores: NDArray[np.float32],
        pairs: HeldOutPairs,
        flags: NDArray[np.bool_] | None,
    ) -> list[SeenOperatingPoint]:
        """The version's own operating points, and what their thresholds do on these pairs; ``flags`` : which rows are
        unlike those of the calibration, so that their pairs never match."""
        if row.calibration_id is None:
            return []
        calibration, _ = self._calibrations.load(row.calibration_id)
        if flags is not None:
            scores = np.where(flags[pairs.left] | flags[pairs.right], np.finfo(np.float32).min, scores)
        points = []
        for fpr in sorted(FPR_TARGETS, reverse=True):
            try:
                point = calibration.operating_point(fpr)
            except InsufficientCalibrationData as refusal:
                points.append(
                    SeenOperatingPoint(fpr=fpr, calibration_id=row.calibration_id, refused=str(refusal))
                )
                continue
            seen_fpr, seen_tpr = rates_at(
                scores, pairs.same, point.threshold, units=pairs.units, protocol=pairs.protocol
            )
            points.append(
                SeenOperatingPoint(
                    fpr=fpr,
                    calibration_id=row.calibration_id,
                    threshold=point.threshold,
                    method=point.method,
                    confidence=point.confidence,
                    seen_fpr=seen_fpr,
                    seen_tpr=seen_tpr,
                )
            )
        return points


def _warnings(overlap: OverlapOut, protocol: str) -> list[str]:
    warnings: list[Any] = []
    if overlap.rows:
        warnings.append(f"{overlap.rows} rows were trained on: these figures are too good")
    if overlap.identities and protocol == "open-set":
        warnings.append(
            f"{overlap.identities} identities were trained on: these figures do not tell how unseen ones fare"
        )
    return warnings
