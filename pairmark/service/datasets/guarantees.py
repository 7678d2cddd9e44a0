"""What a number of people supports, before training, and how many people a rate takes."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pairmark.models.calibration.guarantees import (
    AMPLE_MULTIPLE,
    BEST_TPR,
    SupportedRate,
    askable,
    expected_tpr,
    in_percent,
    reach,
    units_needed,
)
from pairmark.models.calibration.operating_point import nothing_guaranteed
from pairmark.models.core.inputs import OPEN_SET_FROM
from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION, Protocol
from pairmark.schemas.datasets import Promise, ProtocolChoice

_AMPLE = 2
"""Calibration units aimed at, in multiples of the fewest that a rate takes: at the fewest, the TPR is low."""
_SMALLEST, _MOST = 0.1, 0.5
_PROTOCOLS: dict[str, Protocol] = {"identity": "open-set", "classes": "closed-set"}


_FEWEST = 4
"""People that every target leaves to train on."""
FEWEST_LABELED = 60
"""People with two samples who show a true positive rate to within a tenth, where strangers count for the other."""
FEWEST_TESTED = 30
"""People that a target leaves to test on, unless it takes them too: the figures of fewer say little."""


def expected_guarantee(
    units: int,
    fraction: float = CALIBRATION_FRACTION,
    *,
    protocol: str,
    different_share: float = 1.0,
    calibration_units: int | None = None,
    population: str | None = None,
    smallest_fpr: float | None = None,
) -> Promise:
    """The rates that a number of people (or samples) supports when a share of them calibrates.

    Parameters
    ----------
    different_share : of pairs, in closed-set use.
    calibration_units : how many of them calibrate, where that is known; default: the share.
    population : the classes among which a closed-set promise holds.
    smallest_fpr : the smallest rate, where a calibration has shown it.
    """
    n_calibrating = round(units * fraction) if calibration_units is None else calibration_units
    support = reach(n_calibrating, different_share=different_share)
    if smallest_fpr is not None:
        support = replace(support, smallest_fpr=smallest_fpr)
    unit = "people" if protocol == "open-set" else "samples"
    # A dataset that only calibrates is not split.
    total = support.next_units if fraction == 1 else total_units(support.next_units)
    missing_units = max(0, total - units)
    text = f"{n_calibrating:,} of {units:,} {unit} calibrate. {_supported_in_words(support, population)}"
    next_percent = f"{100 * support.next_fpr:g} %"
    if missing_units:
        text += f"; {next_percent} takes {missing_units:,} more {unit}"
    else:
        text += f"; they are enough for {next_percent} if you name it as the target rate"
    if support.smallest_fpr is not None:
        fewest_tpr, ample_tpr = (expected_tpr(support.smallest_fpr, multiple) for multiple in (1, _AMPLE))
        text += (
            f". At the smallest rate, a model that could recognize {100 * BEST_TPR:.0f} % recognizes about "
            f"{100 * fewest_tpr:.0f} %, and {100 * ample_tpr:.0f} % if {_AMPLE * n_calibrating:,} {unit} calibrate"
        )
    return Promise(
        protocol=protocol,
        counted=unit,
        units=units,
        calibration_fraction=fraction,
        calibration_units=n_calibrating,
        confidence=support.confidence,
        smallest_fpr=support.smallest_fpr,
        next_fpr=support.next_fpr,
        more_units=missing_units,
        population=population,
        text=text,
    )


def sample_guarantee(n_different: int, population: int) -> Promise:
    """The rates that different pairs support which were drawn at random from a list of pairs."""
    n_calibrating = round(n_different * (1 - TEST_FRACTION))
    # Two people make one pair that shares nobody with another.
    support = reach(2 * n_calibrating)
    of_list = f"a list of {population:,} pairs"
    text = f"{n_calibrating:,} of {n_different:,} negative pairs calibrate that were drawn at random from {of_list}."
    missing_pairs = max(0, math.ceil(support.next_units / 2 / (1 - TEST_FRACTION)) - n_different)
    text += f" {_supported_in_words(support, 'that list')}"
    return Promise(
        protocol="open-set",
        counted="pairs",
        units=n_different,
        calibration_fraction=1 - TEST_FRACTION,
        calibration_units=n_calibrating,
        confidence=support.confidence,
        smallest_fpr=support.smallest_fpr,
        next_fpr=support.next_fpr,
        more_units=missing_pairs,
        population=of_list,
        text=f"{text}; {100 * support.next_fpr:g} % takes {missing_pairs:,} more negative pairs",
    )


def list_guarantee(units: int, origin: str) -> Promise | None:
    """What listed pairs of so many people can promise: nothing, and why, unless they are all pairs of named people."""
    nothing = nothing_guaranteed(origin)
    if nothing is None:
        return expected_guarantee(units, protocol="open-set")
    return Promise(
        protocol="open-set",
        counted="people",
        units=units,
        calibration_fraction=1.0,
        calibration_units=units,
        confidence=None,
        smallest_fpr=None,
        next_fpr=None,
        more_units=None,
        text=nothing,
    )


def folds_in_words(parts: Mapping[str, Any]) -> str:
    """Where figures come from folds of what trains, how; of a version's ``parts``, and empty for others."""
    if "folds" not in parts:
        return ""
    folds = f"{parts['folds']} folds that share nobody"
    if "scored_pairs" not in parts:
        return f"Figures come from {folds}: everybody outside the calibration part trains"
    scored, crossing, contradictory = (
        parts.get(f"{kind}_pairs", 0) for kind in ("scored", "crossing", "contradictory")
    )
    but = f" but {contradictory:,}, which contradict the others," if contradictory else ""
    return (
        f"All pairs{but} train; threshold and figures come from {folds}: {scored:,} pairs are scored by a model that "
        f"saw none of their people, and {crossing:,} ({100 * crossing / (scored + crossing):.0f} %) join two folds and "
        "are not scored"
    )


def _supported_in_words(support: SupportedRate, population: str | None) -> str:
    """The smallest rate, in words."""
    sentence = f"At {100 * support.confidence:.0f} % confidence they support"
    if support.smallest_fpr is None:
        return f"{sentence} no false positive rate"
    among = "" if population is None else f" among {population}"
    return f"{sentence} false positive rates of {in_percent(support.smallest_fpr)} and above{among}"


def total_units(n_calibration: int) -> int:
    """Units of a dataset of which so many calibrate where the rate is named as the target: half of them do."""
    return math.ceil(n_calibration / _MOST)


def takes(fpr: float, n_calibration: int, counted: str, *, units: int | None = None) -> str:
    """What a rate takes, in words.

    Parameters
    ----------
    n_calibration : the units that calibrate, of these ``counted``.
    units : number of units in the dataset; None: there is none yet.
    """
    total, percent = total_units(n_calibration), f"{100 * fpr:g} %"
    shortfall = "" if units is None or total <= units else f", {total - units:,} more than it has"
    return (
        f"{percent}: {total:,} {counted} in the dataset{shortfall}; with the target rate {percent} half of them, "
        f"{n_calibration:,}, calibrate"
    )


def possible_instead(dataset: Mapping[str, Any], rows: int, fpr: float, protocol: str) -> list[str]:
    """What there is instead of a target rate that a dataset cannot support, the easiest first, in words.

    Parameters
    ----------
    dataset : its summary; its size says how many units it has (`units_of`). protocol : the one asked for.
    """
    units = units_of(dataset, rows, protocol)
    assert units is not None
    count, different = units
    smallest = reach(round(_MOST * count), different_share=different).smallest_fpr
    needed = units_needed(fpr, different_share=different)["finite-sample"]
    ways = []
    if smallest is not None:
        ways.append(f"{in_percent(smallest)} from these data, named as the target rate")
    if protocol == "open-set":
        samples, share = units_of(dataset, rows, "closed-set") or units
        closed = reach(round(_MOST * samples), different_share=share).smallest_fpr
        if closed is not None and closed < (smallest or 1.0):
            whom = population_of(dataset["n_labels"])
            ways.append(f"{in_percent(closed)} among {whom}, if nobody else ever comes (protocol closed-set)")
    if needed is not None:
        ways.append(takes(fpr, needed, "people" if protocol == "open-set" else "samples", units=count))
    return ways


def ways_from(
    fpr: float, smallest_fpr: float | None, units: int | None, counted: str
) -> list[dict[str, Any]]:
    """Ways out of a refusal, the easiest first, each with the rate that it gives, what to do and a text.

    Parameters
    ----------
    smallest_fpr : the smallest rate that the calibration answers.
    units : number of units to calibrate on that ``fpr`` takes, and what they are: ``counted``.
    """
    ways: list[dict[str, Any]] = []
    if smallest_fpr is not None:
        rate = askable(smallest_fpr)
        ways.append(
            {"fpr": rate, "command": f"fpr={rate:g}", "text": f"{in_percent(rate)}: retry with this rate"}
        )
    if units is not None:
        text = f"{100 * fpr:g} %: calibrate on {units:,} {counted}"
        ways.append({"fpr": fpr, "units": units, "command": None, "text": text})
    return ways


def fewest_units(dataset: Mapping[str, Any], protocol: str) -> int:
    """Units of a part that trains or tests: enough for pairs of both kinds."""
    if protocol == "closed-set":
        return int(dataset["n_labels"]) + 2
    return math.ceil(_FEWEST * int(dataset["n_labels"]) / max(int(dataset["n_repeated_labels"]), 1))


def shares_for(
    units: int,
    fpr: float,
    *,
    test_fraction: float,
    different_share: float,
    fewest: int,
    learns: bool,
    fixed_test: bool,
    n_strangers: int = 0,
) -> tuple[float, float]:
    """The shares that calibrate and test where a rate was named.

    Twice the fewest units that the rate takes calibrate, between a tenth and a half of all. Where the rate takes more
    than that, exactly what it takes: first from the test part (unless it is ``fixed_test``), then from training. Where
    no share can promise it, the usual ones stay. A learner that learns nothing leaves all others to calibrate on.
    """
    n_calibration = units_needed(fpr, different_share=different_share)["finite-sample"]
    assert n_calibration is not None
    if n_strangers:
        # They count for the false positive rate; some people are left to measure the true positive rate on.
        n_calibration = max(min(n_calibration, FEWEST_LABELED), n_calibration - n_strangers)
    # The test part gives way first, down to so many that figures still say something.
    n_test = round(units * test_fraction)
    smallest_test = n_test if fixed_test else min(n_test, max(fewest, FEWEST_TESTED))
    if not fixed_test and units - n_calibration - smallest_test < fewest:
        smallest_test = min(n_test, fewest)
    if not learns:
        if units - n_calibration >= smallest_test:
            n_test = max(smallest_test, min(n_test, units - n_calibration))
        return round(1 - n_test / units, 6), _share(n_test, units, test_fraction)
    # Where there is room, twice what the rate takes; else exactly that, from the test part and then from training.
    largest_share = max(min(_MOST, 0.8 - test_fraction), _SMALLEST)
    usual_share = min(max(_AMPLE * n_calibration / units, _SMALLEST), largest_share)
    if round(usual_share * units) >= n_calibration or units - n_calibration - smallest_test < fewest:
        return round(usual_share, 4), test_fraction
    n_training = round(units * (1 - largest_share - test_fraction))
    n_test = max(smallest_test, min(n_test, units - n_calibration - n_training))
    return round(n_calibration / units, 6), _share(n_test, units, test_fraction)


def _share(test: int, units: int, fraction: float) -> float:
    return fraction if test == round(units * fraction) else round(test / units, 6)


def population_of(n_classes: int) -> str:
    """The classes among which a closed-set promise holds, in words."""
    return f"these {n_classes:,} classes"


def protocol_of(role: str, n_labels: int) -> Protocol | None:
    """What ``auto`` means for labels of a role; None where that has to be asked."""
    if role in _PROTOCOLS:
        return _PROTOCOLS[role]
    return "open-set" if n_labels >= OPEN_SET_FROM else None


def units_of(dataset: Mapping[str, Any], rows: int, protocol: str) -> tuple[int, float] | None:
    """Units of a dataset with identities, and the share of different pairs among them; None where its size does not
    say: a list of pairs, no labels.

    Parameters
    ----------
    dataset : its summary, with the rows of the most frequent labels; the others weigh little.
    """
    if dataset["n_pairs"] or dataset["n_labels"] < 2:
        return None
    if protocol == "open-set":
        return dataset["n_labels"], 1.0
    return rows, 1 - sum((count / rows) ** 2 for count in dict(dataset["label_counts"]).values())


def dataset_guarantee(summary: Mapping[str, Any], rows: int) -> Promise | None:
    """What a job on a dataset could promise by its defaults; None where the size does not say: rankings, rows without
    labels; or where it depends on what the labels are."""
    protocol = protocol_of(summary.get("label_role", "label"), summary["n_labels"])
    if summary.get("listed") is not None:
        return list_guarantee(summary["listed"]["units"], summary["listed"]["origin"])
    if summary.get("population"):
        return sample_guarantee(summary["n_drawn_different"], summary["population"])
    return None if protocol is None or summary["ranking_labels"] else guarantee_under(protocol, summary, rows)


def protocol_choices(summary: Mapping[str, Any], rows: int) -> list[ProtocolChoice]:
    """What the labels of a dataset may be, and what each could promise; empty where a job need not ask."""
    n_labels = summary["n_labels"]
    if n_labels < 2 or protocol_of(summary.get("label_role", "label"), n_labels) is not None:
        return []
    meanings: dict[Literal["identity", "classes"], str] = {
        "identity": "people or things that new ones will join",
        "classes": f"{population_of(n_labels)} and no others",
    }
    return [
        ProtocolChoice(
            role=role,
            protocol=_PROTOCOLS[role],
            meaning=meaning,
            promise=None if summary["ranking_labels"] else guarantee_under(_PROTOCOLS[role], summary, rows),
        )
        for role, meaning in meanings.items()
    ]


def guarantee_under(
    protocol: str, dataset: Mapping[str, Any], rows: int, fraction: float = CALIBRATION_FRACTION
) -> Promise | None:
    """What a dataset of that size could promise under a protocol; None where its size does not say."""
    units = units_of(dataset, rows, protocol)
    if units is None:
        return None
    population = population_of(dataset["n_labels"]) if protocol == "closed-set" else None
    return expected_guarantee(
        units[0], fraction, protocol=protocol, different_share=units[1], population=population
    )


MULTIPLES = (1, 1.2, 1.5, 2, AMPLE_MULTIPLE)
"""Of the fewest people that a rate takes."""


def plan_people(fpr: float, confidence: float, samples: int, classes: int | None) -> dict[str, Any]:
    """What vectors of people take, ``samples`` each; or, with so many ``classes``, what closed-set use takes."""
    open_set = classes is None
    different = 1.0 if classes is None else 1 - 1 / classes
    units = units_needed(fpr, confidence, different_share=different)
    pairs = units_needed(fpr, confidence, rows_independent=True)
    needs = []
    for method, count in units.items():
        whole = None if count is None else total_units(count)
        # In open-set use the unit is a person, in closed-set use a sample.
        unit_samples = samples if open_set else 1
        needs.append(
            {
                "method": method,
                "calibration_people": count if open_set else None,
                "dataset_people": whole if open_set else None,
                "calibration_samples": None if count is None else unit_samples * count,
                "dataset_samples": None if whole is None else unit_samples * whole,
                "calibration_pairs": None if count is None else round(different * count * (count - 1) / 2),
                "independent_pairs": pairs[method],
            }
        )
    minimum = units["finite-sample"] or 0
    return {
        "fpr": fpr,
        "confidence": confidence,
        "protocol": "open-set" if open_set else "closed-set",
        "ample": AMPLE_MULTIPLE * minimum,
        # The false positive rate takes no labels, the true positive rate does.
        **({"labeled_people": min(minimum, FEWEST_LABELED)} if open_set else {}),
        **({"strangers": max(0, minimum - FEWEST_LABELED)} if open_set else {}),
        "text": takes(fpr, minimum, "people" if open_set else "samples"),
        "needs": needs,
        "expected": [
            {"people": math.ceil(multiple * minimum), "tpr": expected_tpr(fpr, multiple)}
            for multiple in MULTIPLES
        ],
    }
