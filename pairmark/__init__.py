"""Pairmark: similarity learned from your own data, and match decisions at a false positive rate you choose.

``from pairmark import SimilarityForest, operating_point`` for learners and statistics;
``from pairmark.client import Client`` for a running service. Names load on first use, so importing this package,
or its client alone, costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairmark.models.auto.estimator import SimilarityAuto
    from pairmark.models.calibration.operating_point import InsufficientCalibrationData, OperatingPoint
    from pairmark.models.calibration.shorthand import operating_point
    from pairmark.models.classes.estimator import SimilarityClasses
    from pairmark.models.core.scaling import from_pipeline
    from pairmark.models.evaluation.pairs import roc_curve_pairs
    from pairmark.models.evaluation.rankings import kendall_tau
    from pairmark.models.ghost.estimator import Ghost
    from pairmark.models.label_ranking.auto import LabelRankingAuto
    from pairmark.models.label_ranking.pairwise import PairwiseLabelRanker
    from pairmark.models.label_ranking.trees import LabelRankingForest, LabelRankingTree
    from pairmark.models.linking.fellegi_sunter import FellegiSunter
    from pairmark.models.logistic.estimator import SimilarityLogistic
    from pairmark.models.metric.estimator import MetricSimilarity
    from pairmark.models.plda.estimator import Plda
    from pairmark.models.rankboost.aligned import AlignedKernel
    from pairmark.models.rankboost.estimator import RankBoostKernel
    from pairmark.models.records.estimator import RecordSimilarity
    from pairmark.models.registry import load, save
    from pairmark.models.rsbl.estimator import RSBL
    from pairmark.models.similarity.estimators import SimilarityForest, SimilarityTree

__all__ = [
    "RSBL",
    "AlignedKernel",
    "FellegiSunter",
    "Ghost",
    "InsufficientCalibrationData",
    "LabelRankingAuto",
    "LabelRankingForest",
    "LabelRankingTree",
    "MetricSimilarity",
    "OperatingPoint",
    "PairwiseLabelRanker",
    "Plda",
    "RankBoostKernel",
    "RecordSimilarity",
    "SimilarityAuto",
    "SimilarityClasses",
    "SimilarityForest",
    "SimilarityLogistic",
    "SimilarityTree",
    "from_pipeline",
    "kendall_tau",
    "load",
    "operating_point",
    "roc_curve_pairs",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pairmark' has no attribute {name!r}")
    try:
        models = import_module("pairmark.models")
    except ModuleNotFoundError as error:
        if error.name != "pairmark.models":
            raise
        raise ImportError(
            f"pairmark.{name} is part of the distribution pairmark; only pairmark-client is installed here "
            "(pip uninstall pairmark-client; pip install pairmark)"
        ) from None
    value = getattr(models, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
