"""Stores the result of a job, registers it in one transaction, and decides whether it takes production's place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.calibration.promises import in_percent
from pairmark.models.core.spec import LearnerSpec, capabilities_of, jsonable_params
from pairmark.models.evaluation.comparison import (
    CONFIDENCE,
    ScorerComparison,
    compare_pairs,
    compare_rows,
    judged_by,
    resolved_rates,
)
from pairmark.models.evaluation.rankings import kendall_tau
from pairmark.models.evaluation.suspects import TOLD, suspects
from pairmark.models.pairs.splits import (
    HeldOutPairs,
)
from pairmark.models.records.tables import declaration
from pairmark.models.registry import load, save, spec_of
from pairmark.schemas.jobs import IF_BETTER
from pairmark.schemas.models import VersionOut, VersionSummary
from pairmark.service.blobs import Blobs, delete_unused
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.held_out import rows_for
from pairmark.service.datasets.promises import folds_in_words
from pairmark.service.datasets.troubles import naming_warnings
from pairmark.service.db import Database
from pairmark.service.errors import CorruptArtefact, InvalidInput, UnknownModel
from pairmark.service.jobs.queue import JobQueue, persist
from pairmark.service.names import PRODUCTION, ModelRef
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import class_count, store_calibration
from pairmark.service.store.reports import error_arrays
from pairmark.service.store.repository import NewCalibration, NewVersion
from pairmark.service.store.store import ModelStore
from pairmark.service.store.versions import overlapping, trained_on, write_report
from pairmark.version import code_version

if TYPE_CHECKING:
    from pairmark.service.training.trainer import EvaluatedJob, LoadedJob, ScoredJob


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What becomes of an alias.

    Attributes
    ----------
    alias : that moves to the new version; None for none.
    only_from : where the alias must stand for that: a version, or 0 for nowhere; None for anywhere.
    reason : a sentence for the job's owner.
    facts : JSON-able, kept with the version; None where nothing was compared.
    """

    alias: str | None
    only_from: int | None = None
    reason: str = ""
    facts: dict[str, Any] | None = field(default=None)


def in_blocks(
    predict: Callable[[Any], Any], X: Any, rows: NDArray[np.int64], size: int = 65_536
) -> NDArray[np.float64]:
    """What is predicted for some rows, (n, labels), ``size`` at a time."""
    starts = range(0, rows.size, size)
    return np.concatenate([np.asarray(predict(X[rows[start : start + size]])) for start in starts])


FEATURE_NAMES_KEPT = 1_000


@dataclass(frozen=True, kw_only=True)
class Registrar:
    """Stores what a job made and registers its version."""

    db: Database
    blobs: Blobs
    queue: JobQueue
    model_store: ModelStore

    def store(self, job: EvaluatedJob) -> int:
        """Store artefact, report and calibration, then register the version; returns its number. `Fenced` when the
        attempt was superseded or cancelled: nothing is left behind."""
        keys: list[str] = []
        try:
            return self._register(job, self._new_version(job, keys))
        except BaseException:
            delete_unused(self.db, self.blobs, keys)
            raise

    def _new_version(self, job: EvaluatedJob, keys: list[str]) -> NewVersion:
        """Write the blobs; ``keys`` takes theirs as they are stored."""
        parts, estimator, spec = job.parts, job.estimator, job.spec
        report = None
        with self.blobs.workspace() as folder:
            artefact_sha256 = save(estimator, folder / "artefact")
            load(folder / "artefact")
            size = sum(path.stat().st_size for path in (folder / "artefact").iterdir())
            if job.curve is not None:
                digests = trained_on(job.data, parts.learned, job.claim.job_id)
                assert parts.test is not None
                assert job.scores.test is not None
                errors = error_arrays(parts.test, job.scores.test)
                if parts.folds:
                    errors |= fold_arrays(parts.test, job.scores.test, job.data)
                write_report(
                    folder / "report", job.curve, digests, errors, parts.calibration_rows, job.columns
                )
            artefact = self.blobs.put_folder(folder / "artefact")
            keys.append(artefact)
            if job.curve is not None:
                report = self.blobs.put_folder(folder / "report")
                keys.append(report)
        calibration = self._calibration(job, job.calibration, keys)
        names, classes = job.data.given_feature_names, _class_names(spec, job.data, estimator)
        if job.encoder is not None:
            names = tuple(job.encoder.feature_names)
        schema = job.data.schema
        capabilities = capabilities_of(spec, estimator) - (set() if classes is not None else {"classify"})
        return NewVersion(
            model=job.claim.model,
            kind=spec.kind,
            capabilities=sorted(capabilities),
            params=jsonable_params(spec, estimator),
            metrics=job.metrics,
            lineage=_lineage(job),
            facts={
                "n_features": int(estimator.n_features_in_),
                "feature_names": None if names is None else list(names[:FEATURE_NAMES_KEPT]),
                **({} if schema is None else {"columns": declaration(schema)}),
                **({"label_names": list(job.data.label_names)} if spec.needs == "rankings" else {}),
                **({} if classes is None else {"class_names": classes}),
                # What a learner reports about itself, such as the features that it selected.
                **(estimator.model_facts(names) if hasattr(estimator, "model_facts") else {}),
                "protocol": parts.protocol,
                "parts": parts.sizes,
                "size_bytes": size,
                "leaderboard": job.leaderboard,
                **_suspects(job),
                **({} if job.promotion.facts is None else {"promotion": job.promotion.facts}),
            },
            artefact=artefact,
            artefact_sha256=artefact_sha256,
            report=report,
            calibration=calibration,
            job_id=job.claim.job_id,
        )

    def _calibration(
        self, job: EvaluatedJob, calibration: Calibration | None, keys: list[str]
    ) -> NewCalibration | None:
        if calibration is None:
            return None
        keys.append(store_calibration(self.blobs, calibration))
        dataset = f"{job.data.name}:{job.data.version}"
        return NewCalibration(
            name=f"{job.claim.model} held out of {dataset}"[:200],
            blob=keys[-1],
            protocol=calibration.protocol,
            summary={
                **calibration.summary(),
                "dataset": dataset,
                "random_state": job.seed,
                "part": "folds" if job.parts.calibrates_by_folds else "held-out",
                **class_count(job.data, calibration.protocol),
            },
            dataset_id=job.data.dataset_id,
            dataset_sha256=job.data.sha256,
        )

    def _register(self, job: EvaluatedJob, new: NewVersion) -> int:
        """Register the version, move the alias and end the job, all or nothing."""
        claim = job.claim
        versions: list[int] = []

        def register(session: Session) -> None:
            if versions and self.model_store.version_of_job(claim.job_id) in versions:
                # The commit before went through and only its answer was lost.
                return
            promotion = job.promotion
            summary = self.model_store.register(
                session,
                new,
                promote=promotion.alias,
                only_from=promotion.only_from,
                by=f"job:{claim.job_id}",
                reason=promotion.reason,
            )
            message = _message(new, summary, job)
            self.queue.finish(claim, session, version=summary.version, message=message)
            versions.append(summary.version)

        persist(self.db, register)
        return versions[-1]


def _message(new: NewVersion, version: VersionSummary, job: EvaluatedJob) -> str:
    """What became of the job, for its owner: the version, its alias and why, the baselines, what it can guarantee."""
    promotion, verdict = job.promotion, job.leaderboard["verdict"]
    message = f"registered {new.model}:{version.version}"
    if promotion.alias in version.aliases:
        message += f", now {new.model}@{promotion.alias}"
    elif promotion.alias is not None:
        message += f", not promoted, since {new.model}@{promotion.alias} was moved meanwhile"
    elif promotion.reason:
        message += ", not promoted"
    if promotion.reason:
        message += f": {promotion.reason}"
    if verdict is not None:
        message += f". {verdict[0].upper()}{verdict[1:]}"
    folds = folds_in_words(job.parts.sizes)
    if new.calibration is not None:
        summary = new.calibration.summary
        smallest = summary["smallest_fpr"]["0.95"]["finite-sample"]
        nothing = nothing_guaranteed(summary["origin"])
        if nothing is not None:
            message += f". {nothing}"
        elif smallest is None:
            message += ". It supports no false positive rate: calibrate on more people"
        else:
            message += (
                f". It supports false positive rates of {in_percent(smallest)} and above (95 % confidence)"
            )
    return f"{message}. {folds}" if folds else message


def _suspects(job: EvaluatedJob) -> dict[str, Any]:
    """What looks wrong among the people that the guarantee counts."""
    pairs, scores = job.parts.calibration, job.scores.calibration
    if pairs is None or scores is None:
        return {}
    suspects = doubtful(pairs, scores, job.data)
    return {} if suspects is None else {"suspects": suspects}


def _lineage(job: LoadedJob) -> dict[str, Any]:
    data, extra = job.data, job.unlabelled
    unlabelled = (
        {}
        if extra is None
        else {"unlabelled": f"{extra.name}:{extra.version}", "unlabelled_sha256": extra.sha256}
    )
    return {
        "dataset": f"{data.name}:{data.version}",
        "dataset_sha256": data.sha256,
        **unlabelled,
        "job": job.claim.job_id,
        "code_version": code_version(),
        "random_state": job.seed,
        "evaluation": job.evaluation.model_dump(),
    }


def _class_names(spec: LearnerSpec, data: LabelledData, estimator: Any) -> list[str] | None:
    """Names of a classifier's classes, in the order of its probabilities. None where the kind does not classify, or
    learned from listed pairs, whose groups have no names."""
    if "classify" not in spec.capabilities or data.pairs is not None or data.y is None:
        return None
    return [data.identities[int(code)] for code in estimator.classes_]


MARGIN = 0.01
"""Loss that the interval of the difference must exclude: in TPR at the asked rate, or mean Kendall tau."""
MIN_PAIRS = 30
"""Same and different pairs each, or rows, that a comparison takes."""
_NEW, _OLD = "new", "production"


def promotion(job: ScoredJob, store: ModelStore, settings: Settings) -> Promotion:
    """What the job asked for; with ``if-better``, after a comparison with production."""
    claim = job.claim
    if claim.promote != IF_BETTER:
        return Promotion(alias=claim.promote)
    try:
        production = store.version(*store.resolve(ModelRef(name=claim.model, alias=PRODUCTION)))
    except UnknownModel:
        return Promotion(alias=PRODUCTION, only_from=0, reason="the first version in production")
    comparison = _Comparison(job, production, store, settings)
    try:
        return comparison.decision()
    except _CannotCompare as error:
        return comparison.refused(str(error))


class _CannotCompare(Exception):
    """The two cannot be measured on the same data."""


class _Comparison:
    """The new version beside production on this job's test part."""

    def __init__(self, job: ScoredJob, production: VersionOut, store: ModelStore, settings: Settings) -> None:
        self._job = job
        self._data: LabelledData = job.data
        self._production = production
        self._store = store
        self._settings = settings
        self._facts: dict[str, Any] = {
            "asked": IF_BETTER,
            "against": production.version,
            "margin": MARGIN,
            "confidence": CONFIDENCE,
        }

    @property
    def _name(self) -> str:
        return f"{self._production.model}:{self._production.version}"

    def decision(self) -> Promotion:
        """Promote what loses no more than the margin; say what would decide where neither that nor a loss is shown."""
        compare = self._rankings if self._job.spec.needs == "rankings" else self._pairs
        judged_by, compared, n_units = compare()
        new, old = compared[_NEW], compared[_OLD]
        self._facts |= {
            "judged_by": judged_by,
            "value": new.value,
            "production_value": old.value,
            "difference": old.difference,
            "difference_interval": None if old.difference_interval is None else list(old.difference_interval),
        }
        low, high = old.difference_interval or (-1.0, 1.0)
        decided = (
            f"{judged_by}: {new.value:.3f} against {old.value:.3f} of {self._name} in production on the same held-out "
            f"data (difference {old.difference:+.3f}, {100 * CONFIDENCE:.0f} % interval {low:+.3f} to {high:+.3f}"
        )
        if low >= -MARGIN:
            return self._promoted(f"{decided})")
        self._facts["undecided"] = high >= 0
        if high < 0:
            return self.refused(f"{decided}; it may be at most {MARGIN:g} worse)")
        # Intervals narrow with the root of the number of units: either bound gets there if the difference stays.
        far, near = old.difference - low, old.difference + MARGIN
        if near <= 0:
            far, near = high - old.difference, -old.difference
        enough = math.ceil(n_units * (far / near) ** 2)
        self._facts["units_to_decide"] = enough
        return self.refused(
            f"undecided: {decided}; a loss of {MARGIN:g} is not excluded: a test part of about {enough:,} "
            f"{self._units} ({n_units:,} now) would decide, or promote it by hand)"
        )

    def refused(self, reason: str) -> Promotion:
        """Registered only."""
        return Promotion(
            alias=None, reason=reason, facts={**self._facts, "promoted": False, "reason": reason}
        )

    def _promoted(self, reason: str) -> Promotion:
        return Promotion(
            alias=PRODUCTION,
            only_from=self._production.version,
            reason=reason,
            facts={**self._facts, "promoted": True, "reason": reason},
        )

    @property
    def _units(self) -> str:
        parts = self._job.parts
        if self._job.spec.needs == "rankings":
            return "rows"
        return "people" if parts.protocol == "open-set" else "samples"

    def _pairs(self) -> tuple[str, dict[str, ScorerComparison], int]:
        pairs, new_scores = self._job.parts.test, self._job.scores.test
        assert pairs is not None
        assert new_scores is not None
        self._check_capability("similarity")
        old = self._fold_scores(pairs)
        unseen = np.isfinite(old)
        by_folds = _suffices(pairs.same[unseen])
        if not by_folds:
            unseen = self._unseen(pairs)
        if not _suffices(pairs.same[unseen]):
            # Production knows these people: judged on all of them it looks too good, which is the safe side.
            self._facts["overlap"] = "production was trained on most of the test part, which favours it"
            unseen = np.ones(len(pairs), dtype=np.bool_)
        try:
            old = (
                old[unseen]
                if by_folds
                else self._estimator().score_pairs(self._X(), pairs.left[unseen], pairs.right[unseen])
            )
            scores = {_NEW: new_scores[unseen], _OLD: old}
            target = self._job.claim.evaluation.target_fpr
            rates = resolved_rates(int((~pairs.same[unseen]).sum()), target)
            rates = (target,) if target in rates else rates
            comparisons = compare_pairs(
                scores,
                pairs.same[unseen],
                pairs.units[unseen],
                reference=_NEW,
                rates=rates,
                protocol=pairs.protocol,
                clusters=None if pairs.clusters is None else pairs.clusters[unseen],
                random_state=self._job.seed,
            )
        except ValueError as error:
            raise _CannotCompare(f"{self._name} in production cannot score this data: {error}") from error
        self._facts |= {"n_pairs": int(unseen.sum()), "n_left_out": int((~unseen).sum())}
        return judged_by(rates), comparisons, np.unique(pairs.units[unseen]).size

    def _rankings(self) -> tuple[str, dict[str, ScorerComparison], int]:
        self._check_capability("rank-labels")
        names = self._store.names(self._production.model, self._production.version, "label_names") or []
        if set(names) != set(self._data.label_names):
            raise _CannotCompare(f"{self._name} in production ranks other labels")
        truth, rows = np.asarray(self._data.rankings), self._job.parts.test_rows
        assert rows is not None
        order = [names.index(name) for name in self._data.label_names]
        try:
            old = in_blocks(self._estimator().predict, self._X(), rows)[:, order]
        except ValueError as error:
            raise _CannotCompare(f"{self._name} in production cannot rank this data: {error}") from error
        taus = {
            name: np.nan_to_num(kendall_tau(positions, truth[rows]))
            for name, positions in ((_NEW, np.asarray(self._job.scores.rows)), (_OLD, old))
        }
        self._facts["n_rows"] = int(rows.size)
        return "mean Kendall tau", compare_rows(taus, reference=_NEW, units=self._job.row_units), rows.size

    def _check_capability(self, capability: str) -> None:
        there = self._production
        if capability not in there.capabilities:
            raise _CannotCompare(
                f"{self._name} in production is a {there.kind}, which does other things: promote: true takes its place"
            )
        if self._data.schema is None and there.n_features != self._data.n_features:
            raise _CannotCompare(
                f"{self._name} in production takes {there.n_features} features and this data has "
                f"{self._data.n_features}, so the two cannot be compared: promote: true takes its place"
            )

    def _estimator(self) -> Any:
        try:
            return self._store.load(self._production.model, self._production.version)
        except CorruptArtefact as error:
            raise _CannotCompare(f"{self._name} in production cannot be loaded: {error.detail}") from error

    def _X(self) -> Any:
        try:
            spec = spec_of(self._production.kind)
            return rows_for(self._estimator(), spec, self._data, self._settings.max_dense_bytes)
        except InvalidInput as error:
            raise _CannotCompare(error.detail) from error

    def _fold_scores(self, pairs: HeldOutPairs) -> NDArray[np.float32]:
        """(n,) what production's own folds said of these pairs when it was trained on them; NaN of others."""
        arrays = self._store.report_arrays(self._production.model, self._production.version)
        scores = np.full(len(pairs), np.nan, dtype=np.float32)
        if "fold_rows" not in arrays:
            return scores
        rows, own = arrays["fold_rows"], self._data.row_hashes
        place = np.minimum(np.searchsorted(rows, own), rows.size - 1)
        is_there = rows[place] == own
        keys = _pair_keys(*arrays["fold_pairs"])
        order = np.argsort(keys)
        wanted = _pair_keys(place[pairs.left], place[pairs.right])
        at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
        is_scored = is_there[pairs.left] & is_there[pairs.right] & (keys[at] == wanted)
        scores[is_scored] = arrays["fold_scores"][at[is_scored]]
        return scores

    def _unseen(self, pairs: HeldOutPairs) -> NDArray[np.bool_]:
        """Pairs of which production learned neither side."""
        digests = self._store.trained_on(self._production.model, self._production.version)
        if digests is None:
            return np.ones(len(pairs), dtype=np.bool_)
        overlap = overlapping(digests, self._data, identities=pairs.protocol == "open-set")
        return np.asarray(~(overlap[pairs.left] | overlap[pairs.right]))


def _suffices(same: NDArray[np.bool_]) -> bool:
    return min(int(same.sum()), int((~same).sum())) >= MIN_PAIRS


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
    naming = naming_warnings(data.X, y, data.feature_names, data.schema)
    sentences = [f"A feature {line}." for line in naming]
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
        "text": " ".join([*sentences, "Nothing was removed: the guarantee counts the labels as they are."])
        if sentences
        else "",
    }
