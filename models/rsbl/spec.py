"""Recursive similarity-based learning, for the registry."""

from __future__ import annotations

from models.rsbl.estimator import RSBL
from models.rsbl.params import RSBLParams
from models.rsbl.state import from_state, to_state
from models.spec import LearnerSpec

RSBL_SPEC = LearnerSpec(
    kind="rsbl",
    title="Recursive similarity features (RSBL): classifies, embeds and compares; for small, hard sets",
    estimator=RSBL,
    capabilities=frozenset({"similarity", "match", "search", "embed", "classify"}),
    params=RSBLParams,
    to_state=to_state,
    from_state=from_state,
    keeps_rows=True,
)
