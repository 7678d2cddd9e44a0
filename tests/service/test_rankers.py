"""Rankers through the service: from a CSV to a registered version, its metrics, and its way to another deployment."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from experiments._synthetic_rankings import make_ranking_data, truncated_gaussian, with_missing
from pairmark import kendall_tau
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.errors import InvalidInput
from pairmark.service.training.splitting import ROWS

LABELS = ["rain", "snow", "sun", "wind"]
PARAMS = {"n_estimators": 15, "random_state": 0}


def made(n: int = 240):
    def m(X):
        return np.stack([X[:, 0], 1 - X[:, 0], 0.9 * X[:, 1], 0.5 + 0 * X[:, 2]], axis=1) / 2 + 0.25

    return make_ranking_data(n, 6, m, noise=truncated_gaussian(0.05), random_state=0)


def written(row: np.ndarray) -> str:
    places = sorted(set(row[~np.isnan(row)]))
    return ">".join(
        "=".join(name for name, at in zip(LABELS, row, strict=True) if at == place) for place in places
    )


def write_csv(path, sample, rankings, groups=None):
    with path.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(
            [*(f"A{i + 1}" for i in range(6)), "ranking", *(["site"] if groups is not None else [])]
        )
        for number, (x, row) in enumerate(zip(sample.X, rankings, strict=True)):
            site = [groups[number]] if groups is not None else []
            lines.writerow([*(float(value) for value in x), written(row), *site])


def add(deployment, name, rankings, sample, groups=None):
    path = deployment.folder / f"{name}.csv"
    write_csv(path, sample, rankings, groups)
    request = DatasetRequest(name=name, ranking=["ranking"], group=None if groups is None else "site")
    return deployment.datasets.add(path, request)


def train(deployment, dataset, **changes):
    given = {"learner": "label-ranking-forest", "dataset": dataset, "model": "weather", "params": PARAMS}
    return deployment.train(**{**given, "evaluation": {}, **changes})


def test_a_csv_becomes_a_ranker_with_metrics_on_rows_it_never_saw(deployment):
    sample = made()
    add(deployment, "sky", with_missing(sample.rankings, 0.9, at_least=2, random_state=1), sample)
    assert train(deployment, "sky") == 1
    version = deployment.store.version("weather", 1)
    assert (version.capabilities, version.aliases) == (["rank-labels"], ["production"])
    assert version.calibration_id is None
    assert not version.has_roc
    assert version.facts["protocol"] == ROWS
    assert version.facts["parts"] == {"train_rows": 192, "test_rows": 48}
    assert version.feature_names == [f"A{i + 1}" for i in range(6)]
    assert deployment.store.names("weather", 1, "label_names") == LABELS
    tau = version.metrics["kendall_tau"]
    assert tau["interval"][0] <= tau["value"] <= tau["interval"][1]
    assert tau["value"] > 0.75 > version.metrics["constant_kendall_tau"]["value"]
    forest = deployment.store.load("weather", 1)
    assert kendall_tau(forest.predict(sample.X), sample.truth).mean() > 0.75


def test_what_cannot_be_learned_from_is_refused_with_a_reason(deployment):
    sample = made(3)
    add(deployment, "few", sample.rankings, sample)
    with pytest.raises(InvalidInput, match="3 rows"):
        train(deployment, "few")
    with pytest.raises(InvalidInput, match="has none"):
        train(deployment, "people")
