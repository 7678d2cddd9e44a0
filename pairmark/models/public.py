"""The public names of `pairmark.models`, imported when the first of them is asked for: together they take a second."""

from __future__ import annotations

from pairmark.models.auto.estimator import SimilarityAuto
from pairmark.models.calibration.calibration import operating_point
from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.calibration.operating_point import InsufficientCalibrationData, OperatingPoint
from pairmark.models.core.scaling import from_pipeline
from pairmark.models.evaluation.likelihood import cllr, cllr_min
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.evaluation.plots import (
    plot_calibration,
    plot_cmc,
    plot_det,
    plot_histograms,
    plot_roc,
)
from pairmark.models.evaluation.rankings import kendall_tau
from pairmark.models.ghost.estimator import Ghost
from pairmark.models.label_ranking.auto import LabelRankingAuto
from pairmark.models.label_ranking.estimators import LabelRankingForest, LabelRankingTree
from pairmark.models.label_ranking.pairwise import PairwiseLabelRanker
from pairmark.models.logistic.estimator import SimilarityLogistic
from pairmark.models.metric.estimator import MetricSimilarity
from pairmark.models.plda.estimator import Plda
from pairmark.models.rankboost.aligned import AlignedKernel
from pairmark.models.rankboost.estimator import RankBoostKernel
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.fellegi_sunter import FellegiSunter
from pairmark.models.registry import load, save
from pairmark.models.rsbl.estimator import RSBL
from pairmark.models.similarity.estimators import SimilarityForest, SimilarityTree

__all__ = [  # noqa: RUF022, sorted as Python sorts
    "AlignedKernel",
    "FellegiSunter",
    "Ghost",
    "InsufficientCalibrationData",
    "LabelRankingAuto",
    "LabelRankingForest",
    "LabelRankingTree",
    "LikelihoodRatios",
    "MetricSimilarity",
    "OperatingPoint",
    "PairwiseLabelRanker",
    "Plda",
    "RSBL",
    "RankBoostKernel",
    "RecordSimilarity",
    "SimilarityAuto",
    "SimilarityForest",
    "SimilarityLogistic",
    "SimilarityTree",
    "cllr",
    "cllr_min",
    "from_pipeline",
    "kendall_tau",
    "load",
    "operating_point",
    "plot_calibration",
    "plot_cmc",
    "plot_det",
    "plot_histograms",
    "plot_roc",
    "roc_curve_pairs",
    "save",
]
