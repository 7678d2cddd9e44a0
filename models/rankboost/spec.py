"""Kernels learned by ranking and by alignment, for the registry."""

from __future__ import annotations

from models.rankboost.estimator import RankBoostKernel
from models.rankboost.params import RankBoostKernelParams
from models.rankboost.state import from_state, to_state
from models.spec import LearnerSpec

KERNEL = LearnerSpec(
    kind="rankboost-kernel",
    title="RankBoost kernel: similarity by shared weak rankers; for sparse, huge feature spaces, with unlabelled rows",
    estimator=RankBoostKernel,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    params=RankBoostKernelParams,
    to_state=to_state,
    from_state=from_state,
    accepts_sparse=True,
)
