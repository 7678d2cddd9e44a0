"""Groups of people, people without labels, and versions compared on people whom neither has seen."""

from __future__ import annotations

import io

import numpy as np
import pytest
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.api.models import report_page
from pairmark.service.errors import CalibrationOverlap, InvalidInput
from tests.service.conftest import Deployment, people

COSINE = {"learner": "metric", "params": {"metric": "cosine"}, "promote": False}


def with_sites(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A seventh feature: the site of each row's person."""
    return np.column_stack([X, y % 2]).astype(np.float32)


def test_strangers_count_for_false_positives_and_groups_are_shown(deployment: Deployment) -> None:
    X, y = people(40, 5)
    deployment.upload("sited", with_sites(X, y), y)
    more, who = people(150, 1, seed=5, first=5_000)
    deployment.upload("customers", with_sites(more, who))
    asked = {"strangers": "customers", "groups": "x6", "protocol": "open-set", "test_fraction": 0.2}
    version = deployment.store.version("faces", deployment.train(**COSINE, dataset="sited", evaluation=asked))
    calibration, facts = deployment.store.calibrations.load(version.calibration_id)
    point = calibration.operating_point(0.05)
    assert (point.n_strangers, point.n_units, facts.summary["n_strangers"]) == (150, 182, 150)
    assert {"assumption": "strangers-distinct", "status": "declared"} in point.assumes
    assert [(entry["group"], entry["n_units"], entry["guarantee"]) for entry in point.groups or ()] == [
        ("0", 16, "none"),
        ("1", 16, "none"),
    ]
    assert point.tpr is not None
    assert version.lineage["evaluation"]["strangers"] == "customers:1"
    page, _ = report_page(deployment.store.reports.report(version))
    assert [f"within {group}<" in page for group in "01"] == [True, True]
    alone = deployment.store.calibrations.calibrate("faces", version.version, None, strangers="customers")
    by_strangers = deployment.store.calibrations.load(alone.id)[0].operating_point(0.05)
    assert (by_strangers.n_units, by_strangers.tpr) == (150, None)


def sited_file(kind: str, X: np.ndarray, y: np.ndarray) -> UploadFile:
    """Rows with the site of each person, which is no number; one site is empty."""
    sites = np.array(["north", "south", ""])[np.where(y == 7, 2, y % 2)]
    content = io.BytesIO()
    if kind == "npz":
        np.savez(content, X=X, y=y, site=sites)
    else:
        lines = [
            ",".join([f"p{who}", site, *(f"{cell:.4f}" for cell in row)])
            for who, site, row in zip(y, sites, X, strict=True)
        ]
        head = ",".join(["y", "site", *(f"x{at}" for at in range(X.shape[1]))])
        content.write("\n".join([head, *lines, ""]).encode())
    content.seek(0)
    return UploadFile(content, filename=f"sited.{kind.removesuffix(' of records')}")


@pytest.mark.parametrize("kind", ["csv", "npz", "csv of records"])
def test_a_column_that_is_no_feature_groups_people(deployment: Deployment, kind: str) -> None:
    X, y = people(40, 5)
    types = {"x0": "number", "site": "category"} if "records" in kind else None
    request = DatasetRequest(name="sited", identity="y", keep=["site"], columns=types)
    added = deployment.datasets.add(sited_file(kind, X, y), request)
    assert added.features == 6
    if "records" in kind:
        learner = {"learner": "fellegi-sunter", "params": {}, "promote": False}
    else:
        learner = COSINE
    asked = {"groups": "site", "test_fraction": 0.2}
    version = deployment.store.version(
        "faces", deployment.train(**learner, dataset="sited", evaluation=asked)
    )
    assert version.n_features == 6
    calibration, _ = deployment.store.calibrations.load(version.calibration_id)
    groups = calibration.operating_point(0.5).groups
    assert {entry["group"] for entry in groups or ()} == {"north", "south"}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"strangers": "same"}, "rows of same:1 are rows of people:1"),
        ({"strangers": "wide"}, "other columns"),
        ({"groups": "site"}, "there is no column 'site'"),
        ({"groups": "x0"}, "several values in 'x0'"),
        ({"groups": "x0", "protocol": "closed-set"}, "identities in open-set use"),
    ],
)
def test_what_cannot_be_a_group_or_a_stranger_is_told(
    deployment: Deployment, asked: dict[str, str], words: str
) -> None:
    deployment.upload("same", people(40, 5)[0][:20])
    deployment.upload("wide", people(40, 1, width=9)[0])
    with pytest.raises(InvalidInput, match=words):
        deployment.train(**COSINE, evaluation={"protocol": "open-set", **asked})


def test_groups_and_strangers_of_a_calibration_are_of_people_who_are_known(deployment: Deployment) -> None:
    version = deployment.train(**COSINE)
    X, y = people(60, 4, seed=9, first=900)
    pairs = "left,right,same\n" + "".join(
        f"{4 * at},{4 * at + 1},1\n{4 * at},{4 * at + 4},0\n" for at in range(50)
    )
    deployment.upload("later", X, y)
    deployment.upload("listed", *people(60, 4, seed=10)[:1], pairs=pairs)
    deployment.upload("customers", people(60, 1, seed=11)[0])
    calibrate = deployment.store.calibrations.calibrate
    for dataset, asked in (
        (None, {"groups": "x0", "strangers": "customers"}),
        ("listed", {"groups": "x0"}),
        ("later", {"groups": "x0", "protocol": "closed-set"}),
    ):
        with pytest.raises(InvalidInput, match="groups goes with identities in open-set use") as refused:
            calibrate("faces", version, dataset, **asked)
        assert refused.value.facts["field"] == "groups"
    for dataset in (None, "later"):
        with pytest.raises(InvalidInput, match="lists pairs, of which some are the same") as refused:
            calibrate("faces", version, dataset, strangers="listed")
        assert refused.value.facts["field"] == "strangers"


def test_strangers_did_not_train(deployment: Deployment) -> None:
    version = deployment.train(learner="plda", params={}, promote=False)
    deployment.upload("same", people(40, 5)[0])
    deployment.upload("later", *people(60, 2, seed=7, first=900))
    for dataset in (None, "later"):
        with pytest.raises(CalibrationOverlap):
            deployment.store.calibrations.calibrate("faces", version, dataset, strangers="same")


def test_versions_are_compared_on_people_whom_neither_has_seen(deployment: Deployment) -> None:
    worse = deployment.train(learner="metric", params={"metric": "manhattan", "whiten": False}, promote=False)
    better = deployment.train(learner="plda", params={}, promote=False)
    X, y = people(60, 4, seed=12, first=900)
    X[:, 0] *= 30
    deployment.upload("later", X, y)
    found = deployment.store.reports.compare("faces", worse, better, fpr=0.05, dataset="later")
    (tpr,) = found.differences
    assert (found.people, tpr.measure, tpr.fpr) == (60, "tpr", [0.05])
    assert tpr.difference == pytest.approx(tpr.values[1] - tpr.values[0])
    assert tpr.interval is not None
    assert tpr.interval[0] <= tpr.difference <= tpr.interval[1]
    again = deployment.store.reports.compare("faces", better, better, fpr=0.05, dataset="later")
    assert (again.differences[0].difference, again.differences[0].interval) == (0, (0, 0))
    with pytest.raises(
        InvalidInput, match=r"new to faces:1 and faces:2: of .*, .* were learned from and .* others"
    ):
        deployment.store.reports.compare("faces", worse, better)
