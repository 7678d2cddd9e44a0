"""How much of a dataset is held out to calibrate on."""

from __future__ import annotations

from pairmark.models.calibration.promises import units_needed
from pairmark.models.pairs.splits import resolve_protocol
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
    count, different = units
    needed = units_needed(asked.target_fpr, different_share=different)["finite-sample"]
    assert needed is not None
    most = min(_MOST, 0.8 - asked.test_fraction)
    fraction = min(max(AMPLE * needed / count, _SMALLEST), max(most, _SMALLEST))
    return asked.model_copy(update={"calibration_fraction": round(fraction, 4)})


def calibration_units(dataset: DatasetOut, protocol: str) -> tuple[int, float] | None:
    """Units of a dataset with identities, people or (closed-set) samples, and the share of different pairs.

    None where its size does not say: a list of pairs, rankings.
    """
    if dataset.n_pairs or dataset.label is None or dataset.n_labels < 2:
        return None
    if resolve_protocol(protocol, dataset.n_labels) == "open-set":
        return dataset.n_labels, 1.0
    # Only the most frequent labels are listed; the others weigh little in this sum.
    return dataset.rows, 1 - sum((count / dataset.rows) ** 2 for count in dataset.label_counts.values())
