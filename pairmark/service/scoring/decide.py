"""From scores to decisions and their bytes: which rates may be asked, what decides a pair, what is hidden of it."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from pairmark.models.calibration.inputs import LARGE, RowRanges, describe_move, is_dense
from pairmark.models.core.arrays import Bool
from pairmark.schemas.models import DECIDED_RATES
from pairmark.schemas.scoring import Decision
from pairmark.service.errors import Forbidden
from pairmark.service.keys import Grants
from pairmark.service.runtime.missing_columns import ComparedPairs
from pairmark.service.runtime.operating_points import Rate, ServedPoint
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scoring.score import Resolved, Scored
from pairmark.service.tables import DECISIONS, RAW_UNLIKE, DecisionCode

INPUTS_MOVED: Final = "inputs-moved"
UNLIKE: Final = "unlike-calibration"
"""The reason where a row is unlike those of the people who calibrated."""


def shows_scores(
    runtime: Runtime, version: LoadedVersion | None, rate: Rate | Decision | None, grants: Grants
) -> bool:
    """Whether who asks may see scores of a version; a key with `decide` alone gets decisions, at listed rates, only."""
    name = None if version is None else version.entry.name
    if not grants.allows("decide") or grants.allows("score", name):
        return True
    if rate is None:
        # The order of what a search finds says which of two scores is higher.
        raise Forbidden(
            "the key may only decide: give fpr or fpir; no rate takes a key with score", scope="score"
        )
    model = None if name is None else runtime.catalogue.view.models.get(name)
    check_listed(rate, DECIDED_RATES if model is None else model.rates)
    return False


def check_listed(rate: Rate | Decision, listed: Collection[float]) -> None:
    """Refuse (`Forbidden`) what would tell a key that may only decide more than decisions at the listed rates: a
    series of rates, confidences, methods or costs brackets a score as closely as one likes, and so does one threshold
    more of each version."""
    if not isinstance(rate, Rate):
        raise Forbidden(f"the key may only decide; decision={rate} takes a key with score", scope="score")
    for wanted in (rate.fpr, rate.fnr):
        if wanted is not None and not any(math.isclose(wanted, one) for one in listed):
            raise Forbidden(
                f"the key may only decide, at one of the rates {', '.join(f'{one:g}' for one in listed)}; "
                f"{wanted:g} takes a key with score",
                scope="score",
            )
    for name in ("method", "confidence", "simultaneous", "calibration"):
        if getattr(rate, name) != Rate._field_defaults[name]:
            raise Forbidden(f"the key may only decide; {name} takes a key with score", scope="score")


class UnlikeRows:
    """Which pairs of a request hold a row unlike those who calibrated, and which of their rows are.

    Attributes
    ----------
    flags : which rows, the left ones first. codes : (n_pairs,) 0, or the code of a pair in raw answers.
    """

    def __init__(self, flags: Bool, resolved: Resolved) -> None:
        self.flags, n_left = flags, resolved.left.shape[0]
        self._sides = {"left": flags[:n_left], "right": flags[n_left:]}
        self._starts = None
        subjects = list(self._sides.values())
        if resolved.counts is not None:
            self._starts = [np.concatenate([[0], np.cumsum(counts)]) for counts in resolved.counts]
            subjects = [
                np.logical_or.reduceat(side, starts[:-1])
                for side, starts in zip(subjects, self._starts, strict=True)
            ]
        left, right = subjects
        self.codes: NDArray[np.uint8] = np.uint8(RAW_UNLIKE) * (left | right)

    @classmethod
    def find(cls, ranges: RowRanges | None, resolved: Resolved | None) -> Self | None:
        """None where no row is, and where nothing is known of rows."""
        if resolved is None or ranges is None:
            return None
        flags = ranges.unlike(resolved.left, resolved.right)
        return cls(flags, resolved) if flags.size else None

    @property
    def pairs(self) -> list[int]:
        """The numbers of those pairs."""
        numbers: list[int] = np.flatnonzero(self.codes).tolist()
        return numbers

    def names(self, pair: int) -> list[str]:
        """The rows of a pair that are: ``left``, ``right``, of subjects ``left[2]``."""
        names = []
        for number, (side, flags) in enumerate(self._sides.items()):
            if self._starts is None:
                if flags[pair if len(flags) > 1 else 0]:
                    names.append(side)
                continue
            starts = self._starts[number]
            subject = pair if len(starts) > 2 else 0
            samples = np.flatnonzero(flags[starts[subject] : starts[subject + 1]])
            names += [f"{side}[{sample}]" for sample in samples.tolist()]
        return names


class Decided(NamedTuple):
    """Decisions.

    Attributes
    ----------
    shows_scores : whether who asked may see scores, thresholds and which columns were compared.
    codes : (n,) `DecisionCode`. refused : (n,) the code in raw answers of pairs that never match; None: all may.
    unlike : pairs that hold a row unlike those who calibrated. compared : pairs of records that lack columns.
    """

    scored: Scored
    point: ServedPoint
    shows_scores: bool
    codes: NDArray[np.uint8]
    refused: NDArray[np.uint8] | None
    unlike: UnlikeRows | None
    compared: ComparedPairs | None

    @property
    def raw(self) -> NDArray[np.uint8]:
        """(n,) the codes of raw answers."""
        return self.codes if self.refused is None else np.where(self.refused, self.refused, self.codes)

    def matches(self) -> list[dict[str, Any]]:
        """What is said of each pair."""
        codes = self.codes.tolist()
        if self.shows_scores:
            scores = self.scored.scores.tolist()
            matches = [
                {"score": score, "match": code == 1} for score, code in zip(scores, codes, strict=True)
            ]
        else:
            matches = [{"match": code == 1} for code in codes]
        if self.point.lower is not None:
            for match, code in zip(matches, codes, strict=True):
                match["decision"] = DECISIONS[code]
        if self.compared is not None and self.scored.resolved is not None:
            columns = self.scored.resolved.version.columns
            for pair in self.compared.places:
                matches[pair] |= self.compared.facts(pair, columns, shows_scores=self.shows_scores)
        if self.unlike is not None:
            for pair in self.unlike.pairs:
                matches[pair] |= {"reason": UNLIKE, "unlike": self.unlike.names(pair)}
        return matches

    @property
    def warnings(self) -> tuple[dict[str, str], ...]:
        """What limits the answer."""
        warnings, resolved = self.point.warnings, self.scored.resolved
        if resolved is not None:
            warnings += resolved.warnings
            if self.compared is not None:
                warnings += self.compared.warnings(resolved.version.columns)
        return warnings


def decide(
    scored: Scored, point: ServedPoint, *, shows_scores: bool, compared: ComparedPairs | None = None
) -> Decided:
    """Decide each pair at an operating point. A pair that holds a row unlike those who calibrated, or that has too
    little to compare, never matches: saying no can only lower a false positive rate."""
    unlike = UnlikeRows.find(point.inputs, scored.resolved)
    point = _held_against(point, scored.resolved, None if unlike is None else unlike.flags)
    refused = None if unlike is None else unlike.codes
    if compared is not None:
        refused = compared.codes if refused is None else np.where(refused, refused, compared.codes)
    if compared is not None and compared.scores is not None:
        scored = scored._replace(scores=np.where(np.isnan(compared.scores), scored.scores, compared.scores))
    codes = point.decide(scored.scores, None if compared is None else compared.thresholds)
    if refused is not None:
        codes[refused > 0] = DecisionCode.DIFFERENT if point.lower is None else DecisionCode.REVIEW
    return Decided(scored, point, shows_scores, codes, refused, unlike, compared)


def _held_against(point: ServedPoint, resolved: Resolved | None, flags: Bool | None) -> ServedPoint:
    """The point; one that guarantees nothing where a large request by itself is unlike the calibration."""
    if (
        resolved is None
        or resolved.n_rows < LARGE
        or not is_dense(resolved.left)
        or not is_dense(resolved.right)
    ):
        return point
    rows = np.concatenate([resolved.left, resolved.right])
    words = describe_move(point.inputs, rows if flags is None else rows[~flags])
    if words is None or point.warnings:
        return point
    return point.moved(
        {"code": INPUTS_MOVED, "detail": f"the rows of this request are unlike the calibration's: {words}"}
    )


class Answer(NamedTuple):
    """The body of an answer: JSON, or raw numbers that say in ``headers`` what they are."""

    body: bytes
    headers: Mapping[str, str] = {}
    raw: bool = False


def answer_scores(scored: Scored, *, raw: bool, unlike: Sequence[dict[str, object]] | None) -> Answer:
    """The scores; ``unlike``: what `unlike_rows` found, where that was asked for."""
    if raw:
        return Answer(scored.scores.tobytes(), model_header(scored.model), raw=True)
    body = b'{"model":%b,"scores":%b' % (scored.model, to_json(scored.scores.tolist()))
    resolved = scored.resolved
    if resolved is not None and resolved.counts is not None:
        body += b',"aggregation":"%b"' % resolved.aggregation.encode()
    if unlike is not None:
        body += b',"unlike":%b' % to_json(unlike)
    return Answer(body + warnings_member(() if resolved is None else resolved.warnings) + b"}")


def unlike_rows(unlike: UnlikeRows | None) -> list[dict[str, object]]:
    """The pairs that hold a row unlike those who calibrated, and which rows of theirs."""
    return [] if unlike is None else [{"pair": pair, "rows": unlike.names(pair)} for pair in unlike.pairs]


def answer_decisions(decided: Decided, *, raw: bool) -> Answer:
    """What was decided of each pair."""
    scored, point = decided.scored, decided.point
    if raw:
        facts = point.public
        names = [
            name for name in ("calibration_id", "guarantee", "method", "fpr_upper_bound") if name in facts
        ]
        headers = {f"x-pairmark-{name.replace('_', '-')}": str(facts[name]) for name in names}
        if decided.shows_scores:
            headers["x-pairmark-threshold"] = repr(float(point.threshold))
        return Answer(decided.raw.tobytes(), headers | model_header(scored.model), raw=True)
    parts = (
        scored.model,
        to_json(decided.matches()),
        point.json if decided.shows_scores else to_json(point.hidden),
        warnings_member(decided.warnings),
    )
    return Answer(b'{"model":%b,"matches":%b,"operating_point":%b%b}' % parts)


def warnings_member(warnings: Sequence[dict[str, str]]) -> bytes:
    """The last member of an answer that something limits; nothing where there is none."""
    return b',"warnings":%b' % to_json(warnings) if warnings else b""


def model_header(model: bytes) -> dict[str, str]:
    """The version that answered, for raw answers. Names are ASCII, so its JSON can stand in a header as it is."""
    return {"x-pairmark-model": model.decode()}
