"""A version's report on disk: the ROC on held-out pairs, the hardest of them, and what training saw, as digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.groups import differentials, group_rates
from pairmark.models.calibration.held_out import pick_points
from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.core.artefact import Artefact, ArtefactError, read_artefact, write_artefact
from pairmark.models.core.inputs import label_of
from pairmark.models.evaluation.open_set import LEAST_PEOPLE, TOLD, play_gallery, suspects
from pairmark.models.evaluation.pairs import (
    BAND_NAMES,
    CURVE_NAMES,
    FPR_TARGETS,
    EvaluationReport,
    likelihood_report,
    rates_by_time,
    roc_lists,
)
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.schemas.jobs import GroupRole
from pairmark.schemas.models import Evidence, OverlapOut, RocOut
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.leaks import naming_features, naming_warning
from pairmark.service.errors import CorruptArtefact, InvalidInput

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
    digests = identity_digests(data.identities, training.salt)
    names = np.flatnonzero(np.isin(digests, training.identities))
    return OverlapOut(
        rows=int(rows.size),
        identities=int(names.size),
        first_rows=rows[:NAMED].tolist(),
        first_identities=[data.identities[at] for at in names[:NAMED]],
    )


def overlapping(training: TrainedOn, data: LabelledData, *, identities: bool) -> NDArray[np.bool_]:
    """Which rows of a dataset were trained on, (n,); with ``identities``, also every row of an identity that was."""
    overlap = np.isin(data.row_hashes, training.rows)
    if identities and data.y is not None:
        trained = np.isin(identity_digests(data.identities, training.salt), training.identities)
        overlap |= trained[np.asarray(data.y)]
    return np.asarray(overlap)


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
    errors : those of `pairmark.service.heldout.report.error_arrays`.
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


ErrorKind = Literal["false-match", "false-non-match"]

KEPT = 200
"""Hardest pairs of each kind that a report keeps."""
_SIDES = {"false-match": "hardest_different", "false-non-match": "hardest_same"}


@dataclass(frozen=True, kw_only=True)
class HardPairs:
    """Pairs of one kind, hardest first.

    Attributes
    ----------
    left, right : (n,) rows of the dataset, 0-based.
    scores : (n,) descending for different pairs, ascending for same ones.
    of : pairs of that kind that were scored.
    """

    left: NDArray[np.int64] = field(repr=False)
    right: NDArray[np.int64] = field(repr=False)
    scores: NDArray[np.float32] = field(repr=False)
    of: int

    def first(self, limit: int) -> list[dict[str, Any]]:
        """The first so many, JSON-able."""
        sides = (self.left, self.right, self.scores)
        rows = zip(*(side[:limit].tolist() for side in sides), strict=True)
        return [{"left": left, "right": right, "score": score} for left, right, score in rows]

    def wrong_at(self, threshold: float, kind: ErrorKind) -> HardPairs:
        """Those on the wrong side of a threshold."""
        limit = np.float32(threshold)
        wrong = self.scores > limit if kind == "false-match" else self.scores <= limit
        return HardPairs(
            left=self.left[wrong], right=self.right[wrong], scores=self.scores[wrong], of=self.of
        )


def error_arrays(pairs: HeldOutPairs, scores: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """The hardest pairs of both kinds, and how many there are of each, as arrays for a report."""
    arrays: dict[str, NDArray[Any]] = {}
    for kind, name in _SIDES.items():
        mine = np.flatnonzero(~pairs.same if kind == "false-match" else pairs.same)
        hardest = -scores[mine] if kind == "false-match" else scores[mine]
        order = mine[np.argsort(hardest, kind="stable")[:KEPT]]
        arrays[f"{name}_rows"] = np.stack([pairs.left[order], pairs.right[order]], axis=1)
        arrays[f"{name}_scores"] = scores[order]
        arrays[f"{name}_of"] = np.array([mine.size])
    return arrays


def hard_pairs(arrays: Mapping[str, NDArray[Any]], kind: ErrorKind) -> HardPairs | None:
    """The hardest pairs of a report's arrays; None where they were not kept."""
    name = _SIDES[kind]
    if f"{name}_rows" not in arrays:
        return None
    rows = np.asarray(arrays[f"{name}_rows"])
    of = f"{name}_of"
    if of not in arrays:
        # Reports of before counted scores in bins.
        of = "histogram_different" if kind == "false-match" else "histogram_same"
    return HardPairs(
        left=rows[:, 0],
        right=rows[:, 1],
        scores=np.asarray(arrays[f"{name}_scores"]),
        of=int(arrays[of].sum()),
    )


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


SHOWN = 3


def doubtful(pairs: HeldOutPairs, scores: NDArray[np.float32], data: LabelledData) -> dict[str, Any] | None:
    """Identities and rows among scored pairs that look wrong, JSON-able; None where nobody is known by label.

    Returns
    -------
    ``rows`` (0-based) whose labels look wrong; ``double_names``, two labels each (open-set); how many there are of each
    (``n_rows``, ``n_double_names``); ``text``, a sentence, empty when there is nothing to say.
    """
    if data.y is None:
        return None
    y = np.asarray(data.y)
    rows = np.stack([pairs.left, pairs.right], axis=1)
    double_names, labels = suspects(scores, pairs.same, rows, y[rows])
    names = double_names if pairs.protocol == "open-set" else double_names[:0]
    n_rows = int(labels.size)
    naming = naming_features(data.X, y, data.feature_names, data.schema)
    sentences = [f"A feature {line}." for line in naming_warning(naming)]
    if len(names):
        first_name, second_name = (data.identities[code] for code in names[0].tolist())
        sentences.append(
            f"{len(names)} pair{'s' * (len(names) != 1)} of identities score{'s' * (len(names) == 1)} like one person "
            f"(first {first_name[:50]!r} and {second_name[:50]!r}): is it one person under two names?"
        )
    if n_rows:
        first = ", ".join(str(row) for row in labels[:SHOWN].tolist())
        sentences.append(
            f"{n_rows} row{'s' * (n_rows != 1)} score{'s' * (n_rows == 1)} as if the label were wrong (first: {first})."
        )
    return {
        "rows": labels[:TOLD].tolist(),
        "n_rows": n_rows,
        "double_names": [[data.identities[code] for code in codes] for codes in names[:TOLD].tolist()],
        "n_double_names": len(names),
        "text": " ".join([*sentences, "Nothing was removed: the promise counts the labels as they are."])
        if sentences
        else "",
    }


NO_TIMES = (
    "the dataset names no column of times (`time`), so rates by the time between two samples are not known"
)
FEW_TIMES = "the times of too few pairs of the same person are known, or all lie equally far apart"


def measure_evidence(
    estimator: Any,
    X: Any,
    data: LabelledData,
    pairs: HeldOutPairs,
    scores: NDArray[np.float32],
    ratios: LikelihoodRatios | None,
    *,
    own: bool,
    random_state: int,
) -> Evidence:
    """Likelihood ratios, searches of galleries and rates by time, on held-out pairs and their rows.

    Parameters
    ----------
    pairs, scores : held-out pairs that the ratios were not fitted on.
    own : whether the score is a log likelihood ratio by itself.
    """
    left_out: dict[str, str] = {}
    by_time = None
    if data.times is None:
        left_out["by_time"] = NO_TIMES
    else:
        times = np.asarray(data.times)
        aged = rates_by_time(scores, pairs.same, pairs.units, np.abs(times[pairs.left] - times[pairs.right]))
        if aged is None:
            left_out["by_time"] = FEW_TIMES
        else:
            by_time = {"unit": data.time_unit, **aged}
    likelihoods = []
    if ratios is None:
        left_out["likelihood_ratios"] = "the calibration part holds no same pair"
    elif not pairs.same.any():
        left_out["likelihood_ratios"] = "the test part holds no same pair"
    else:
        methods = ("pav", "logistic", *(["own"] if own else []))
        likelihoods = [
            likelihood_report(ratios, scores, pairs.same, pairs.units, method) for method in methods
        ]
    searched = None
    if pairs.protocol != "open-set":
        left_out["identification"] = "the version distinguishes the classes of its training, not new people"
    elif data.y is None:
        left_out["identification"] = "nothing says who each row is of"
    else:
        rows = np.unique(np.concatenate([pairs.left, pairs.right]))
        part, y = X[rows], np.asarray(data.y)[rows]
        searched = play_gallery(estimator, part, y, random_state=random_state)
        if searched is None:
            left_out["identification"] = (
                f"a gallery of {LEAST_PEOPLE} people and as many strangers takes {2 * LEAST_PEOPLE} held-out people, "
                f"{LEAST_PEOPLE} of them with two samples"
            )
    found = {
        "likelihood_ratios": likelihoods,
        "identification": searched,
        "by_time": by_time,
        "left_out": left_out,
    }
    return Evidence(**to_jsonable_python(found, fallback=lambda value: value.tolist()))
