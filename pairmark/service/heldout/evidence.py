"""Measures a version on its held-out part beyond the ROC: likelihood ratios, searches, several samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.evaluation.by_time import rates_by_time
from pairmark.models.evaluation.likelihood import likelihood_report
from pairmark.models.evaluation.open_set import LEAST_PEOPLE, play_enrolment, play_gallery
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.schemas.evidence import EnrolmentOut, Evidence, IdentificationOut, LikelihoodOut, TimesOut
from pairmark.service.datasets.data import LabelledData

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
    """Likelihood ratios, searches of galleries and enrolment with several samples, on held-out pairs and their rows.

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
            by_time = TimesOut.model_validate({"unit": data.time_unit, **aged})
    likelihoods = []
    if ratios is None:
        left_out["likelihood_ratios"] = "the calibration part holds no same pair"
    elif not pairs.same.any():
        left_out["likelihood_ratios"] = "the test part holds no same pair"
    else:
        methods = ("pav", "logistic", *(["own"] if own else []))
        likelihoods = [
            LikelihoodOut.model_validate(likelihood_report(ratios, scores, pairs.same, pairs.units, method))
            for method in methods
        ]
    searched = enrolled = None
    if pairs.protocol != "open-set":
        left_out["identification"] = "the version distinguishes the classes of its training, not new people"
    elif data.y is None:
        left_out["identification"] = "nothing says who each row is of"
    else:
        rows = np.unique(np.concatenate([pairs.left, pairs.right]))
        part, y = X[rows], np.asarray(data.y)[rows]
        searched = play_gallery(estimator, part, y, random_state=random_state)
        enrolled = play_enrolment(estimator, part, y, random_state=random_state)
        if searched is None:
            left_out["identification"] = (
                f"a gallery of {LEAST_PEOPLE} people and as many strangers takes {2 * LEAST_PEOPLE} held-out people, "
                f"{LEAST_PEOPLE} of them with two samples"
            )
        if enrolled is None:
            left_out["by_samples"] = f"fewer than {LEAST_PEOPLE} held-out people have three samples"
    if "identification" in left_out and searched is None:
        left_out.setdefault("by_samples", left_out["identification"])
    return Evidence(
        likelihood_ratios=likelihoods,
        identification=None if searched is None else IdentificationOut.model_validate(searched),
        by_samples=None if enrolled is None else EnrolmentOut.model_validate(enrolled),
        by_time=by_time,
        left_out=left_out,
    )
