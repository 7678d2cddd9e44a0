"""Learners of similarity, as scikit-learn estimators; free of HTTP, databases and jobs."""

from models.registry import load, save
from models.similarity.estimators import SimilarityForest, SimilarityTree

__all__ = ["SimilarityForest", "SimilarityTree", "load", "save"]
