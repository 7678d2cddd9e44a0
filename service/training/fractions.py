"""The share of a dataset that is held out to calibrate on, and the rate it supports."""

from __future__ import annotations

from pairmark.models.calibration.promises import units_needed
from pairmark.service.datasets.promises import promise_of, units_of
from pairmark.service.datasets.schemas import DatasetOut
from pairmark.service.heldout.schemas import EvaluationRequest

AMPLE = 2
"""Calibration units aimed at, in multiples of the fewest that a rate takes: at the fewest, the TPR is low."""
_SMALLEST, _MOST = 0.1, 0.5


def filled_evaluation(
    asked: EvaluationRequest, dataset: DatasetOut, *, learns: bool = True
) -> EvaluationRequest:
    """The request with its calibration fraction: as asked, or what ``target_fpr`` takes.

    Parameters
    ----------
    learns : whether the learner learns anything; if not, everybody outside the test part calibrates.
    """
    if not learns:
        return asked.model_copy(update={"calibration_fraction": round(1 - asked.test_fraction, 6)})
    if asked.target_fpr is None or "calibration_fraction" in asked.model_fields_set:
        return asked
    units = calibration_units(dataset, asked.protocol)
    if units is None:
        return asked
    count, different, _ = units
    needed = units_needed(asked.target_fpr, different_share=different)["finite-sample"]
    assert needed is not None
    most = min(_MOST, 0.8 - asked.test_fraction)
    fraction = min(max(AMPLE * needed / count, _SMALLEST), max(most, _SMALLEST))
    return asked.model_copy(update={"calibration_fraction": round(fraction, 4)})


def calibration_units(dataset: DatasetOut, protocol: str) -> tuple[int, float, str] | None:
    """Units of a dataset with identities, the share of different pairs among them, and the protocol.

    None where its size does not say: a list of pairs, rankings.
    """
    if dataset.n_pairs or dataset.label is None or dataset.n_labels < 2:
        return None
    return units_of(
        n_labels=dataset.n_labels, rows=dataset.rows, label_counts=dataset.label_counts, protocol=protocol
    )


def outlook(evaluation: EvaluationRequest, dataset: DatasetOut) -> str:
    """What the job will be able to promise, a sentence for its owner; empty where the size does not say."""
    units = calibration_units(dataset, evaluation.protocol)
    if units is None:
        return ""
    count, different, protocol = units
    found = promise_of(count, evaluation.calibration_fraction, protocol=protocol, different_share=different)
    if evaluation.target_fpr is None or (found.smallest_fpr or 1.0) <= evaluation.target_fpr:
        return found.text
    return f"{found.text}. The target of {evaluation.target_fpr:g} cannot be promised from this dataset"
