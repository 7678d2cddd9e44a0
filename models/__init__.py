"""Learners of similarity, as scikit-learn estimators; free of HTTP, databases and jobs."""

from models.evaluation import roc_curve_pairs
from models.ghost.estimator import Ghost
from models.label_ranking.auto import LabelRankingAuto
from models.label_ranking.estimators import LabelRankingForest, LabelRankingTree
from models.label_ranking.pairwise import PairwiseLabelRanker
from models.metric.estimator import MetricSimilarity
from models.operating_points import InsufficientCalibrationData, OperatingPoint, operating_point
from models.rankboost.aligned import AlignedKernel
from models.rankboost.estimator import RankBoostKernel
from models.rankings import kendall_tau
from models.registry import load, save
from models.rsbl.estimator import RSBL
from models.similarity.estimators import SimilarityForest, SimilarityTree

__all__ = [  # noqa: RUF022, sorted as Python sorts
    "AlignedKernel",
    "Ghost",
    "InsufficientCalibrationData",
    "LabelRankingAuto",
    "LabelRankingForest",
    "LabelRankingTree",
    "MetricSimilarity",
    "OperatingPoint",
    "PairwiseLabelRanker",
    "RSBL",
    "RankBoostKernel",
    "SimilarityForest",
    "SimilarityTree",
    "kendall_tau",
    "load",
    "operating_point",
    "roc_curve_pairs",
    "save",
]
