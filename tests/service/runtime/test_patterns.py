"""Which thresholds decide pairs of records that lack columns, and what a client may have worked out."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pairmark.service.errors import RateLimited
from pairmark.service.runtime.missing_columns import MOST_PATTERNS, NEW_A_MINUTE, Patterns
from pairmark.service.runtime.operating_points import UNSUPPORTED, PointRequest, ServedPoint

COLUMNS = [f"c{at}" for at in range(12)]


class Points:
    """Thresholds of one calibration, whose pairs lack the first column now and then."""

    def __init__(self) -> None:
        self.known: dict[bytes, Any] = {}
        records = SimpleNamespace(lack=lambda columns, _: np.array([columns[:, 1:].sum() == 0]))
        self._entry = SimpleNamespace(calibration=SimpleNamespace(records=records))

    def fetch(self, calibration: str) -> Any:
        return self._entry

    def cached_thresholds(self, request: PointRequest, pattern: bytes) -> Any:
        return self.known.get(pattern)

    def thresholds(self, request: PointRequest, pattern: bytes, columns: Any, estimator: Any) -> Any:
        lacked = int(columns.any(axis=0).sum())
        self.known[pattern] = UNSUPPORTED if lacked > 8 else (np.float32(lacked), np.float32(-lacked))
        return self.known[pattern]


def point(**asked: Any) -> ServedPoint:
    request = PointRequest("c", 0.01, 0.95, "auto", **asked)
    return ServedPoint(threshold=np.float32(0.5), public={}, json=b"", request=request)


def lacking(*choices: tuple[int, ...]) -> Any:
    lacked = np.zeros((len(choices), 2, len(COLUMNS)), dtype=np.bool_)
    for at, places in enumerate(choices):
        lacked[at, 0, list(places)] = True
    return lacked


def found(one: Patterns, client: str, lacked: Any, **asked: Any) -> Any:
    return one.found(None, client, point(**asked), lacked)


def test_each_pair_is_decided_by_what_both_sides_have() -> None:
    one = Patterns(Points())
    assert one.find(None, "a", point(), lacking((1, 2)), may_work=False) is None
    compared = found(one, "a", lacking((), (1, 2), tuple(range(9))))
    assert compared.thresholds[0][:2].tolist() == [0.5, 2]
    assert compared.codes.tolist() == [0, 0, 4]
    decided = point().decide(np.array([1, 1, 99], np.float32), compared.thresholds)
    assert decided.tolist() == [1, 0, 0]
    assert compared.facts(1, COLUMNS, shows_scores=True) == {
        "threshold": 2,
        "compared": [name for name in COLUMNS if name not in ("c1", "c2")],
    }
    assert compared.facts(1, COLUMNS, shows_scores=False) == {}
    assert compared.facts(2, COLUMNS, shows_scores=False)["missing"] == COLUMNS[:9]
    (warning,) = compared.warnings(COLUMNS)
    assert "c8" in warning["detail"]
    swapped = found(one, "a", lacking((1, 2))[:, ::-1])
    assert swapped.thresholds[0].tolist() == [2]


def test_a_policy_may_refuse_what_lacks_a_column() -> None:
    compared = found(Patterns(Points()), "a", lacking((), (1,)), complete_only=True)
    assert compared.codes.tolist() == [0, 4]
    assert "policy" in compared.warnings(COLUMNS)[0]["detail"]


def test_clients_have_new_choices_worked_out_within_bounds(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr("pairmark.service.runtime.missing_columns.time.monotonic", lambda: now[0])
    points = Points()
    one = Patterns(points)
    singles = lacking(*((at,) for at in range(12)))
    now[0] = 20
    # What calibration pairs lack too is always worked out, and the rest where its pairs are sent again.
    compared = found(one, "a", singles)
    assert compared.codes.tolist() == [0] * (NEW_A_MINUTE + 1) + [4] * (11 - NEW_A_MINUTE)
    assert "send these pairs again in 60 s" in compared.warnings(COLUMNS)[0]["detail"]
    assert len(points.known) == NEW_A_MINUTE + 1
    with pytest.raises(RateLimited) as refused:
        found(one, "a", singles[-2:])
    assert refused.value.facts["retry_after"] == 60
    now[0] += 60
    assert not found(one, "a", singles).codes.any()
    assert not found(one, "b", singles).codes.any()
    for at in range(300):
        now[0] += 60
        places = tuple(place for place in range(12) if (at + 2) >> place & 1)
        compared = found(one, "c", lacking(places[:8]))
    assert len(points.known) == MOST_PATTERNS
    assert compared.codes.tolist() == [4]
    assert "as many as are kept" in compared.warnings(COLUMNS)[0]["detail"]
