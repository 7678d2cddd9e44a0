"""Rates by group: a column of the dataset that says which population each row belongs to."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.differentials import differentials
from pairmark.models.calibration.groups import group_rates
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.evaluation.pairs import FPR_TARGETS
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.schemas.jobs import GroupRole
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import InvalidInput

MAX_GROUPS = 100
CONFIDENCE = 0.95


def without_groups(data: LabelledData, role: GroupRole) -> LabelledData:
    """The data as it is split and paired: populations play no part in that.

    Raises
    ------
    InvalidInput
        When populations are to be compared and there are none, or too many.
    """
    if role == "together":
        return data
    if data.groups is None:
        raise InvalidInput(
            f"dataset {data.name}:{data.version} has no groups to compare: upload it with `group`",
            field="groups",
        )
    if len(data.group_names) > MAX_GROUPS:
        raise InvalidInput(
            f"dataset {data.name}:{data.version} has {len(data.group_names)} groups; at most {MAX_GROUPS} are compared",
            field="groups",
        )
    return replace(data, groups=None, group_names=())


def rates_by_group(
    calibration: Calibration,
    scores: Any,
    pairs: HeldOutPairs,
    data: LabelledData,
) -> dict[str, Any]:
    """FPR and TPR of each group at the thresholds that are served, on held-out pairs.

    Returns
    -------
    JSON-able: ``confidence``, ``at`` (for each rate its ``threshold`` and ``groups``, or ``refused``) and ``warnings``.
    Each group has an ``fpr_upper_bound``: finite-sample, at the confidence by itself, of pairs within the group; None
    where the test part has no such pair.
    """
    assert data.groups is not None
    names = np.array(data.group_names, dtype=object).astype(str)
    codes = np.asarray(data.groups)
    sides = np.stack([names[codes[pairs.left]], names[codes[pairs.right]]], axis=1)
    at: list[dict[str, Any]] = []
    warnings: list[str] = []
    own = _calibrations(scores, pairs, sides)

    def bound(group: str, threshold: float) -> float | None:
        # The threshold comes from other people than the test part's.
        return own[group].rate_bound(threshold, CONFIDENCE) if group in own else None

    for fpr in sorted(FPR_TARGETS, reverse=True):
        try:
            point = calibration.operating_point(fpr, CONFIDENCE)
        except InsufficientCalibrationData as refusal:
            at.append({"fpr": fpr, "refused": str(refusal)})
            continue
        rates = group_rates(
            scores, pairs.same, pairs.units, sides, point.threshold, promised_fpr=fpr, confidence=CONFIDENCE
        )
        at.append(
            {
                "fpr": fpr,
                "threshold": point.threshold,
                "method": point.method,
                "groups": [
                    {**asdict(rate), "fpr_upper_bound": bound(rate.group, point.threshold)} for rate in rates
                ],
                "differentials": [asdict(rate) for rate in differentials(rates)],
            }
        )
        warnings += [rate.warning for rate in rates if rate.warning is not None]
    return {"confidence": CONFIDENCE, "at": at, "warnings": warnings}


def _calibrations(scores: Any, pairs: HeldOutPairs, sides: Any) -> dict[str, Calibration]:
    """What the pairs within each group say about any threshold; without groups that have no two people."""
    values, calibrations = np.asarray(scores), {}
    for name in np.unique(sides):
        mine = (sides == name).all(axis=1)
        if pairs.blocks is not None or pairs.same[mine].all() or np.unique(values[mine]).size < 2:
            continue
        calibrations[str(name)] = Calibration.fit(
            values[mine],
            pairs.same[mine],
            pairs.units[mine],
            protocol=pairs.protocol,
            listing=None if pairs.listing == "all" else pairs.listing,
            n_jobs=1,
        )
    return calibrations
