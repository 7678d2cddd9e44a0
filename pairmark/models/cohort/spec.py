"""Cohort normalisation, for the registry."""

from __future__ import annotations

from pairmark.models.cohort.estimator import CohortSimilarity
from pairmark.models.cohort.params import CohortParams
from pairmark.models.cohort.state import SCHEMA
from pairmark.models.core.spec import LearnerSpec

COHORT = LearnerSpec(
    kind="cohort",
    title="Cohort: another learner's scores, normalised by the scores of both sides with a cohort of training rows",
    estimator=CohortSimilarity,
    capabilities=frozenset({"similarity", "match", "search"}),
    params=CohortParams,
    state=SCHEMA,
    keeps_rows=True,
)
