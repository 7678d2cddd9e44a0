"""Choices of columns that were worked out: who asks for many lets go of his own."""

from __future__ import annotations

import itertools

import numpy as np

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.pairs.held_out import held_out_pairs
from pairmark.service.runtime.missing_columns import MOST_CHOICES, SHARES, Patterns
from pairmark.service.runtime.operating_points import LoadedCalibration, OperatingPoints, PointRequest
from tests.models.pair_worlds import COLUMNS, CellScorer, record_people


def test_an_owner_of_many_choices_lets_go_of_none_but_its_own() -> None:
    cells, who = record_people(150, np.random.default_rng(0))
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=600, random_state=0)
    scorer = CellScorer()
    made = Calibration.of_pairs(scorer.score_pairs(cells, pairs.left, pairs.right), cells, pairs)
    points = OperatingPoints(lambda calibration_id: LoadedCalibration(made, None))
    point = points.compute(PointRequest("c", 0.1, 0.95, "auto"))
    patterns = Patterns(points)
    sides = [np.array(side) for side in itertools.product((False, True), repeat=COLUMNS)]
    choices = [np.stack([a, b])[None] for a, b in itertools.combinations_with_replacement(sides, 2)][1:]
    quiet, *many = choices[: MOST_CHOICES // SHARES + 3]
    patterns.find(scorer, "tenant quiet", point, quiet)
    for choice in many:
        patterns.find(scorer, "tenant busy", point, choice)
    kept = [patterns.find(scorer, "", point, choice, may_work=False) is not None for choice in (quiet, *many)]
    assert kept[0], "another's"
    assert kept[1:] == [False, False, *([True] * (MOST_CHOICES // SHARES))]
    patterns.close()
