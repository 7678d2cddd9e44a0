"""What the runtime counts; `service/api/metrics.py` serves it."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

PAIRS = Counter("pairmark_pairs_scored", "Pairs scored.", ["route"])
UNKNOWN_COLUMNS = Counter(
    "pairmark_unknown_columns", "Entries of sparse vectors in columns that a model never saw, ignored by it."
)
LOADS = Counter("pairmark_model_loads", "Versions read into memory, by outcome.", ["outcome"])
LOADED = Gauge("pairmark_loaded_models", "Versions in memory.", multiprocess_mode="livesum")
