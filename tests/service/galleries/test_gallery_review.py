"""A verification at two rates: match, review or different, by the thresholds of one comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from pairmark.models import MetricSimilarity
from pairmark.service.db import Database
from pairmark.service.galleries.calibration import Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.galleries.searches import Searches
from pairmark.service.runtime.points import ServedPoint
from pairmark.service.settings import Settings
from tests.service.galleries.gallery_cases import WIDTH, add_model, rows, served


@pytest.fixture
def galleries(settings: Settings, database: Database) -> Iterator[Galleries]:
    add_model(database, 1)
    made = Galleries(database, settings)
    yield made
    made.close()


def test_a_subject_between_the_thresholds_is_for_review(galleries: Galleries, settings: Settings) -> None:
    rng = np.random.default_rng(0)
    estimator = MetricSimilarity(metric="euclidean").fit(
        rng.normal(size=(40, WIDTH)), np.repeat(np.arange(8), 5)
    )
    model, probe = served(estimator), np.zeros(WIDTH, dtype=np.float32)
    galleries.put("g", model)
    far = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    items = {f"i{at}": (probe + np.float32(by), f"s{at}", None) for at, by in enumerate(far)}
    galleries.write("g", [rows(items)], RowErrors(), None)
    scores = estimator.pair_score(
        np.repeat(probe[None], 6, 0), np.array([items[f"i{at}"][0] for at in range(6)])
    )
    # At a threshold a pair does not match, and at the lower one it is different.
    high, low = np.float32(scores[2]), np.float32(scores[4])
    public = {"fpr": 0.1, "fpr_upper_bound": 0.1}
    decision = ServedPoint(threshold=high, public=public, json=b"{}", lower=low)
    searches = Searches(galleries, Thresholds(galleries), settings)
    state = galleries.state("g")
    for at, expected in ((0, "match"), (2, "review"), (3, "review"), (4, "different"), (5, "different")):
        enrolled = searches.enrolled(state, model, f"s{at}")
        said = json.loads(searches.verify(model, f"s{at}", probe[None], enrolled, decision, None))
        assert (said["decision"], said["match"]) == (expected, expected == "match")
