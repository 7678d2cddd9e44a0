"""Fellegi and Sunter's model, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.linking.fellegi_sunter import FellegiSunter

FELLEGI_SUNTER = LearnerSpec(
    kind="fellegi-sunter",
    title="Fellegi-Sunter: log likelihood ratios of the agreement of fields; learned without labels",
    estimator=FellegiSunter,
    capabilities=frozenset({"similarity", "match", "search"}),
    takes_records=True,
    retired={"max_frequency": ..., "max_iter": ...},
)
