"""Models of records, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.fellegi_sunter import FellegiSunter

RECORDS = LearnerSpec(
    kind="record-trees",
    title="Boosted trees on comparators of fields: for tables with text, categories, dates and missing cells",
    estimator=RecordSimilarity,
    capabilities=frozenset({"similarity", "match", "search"}),
    takes_records=True,
)

FELLEGI_SUNTER = LearnerSpec(
    kind="fellegi-sunter",
    title="Fellegi-Sunter: log likelihood ratios of the agreement of fields; learned without labels",
    estimator=FellegiSunter,
    capabilities=frozenset({"similarity", "match", "search"}),
    takes_records=True,
    retired={"max_frequency": ..., "max_iter": ...},
)
