"""A column of times: read from every format, kept, reported, and refused where it says none."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.api.models import report_page
from pairmark.service.errors import InvalidInput


def visits(people: int = 80, visits: int = 4) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """People who change from visit to visit, a month apart."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(people), visits)
    month = np.tile(np.arange(visits), people)
    drift = rng.normal(size=(people, 4))[y] * 0.8 * month[:, None]
    X = 2 * rng.normal(size=(people, 4))[y] + drift + 0.5 * rng.normal(size=(y.size, 4))
    return X.astype(np.float32), y, [f"2026-{1 + at:02d}-01T09:00" for at in month]


def lines(X: np.ndarray, y: np.ndarray, times: list[str]) -> str:
    rows = [
        f"{who},{when}," + ",".join(map(str, row))
        for row, who, when in zip(X.tolist(), y, times, strict=True)
    ]
    return "\n".join(["who,when,a,b,c,d", *rows])


def test_rates_by_time_reach_the_report(deployment) -> None:
    X, y, times = visits()
    file = deployment.folder / "visits.csv"
    file.write_text(lines(X, y, times))
    made = deployment.datasets.add(file, DatasetRequest(name="visits", label="who", time="when"))
    assert made.feature_names == ["a", "b", "c", "d"]
    data = deployment.datasets.load(made.id)
    assert data.time_unit == "days"
    np.testing.assert_allclose(np.diff(np.asarray(data.times)[:4]), [31, 28, 31])
    version = deployment.train(
        learner="metric", dataset="visits", model="visits", params={"metric": "euclidean"}
    )
    report = deployment.store.reports.report(deployment.store.version("visits", version))
    found = report.evidence.by_time
    assert found["unit"] == "days"
    assert found["at"][0]["shortest"] == pytest.approx(28)
    assert found["at"][-1]["longest"] == pytest.approx(90)
    missed = [one["fnmr_at_fmr"]["0.1"]["value"] for one in found["at"]]
    assert missed[-1] > missed[0]
    assert "By time between samples" in report_page(report)[0]


@pytest.mark.parametrize(
    ("third", "said"), [("soon", "row 3: the time is 'soon'"), ("7", "expected a date"), ("inf", "row 3")]
)
def test_what_says_no_time_is_refused_by_its_row(deployment, third: str, said: str) -> None:
    X, y, times = visits(10)
    times[2] = third
    file = deployment.folder / "bad.csv"
    file.write_text(lines(X, y, times))
    with pytest.raises(InvalidInput, match=said):
        deployment.datasets.add(file, DatasetRequest(name="bad", label="who", time="when"))
