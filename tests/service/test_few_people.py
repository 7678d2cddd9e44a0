"""Few people: a rate that was named decides who calibrates, and what is out of reach is answered with what is not."""

from __future__ import annotations

import pytest

from pairmark.models.calibration.promises import reach
from pairmark.service.datasets.promises import FEWEST, shares_for
from tests.service.conftest import people


def parts(units: int, fpr: float, *, learns: bool = True, fixed_test: bool = False) -> tuple[int, int, int]:
    """How many train, calibrate and test."""
    calibration, test = shares_for(
        units,
        fpr,
        test_fraction=0.2,
        different_share=1.0,
        fewest=FEWEST,
        learns=learns,
        fixed_test=fixed_test,
    )
    held = round(units * calibration), round(units * test)
    return units - sum(held), *held


@pytest.mark.parametrize("units", [10, 20, 40, 60, 100, 400])
@pytest.mark.parametrize("fpr", [0.45, 0.3, 0.2, 0.1, 0.03, 0.01])
def test_a_named_rate_is_supported_if_any_split_supports_it(units: int, fpr: float) -> None:
    """Of all splits that leave four people to train on and to test on."""
    supported = (reach(units - 2 * FEWEST).smallest_fpr or 1.0) <= fpr
    training, calibration, test = parts(units, fpr)
    assert ((reach(calibration).smallest_fpr or 1.0) <= fpr) == supported
    assert min(training, test) >= min(FEWEST, round(0.2 * units))
    alone = parts(units, fpr, learns=False)
    assert alone[0] == 0
    assert ((reach(alone[1]).smallest_fpr or 1.0) <= fpr) == (
        (reach(units - min(FEWEST, round(0.2 * units))).smallest_fpr or 1.0) <= fpr
    )


def test_forty_people_asked_for_a_fifth_are_answered_as_the_service_proposes(deployment):
    added = deployment.upload("forty", *people(40, 5))
    assert added.promise.smallest_fpr > 0.4
    proposed = [way.text for way in added.promise.ways]
    assert proposed == [
        "18 %: train with the target rate 18 %",
        "16 %: train with the learner metric and the target rate 16 %",
    ]
    for options in ("--target-fpr 0.2", *(way.options for way in added.promise.ways)):
        fpr, model = float(options.split()[-1]), f"m{len(options)}"
        changes = {"learner": "metric", "params": {}} if "--learner metric" in options else {}
        evaluation = {"target_fpr": fpr, "n_pairs": 3_000}
        deployment.train(dataset="forty", model=model, evaluation=evaluation, **changes)
        version = deployment.store.version(model, 1)
        calibration = deployment.store.calibrations.load(version.calibration_id)[0]
        assert calibration.operating_point(fpr).fpr_upper_bound <= fpr
    refused = deployment.queue.submit(deployment.request(dataset="forty", evaluation={"target_fpr": 0.01}))
    assert "cannot be promised from this dataset. Ways out: " + "; ".join(proposed) in refused.message
