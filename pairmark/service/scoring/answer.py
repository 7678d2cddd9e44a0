"""From decisions, or scores, to the bytes of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic_core import to_json

from pairmark.service.scoring.decide import Decided, UnlikeRows
from pairmark.service.scoring.score import Scored


@dataclass(slots=True)
class Answer:
    """The body of an answer: JSON, or raw numbers that say in ``headers`` what they are."""

    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
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
