"""PLDA, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.plda.estimator import Plda

PLDA = LearnerSpec(
    kind="plda",
    title="PLDA: log-likelihood ratios of identities as Gaussians around Gaussian centres; settings by "
    "cross-validation",
    estimator=Plda,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    renamed={("residual_rounds", "auto"): 100},
)
