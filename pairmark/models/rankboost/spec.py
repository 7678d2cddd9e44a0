"""Kernels learned by ranking and by alignment, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.rankboost.aligned import AlignedKernel
from pairmark.models.rankboost.estimator import RankBoostKernel

KERNEL = LearnerSpec(
    kind="rankboost-kernel",
    title="RankBoost kernel: similarity by shared weak rankers; for sparse, huge feature spaces, with unlabelled rows",
    estimator=RankBoostKernel,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    takes_unlabelled=True,
    retired={"ranking": "classes", "preference": None, "coordinates": "rankers"},
    renamed={("chain", f"{stages}-D"): stages for stages in ("A", "A-B", "A-C", "A-B-C")},
)
ALIGNED = LearnerSpec(
    kind="aligned-kernel",
    title="Aligned kernel: similarity by a small network trained towards the perfect kernel; for sparse rows",
    estimator=AlignedKernel,
    capabilities=frozenset({"similarity", "match", "search", "embed"}),
    accepts_sparse=True,
    retired=dict.fromkeys(("batch_size", "n_folds", "n_pivots", "n_components"), ...),
    renamed={("learning_rate", "auto"): 0.01},
)
