"""How training fails."""

from __future__ import annotations

from service.errors import PairmarkError


class TrainingFailed(PairmarkError):
    """Training failed."""

    slug, title = "training-failed", "Training failed"


class OutOfMemory(PairmarkError):
    """The training process ran out of memory: train on fewer pairs or rows, or give the worker more memory."""

    slug, title = "out-of-memory", "Training ran out of memory"


class WorkKilled(PairmarkError):
    """The training process was killed."""

    slug, title = "training-killed", "The training process was killed"
