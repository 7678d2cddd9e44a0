"""What held-out scores cannot promise, and what it would take: smallest rates, units required, and the refusals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.calibration.bands import FprBand
from pairmark.models.calibration.bootstrap import confidence_row
from pairmark.models.calibration.bounds import MOST_BLOCKS, order_pairs_needed, order_rank, order_upper
from pairmark.models.calibration.finite_sample import STEPS_PER_DECADE
from pairmark.models.calibration.held_out import HeldOutScores
from pairmark.models.calibration.operating_point import InsufficientCalibrationData, OperatingPoint
from pairmark.models.calibration.origins import guarantee_of
from pairmark.models.calibration.promises import askable, units_needed


def smallest_rates(held_out: HeldOutScores, confidence: float) -> dict[str, float | None]:
    """Method -> smallest false positive rate that is answered; None where no rate is."""
    asymptotic = held_out.bootstrap().smallest(confidence) if confidence_row(confidence) is not None else None
    return {"finite-sample": held_out.finite.smallest(confidence), "bootstrap": asymptotic}


def units_required(held_out: HeldOutScores, fpr: float, confidence: float) -> dict[str, int | None]:
    """Method -> units that ``fpr`` takes; see `InsufficientCalibrationData.required_units`."""
    # A unit is one observation: a pair, or a block.
    rows_independent = bool(held_out.facts["independent_rows"]) or held_out.origin == "blocks"
    required = units_needed(
        fpr,
        confidence,
        different_share=held_out.finite.different_share,
        rows_independent=rows_independent,
    )
    reached, n_units = held_out.bootstrap().smallest(confidence), int(held_out.facts["n_units"])
    if required["bootstrap"] is not None and reached is not None and reached > fpr:
        # These data fall short by more than chance: scale what they reach (pairs grow with units squared).
        projection = math.ceil(
            min(n_units * (reached / fpr) ** (1.0 if rows_independent else 0.5), MOST_BLOCKS)
        )
        required["bootstrap"] = max(required["bootstrap"], projection)
    return required


def refusal(
    held_out: HeldOutScores,
    fpr: float,
    confidence: float,
    methods: list[str],
    answers: Mapping[str, OperatingPoint | None],
) -> InsufficientCalibrationData:
    """The error that says what the tried methods lack; ``answers`` are those of the other methods."""
    smallest, required = smallest_rates(held_out, confidence), units_required(held_out, fpr, confidence)
    n_units, n_different = int(held_out.facts["n_units"]), int(held_out.facts["n_negative_pairs"])
    unit = held_out.counted
    sentences = []
    for name in methods:
        floor, n_required = smallest[name], required[name]
        supports = "no rate" if floor is None else f"rates of {askable(floor):g} and above"
        about = "about " if name == "bootstrap" else ""
        takes = "" if n_required is None else f"; {fpr:g} takes {about}{n_required:,} {unit}"
        sentences.append(f"{name} supports {supports}{takes}")
    alternatives: dict[str, dict[str, Any]] = {}
    for name, point in answers.items():
        if point is not None:
            alternatives[name] = point.as_dict()
            continue
        guarantee = guarantee_of(name, held_out.origin)
        alternatives[name] = {"refused": True, "guarantee": guarantee, "smallest_fpr": smallest[name]}
    return InsufficientCalibrationData(
        f"{n_units:,} held-out {unit} ({n_different:,} different pairs) "
        f"cannot support a false positive rate of {fpr:g} at confidence {confidence:g}: {'. '.join(sentences)}. Ask "
        f"for a higher rate, or calibrate with more {unit}",
        smallest_fpr=smallest,
        required_units=required,
        alternatives=alternatives,
    )


def joint_refusal(
    band: FprBand | None, method: str, fpr: float, confidence: float, candidate: int | None
) -> InsufficientCalibrationData:
    """The error of a rate that no band answers."""
    floor = None if band is None else band.smallest_fpr
    return InsufficientCalibrationData(
        f"no rate of {fpr:g} at confidence {confidence:g} holds together with all others"
        + ("" if candidate is None else f" and for {candidate} versions calibrated on the same data")
        + f": {method} reaches "
        + ("none" if floor is None else f"{askable(floor):g}")
        + ". Ask for a higher rate, or without simultaneous",
        smallest_fpr={method: floor},
        required_units={},
    )


def lower_threshold(
    held_out: HeldOutScores, fnr: float, level: float, confidence: float, *, simultaneous: bool
) -> tuple[float, float]:
    """The largest score that keeps the false negative rate of scores at or below it, and the rate's upper bound.

    Parameters
    ----------
    level : the confidence of this promise; ``confidence`` is that of both promises together.
    simultaneous : whether it is to hold for all rates at once: those of a band, ten to the decade, the k-th of which
        from the smallest fails with probability (1 - level) / 2^(k + 1), as in `pairmark.models.calibration.bands`.

    Raises
    ------
    InsufficientCalibrationData
        When there are too few independent same pairs.
    ValueError
        When the calibration keeps none.
    """
    same = held_out.arrays.get("matched_same")
    if same is None or not same.size:
        raise ValueError("fnr takes same pairs, which this calibration does not keep: calibrate again")
    rate, sure, k = fnr, level, 0
    if simultaneous:
        sure = 1 - (1 - level) / 2
        step = math.ceil(-math.log10(fnr) * STEPS_PER_DECADE - 1e-9)
        k = math.floor(-math.log10(order_upper(0, same.size, sure)) * STEPS_PER_DECADE) - step
        rate, sure = 10 ** (-step / STEPS_PER_DECADE), 1 - (1 - level) / 2 ** (max(k, 0) + 1)
    rank = None if k < 0 else order_rank(same.size, rate, sure)
    if rank is None:
        n_people = order_pairs_needed(rate, sure)
        raise InsufficientCalibrationData(
            f"{same.size} independent same pairs cannot support a false negative rate of {fnr:g} at confidence "
            f"{sure:g}, which each rate needs so that both hold at {confidence:g}: the smallest supported rate is "
            f"{askable(order_upper(0, same.size, sure)):g}; {fnr:g} takes {n_people:,} people with two samples. Ask "
            "for a higher rate, or calibrate with more people",
            smallest_fpr=smallest_rates(held_out, level),
            required_units={"finite-sample": n_people},
        )
    rank = min(rank, same.size - 1)
    # A rate of scores strictly below the rank's score is what the order statistic bounds.
    return float(np.nextafter(same[rank], np.float32(-np.inf))), order_upper(rank, same.size, sure)
