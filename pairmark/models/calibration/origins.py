"""How the pairs of a calibration came about, and what can be promised by it."""

from __future__ import annotations

from typing import Literal

from pairmark.models.pairs.samples import PairSample

Listing = Literal["all", "random", "drawn"]
Origin = Literal[
    "all",
    "random",
    "drawn",
    "blocks",
    "independent",
    "population",
    "unknown",
    "unnamed",
    "assumed",
    "imported",
]
Guarantee = Literal["finite-sample", "finite-population", "asymptotic", "none"]
Assumption = Literal["people-alike", "pairs-drawn", "missing-at-random"]
Status = Literal["checked", "declared", "unchecked"]
GUARANTEES: dict[Guarantee, str] = {
    "finite-sample": "for new people (closed-set: for new samples of these classes; blocks: for new blocks), whatever "
    "their scores look like",
    "finite-population": "for one fixed list of pairs, of which people judged a random part",
    "asymptotic": "approximately, for new people: with hundreds, none of whom looks like everybody",
    "none": "nothing is guaranteed",
}
"""What holds with the confidence asked, by `guarantee`; `meaning_of` says it of one answer."""
LISTINGS = ("all", "random", "drawn")

_LISTED = (
    "score every pair of the calibration people; or draw the pairs at random, or let Pairmark draw them, and declare "
    "it (listing='random' or 'drawn'); or, where pairs were listed inside of blocks, give each pair's block (blocks)"
)
_WANTING: dict[str, str] = {
    "unknown": "pairs are a list whose origin is not known, and a list that was chosen by looking at people can hide "
    f"those who match many: {_LISTED}",
    "unnamed": "nothing says whom the pairs are of, and pairs that share a person are not independent: name the units, "
    "or declare that no two pairs share a person (independent=True)",
    "assumed": "nothing says whose the points are, so people were guessed from same pairs: give labels, groups or "
    "units",
    "imported": "the calibration came in a file that no key of this service signed, so nothing says that these scores "
    "were measured: calibrate the version here, or import a file that is signed with PAIRMARK_IMPORT_KEY_FILE",
}
_ASSUMED: dict[str, str] = {
    "all": "the calibration {units} are a random sample of those to come",
    "drawn": "the calibration {units} are a random sample of those to come",
    "random": "the calibration {units} are a random sample of those to come, and their pairs were listed at random, "
    "without looking at {units}",
    "blocks": "blocks are a random sample of the blocks to come and independent of each other; blocks weigh equally",
    "independent": "pairs are independent of each other and a random sample of those to come, as was declared",
}


def origin_of(
    sample: PairSample,
    listing: str | None,
    *,
    independent: bool,
    population: int | None,
    assumed: bool,
) -> Origin:
    """What is known of the origin of scored pairs, from what was scored and what was declared."""
    if listing is not None and listing not in LISTINGS:
        raise ValueError(f"listing is {listing!r}; expected None or one of {', '.join(map(repr, LISTINGS))}")
    if population is not None:
        return "population"
    if sample.rows_independent:
        return "independent" if independent else "unnamed"
    if independent:
        raise ValueError(
            "independent pairs have no units in common: expected units or independent=True, not both"
        )
    if sample.by_block:
        return "blocks"
    if assumed:
        return "assumed"
    if sample.complete:
        return "all"
    if listing == "all":
        raise ValueError(
            f"listing is 'all', but not every two of the {sample.n_units} units are a scored pair; expected all pairs, "
            "or another listing"
        )
    return "unknown" if listing is None else "random" if listing == "random" else "drawn"


def assumptions(origin: str, *, rows_checked: bool = False) -> list[dict[str, str]]:
    """What an operating point supposes, and whether that is checked, declared or neither.

    ``rows_checked`` : whether rows that are unlike those of the calibration are told at a decision.
    """
    drawn: Status = "unchecked" if origin in _WANTING else "checked" if origin == "all" else "declared"
    return [
        {"assumption": "people-alike", "status": "checked" if rows_checked else "unchecked"},
        {"assumption": "pairs-drawn", "status": drawn},
    ]


def guarantee_of(method: str | None, origin: str) -> Guarantee:
    """What a method's answer from pairs of an origin guarantees."""
    if method in ("estimate", None) or origin in _WANTING:
        return "none"
    if method == "bootstrap":
        return "asymptotic"
    return "finite-population" if origin == "population" else "finite-sample"


def meaning_of(
    guarantee: Guarantee,
    origin: str,
    *,
    fpr: float,
    confidence: float,
    protocol: str,
    pairs: int | None,
    bound: float = 1.0,
) -> str:
    """What holds, for whom, and under which assumption; ``bound`` : of the rate at the threshold of an estimate."""
    rate, sure = f"{100 * fpr:.4g} %", f"{100 * confidence:.4g} %"
    if guarantee == "none":
        words = f"Nothing is guaranteed: {_WANTING.get(origin, 'the threshold is an estimate')}."
        if origin in _WANTING or bound >= 1:
            return words
        return f"{words} With {sure} confidence, the rate at this threshold is at most {100 * bound:.3g} %."
    if guarantee == "finite-population":
        return (
            f"With {sure} confidence, at most {rate} of the different pairs of this population of {pairs:,} pairs "
            "score above the threshold, if the judged pairs are a random sample of it. Nothing is said of other pairs."
        )
    pair_words = {
        "blocks": "pairs of different people in a new block",
        "independent": "new pairs that are different",
    }.get(
        origin,
        "pairs of different new people (each pair of people counts once)"
        if protocol == "open-set"
        else "new pairs of different classes (each pair of samples counts once)",
    )
    assumed = _ASSUMED[origin].format(units="people" if protocol == "open-set" else "samples")
    words = f"With {sure} confidence, at most {rate} of {pair_words} score above the threshold, if {assumed}."
    return (
        words
        if guarantee == "finite-sample"
        else f"{words} The confidence is approached as units grow in number."
    )
