"""The mixin of learners with a vector space of their own."""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, TransformerTags

from pairmark.models.core.arrays import Float32


class EmbedderMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A learner with a vector space of its own: `set_output` and `get_feature_names_out` are scikit-learn's."""

    @property
    def _n_features_out(self) -> int:
        learner: Any = self
        # Not what gives data frames, which ask for the names of their columns.
        transform = inspect.unwrap(type(learner).transform)
        row = np.zeros((1, learner.n_features_in_), dtype=np.float32)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            return int(transform(learner, row).shape[1])

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags(preserves_dtype=["float32"])
        return tags

    def fit_transform(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Float32:
        """``fit(X, y)``, then ``transform(X)``."""
        learner: Any = self
        embedder: Any = learner.fit(X, y, **fit_params)
        vectors: Float32 = embedder.transform(X)
        return vectors

    @abstractmethod
    def transform(self, X: ArrayLike) -> Float32:
        """Embed points, (n, d) -> (n, n_components) float32."""
