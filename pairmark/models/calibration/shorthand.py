"""`pairmark.operating_point`: one rate of one list of scored pairs."""

from numpy.typing import ArrayLike

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import OperatingPoint


def operating_point(
    scores: ArrayLike,
    same: ArrayLike,
    fpr: float,
    *,
    units: ArrayLike | None = None,
    confidence: float = 0.95,
    method: str = "auto",
    independent: bool = False,
    protocol: str | None = None,
    listing: str | None = None,
    population: int | None = None,
    groups: ArrayLike | None = None,
) -> OperatingPoint:
    """The lowest threshold at which the false positive rate is at most ``fpr``, with this confidence.

    Shorthand for `Calibration.fit` and `Calibration.operating_point`; see there for values and errors. ``protocol`` is
    asked for where no same pair carries one unit twice: the units may then be identities or samples.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import operating_point
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> point = operating_point(scores, same, 0.05, independent=True)
    >>> matches = scores.astype("float32") > point.threshold
    >>> bool(matches[same == 0].mean() <= 0.05), bool(matches[same == 1].mean() > 0.8)
    (True, True)
    """
    calibration = Calibration.fit(
        scores,
        same,
        units,
        protocol=protocol,
        listing=listing,
        independent=independent,
        population=population,
        groups=groups,
    )
    if protocol is None:
        calibration.check_protocol()
    return calibration.operating_point(fpr, confidence, method)
