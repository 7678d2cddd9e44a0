"""A version's operating point in words, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pairmark.models.calibration.promises import askable
from pairmark.service.console.ask import Api

HEADLINE_FPR = 0.01


@dataclass(frozen=True, kw_only=True)
class VersionPromise:
    """What a version answers at the rate people look at first, or at the smallest it can promise.

    Attributes
    ----------
    point : the operating point; None where there is none.
    refusal : why the headline rate cannot be promised; None where it can.
    """

    point: dict[str, Any] | None
    refusal: str | None
    target: float = HEADLINE_FPR


async def promise(api: Api, version: dict[str, Any]) -> VersionPromise | None:
    """The promise of a version that decides; None of one that does not."""
    if "match" not in version["capabilities"]:
        return None
    if version["calibration_id"] is None:
        return VersionPromise(point=None, refusal="it has no calibration, so it cannot decide")
    path = f"/models/{version['model']}/versions/{version['version']}/operating-point"
    answer = await api.get(path, fpr=HEADLINE_FPR)
    if answer.ok:
        return VersionPromise(point=answer.data, refusal=None)
    problem = answer.data if isinstance(answer.data, dict) else {}
    refusal = str(problem.get("detail", "no operating point could be read"))
    smallest = smallest_rate(problem.get("smallest_fpr"))
    again = await api.get(path, fpr=askable(smallest)) if smallest is not None else None
    return VersionPromise(point=again.body if again is not None else None, refusal=refusal)


def smallest_rate(by_method: Any) -> float | None:
    """The smallest rate with a finite-sample guarantee, else with any; None where no rate is answered."""
    if not isinstance(by_method, dict):
        return float(by_method) if isinstance(by_method, int | float) else None
    preferred = by_method.get("finite-sample")
    rates = [float(rate) for rate in by_method.values() if rate]
    return float(preferred) if preferred else min(rates, default=None)
