"""Fusion, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.fusion.estimator import Fusion
from pairmark.models.fusion.params import FUSED, FusionParams
from pairmark.models.fusion.state import SCHEMA

FUSION = LearnerSpec(
    kind="fusion",
    title="Fusion: several learners' scores as one log likelihood ratio, with weights from held-out identities",
    estimator=Fusion,
    capabilities=frozenset({"similarity", "match", "search"}),
    params=FusionParams,
    state=SCHEMA,
    distributes=any(spec.distributes for spec in FUSED.values()),
    keeps_rows=any(spec.keeps_rows for spec in FUSED.values()),
    log_lr=True,
)
