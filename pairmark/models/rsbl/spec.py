"""Recursive similarity-based learning, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.rsbl.estimator import RSBL

RSBL_SPEC = LearnerSpec(
    kind="rsbl",
    title="Recursive similarity features (RSBL): classifies, embeds and compares; for small, hard sets",
    estimator=RSBL,
    capabilities=frozenset({"similarity", "match", "search", "embed", "classify"}),
    retired={
        "similarity": "cosine",
        "patience": ...,
        "choose_depth": ...,
        "n_jobs": ...,
        "nominal": None,
        "standardize": ...,
    },
)
