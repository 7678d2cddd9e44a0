"""1:N search: thresholds for a false positive identification rate (FPIR), and the FNIR at them.

In ISO/IEC 19795-1 words: FPIR, the false positive identification rate, is the share of searches with an un-enrolled
probe that return anything; FNIR, the false negative identification rate, the share of searches with an enrolled
(mated) probe that do not return the right subject.

For a fixed gallery, held-out people who are not in it, one probe each, are independent draws of what strangers score.
Only a probe's best score matters, and the (k+1)-th largest of n best scores keeps FPIR <= alpha with the stated
confidence when P(Binomial(n, alpha) <= k) <= 1 - confidence: exact, for every score and every gallery (the order
statistic of `pairmark.models.calibration.finite_sample`). Its floor is 1 - (1 - confidence)^(1/n).

1 - (1 - FMR)^N is no substitute: it supposes that a probe's N comparisons are independent and that everybody is alike.
Somebody who resembles many matches several at once, so FPIR is smaller than the formula says; see
docs/operating-points.md for a measured case.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pairmark.models.calibration.finite_sample import (
    order_pairs_needed,
    order_rank,
    order_upper,
    wilson_interval,
)
from pairmark.models.calibration.fitting import reading_state
from pairmark.models.calibration.guarantees import askable, checked_rate
from pairmark.models.calibration.operating_point import Guarantee, InsufficientCalibrationData, assumptions
from pairmark.models.core.arrays import ArrayLike, Float32, NDArray

STATE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class IdentificationPoint:
    """A threshold for searches of one gallery. An item is returned when its score is strictly above, in float32.

    Attributes
    ----------
    fpir : the rate that was asked for.
    threshold : a float32 value.
    fpir_upper_bound : upper confidence bound of the rate at the threshold; at most ``fpir``.
    confidence : of the bound.
    method : ``finite-sample``.
    n_probes : held-out un-enrolled people.
    observed_fpir : share of them above the threshold.
    fnir : share of mated probes whose own subject is not above the threshold; None without mated probes.
    fnir_interval : Wilson's two-sided interval at ``confidence``, one probe a subject.
    gallery_size : items when it was calibrated.
    guarantee : ``finite-sample``.
    """

    fpir: float
    threshold: float
    fpir_upper_bound: float
    confidence: float
    method: str
    n_probes: int
    observed_fpir: float
    fnir: float | None
    fnir_interval: tuple[float, float] | None
    gallery_size: int
    guarantee: Guarantee = "finite-sample"

    @property
    def meaning(self) -> str:
        """The guarantee in words."""
        return (
            f"With {100 * self.confidence:.4g} % confidence, at most {100 * self.fpir:.4g} % of searches for new "
            "people return somebody of this gallery, if the people it was calibrated with, who are not enrolled, are "
            "a random sample of those to come."
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the attributes by name."""
        values = asdict(self) | {"meaning": self.meaning, "assumes": assumptions("drawn")}
        values["fnir_interval"] = None if self.fnir_interval is None else list(self.fnir_interval)
        return values


class GalleryCalibration:
    """What searches with strangers say about every threshold of one gallery.

    Parameters
    ----------
    best_scores : (n,) best score in the gallery of each un-enrolled probe, each of another person; -inf where nothing
        can be compared.
    gallery_size : items in the gallery.
    mated_scores : (n_mated,) best score of a mated probe with its *own* subject, one probe a subject.

    Raises
    ------
    ValueError
        For NaN or +inf scores, or no probe.
    """

    def __init__(
        self,
        best_scores: ArrayLike,
        *,
        gallery_size: int,
        mated_scores: ArrayLike | None = None,
    ) -> None:
        best = _scores(best_scores, "best_scores")
        if not best.size:
            raise ValueError(
                "there is no un-enrolled probe; expected at least one, each of a different person"
            )
        if gallery_size < 1:
            raise ValueError(f"gallery_size is {gallery_size}; expected at least 1")
        self._best = np.sort(best)[::-1]
        self._mated = np.sort(_scores(() if mated_scores is None else mated_scores, "mated_scores"))
        self.gallery_size = int(gallery_size)

    @property
    def n_probes(self) -> int:
        """Un-enrolled people."""
        return int(self._best.size)

    def smallest_fpir(self, confidence: float = 0.95) -> float:
        """The floor: the smallest rate that is answered."""
        return order_upper(0, self.n_probes, checked_rate(confidence, "confidence"))

    def operating_point(self, fpir: float, confidence: float = 0.95) -> IdentificationPoint:
        """The lowest threshold that keeps the rate at this confidence.

        Raises
        ------
        InsufficientCalibrationData
            When there are too few probes; nothing is extrapolated.
        """
        fpir, confidence = checked_rate(fpir, "fpir"), checked_rate(confidence, "confidence")
        rank = order_rank(self.n_probes, fpir, confidence)
        if rank is None:
            n_people, floor = order_pairs_needed(fpir, confidence), self.smallest_fpir(confidence)
            raise InsufficientCalibrationData(
                f"{self.n_probes:,} un-enrolled probes cannot support a false positive identification rate of "
                f"{fpir:g} at confidence {confidence:g}: the smallest supported rate is {askable(floor):g}; {fpir:g} "
                f"takes {n_people:,} people who are not in the gallery, one probe each",
                smallest_fpr={"finite-sample": floor},
                required_units={"finite-sample": n_people},
            )
        # Probes scoring strictly above the (rank + 1)-th best are at most `rank`. A threshold of -inf is not a score.
        rank = min(rank, self.n_probes - 1)
        threshold = np.float32(max(self._best[rank], np.finfo(np.float32).min))
        fnir, interval = None, None
        if self._mated.size:
            fnir = float((self._mated <= threshold).mean())
            interval = wilson_interval(fnir, int(self._mated.size), confidence)
        return IdentificationPoint(
            fpir=fpir,
            threshold=float(threshold),
            fpir_upper_bound=min(fpir, order_upper(rank, self.n_probes, confidence)),
            confidence=confidence,
            method="finite-sample",
            n_probes=self.n_probes,
            observed_fpir=float((self._best > threshold).mean()),
            fnir=fnir,
            fnir_interval=interval,
            gallery_size=self.gallery_size,
        )

    def to_state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Plain arrays and JSON-able facts; `from_state` gives the same answers."""
        return (
            {"best": self._best, "mated": self._mated},
            {"state_version": STATE_VERSION, "gallery_size": self.gallery_size},
        )

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> "GalleryCalibration":
        """Rebuild from `to_state`; see `reading_state` for what is refused."""
        with reading_state("the gallery's calibration", meta, STATE_VERSION):
            return cls(arrays["best"], gallery_size=int(meta["gallery_size"]), mated_scores=arrays["mated"])


def _scores(values: ArrayLike, name: str) -> Float32:
    wide = np.asarray(values, dtype=np.float64)
    if wide.ndim != 1:
        raise ValueError(f"{name} have shape {wide.shape}; expected one dimension")
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if np.isnan(narrow).any() or (narrow == np.inf).any():
        raise ValueError(f"{name} hold NaN or +inf; expected numbers (-inf: nothing to compare with)")
    return narrow
