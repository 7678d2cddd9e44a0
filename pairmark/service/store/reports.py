"""Reports about a version."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.evaluation.pairs import FPR_TARGETS
from pairmark.schemas.evidence import Evidence, RocOut
from pairmark.schemas.models import (
    ErrorsOut,
    HardPair,
    LeaderboardOut,
    PromisedRate,
    ReportOut,
    ScoreHistograms,
    VersionOut,
)
from pairmark.service.errors import InvalidInput, ModelNotCapable, UnsupportedRate
from pairmark.service.heldout.errors import KEPT, ErrorKind, hard_pairs, histograms
from pairmark.service.heldout.report import read_arrays, read_evidence, read_roc
from pairmark.service.store.calibrations import Calibrations
from pairmark.service.store.cards import model_card
from pairmark.service.store.versions import VersionStore
from pairmark.service.tables import ModelVersion

CONFIDENCE = 0.95


class Reports:
    """ROC, leaderboard, hardest errors and score histograms of versions."""

    def __init__(self, versions: VersionStore, calibrations: Calibrations) -> None:
        self._versions = versions
        self._calibrations = calibrations
        # Calibrations never change, and some rates take a second to work out.
        self._promises = lru_cache(maxsize=256)(self._promised)

    def roc(self, name: str, version: int, points: int | None = None) -> RocOut:
        """The ROC on the version's held-out pairs, with ``points`` at most so many; `ModelNotCapable` when it scores
        none."""
        row = self._versions.row(name, version)
        curve = read_roc(self._versions.blobs.folder(self._report_of(row, name)), points)
        return curve.model_copy(update={"groups": row.metrics.get("groups")})

    def leaderboard(self, name: str, version: int) -> LeaderboardOut:
        """The version among baselines on the same held-out data; `ModelNotCapable` when it was trained before they were
        measured."""
        board = leaderboard_of(self._versions.row(name, version))
        if board is None:
            raise ModelNotCapable(
                f"{name}:{version} was trained before baselines were measured: train it again"
            )
        return board

    def errors(
        self, name: str, version: int, *, kind: ErrorKind, fpr: float | None = None, limit: int = KEPT
    ) -> ErrorsOut:
        """The hardest held-out pairs of the version's own test part; with ``fpr`` only those that are wrong at
        that operating point, or `UnsupportedRate`. `ModelNotCapable` when it scores no pairs, or they
        were not kept."""
        row = self._versions.row(name, version)
        pairs = hard_pairs(read_arrays(self._versions.blobs.folder(self._report_of(row, name))), kind)
        if pairs is None:
            raise ModelNotCapable(f"{name}:{version} was trained before errors were kept: train it again")
        threshold = None if fpr is None else self._threshold(row, name, fpr)
        wrong = pairs if threshold is None else pairs.wrong_at(threshold, kind)
        kept_all = wrong.scores.size < pairs.scores.size or pairs.scores.size == pairs.of
        items = [HardPair(**pair) for pair in wrong.first(limit)]
        return ErrorsOut(
            model=name,
            version=version,
            dataset=row.lineage.get("dataset"),
            kind=kind,
            fpr=fpr,
            threshold=threshold,
            of=pairs.of,
            items=items,
            more=wrong.scores.size > len(items) or not kept_all,
        )

    def report(self, version: VersionOut) -> ReportOut:
        row = self._versions.row(version.model, version.version)
        score_histograms = evidence = roc = None
        if row.report is not None:
            folder = self._versions.blobs.folder(row.report)
            score_histograms, evidence = histograms(read_arrays(folder)), read_evidence(folder)
            roc = self.roc(version.model, version.version)
        promises = [] if row.calibration_id is None else self._promises(row.calibration_id)
        return report_of(version, promises, leaderboard_of(row), roc, score_histograms, evidence)

    def _promised(self, calibration_id: str) -> list[PromisedRate]:
        calibration, _ = self._calibrations.load(calibration_id)
        rates = []
        for fpr in sorted(FPR_TARGETS, reverse=True):
            try:
                point = calibration.operating_point(fpr, CONFIDENCE)
            except InsufficientCalibrationData as refusal:
                smallest = refusal.smallest_fpr.get("finite-sample")
                rates.append(
                    PromisedRate(fpr=fpr, confidence=CONFIDENCE, refused=str(refusal), smallest_fpr=smallest)
                )
            else:
                rates.append(PromisedRate.model_validate(point, from_attributes=True))
        return rates

    def _report_of(self, row: ModelVersion, name: str) -> str:
        if row.report is None:
            raise ModelNotCapable(f"{name}:{row.version} ({row.kind}) has no ROC: it does not score pairs")
        return row.report

    def _threshold(self, row: ModelVersion, name: str, fpr: float) -> float:
        if row.calibration_id is None:
            raise ModelNotCapable(f"{name}:{row.version} has no calibration, so no rate has a threshold")
        calibration, _ = self._calibrations.load(row.calibration_id)
        try:
            return calibration.operating_point(fpr).threshold
        except InsufficientCalibrationData as refusal:
            raise UnsupportedRate(
                str(refusal),
                smallest_fpr=refusal.smallest_fpr,
                required_units=refusal.required_units,
                calibration_id=row.calibration_id,
            ) from refusal
        except ValueError as error:
            raise InvalidInput(f"fpr: {error}", field="fpr") from error


def leaderboard_of(row: ModelVersion) -> LeaderboardOut | None:
    """A version's leaderboard; None where baselines were not measured."""
    board = row.facts.get("leaderboard")
    if board is None:
        return None
    return LeaderboardOut.model_validate({**board, "race": row.facts.get("race")})


def report_of(
    version: VersionOut,
    promises: list[PromisedRate],
    leaderboard: LeaderboardOut | None,
    roc: RocOut | None,
    score_histograms: Mapping[str, Any] | None,
    evidence: Evidence | None,
) -> ReportOut:
    """Everything that is known of a version, in one document."""
    return ReportOut(
        version=version,
        card=model_card(version, promises, evidence),
        promises=promises,
        leaderboard=leaderboard,
        roc=roc,
        histograms=None if score_histograms is None else ScoreHistograms.model_validate(score_histograms),
        evidence=evidence,
    )
