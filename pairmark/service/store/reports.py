"""Reports about a version: on its own held-out pairs, on data that came later, and beside another version."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.guarantees import askable, tpr_by_people
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.evaluation.comparison import (
    ScorerComparison,
    compare_f1,
    compare_pairs,
    resolved_rates,
)
from pairmark.models.evaluation.pairs import (
    FPR_TARGETS,
    pair_report,
    rates_at,
)
from pairmark.models.evaluation.precision import precision_report
from pairmark.models.evaluation.rankings import CONFIDENCE
from pairmark.models.pairs.sampling import HeldOutPairs
from pairmark.schemas.jobs import Protocol
from pairmark.schemas.models import (
    ComparisonOut,
    DifferenceOut,
    ErrorsOut,
    EvaluationOut,
    HardPair,
    LeaderboardOut,
    OverlapOut,
    PromisedRate,
    PrOut,
    ReportOut,
    RocOut,
    SeenOperatingPoint,
    TprOfPeople,
    VersionOut,
)
from pairmark.service.caches import BoundedCache
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.guarantees import folds_in_words
from pairmark.service.datasets.held_out import pairs_among
from pairmark.service.errors import (
    InvalidInput,
    ModelNotCapable,
    UnsupportedRate,
    refusals,
)
from pairmark.service.store.calibrations import DEFAULT_PAIRS, Calibrations
from pairmark.service.store.versions import (
    HARDEST,
    SIDES,
    StoredReport,
    VersionStore,
    overlap_with,
    overlapping_rows,
)
from pairmark.service.tables import ModelVersion


def limits_of(version: VersionOut, promises: list[PromisedRate]) -> list[str]:
    """What a version cannot do, as far as the store knows; nothing is invented."""
    doubts = (version.facts.get("suspects") or {}).get("text")
    sentences = [doubts] if doubts else []
    if any(calibration.imported == "unsigned" for calibration in version.calibrations):
        sentences.append("Its figures are the claim of an unsigned file: nothing here measured them.")
    if "match" in version.capabilities:
        if not promises:
            sentences.append("It has no calibration of its own, so it guarantees no false positive rate.")
        refused = [promise for promise in promises if promise.refused is not None]
        if version.promise is not None and version.promise.confidence is None:
            sentences.append(f"{version.promise.text}.")
        else:
            if refused:
                worst = refused[0]
                smallest = worst.smallest_fpr
                rates = "no rate at all" if smallest is None else f"rates from {askable(smallest):g} up"
                sentences.append(
                    f"Its calibration supports {rates} at confidence {worst.confidence or 0.95:g}."
                )
            population = version.promise and version.promise.population
            whom = f"new samples of {population}" if population else "new people"
            sentences.append(
                f"A guaranteed rate holds for {whom} drawn like those of the calibration data. It does not cover other "
                f"{'classes' if population else 'populations'}, other sensors, attacks, or wrong labels."
            )
        sentences.append("Intervals of the rates on this page are asymptotic, unless they say otherwise.")
    folds = folds_in_words(version.facts.get("parts") or {})
    if folds:
        sentences.append(f"{folds}.")
    if version.promise is None and "match" in version.capabilities and not promises:
        sentences.append("What it could guarantee is not known.")
    return list(dict.fromkeys(sentences))


ErrorKind = Literal["false-match", "false-non-match"]

MANY_UNLIKE = 0.05
"""A larger share of rows unlike the calibration's is warned of."""
FEWEST = 10
"""People without whom a difference says nothing."""


class Reports:
    """What is known of versions: ROC, leaderboard, hardest errors, how they do on data that came later, and beside one
    another."""

    def __init__(self, versions: VersionStore, calibrations: Calibrations) -> None:
        self._versions, self._calibrations = versions, calibrations
        self._promises: BoundedCache[str, list[PromisedRate]] = BoundedCache(256)

    def roc(self, name: str, version: int, points: int | None = None) -> RocOut:
        """The ROC on the version's held-out pairs, with ``points`` at most so many; `ModelNotCapable` when it scores
        none."""
        return self._stored(self._versions.row(name, version), name).roc(points)

    def pr(self, name: str, version: int, points: int | None = None) -> PrOut:
        """Precision and recall on the version's held-out pairs, with ``points`` at most so many;
        `ModelNotCapable` where they were not measured."""
        row = self._versions.row(name, version)
        stored = self._versions.report(row)
        curve = None if stored is None else stored.pr(points)
        if curve is None:
            raise ModelNotCapable(
                f"{name}:{version} ({row.kind}) has no precision and recall: they are measured of versions trained on "
                "records; train it again if it was"
            )
        return curve

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
        self, name: str, version: int, *, kind: ErrorKind, fpr: float | None = None, limit: int = HARDEST
    ) -> ErrorsOut:
        """The hardest held-out pairs of the version's own test part; with ``fpr`` only those that are wrong at
        that operating point, or `UnsupportedRate`. `ModelNotCapable` when it scores no pairs, or they
        were not kept."""
        row = self._versions.row(name, version)
        arrays, side = self._stored(row, name).arrays, SIDES[kind]
        if f"{side}_rows" not in arrays:
            raise ModelNotCapable(f"{name}:{version} was trained before errors were kept: train it again")
        rows, scores = arrays[f"{side}_rows"], arrays[f"{side}_scores"]
        # Reports of before counted scores in bins.
        counted = f"{side}_of" if f"{side}_of" in arrays else side.replace("hardest", "histogram")
        n_scored = int(arrays[counted].sum())
        threshold = None if fpr is None else self._threshold(row, name, fpr)
        wrong: NDArray[np.bool_] = (
            np.ones(scores.size, dtype=np.bool_)
            if threshold is None
            else (scores > np.float32(threshold)) == (kind == "false-match")
        )
        hardest = zip(rows[wrong][:limit].tolist(), scores[wrong][:limit].tolist(), strict=True)
        n_wrong = int(wrong.sum())
        return ErrorsOut(
            model=name,
            version=version,
            dataset=row.lineage.get("dataset"),
            kind=kind,
            fpr=fpr,
            threshold=threshold,
            of=n_scored,
            items=[HardPair(left=left, right=right, score=score) for (left, right), score in hardest],
            more=n_wrong > limit or n_wrong == scores.size < n_scored,
        )

    def report(self, version: VersionOut) -> ReportOut:
        row = self._versions.row(version.model, version.version)
        stored = self._versions.report(row)
        claimed = any(calibration.imported == "unsigned" for calibration in version.calibrations)
        promises = [] if row.calibration_id is None or claimed else self._promised(row.calibration_id)
        return ReportOut(
            version=version,
            limits=limits_of(version, promises),
            promises=promises,
            leaderboard=leaderboard_of(row),
            roc=None if stored is None else stored.roc(),
            columns=[] if stored is None else stored.columns,
        )

    def _promised(self, calibration_id: str) -> list[PromisedRate]:
        # Calibrations never change, and some rates take a second to work out.
        rates = self._promises.get(calibration_id)
        if rates is not None:
            return rates
        calibration, _ = self._calibrations.load(calibration_id)
        rates = []

        for fpr in sorted(FPR_TARGETS, reverse=True):
            try:
                point = calibration.operating_point(fpr, CONFIDENCE)
                rate = PromisedRate.model_validate(point, from_attributes=True)
            except InsufficientCalibrationData as refusal:
                smallest = refusal.smallest_fpr.get("finite-sample")
                rate = PromisedRate(
                    fpr=fpr, confidence=CONFIDENCE, refused=str(refusal), smallest_fpr=smallest
                )
            by_people = [
                TprOfPeople.model_validate(one) for one in tpr_by_people(calibration, fpr, CONFIDENCE)
            ]
            rates.append(rate.model_copy(update={"by_people": by_people}))
        self._promises.put(calibration_id, rates)
        return rates

    def _stored(self, row: ModelVersion, name: str) -> StoredReport:
        stored = self._versions.report(row)
        if stored is None:
            raise ModelNotCapable(f"{name}:{row.version} ({row.kind}) has no ROC: it does not score pairs")
        return stored

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

    def evaluate(
        self,
        name: str,
        version: int,
        dataset: str,
        *,
        protocol: Protocol = "auto",
        n_pairs: int | None = None,
    ) -> EvaluationOut:
        """Score held-out pairs of a dataset and report on them; nothing is stored. Data that the version was trained on
        is not refused, but counted and warned of: the figures are then too good."""
        row, data = self._calibrations.version_and_data(name, version, dataset)
        scores, pairs, X = self._calibrations.score_dataset(
            self._versions.load(name, row.version),
            data,
            protocol=self._calibrations.protocol_of(row, protocol),
            n_pairs=n_pairs,
        )
        same, units, resolved = pairs.same, pairs.units, pairs.protocol
        with refusals(f"dataset {data.name}:{data.version}", field="dataset"):
            report = pair_report(scores, same, units, protocol=resolved, random_state=0)
            metrics = dict(report.metrics)
            if data.schema is not None:
                metrics |= precision_report(scores, same, units, protocol=resolved, random_state=0).metrics
        calibration = None if row.calibration_id is None else self._calibrations.load(row.calibration_id)[0]
        flags, inputs, unlike_words = None, None, []
        if calibration is not None and calibration.inputs is not None:
            flags = calibration.inputs.flags(X)
            scored_rows = np.unique([pairs.left, pairs.right])
            inputs = {"rows": int(scored_rows.size), "unlike": int(flags[scored_rows].sum())}
            if inputs["unlike"] > MANY_UNLIKE * inputs["rows"]:
                unlike_words = [
                    f"{inputs['unlike']} of {inputs['rows']} rows are unlike those of the calibration, so their pairs "
                    "never match: check units and preprocessing, or calibrate on rows like these"
                ]
        stored = self._versions.report(row)
        overlap = (
            OverlapOut(rows=0, identities=0) if stored is None else overlap_with(stored.trained_on, data)
        )
        return EvaluationOut(
            model=name,
            version=version,
            dataset=f"{data.name}:{data.version}",
            dataset_sha256=data.sha256,
            protocol=resolved,
            metrics=metrics,
            roc=RocOut.model_validate(report.roc()),
            operating_points=self._operating_points(row, scores, pairs, flags),
            overlap=overlap,
            inputs=inputs,
            warnings=_warnings(overlap, resolved) + unlike_words,
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
            # As a decision does it, a pair with such a row never matches, whatever its score.
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

    def compare(
        self, name: str, first: int, second: int, *, fpr: float | None = None, dataset: str | None = None
    ) -> ComparisonOut:
        """The second version less the first, in TPR at a rate and, for records, in F1.

        Parameters
        ----------
        fpr : the rate; None: the rates that so many pairs resolve.
        dataset : a reference; None: the dataset of the second version.

        Raises
        ------
        InvalidInput
            When too few people of the dataset are new to both.
        ModelNotCapable, UnknownModel, UnknownDataset
        """
        newer = self._versions.row(name, second)
        reference = dataset or str(newer.lineage["dataset"])
        loaded = [
            self._calibrations.version_and_data(name, version, reference) for version in (first, second)
        ]
        data = loaded[0][1]
        if data.y is None or data.pairs is not None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has no identities; expected some: name another one with dataset",
                field="dataset",
            )
        protocol = self._calibrations.protocol_of(newer, "auto")
        # Only who is new to both: of the others one version may know the answer, in its weights or in its threshold.
        learned, calibrated = self._seen_rows(data, [row for row, _ in loaded], protocol)
        rows = np.flatnonzero(~(learned | calibrated))
        counted = np.asarray(data.y) if protocol == "open-set" else np.arange(len(data))
        n_people = np.unique(counted[rows]).size
        if n_people < FEWEST:
            raise InvalidInput(
                f"{n_people} people of {data.name}:{data.version} are new to {name}:{first} and {name}:{second}: of "
                f"{np.unique(counted).size}, {np.unique(counted[learned]).size} were learned from and "
                f"{np.unique(counted[calibrated & ~learned]).size} others calibrated, in either; expected at least "
                f"{FEWEST}: name another dataset",
                field="dataset",
            )
        with refusals("the versions cannot be compared"):
            pairs = pairs_among(data, rows, protocol=protocol, n_pairs=DEFAULT_PAIRS, random_state=0)
            scores = {
                str(row.version): self._scores(row, name, data, pairs.left, pairs.right) for row, _ in loaded
            }
            rates = resolved_rates(int((~pairs.same).sum())) if fpr is None else (fpr,)
            truth = pairs.same, pairs.units
            tpr = compare_pairs(scores, *truth, reference=str(second), rates=rates, protocol=protocol)
            measures: list[tuple[Literal["tpr", "f1"], list[float] | None, dict[str, ScorerComparison]]] = [
                ("tpr", list(rates), tpr)
            ]
            if data.schema is not None:
                measures.append(("f1", None, compare_f1(scores, *truth, reference=str(second))))
        return ComparisonOut(
            model=name,
            versions=[first, second],
            dataset=f"{data.name}:{data.version}",
            people=int(n_people),
            pairs=len(pairs),
            confidence=CONFIDENCE,
            differences=[
                DifferenceOut(
                    measure=measure,
                    fpr=rate,
                    values=[by_version[str(version)].value for version in (first, second)],
                    difference=by_version[str(first)].difference,
                    interval=by_version[str(first)].difference_interval,
                )
                for measure, rate, by_version in measures
            ],
        )

    def _seen_rows(
        self, data: LabelledData, rows: list[ModelVersion], protocol: str
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Rows of whom a version learned, and of whom one was calibrated with; in open-set use every row of such a
        person."""
        y, learned, calibrated = np.asarray(data.y), *np.zeros((2, len(data)), dtype=np.bool_)
        for row in rows:
            stored = self._versions.report(row)
            if stored is None:
                continue
            learned |= overlapping_rows(stored.trained_on, data, identities=protocol == "open-set")
            if row.lineage.get("dataset") == f"{data.name}:{data.version}":
                calibrated[stored.calibration_rows] = True
        if protocol == "open-set":
            return np.isin(y, y[learned]), np.isin(y, y[calibrated])
        return learned, calibrated

    def _scores(
        self, row: ModelVersion, name: str, data: LabelledData, left: Any, right: Any
    ) -> NDArray[np.float32]:
        estimator, X = self._versions.load_with_rows(name, row.version, data)
        scores: NDArray[np.float32] = estimator.score_pairs(X, left, right)
        return scores


def leaderboard_of(row: ModelVersion) -> LeaderboardOut | None:
    """A version's leaderboard; None where baselines were not measured."""
    board = row.facts.get("leaderboard")
    return None if board is None else LeaderboardOut.model_validate({**board, "race": row.facts.get("race")})


def _warnings(overlap: OverlapOut, protocol: str) -> list[str]:
    warnings: list[Any] = []
    if overlap.rows:
        warnings.append(f"{overlap.rows} rows were trained on: these figures are too good")
    if overlap.identities and protocol == "open-set":
        warnings.append(
            f"{overlap.identities} identities were trained on: these figures do not tell how unseen ones fare"
        )
    return warnings
