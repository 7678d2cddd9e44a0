"""Every learner is a scikit-learn estimator by scikit-learn's own checks, but for what is named here."""

from typing import Any

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from pairmark import Ghost, SimilarityForest
from pairmark.models.registry import learner_specs
from tests.models.test_learners import SMALL

CHECKED: dict[str, Any] = {
    **SMALL,
    "n_estimators": 3,
    "n_pairs": 100,
    "max_depth": 3,
    "max_iter": 3,
    "n_iter": 2,
    "hidden": (4,),
    "depth": 1,
    "k_max": 2,
    "tau": 0.0,
    "learning_rate": 0.1,
    "target_fpr": 0.1,
}
IDENTITIES = "identities, which may be numbers of any kind, in one dimension"
EXCEPT = {
    "check_supervised_y_2d": f"y holds {IDENTITIES}",
    "check_classifiers_regression_target": f"y holds {IDENTITIES}",
}
OF_GHOST = dict.fromkeys(
    ("check_non_transformer_estimators_n_iter", "check_transformer_n_iter"),
    "loss_curve_ holds the iterations",
)
OF_AUTO: dict[str, Any] = {"candidates": ["cosine"]}
# Rankers learn from (n, k) positions, which no check makes.
ESTIMATORS = [
    spec.estimator(
        **{
            name: value
            for name, value in (CHECKED | OF_AUTO if spec.kind == "similarity-auto" else CHECKED).items()
            if name in spec.params.model_fields
        }
    )
    for spec in learner_specs()
    if spec.needs == "identities"
]


def expected(estimator: Any) -> dict[str, str]:
    return EXCEPT | (OF_GHOST if isinstance(estimator, Ghost) else {})


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    if isinstance(estimator, Ghost) and check.func.__name__ == "check_classifiers_train":
        pytest.skip("passes, but takes most of the time of all checks: GHOST's own tests classify")
    check(estimator)


class Bounded(SimilarityForest):
    """Holds a parameter against a bound of its own."""

    def __init__(self, *, n_jobs: int | None = None) -> None:
        super().__init__(n_jobs=n_jobs)

    @property
    def n_jobs(self) -> int | None:
        """Two at most."""
        return self._n_jobs

    @n_jobs.setter
    def n_jobs(self, value: int | None) -> None:
        self._n_jobs = value and min(value, 2)


def test_a_subclass_may_have_a_parameter_of_its_own_making() -> None:
    assert clone(Bounded(n_jobs=2)).get_params() == {"n_jobs": 2}
