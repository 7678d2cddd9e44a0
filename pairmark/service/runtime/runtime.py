"""The interface of the runtime: finds served versions, scores batches in threads, caches operating points."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pairmark.models.calibration.guarantees import units_needed
from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.core.arrays import Bool
from pairmark.models.label_ranking.base import rank_checked
from pairmark.models.registry import spec_of
from pairmark.models.warmup import warm_loaded
from pairmark.schemas.models import ReviewPolicy
from pairmark.service.caches import BoundedCache
from pairmark.service.db import Database
from pairmark.service.errors import (
    DamagedRow,
    InvalidInput,
    NotReady,
    PairmarkError,
    UnknownCalibration,
    UnknownModel,
    UnsupportedRate,
)
from pairmark.service.names import EVERY_NAME, PRODUCTION, VisibleNames, split_ref
from pairmark.service.runtime.catalogue import Catalogue, CatalogueView, VersionEntry
from pairmark.service.runtime.missing_columns import (
    COMPLETE_ONLY,
    ComparedPairs,
    Patterns,
    Rescore,
    UsedChoices,
)
from pairmark.service.runtime.operating_points import (
    LoadedCalibration,
    OperatingPoints,
    PointRequest,
    Rate,
    ServedPoint,
    point_of_best_f1,
)
from pairmark.service.runtime.versions import InputChecks, LoadedVersion, LoadedVersions
from pairmark.service.scheduling import Places, current_owner
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import unknown_calibration
from pairmark.service.store.store import ModelStore
from pairmark.service.store.subjects import SubjectCalibrations, SubjectClass

LIKELY_RATE = 0.01
"""The rate at which pairs of records that lack columns are decided likely."""
MOST_KEPT = 1_024
"""References and rates whose meaning is kept until names or policies change."""


class Runtime:
    """What serves: one in each API process."""

    def __init__(self, store: ModelStore, database: Database, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.catalogue = Catalogue(database, settings.catalogue_ttl_s)
        self.versions = LoadedVersions(self._load, settings.max_loaded_models)
        self.points = OperatingPoints(self._load_calibration)
        self.patterns = Patterns(self.points, UsedChoices(database))
        self.inputs = InputChecks(self.store.calibrations.mark_moved)
        self._subjects = SubjectCalibrations(store, store.calibrations)
        self.warm = False
        self._last_view: CatalogueView | None = None
        self._by_view: dict[Any, Any] = {}
        """What was worked out by the last view: of a reference, the version and the alias by which; of a rate, the
        point."""
        self._classes: BoundedCache[tuple[str, SubjectClass], str] = BoundedCache(4_096)
        self._best_f1: BoundedCache[tuple[str, int, str | None], ServedPoint] = BoundedCache(256)
        self.batch_place = Places("batch", os.cpu_count() or 1, settings.max_concurrent_batches)

    async def version_for(
        self, ref: str | None, capability: str | None, visible: VisibleNames = EVERY_NAME
    ) -> LoadedVersion:
        """The version of a reference, loaded and warm.

        Parameters
        ----------
        ref : None: the only model that can do it.
        capability : what is asked of it; None: whatever it can do.
        visible : the names of the only models that may be used.
        """
        view = self._current_view()
        reference = ref, capability, visible
        resolved = self._by_view.get(reference)
        if resolved is None:
            try:
                entry = view.resolve(ref, capability, visible)
            except UnknownModel:
                # It may be younger than the view: a job that has just ended, say, on another process's word.
                entry = (await self.catalogue.looked_up()).resolve(ref, capability, visible)
            _, mark, alias = split_ref(ref or "")
            resolved = entry, None if mark == ":" else alias or PRODUCTION
            self._keep(reference, resolved, view)
        return await self.versions.get(*resolved)

    def _current_view(self) -> CatalogueView:
        """The view of names that requests were admitted by; what was worked out by an older one goes."""
        view = self.catalogue.view
        if view is not self._last_view:
            self._last_view, self._by_view = view, {}
            self.versions.evict_deleted(view)
        return view

    def _keep(self, question: object, meaning: object, view: CatalogueView) -> None:
        if len(self._by_view) >= MOST_KEPT:
            self._by_view.clear()
        # What took long may be of an older view by now.
        if view is self._last_view:
            self._by_view[question] = meaning

    async def operating_point(
        self,
        version: LoadedVersion | None,
        rate: Rate,
        subjects: SubjectClass | None = None,
        *,
        shows_scores: bool,
    ) -> ServedPoint:
        """The operating point that a request asks for.

        Parameters
        ----------
        version : that made the scores; None for scores made elsewhere.
        subjects : numbers of samples and aggregation of what was scored; None for single vectors.
        shows_scores : whether a rate that is refused tells the thresholds of other methods.
        """
        view = self._current_view()
        made_by = None if version is None else (*version.key, version.calibration_id)
        question = made_by, rate, subjects
        answered: ServedPoint | None = self._by_view.get(question)
        if answered is not None:
            return answered
        calibration = await self._calibration_for(version, rate, subjects)
        if version is not None:
            name = version.entry.name
        else:
            owner = (await self._calibration(calibration)).owner
            name = "" if owner is None else owner[0]
        request = self._request(calibration, name, rate, has_records=version is not None)
        point = self.points.cached(request)
        if point is None:
            point = await asyncio.to_thread(self.points.compute, request, shows_scores=shows_scores)
            if version is not None:
                self.patterns.prepare(version.estimator, request)
        # A calibration of subjects is of the same people's rows.
        own = None if version is None else version.calibration_id
        warning = self.moved(calibration) or self.moved(own)
        point = point if warning is None else point.moved(warning)
        self._keep(question, point, view)
        return point

    def _request(self, calibration: str, name: str, rate: Rate, *, has_records: bool) -> PointRequest:
        """What a rate means by the policy of a model of this name; scores made elsewhere lack no column."""
        model = self.catalogue.view.models.get(name)
        policy = None if model is None else model.allow_asymptotic
        allowed = rate.method == "auto" and (self.settings.allow_asymptotic if policy is None else policy)
        complete_only = has_records and model is not None and model.missing == "refuse"
        return PointRequest(
            calibration,
            rate.fpr,
            rate.confidence,
            rate.method,
            rate.fnr,
            rate.simultaneous,
            allowed,
            complete_only,
        )

    async def best_f1(self, version: LoadedVersion) -> ServedPoint:
        """The point with the best F1 on the version's held-out pairs; `ModelNotCapable` where that was not measured."""
        name, number, calibration = version.entry.name, version.entry.version, version.calibration_id
        key = version.entry.model_id, number, calibration
        point = self._best_f1.get(key)
        if point is None:
            curve = await asyncio.to_thread(self.store.reports.pr, name, number, 2)
            measured = await asyncio.to_thread(self.store.version, name, number)
            inputs = await self.row_ranges(version)
            point = point_of_best_f1(curve.best_f1, measured.metrics, inputs)
            self._best_f1.put(key, point)
        warning = self.moved(calibration)
        return point if warning is None else point.moved(warning)

    async def compared(
        self, version: LoadedVersion, point: ServedPoint, lacked: Bool, rescore: Rescore | None
    ) -> ComparedPairs:
        """What decides pairs of records that lack columns."""
        if point.request is None:
            model = self.catalogue.view.models.get(version.entry.name)
            # One threshold decides, whatever pairs lack.
            is_refused = lacked.any(axis=(1, 2)) & (model is not None and model.missing == "refuse")
            threshold = np.where(is_refused, np.float32(np.nan), point.threshold)
            return ComparedPairs(lacked, (threshold, threshold), COMPLETE_ONLY)
        compared = self.patterns.find(
            version.estimator, current_owner(), point, lacked, rescore, may_work=False
        )
        if compared is not None:
            return compared
        return await self.batch_place.run(lambda: self.find_compared(version, point, lacked, rescore))

    def find_compared(
        self, version: LoadedVersion, point: ServedPoint, lacked: Bool, rescore: Rescore | None = None
    ) -> ComparedPairs:
        """The same (blocking)."""
        compared = self.patterns.find(version.estimator, current_owner(), point, lacked, rescore)
        assert compared is not None, "work may be done"
        return compared

    def moved(self, calibration: str | None) -> dict[str, str] | None:
        """The warning that inputs are no longer like those of a calibration; None where they are."""
        return self.catalogue.view.moved.get(calibration or "")

    async def row_ranges(self, version: LoadedVersion) -> RowRanges | None:
        """What rows are like in the version's own calibration; None where that was not kept."""
        if version.calibration_id is None:
            return None
        return (await self._calibration(version.calibration_id)).calibration.inputs

    async def _calibration_for(
        self,
        version: LoadedVersion | None,
        rate: Rate,
        subjects: SubjectClass | None,
    ) -> str:
        """The calibration that answers: the one named, else the version's own; of subjects, that of their class."""
        calibration = rate.calibration
        if calibration is None:
            calibration = version.calibration_id if version is not None else None
            if calibration is None:
                raise UnknownCalibration(
                    "there is no calibration to take a threshold from; calibrate the version "
                    "(POST /models/NAME/versions/VERSION/calibrations) or name one with calibration=",
                    field="calibration",
                )
        else:
            entry = await self._calibration(calibration)
            owner, own_subjects = entry.owner, entry.subjects
            served = None if version is None else (version.entry.name, version.entry.version)
            if served is not None and owner != served:
                made = (
                    f"made for {owner[0]}:{owner[1]}" if owner else "made of scores that are sent as 'scores'"
                )
                raise InvalidInput(
                    f"calibration {calibration!r} was {made}, not for {served[0]}:{served[1]}; thresholds do not "
                    "carry over",
                    field="calibration",
                )
            if own_subjects == subjects:
                return calibration
            if own_subjects is not None:
                samples = "single vectors" if subjects is None else f"{subjects.k} and {subjects.p} samples"
                raise InvalidInput(
                    f"calibration {calibration!r} is of subjects of {own_subjects.k} and {own_subjects.p} "
                    f"samples by {own_subjects.aggregation}, and the request has {samples}: thresholds do not carry "
                    "over",
                    field="calibration",
                )
        if subjects is not None:
            assert version is not None
            calibration = await self._of_class(version, calibration, subjects, rate)
        return calibration

    async def _of_class(
        self,
        version: LoadedVersion,
        calibration: str,
        subjects: SubjectClass,
        rate: Rate,
    ) -> str:
        """The calibration of a class of subjects, from the people of an ordinary one; made where there is none."""
        key = (calibration, subjects)
        calibration_id = self._classes.get(key)
        if calibration_id is None:
            try:
                calibration_id = await self.batch_place.run(
                    lambda: self._subjects.of(calibration, subjects, version.estimator)
                )
            except UnsupportedRate as error:
                facts = {**error.facts, "required_units": units_needed(rate.fpr, rate.confidence)}
                raise UnsupportedRate(error.detail, **facts) from error
            self._classes.put(key, calibration_id)
        return calibration_id

    def review_policy(self, model: str) -> ReviewPolicy | None:
        """Which decisions of a model are kept for reviews; None: none."""
        entry = self.catalogue.view.models.get(model)
        return None if entry is None else entry.reviews

    async def check_calibration(self, calibration: str, names: VisibleNames) -> None:
        """`UnknownCalibration`, as for one that is not there, where it is of no model (or scores) of these names."""
        if names.everything:
            return
        with contextlib.suppress(UnknownCalibration, DamagedRow):
            # One of a version may be named by who may use its model. Scores of another system belong to no model: a
            # key for some models never names them, whatever they are called; one of a whole tenant does, by their name.
            entry = await self._calibration(calibration)
            owner = entry.owner
            if (owner[0] if owner else entry.name) in names and (owner or names.members is None):
                return
        raise unknown_calibration(calibration)

    async def model_of_calibration(self, calibration: str) -> dict[str, Any] | None:
        """The version a calibration was made for, as answers name it; None for scores made elsewhere."""
        owner = (await self._calibration(calibration)).owner
        if owner is None:
            return None
        name, version = owner
        model = self.catalogue.view.models.get(name)
        entry = model.versions.get(version) if model is not None else None
        if entry is None:
            raise UnknownCalibration(
                f"the version of calibration {calibration!r} was deleted", field="calibration"
            )
        return {"name": name, "version": version, "kind": entry.kind}

    async def _calibration(self, calibration_id: str) -> LoadedCalibration:
        return await asyncio.to_thread(self.points.fetch, calibration_id)

    async def load_promoted(self) -> None:
        """Load what production means, as far as memory allows, so that no request waits for it.

        A version that cannot be loaded is logged, and refused when it is asked for; it keeps no other from serving.
        """
        promoted = [
            model.versions[model.aliases[PRODUCTION]]
            for model in self.catalogue.view.models.values()
            if model.aliases.get(PRODUCTION) in model.versions
        ]
        for entry in promoted[: self.settings.max_loaded_models]:
            with contextlib.suppress(PairmarkError):
                await self.versions.get(entry, PRODUCTION)

    def ready(self) -> None:
        """Raise `NotReady` until what is promoted is loaded, its kernels warm, and the catalogue was read."""
        if not self.warm:
            raise NotReady("models are being loaded and their kernels warmed")
        _ = self.catalogue.view

    def close(self) -> None:
        """Let threads end."""
        self.batch_place.close()
        self.patterns.close()

    def _load(self, entry: VersionEntry) -> LoadedVersion:
        ranks, classifies = "rank-labels" in entry.capabilities, "classify" in entry.capabilities
        # First of all: a kind that this version of Pairmark no longer has is refused as what cannot be loaded.
        estimator = self.store.load(entry.name, entry.version)
        spec = spec_of(entry.kind)
        # It scores and searches before it serves: pages of the artefact and kernels not compiled yet.
        warm_loaded(estimator, entry.capabilities, accepts_sparse=spec.accepts_sparse)
        point = np.zeros((1, int(estimator.n_features_in_)), dtype=np.float32)
        if entry.calibration_id is not None and spec.takes_records:
            # Before anybody asks: the first request with other choices of columns would wait for what stands for them.
            request = self._request(entry.calibration_id, entry.name, Rate(LIKELY_RATE), has_records=True)
            self.patterns.prepare(estimator, request)
        seconds = 0.0
        if ranks:
            seconds = _seconds(lambda: rank_checked(estimator, point))
        elif classifies:
            seconds = _seconds(lambda: estimator.predict_proba(point))
        return LoadedVersion(
            entry=entry,
            estimator=estimator,
            n_features=int(estimator.n_features_in_),
            accepts_sparse=spec.accepts_sparse,
            feature_names=self.store.names(entry.name, entry.version, "feature_names"),
            label_names=self.store.names(entry.name, entry.version, "label_names") if ranks else None,
            class_names=self.store.names(entry.name, entry.version, "class_names") if classifies else None,
            seconds_a_point=seconds,
        )

    def _load_calibration(self, calibration_id: str) -> LoadedCalibration:
        try:
            calibration, row = self.store.calibrations.load(calibration_id)
        except UnknownCalibration as error:
            users = [
                f"{entry.name}:{entry.version}"
                for model in self.catalogue.view.models.values()
                for entry in model.versions.values()
                if entry.calibration_id == calibration_id
            ]
            if not users:
                raise
            raise DamagedRow(
                f"calibration {calibration_id}, which decides for {', '.join(users[:5])}, is not there; calibrate "
                "again, or restore a backup",
                calibration_id=calibration_id,
            ) from error
        owner = None if row.model is None or row.version is None else (row.model, row.version)
        samples, subjects = row.summary.get("samples"), None
        if samples is not None:
            subjects = SubjectClass(int(samples[0]), int(samples[1]), str(row.summary["aggregation"]))
        number, classes = self.store.ledger_number(calibration_id), row.summary.get("classes")
        return LoadedCalibration(calibration, owner, subjects, number, row.imported, classes, row.name)


def _seconds(work: Callable[[], object]) -> float:
    """How long work on one point takes once warm: it decides whether a request may hold the event loop."""
    work()
    times = []
    # The best of a few, in CPU time: a busy machine must not make a quick model look slow for good.
    for _ in range(3):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)
