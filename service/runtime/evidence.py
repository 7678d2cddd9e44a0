"""The likelihood ratios of a calibration, as requests use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.calibration.operating_points import Calibration
from pairmark.models.core.registry import spec_of
from pairmark.service.errors import InvalidInput, ModelNotCapable
from pairmark.service.runtime.scoring import Served


@dataclass(frozen=True, kw_only=True)
class Ratios:
    """What scores are worth by one calibration."""

    calibration_id: str
    maps: LikelihoodRatios = field(repr=False)

    @property
    def limits(self) -> list[float]:
        """The least and the greatest log LR."""
        return [self.maps.low, self.maps.high]

    def log_lr(self, scores: NDArray[np.float32], method: str) -> NDArray[np.float64]:
        """Natural log LRs of scores."""
        return self.maps.log_lr(scores, method)

    def threshold(self, log_lr: float, method: str) -> float:
        """The score whose log LR that is; infinite where there is none."""
        return self.maps.threshold(log_lr, method)


def ratios_of(calibration_id: str, calibration: Calibration, served: Served | None, method: str) -> Ratios:
    """The maps of a calibration.

    Parameters
    ----------
    served : the version that made the scores; None for scores made elsewhere.

    Raises
    ------
    ModelNotCapable
        When the calibration holds none.
    InvalidInput
        When ``own`` is asked for of a score that is no log likelihood ratio.
    """
    maps: Any = calibration.likelihood_ratios
    if maps is None:
        raise ModelNotCapable(
            f"calibration {calibration_id} holds no likelihood ratios: it has no same pairs, or was made before they "
            "were kept. Calibrate again, with pairs of both kinds"
        )
    if method == "own" and served is not None and not spec_of(served.entry.kind).log_lr:
        raise InvalidInput(
            f"the score of {served.entry.kind} is not a log-likelihood ratio; expected lr_method logistic or pav",
            field="lr_method",
        )
    return Ratios(calibration_id=calibration_id, maps=maps)
