"""1:N: the exact order statistic, its floor, what is refused, FNIR by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

from pairmark.models import InsufficientCalibrationData
from pairmark.models.calibration.identification import GalleryCalibration


@pytest.mark.parametrize(("fpir", "probes"), [(0.1, 29), (0.05, 59), (0.01, 299)])
def test_floor_and_refusal(fpir: float, probes: int) -> None:
    best = np.random.default_rng(0).random(probes)
    point = GalleryCalibration(best, gallery_size=5).operating_point(fpir)
    assert point.threshold == np.float32(best.max())
    assert point.observed_fpir == 0
    with pytest.raises(InsufficientCalibrationData, match="one probe each") as refused:
        GalleryCalibration(best[1:], gallery_size=5).operating_point(fpir)
    assert refused.value.required_units == {"finite-sample": probes}
    assert refused.value.smallest_fpr["finite-sample"] > fpir


def strangers(rng: np.random.Generator, gallery: np.ndarray, n: int) -> np.ndarray:
    probes = rng.standard_normal((n, gallery.shape[1]))
    return (probes @ gallery.T).max(axis=1)


def test_coverage_in_this_gallery_and_of_the_naive_quantile() -> None:
    rng = np.random.default_rng(1)
    gallery = rng.standard_normal((100, 6))
    truth = np.sort(strangers(rng, gallery, 100_000).astype(np.float32))
    n, exact, naive = 400, 0, 0
    for _ in range(n):
        best = truth[rng.integers(0, truth.size, 120)]
        threshold = GalleryCalibration(best, gallery_size=100).operating_point(0.05, 0.9).threshold
        exact += (truth > np.float32(threshold)).mean() > 0.05
        naive += (truth > np.quantile(best, 0.95, method="higher")).mean() > 0.05
    assert exact <= binom.ppf(0.999, n, 0.1)
    assert naive > 2 * binom.ppf(0.999, n, 0.1) * 0.9


def test_mated_probes() -> None:
    calibration = GalleryCalibration(np.arange(100), gallery_size=3, mated_scores=[10.0, 97.5, 200.0, 300.0])
    point = calibration.operating_point(0.1)
    assert point.fnir == np.mean(np.array([10.0, 97.5, 200.0, 300.0]) <= point.threshold)
    assert point.fnir_interval is not None
    assert point.as_dict()["fnir_interval"] == list(point.fnir_interval)
    again = GalleryCalibration.from_state(*calibration.to_state())
    assert again.operating_point(0.1) == point
    arrays, meta = calibration.to_state()
    with pytest.raises(ValueError, match=r"gallery's calibration has state version 99.*upgrade"):
        GalleryCalibration.from_state(arrays, {**meta, "state_version": 99})
    with pytest.raises(ValueError, match="gallery's calibration lacks 'mated'"):
        GalleryCalibration.from_state({"best": arrays["best"]}, meta)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="no un-enrolled"):
        GalleryCalibration([], gallery_size=1)
    with pytest.raises(ValueError, match="NaN"):
        GalleryCalibration([np.nan], gallery_size=1)
    with pytest.raises(ValueError, match="strictly between"):
        GalleryCalibration([0.1], gallery_size=1).operating_point(0)
    # An empty comparison is a probe that matched nothing.
    assert GalleryCalibration([-np.inf] * 60, gallery_size=1).operating_point(0.05).observed_fpir == 0


@pytest.mark.parametrize(("fpir", "n"), [(0.05, 400), (0.1, 120), (0.02, 300)])
def test_the_bound_is_clopper_and_pearsons_at_the_strangers_above(fpir: float, n: int) -> None:
    best = np.random.default_rng(2).random(n)
    point = GalleryCalibration(best, gallery_size=5).operating_point(fpir)
    above = round(point.observed_fpir * n)
    assert point.fpir_upper_bound == pytest.approx(min(fpir, beta.ppf(0.95, above + 1, n - above)), rel=1e-9)
