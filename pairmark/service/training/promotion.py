"""Promotes a new version only if it is not worse than production on the same held-out data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.comparison import (
    CONFIDENCE,
    ScorerComparison,
    compare_pairs,
    compare_rows,
    judged_by,
    resolved_rates,
)
from pairmark.models.evaluation.rankings import kendall_tau
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.models.registry import spec_of
from pairmark.schemas.jobs import IF_BETTER
from pairmark.schemas.models import VersionOut
from pairmark.service.datasets.data import LabelledData
from pairmark.service.errors import CorruptArtefact, InvalidInput, UnknownModel
from pairmark.service.heldout.encoding import rows_for
from pairmark.service.heldout.overlap import overlapping
from pairmark.service.heldout.scoring import in_blocks
from pairmark.service.settings import Settings
from pairmark.service.store.refs import PRODUCTION, ModelRef
from pairmark.service.store.store import ModelStore
from pairmark.service.training.stages import Promotion, ScoredJob

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
        unseen = self._unseen(pairs)
        if min(int(pairs.same[unseen].sum()), int((~pairs.same[unseen]).sum())) < MIN_PAIRS:
            # Production knows these people: judged on all of them it looks too good, which is the safe side.
            self._facts["overlap"] = "production was trained on most of the test part, which favours it"
            unseen = np.ones(len(pairs), dtype=np.bool_)
        left, right = pairs.left[unseen], pairs.right[unseen]
        try:
            scores = {_NEW: new_scores[unseen], _OLD: self._estimator().score_pairs(self._X(), left, right)}
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

    def _unseen(self, pairs: HeldOutPairs) -> NDArray[np.bool_]:
        """Pairs of which production learned neither side."""
        digests = self._store.trained_on(self._production.model, self._production.version)
        if digests is None:
            return np.ones(len(pairs), dtype=np.bool_)
        overlap = overlapping(digests, self._data, identities=pairs.protocol == "open-set")
        return np.asarray(~(overlap[pairs.left] | overlap[pairs.right]))
