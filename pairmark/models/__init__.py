"""Learners of similarity, as scikit-learn estimators; free of HTTP, databases and jobs.

A name is imported when it is asked for, and nothing of the other learners with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pairmark

if __name__ != "pairmark.models":
    # Reached by the link at the top of a checkout: every module would exist twice.
    raise ImportError(f"import pairmark.models, not {__name__}")

if TYPE_CHECKING:
    from pairmark import *  # noqa: F403, the names of its __all__

__all__ = pairmark.__all__
_MODULES = {
    "auto.estimator": "SimilarityAuto",
    "calibration.shorthand": "operating_point",
    "calibration.operating_point": "InsufficientCalibrationData OperatingPoint",
    "classes.estimator": "SimilarityClasses",
    "core.scaling": "from_pipeline",
    "evaluation.pairs": "roc_curve_pairs",
    "evaluation.rankings": "kendall_tau",
    "ghost.estimator": "Ghost",
    "label_ranking.auto": "LabelRankingAuto",
    "label_ranking.pairwise": "PairwiseLabelRanker",
    "label_ranking.trees": "LabelRankingForest LabelRankingTree",
    "logistic.estimator": "SimilarityLogistic",
    "metric.estimator": "MetricSimilarity",
    "plda.estimator": "Plda",
    "rankboost.aligned": "AlignedKernel",
    "rankboost.estimator": "RankBoostKernel",
    "records.estimator": "RecordSimilarity",
    "linking.fellegi_sunter": "FellegiSunter",
    "registry": "load save",
    "rsbl.estimator": "RSBL",
    "similarity.estimators": "SimilarityForest SimilarityTree",
}
"""Public names by the module that holds them."""


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            value = getattr(import_module(f"pairmark.models.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'pairmark.models' has no attribute {name!r}")
