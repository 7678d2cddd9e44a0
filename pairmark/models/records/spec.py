"""Models of records, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.records.estimator import RecordSimilarity

RECORDS = LearnerSpec(
    kind="record-trees",
    title="Boosted trees on comparators of fields: for tables with text, categories, dates and missing cells",
    estimator=RecordSimilarity,
    capabilities=frozenset({"similarity", "match", "search"}),
    takes_records=True,
)
