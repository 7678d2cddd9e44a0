"""Two versions of a model on the same people, whom neither learned from nor was calibrated with."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.comparison import (
    ScorerComparison,
    compare_f1,
    compare_pairs,
    resolved_rates,
)
from pairmark.models.evaluation.intervals import CONFIDENCE
from pairmark.models.registry import spec_of
from pairmark.schemas.models import ComparisonOut, DifferenceOut
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.held_out import pairs_among, rows_for
from pairmark.service.errors import InvalidInput, refusals
from pairmark.service.store.calibrations import DEFAULT_PAIRS, Calibrations
from pairmark.service.store.versions import (
    VersionStore,
    overlapping,
)
from pairmark.service.tables import ModelVersion

FEWEST = 10
"""People without whom a difference says nothing."""


class Comparisons:
    """Compares versions."""

    def __init__(self, versions: VersionStore, calibrations: Calibrations) -> None:
        self._versions, self._calibrations = versions, calibrations

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
        rows = np.flatnonzero(~self._known(data, [row for row, _ in loaded], name, protocol))
        n_people = np.unique(np.asarray(data.y)[rows]).size if protocol == "open-set" else rows.size
        if n_people < FEWEST:
            raise InvalidInput(
                f"{n_people} people of {data.name}:{data.version} are new to {name}:{first} and {name}:{second}, "
                f"neither learned from nor calibrated with; expected at least {FEWEST}: name another dataset",
                field="dataset",
            )
        with refusals("the versions cannot be compared"):
            pairs = pairs_among(data, rows, protocol=protocol, n_pairs=DEFAULT_PAIRS, random_state=0)
            scores = {
                str(row.version): self._scores(row, name, data, pairs.left, pairs.right) for row, _ in loaded
            }
            rates = resolved_rates(int((~pairs.same).sum())) if fpr is None else (fpr,)
            given = pairs.same, pairs.units
            tpr = compare_pairs(scores, *given, reference=str(second), rates=rates, protocol=protocol)
            measures: list[tuple[Literal["tpr", "f1"], list[float] | None, dict[str, ScorerComparison]]]
            measures = [("tpr", list(rates), tpr)]
            if data.schema is not None:
                measures.append(("f1", None, compare_f1(scores, *given, reference=str(second))))
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
                    fpr=at,
                    values=[compared[str(version)].value for version in (first, second)],
                    difference=compared[str(first)].difference,
                    interval=compared[str(first)].difference_interval,
                )
                for measure, at, compared in measures
            ],
        )

    def _known(
        self, data: LabelledData, rows: list[ModelVersion], name: str, protocol: str
    ) -> NDArray[np.bool_]:
        """Rows of whom a version learned or was calibrated with; in open-set use every row of such a person."""
        y, known = np.asarray(data.y), np.zeros(len(data), dtype=np.bool_)
        for row in rows:
            stored = self._versions.report(row)
            if stored is None:
                continue
            known |= overlapping(stored.trained_on, data, identities=protocol == "open-set")
            if row.lineage.get("dataset") == f"{data.name}:{data.version}":
                known[stored.calibration_rows] = True
        return np.isin(y, y[known]) if protocol == "open-set" else known

    def _scores(
        self, row: ModelVersion, name: str, data: LabelledData, left: Any, right: Any
    ) -> NDArray[np.float32]:
        estimator = self._versions.load(row, name)
        X = rows_for(estimator, spec_of(row.kind), data, self._versions.settings.max_dense_bytes)
        scores: NDArray[np.float32] = estimator.score_pairs(X, left, right)
        return scores
