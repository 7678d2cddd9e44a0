"""Reports about a version."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.calibration.promises import askable
from pairmark.models.evaluation.pairs import FPR_TARGETS
from pairmark.schemas.models import (
    ErrorsOut,
    Evidence,
    HardPair,
    LeaderboardOut,
    ModelCard,
    PromisedRate,
    ReportOut,
    RocOut,
    VersionOut,
)
from pairmark.service.errors import InvalidInput, ModelNotCapable, UnsupportedRate
from pairmark.service.heldout.report import (
    KEPT,
    ErrorKind,
    hard_pairs,
    read_arrays,
    read_evidence,
    read_roc,
)
from pairmark.service.store.calibrations import Calibrations
from pairmark.service.store.versions import VersionStore
from pairmark.service.tables import ModelVersion


def model_card(version: VersionOut, promises: list[PromisedRate], evidence: Evidence | None) -> ModelCard:
    """What data are behind a version, and what it cannot do, as far as the store knows; nothing is invented."""
    return ModelCard(
        training_data=_training(version),
        evaluation_data=_evaluation(version.facts, version.metrics),
        limits=_limits(version, promises, evidence),
    )


def _training(version: VersionOut) -> list[str]:
    lineage, parts = version.lineage, version.facts.get("parts") or {}
    sentences = []
    if lineage.dataset is None:
        sentences.append("Where its training data came from is not known here.")
    else:
        sentences.append(f"Dataset {lineage.dataset}, sha256 {lineage.dataset_sha256}.")
    sizes = [f"{count:,} {name.replace('_', ' ')}" for name, count in parts.items() if isinstance(count, int)]
    if sizes:
        sentences.append(f"Its parts: {_enumeration(sizes)}.")
    return sentences


def _evaluation(facts: dict[str, Any], metrics: dict[str, Any]) -> list[str]:
    protocol = metrics.get("protocol") or facts.get("protocol")
    sentences = []
    if protocol == "open-set":
        sentences.append("Open-set: nobody in the calibration and test parts was seen in training.")
    elif protocol == "closed-set":
        sentences.append("Closed-set: the classes of the held-out parts are those of training.")
    if "n_units" in metrics and "n_negative_pairs" in metrics:
        sentences.append(
            f"The test part: {metrics['n_units']:,} independent units, {metrics['n_negative_pairs']:,} different and "
            f"{metrics['n_same_pairs']:,} same pairs."
        )
    elif "n_rows" in metrics:
        sentences.append(f"The test part: {metrics['n_rows']:,} rows.")
    return sentences


def _limits(version: VersionOut, promises: list[PromisedRate], evidence: Evidence | None) -> list[str]:
    doubts = (version.facts.get("suspects") or {}).get("text")
    sentences = [doubts] if doubts else []
    if any(calibration.imported == "unsigned" for calibration in version.calibrations):
        sentences.append("Its figures are the claim of an unsigned file: nothing here measured them.")
    if "match" in version.capabilities:
        if not promises:
            sentences.append("It has no calibration of its own, so it promises no false positive rate.")
        refused = [promise for promise in promises if promise.refused is not None]
        if refused:
            worst = refused[0]
            smallest = worst.smallest_fpr
            rates = "no rate at all" if smallest is None else f"rates from {askable(smallest):g} up"
            sentences.append(f"Its calibration supports {rates} at confidence {worst.confidence or 0.95:g}.")
        population = version.promise and version.promise.population
        whom = f"new samples of {population}" if population else "new people"
        sentences.append(
            f"A promised rate holds for {whom} drawn like those of the calibration data. It does not cover other "
            f"{'classes' if population else 'populations'}, other sensors, attacks, or wrong labels."
        )
        sentences.append("Intervals of the rates on this page are asymptotic, unless they say otherwise.")
    if evidence is not None:
        sentences += [f"Not measured: {reason}." for reason in evidence.left_out.values()]
        if evidence.likelihood_ratios:
            low, high = evidence.likelihood_ratios[0]["limits"]
            sentences.append(
                f"Log likelihood ratios stay between {low:.3g} and {high:.3g}, since the numbers of pairs show no "
                "stronger evidence. They promise no error rate."
            )
    if version.promise is None and "match" in version.capabilities and not promises:
        sentences.append("What it could promise is not known.")
    return list(dict.fromkeys(sentences))


def _enumeration(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


CONFIDENCE = 0.95


class Reports:
    """ROC, leaderboard and hardest errors of versions."""

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
        evidence = roc = None
        if row.report is not None:
            evidence = read_evidence(self._versions.blobs.folder(row.report))
            roc = self.roc(version.model, version.version)
        claimed = any(calibration.imported == "unsigned" for calibration in version.calibrations)
        promises = [] if row.calibration_id is None or claimed else self._promises(row.calibration_id)
        return ReportOut(
            version=version,
            card=model_card(version, promises, evidence),
            promises=promises,
            leaderboard=leaderboard_of(row),
            roc=roc,
            evidence=evidence,
        )

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
