"""What calibration pairs of records say of pairs that lack columns."""

from contextlib import suppress
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.guarantees import units_needed
from pairmark.models.calibration.operating_point import OperatingPoint
from pairmark.models.calibration.records import pattern_codes
from pairmark.models.core.arrays import Bool

FEWEST_COMPARED = 0.1
"""A column of which at least this share of the calibration pairs has both cells is known well enough."""


class PartialCalibration(NamedTuple):
    """What decides pairs of records that lack columns.

    Attributes
    ----------
    whole : of all calibration pairs, scored without these columns.
    natural : of those that lack just these of themselves; None where there are too few to say anything.
    """

    whole: Calibration
    natural: Calibration | None

    def points(
        self, fpr: float, confidence: float = 0.95, method: str = "auto", **options: Any
    ) -> list[OperatingPoint]:
        """What either answers, as `Calibration.operating_point`: the stricter threshold decides."""
        points = [self.whole.operating_point(fpr, confidence, method, **options)]
        # To refuse takes long.
        if self.natural is not None and self.natural.answers(fpr, confidence):
            with suppress(ValueError):
                points.append(self.natural.operating_point(fpr, confidence, method, **options))
        return points


def supports_columns(calibration: Calibration, columns: Bool, fpr: float, confidence: float) -> bool:
    """Whether calibration pairs say something of pairs that lack ``columns`` (2, d): each of the others is there in
    a tenth of them, or in pairs of as many people as the rate takes."""
    if calibration.records is None or columns.shape[1] != calibration.records.n_columns:
        return False
    is_prepared = pattern_codes(columns[None])[0] in calibration.records.codes
    if calibration.facts.folds is not None and not is_prepared:
        # The model that is kept learned from these very pairs.
        return False
    there = ~np.asarray(calibration.records.lacked.any(axis=1))[:, ~columns.any(axis=0)]
    needed = units_needed(fpr, confidence)["finite-sample"] or 0
    return all(
        column.mean() >= FEWEST_COMPARED or np.unique(calibration.records.units[column]).size >= needed
        for column in there.T
    )


def without_columns(calibration: Calibration, columns: Bool, scorer: Any) -> PartialCalibration:
    """What decides pairs of records that lack columns.

    Parameters
    ----------
    columns : (2, d) those that the sides of a pair lack, in either order. scorer : the fitted model of records.

    Raises
    ------
    ValueError
        When what is left of the records says nothing.
    """
    records, natural = calibration.records, None
    assert records is not None
    same, units = records.same, records.units
    lacking = np.flatnonzero(records.lack(columns, scorer))
    scores = records.scored_without(columns, scorer)
    whole = calibration.fit(scores, same, units, groups=calibration.groups_of(units), **records.facts)
    # Which of all pairs they are depends on cells that are missing, not on people.
    facts = records.facts | ({"listing": "drawn"} if calibration.origin == "all" else {})
    with suppress(ValueError):
        natural = calibration.fit(scores[lacking], same[lacking], units[lacking], **facts)
    return PartialCalibration(whole, natural)


def costs_of_columns(
    calibration: Calibration, fpr: float, confidence: float, scorer: Any
) -> list[dict[str, Any]]:
    """What leaving columns out costs: the TPR at a rate of pairs that lack nothing, and without the columns that
    were left out beforehand.

    Returns
    -------
    JSON-able dicts: ``lacked`` (column numbers), ``share`` of the pairs that lack just these, and ``tpr``, None
    where the others say too little.
    """
    records = calibration.records
    if records is None or not calibration.answers(fpr, confidence):
        return []
    share = float((~records.lacked.any(axis=(1, 2))).mean())
    tpr = calibration.operating_point(fpr, confidence).tpr
    costs: list[dict[str, Any]] = [{"lacked": [], "share": share, "tpr": tpr}]
    for columns in records.patterns:
        lacked = np.flatnonzero(columns.any(axis=0)).tolist()
        share, tpr = float(records.lack(columns, scorer).mean()), None
        if len(lacked) > 1 and not share:
            # Prepared for those who lack some of these: nobody lacks just these.
            continue
        with suppress(ValueError):
            partial = without_columns(calibration, columns, scorer)
            tpr = max(partial.points(fpr, confidence), key=attrgetter("threshold")).tpr
        costs.append({"lacked": lacked, "share": share, "tpr": tpr})
    return costs
