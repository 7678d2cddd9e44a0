"""Decisions as arrays; other answers are those of `pairmark.schemas`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.schemas.scoring import ModelUsedOut, OperatingPointOut


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Decisions at a false positive rate.

    Attributes
    ----------
    matches : (n,) bool, ``scores > threshold``.
    scores : (n,) float32.
    operating_point : the threshold and its promise.
    model : the version that answered (None where the scores were given).
    decisions : (n,) match, review or different, where a false negative rate was asked for too.
    log_lr : (n,) natural log-likelihood ratios, if they were requested.
    reasons : (n,) why a pair does not match whatever it scores, such as ``unlike-calibration``; else None.
    warnings : what limits the whole answer, each with ``code`` and ``detail``.
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: OperatingPointOut
    model: ModelUsedOut | None
    decisions: list[str] | None = None
    log_lr: NDArray[np.float64] | None = None
    reasons: list[str | None] = field(default_factory=list)
    warnings: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class BayesResult:
    """Decisions by prior and costs; no error rate is promised.

    Attributes
    ----------
    same : (n,) bool, whether calling a pair the same costs less on average.
    log_lr : (n,) natural log likelihood ratios. posterior : (n,) chances that pairs are the same. scores : (n,)
        float32. None each for keys that may only decide.
    bayes : what the decisions follow from: prior, cost_ratio, thresholds, calibration.
    model : the version that answered (None where the scores were given).
    """

    same: NDArray[np.bool_]
    log_lr: NDArray[np.float64] | None
    posterior: NDArray[np.float64] | None
    scores: NDArray[np.float32] | None
    bayes: dict[str, Any]
    model: ModelUsedOut | None


@dataclass(frozen=True, kw_only=True)
class CandidateScores:
    """Candidate pairs among their rivals.

    Attributes
    ----------
    scores : (n,) float32.
    matches : (n,) bool, where a false positive rate was asked for.
    operating_point : the threshold and its promise, likewise.
    model : the version that answered.
    """

    scores: NDArray[np.float32]
    matches: NDArray[np.bool_] | None
    operating_point: OperatingPointOut | None
    model: ModelUsedOut
