"""Scores as evidence: log likelihood ratios beside scores, and decisions by Bayes' rule.

These know nothing of false positive rates and promise none; `pairmark.service.api.scoring` decides at those.
"""

from __future__ import annotations

import math
from typing import Any, Final

from pydantic_core import to_json

from pairmark.models.calibration.likelihood_ratios import bayes_threshold
from pairmark.service.errors import InvalidInput
from pairmark.service.runtime.points import Ratios, plain

_PROMISES: Final = ("fpr", "fnr", "confidence", "method", "simultaneous", "detail", "log_lr")


def check_apart(query: Any) -> None:
    """Refuse a decision asked for both at a false positive rate and by Bayes' rule, or by neither."""
    if query.prior is None:
        if query.cost_ratio is not None:
            raise InvalidInput("cost_ratio goes with prior: give both", field="prior")
        if query.fpr is None:
            raise InvalidInput(
                "fpr is missing; expected a number above 0 and below 1, e.g. 0.01 (or prior, to decide by costs)",
                field="fpr",
            )
        return
    for name in _PROMISES:
        if name in query.model_fields_set:
            raise InvalidInput(
                f"{name} and prior cannot be combined: a decision by prior and costs guarantees no error rate. Use "
                "one or the other",
                field=name,
            )


def bayes_answer(model: bytes, scores: Any, ratios: Ratios, query: Any, with_scores: bool) -> bytes:
    """The answer to a decision by prior and costs."""
    cost_ratio = 1.0 if query.cost_ratio is None else query.cost_ratio
    limit = bayes_threshold(query.prior, cost_ratio)
    worth = ratios.maps.log_lr(scores, query.lr_method).tolist()
    odds = math.log(query.prior) - math.log1p(-query.prior)
    entries: list[dict[str, Any]] = [
        {"score": score, "log_lr": log_lr, "posterior": _chance(log_lr + odds), "same": log_lr > limit}
        if with_scores
        else {"same": log_lr > limit}
        for score, log_lr in zip(scores.tolist(), worth, strict=True)
    ]
    facts = {
        "prior": query.prior,
        "cost_ratio": cost_ratio,
        "log_lr_threshold": limit,
        "score_threshold": ratios.maps.threshold(limit, query.lr_method) if with_scores else None,
        "lr_method": query.lr_method,
        "log_lr_limits": [ratios.maps.low, ratios.maps.high],
        **ratios.facts,
        "guarantee": "none",
    }
    return b'{"model":%b,"decisions":%b,"bayes":%b}' % (model, to_json(entries), to_json(plain(facts)))


def _chance(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds)) if log_odds > -700 else 0.0
