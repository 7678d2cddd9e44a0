"""Cells: records that lack columns, decided by the threshold for those that are there.

Two tables (febrl3, where ``records/`` is in ``PAIRMARK_DATA``, and made-up people), people who were never met, at 1 %:
strangers who match and the TPR with all columns, all but one, half of them, three, two and one; CPU of a batch of
thirty choices, the first time and once they are worked out.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks._linked_people import people
from benchmarks.common import Claim, Preset, Result, Skip, needed_data, read_csv
from benchmarks.records import read_records
from pairmark import RecordSimilarity
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.records import cells_missing, supports_columns, without_columns
from pairmark.models.pairs.sampling import held_out_pairs
from pairmark.models.records.inference import infer
from pairmark.models.records.tables import declaration
from pairmark.service.runtime.missing_columns import ComparedPairs, Patterns
from pairmark.service.runtime.operating_points import LoadedCalibration, OperatingPoints, PointRequest

RATE, STRANGERS = 0.01, 10_000
BATCH, CHOICES = 500, 30


class World(NamedTuple):
    """A table: a model of a third of its people, and the rows of two others, whose each is."""

    name: str
    columns: list[str]
    model: RecordSimilarity
    calibration: tuple[Any, Any]
    test: tuple[Any, Any]


def world(name: str, schema: Any, cells: Any, who: Any, n_trees: int) -> World:
    """Learn from a third of the people."""
    parts = np.array_split(np.random.default_rng(0).permutation(np.unique(who)), 3)
    train, calibration, test = (np.flatnonzero(np.isin(who, part)) for part in parts)
    model = RecordSimilarity(columns=declaration(schema), n_estimators=n_trees, n_pairs=20_000)
    model.fit(cells[train], who[train])
    fields = [column.name for column in schema.fields]
    return World(name, fields, model, (cells[calibration], who[calibration]), (cells[test], who[test]))


def worlds(n_trees: int) -> Iterator[World]:
    """The tables."""
    who, columns = people(6_000, "dependent", seed=3)
    schema = infer(columns).schema
    yield world("made-up people", schema, schema.read(columns), np.array(who), n_trees)
    try:
        schema, cells, columns = read_records(read_csv(needed_data("records", "febrl", "dataset3.csv")))
    except Skip:
        return
    who = [int(name.split("-")[1]) for name in columns["rec_id"]]
    yield world("febrl3", schema, cells, np.array(who), n_trees)


def calibrated(model: RecordSimilarity, cells: Any, who: Any) -> Calibration:
    """A calibration on pairs of people."""
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=60_000, random_state=0)
    return Calibration.of_pairs(model.score_pairs(cells, pairs.left, pairs.right), cells, pairs)


def own_threshold(made: Calibration, model: RecordSimilarity, lacked: Any) -> float:
    """The threshold that a service takes for pairs that lack columns."""
    if not lacked.any():
        return made.operating_point(RATE).threshold
    (sides,) = model.patterns(lacked[None], lacked[None])
    if not supports_columns(made, sides, RATE, 0.95):
        return np.inf
    return max(point.threshold for point in without_columns(made, sides, model).points(RATE))


def pairs_of(cells: Any, who: Any, seed: int) -> dict[bool, tuple[Any, Any]]:
    """Rows of pairs of strangers, and of one person."""
    first, second = np.random.default_rng(seed).integers(0, len(who), (2, STRANGERS))
    differ = who[first] != who[second]
    order = np.argsort(who, kind="stable")
    same = who[order[1:]] == who[order[:-1]]
    return {False: (first[differ], second[differ]), True: (order[1:][same], order[:-1][same])}


def scores_without(place: World, lacked: Any) -> dict[bool, Any]:
    """Scores of new people's pairs that lack columns, strangers' and one person's."""
    cells, who = place.test
    blanked = cells.copy()
    blanked[:, lacked] = None
    return {same: place.model.score_pairs(blanked, *rows) for same, rows in pairs_of(cells, who, 1).items()}


def batches(place: World, prepared: Calibration) -> dict[str, float]:
    """CPU of the first batch with thirty choices, once what the version prepares as it is loaded is ready, and of one
    where these are worked out, over that of complete pairs."""
    points, request = (
        OperatingPoints(lambda _: LoadedCalibration(prepared, None)),
        PointRequest("", RATE, 0.95, "auto"),
    )
    point, patterns = points.compute(request), Patterns(points)
    g, model, d = np.random.default_rng(3), place.model, len(place.columns)
    cells = place.test[0][~cells_missing(place.test[0]).any(axis=1)]
    left, right = (cells[rows] for rows in g.integers(0, len(cells), (2, BATCH)))
    numbers = g.permutation(np.arange(1, (1 << d) - 1))[:CHOICES]
    lacked = (numbers[:, None] >> np.arange(d) & 1).astype(np.bool_)

    def decide(choices: Any) -> tuple[ComparedPairs, float]:
        """What decides a batch that lacks these in turn, and the seconds it takes."""
        started, without = time.thread_time(), choices[np.arange(BATCH) % len(choices)]
        blanked = right.copy()
        blanked[without] = None
        model.pair_score(left, blanked)

        def rescore(pairs: Any, columns: Any) -> Any:
            sides = left[pairs], blanked[pairs]
            for side, gone in zip(sides, columns.swapaxes(0, 1), strict=True):
                side[gone] = None
            return model.pair_score(*sides)

        compared = patterns.find(model, "one", point, model.patterns(without, without), rescore)
        assert compared is not None
        return compared, time.thread_time() - started

    assert prepared.records is not None
    patterns.prepare(model, request)
    while any(points.cached_thresholds(request, code) is None for code in prepared.records.codes):
        time.sleep(0.2)
    complete = np.zeros((1, d), dtype=np.bool_)
    decide(complete)
    whole = np.median([decide(complete)[1] for _ in range(5)])
    first = decide(lacked)[1]
    while decide(lacked)[0].scores is not None:
        time.sleep(0.2)
    settled = np.median([decide(lacked)[1] for _ in range(5)])
    patterns.close()
    return {"first batch": float(first / whole), "settled batch": float(settled / whole)}


def run(preset: Preset) -> Result:
    """Quick: small forests; full: the default ones."""
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    for place in worlds(300 if preset == "full" else 60):
        d, made = len(place.columns), calibrated(place.model, *place.calibration)
        g, matched, tprs = np.random.default_rng(0), 0.0, {}
        for n in dict.fromkeys((d, d - 1, d - d // 2, 3, 2, 1)):
            lacked = np.isin(np.arange(d), g.permutation(d)[: d - n])
            threshold = np.float32(own_threshold(made, place.model, lacked))
            shares = {
                same: (scores > threshold).mean() for same, scores in scores_without(place, lacked).items()
            }
            matched, tprs[n] = max(matched, float(shares[False])), float(shares[True])
            rows.append(
                {"table": place.name, "columns": n, "FPR at 1 %": float(shares[False]), "TPR at 1 %": tprs[n]}
            )
        assert made.records is not None
        made.with_records(made.records.with_patterns(place.model))
        asked = batches(place, made)
        rows.append({"table": f"{place.name}, a batch of thirty choices", **asked})
        claims += [
            Claim(what=f"{place.name}: strangers matched at 1 %, worst choice of columns", goal="at most .012",
                  measured=matched, holds=matched <= 0.012),
            *(Claim(what=f"{place.name}: {name} of thirty choices, CPU over complete pairs", goal="at most 1.5",
                    measured=asked[name], holds=asked[name] <= 1.5) for name in ("first batch", "settled batch")),
        ]  # fmt: skip
        if place.name == "febrl3":
            claims += [
                Claim(what=f"febrl3: TPR at 1 %, {n} of {d} cells", goal=f"at least {goal}",
                      measured=tprs[n], holds=tprs[n] >= goal) for n, goal in ((3, 0.95), (2, 0.85))
            ]  # fmt: skip
    return Result(rows=rows, claims=claims)
