"""The smallest rate that a number of people supports, before training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from pairmark.models.calibration.price import BEST_TPR, STEADY_MULTIPLE, expected_tpr
from pairmark.models.calibration.promises import reach
from pairmark.models.pairs.splits import CALIBRATION_FRACTION, OPEN_SET_FROM, Protocol

LabelRole = Literal["identity", "classes", "label"]
LABEL_ROLES: tuple[LabelRole, ...] = ("identity", "classes", "label")
_PROTOCOLS: dict[str, Protocol] = {"identity": "open-set", "classes": "closed-set"}


class Promise(BaseModel):
    """The smallest false positive rate that can be guaranteed, and what the next power of ten needs."""

    protocol: str
    counted: str = Field(description="the units: people (open-set) or samples (closed-set)")
    units: int = Field(description="number of units in the dataset")
    calibration_fraction: float = Field(description="share of the units used for calibration")
    calibration_units: int
    confidence: float
    smallest_fpr: float | None = Field(
        description="the smallest rate that `finite-sample` supports; null: none"
    )
    next_fpr: float
    more_units: int = Field(description="how many more units the dataset needs for `next_fpr`")
    expected_tpr: list[float] | None = Field(
        None,
        description="at `smallest_fpr`, of a model that could recognise 90 % there: the TPR to expect, and between "
        "what nine in ten calibrations lie",
    )
    steady_units: int | None = Field(
        None, description="how many more units make the threshold at `smallest_fpr` hardly depend on chance"
    )
    population: str | None = Field(None, description="closed-set: the classes among which the promise holds")
    text: str


class ProtocolChoice(BaseModel):
    """One answer to what the labels of a dataset are, and what it could promise."""

    role: Literal["identity", "classes"] = Field(description="how to name the column at upload")
    protocol: Protocol = Field(description="what to say in a job's `evaluation.protocol` instead")
    meaning: str
    promise: Promise | None = Field(description="null: the size does not say (a list of pairs)")


def promise_of(
    units: int,
    fraction: float = CALIBRATION_FRACTION,
    *,
    protocol: str,
    different_share: float = 1.0,
    calibration_units: int | None = None,
    population: str | None = None,
) -> Promise:
    """The rates that a number of people (or samples) supports when a share of them calibrates.

    Parameters
    ----------
    different_share : of pairs, in closed-set use.
    calibration_units : how many of them calibrate, where that is known; default: the share.
    population : the classes among which a closed-set promise holds.
    """
    own = round(units * fraction) if calibration_units is None else calibration_units
    found = reach(own, different_share=different_share)
    counted = "people" if protocol == "open-set" else "samples"
    more = max(0, math.ceil(found.next_units / fraction) - units)
    said = f"{own:,} of {units:,} {counted} calibrate. At {found.confidence:.0%} confidence "
    if found.smallest_fpr is None:
        said += "they support no false positive rate"
    else:
        said += f"they support false positive rates of {in_percent(found.smallest_fpr)} and above"
        said += f" among {population}" if population else ""
    said += f"; {100 * found.next_fpr:g}% takes {more:,} more {counted}"
    tpr, steady = None, None
    if found.smallest_fpr is not None:
        tpr = [round(share, 2) for share in expected_tpr(found.smallest_fpr, 1.0, BEST_TPR)]
        steady = max(0, math.ceil(STEADY_MULTIPLE * own / fraction) - units)
        said += (
            f". At the smallest rate, a model that could recognise {BEST_TPR:.0%} recognises about {tpr[0]:.0%} "
            f"({tpr[1]:.0%} to {tpr[2]:.0%}, by chance); {steady:,} more {counted} steady that"
        )
    return Promise(
        protocol=protocol,
        counted=counted,
        units=units,
        calibration_fraction=fraction,
        calibration_units=own,
        confidence=found.confidence,
        smallest_fpr=found.smallest_fpr,
        next_fpr=found.next_fpr,
        more_units=more,
        expected_tpr=tpr,
        steady_units=steady,
        population=population,
        text=said,
    )


def in_percent(rate: float) -> str:
    """A rate in percent with two digits, rounded up, so that what is said can be asked for."""
    shown = 100 * rate
    digits = max(0, 1 - math.floor(math.log10(shown)))
    return f"{math.ceil(round(shown * 10**digits, 6)) / 10**digits:.{digits}f}".removesuffix(".0") + "%"


def population_of(n_classes: int) -> str:
    """The classes among which a closed-set promise holds, in words."""
    return f"these {n_classes:,} classes"


def protocol_of(role: str, n_labels: int) -> Protocol | None:
    """What ``auto`` means for labels of a role; None where that has to be asked."""
    if role in _PROTOCOLS:
        return _PROTOCOLS[role]
    return "open-set" if n_labels >= OPEN_SET_FROM else None


def units_of(
    *, n_labels: int, rows: int, label_counts: Mapping[str, int], protocol: str
) -> tuple[int, float, str]:
    """Units of a dataset with identities, the share of different pairs among them, and the protocol.

    ``label_counts`` : rows of the most frequent labels; the others weigh little.
    """
    if protocol == "open-set":
        return n_labels, 1.0, protocol
    return rows, 1 - sum((count / rows) ** 2 for count in label_counts.values()), protocol


def dataset_promise(summary: Mapping[str, Any], rows: int) -> Promise | None:
    """What a job on a dataset could promise by its defaults; None where the size does not say: a list of pairs,
    rankings, rows without labels; or where it depends on what the labels are."""
    protocol = protocol_of(summary.get("label_role", "label"), summary["n_labels"])
    return None if protocol is None else _promise_under(protocol, summary, rows)


def protocol_choices(summary: Mapping[str, Any], rows: int) -> list[ProtocolChoice]:
    """What the labels of a dataset may be, and what each could promise; empty where a job need not ask."""
    n_labels = summary["n_labels"]
    if n_labels < 2 or protocol_of(summary.get("label_role", "label"), n_labels) is not None:
        return []
    meanings = {
        "identity": "people or things that new ones will join",
        "classes": f"{population_of(n_labels)} and no others",
    }
    return [
        ProtocolChoice(
            role=role,
            protocol=_PROTOCOLS[role],
            meaning=meanings[role],
            promise=_promise_under(_PROTOCOLS[role], summary, rows),
        )
        for role in ("identity", "classes")
    ]


def _promise_under(protocol: str, summary: Mapping[str, Any], rows: int) -> Promise | None:
    n_labels = summary["n_labels"]
    if summary["n_pairs"] or n_labels < 2 or summary["ranking_labels"]:
        return None
    counts = dict(summary["label_counts"])
    units, different, _ = units_of(n_labels=n_labels, rows=rows, label_counts=counts, protocol=protocol)
    population = population_of(n_labels) if protocol == "closed-set" else None
    return promise_of(units, protocol=protocol, different_share=different, population=population)
