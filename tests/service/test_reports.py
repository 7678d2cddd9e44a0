"""What training found out: hardest errors by row, histograms, the leaderboard, all in one report."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from dataclasses import replace

import numpy as np
import pytest

from pairmark.service.api.report_page import report_page
from pairmark.service.errors import CorruptArtefact, ModelNotCapable, UnsupportedRate
from pairmark.service.heldout.errors import KEPT
from pairmark.service.heldout.report import read_arrays
from pairmark.service.runtime.pictures import pictures_of
from pairmark.service.training.splitting import split
from pairmark.service.training.trainer import Trainer
from tests.service.conftest import people


@pytest.fixture
def noisy(deployment):
    """A version whose held-out pairs are hard to tell apart."""
    rng = np.random.default_rng(0)
    X, y = people(60, 6)
    deployment.upload("noisy", X + rng.normal(size=X.shape).astype(np.float32) * 2.5, y)
    deployment.train(dataset="noisy", model="noisy", learner="metric", params={"metric": "euclidean"})
    return deployment


def test_the_hardest_pairs_are_those_of_brute_force(noisy):
    dataset = noisy.datasets.get("noisy")
    job = noisy.queue.submit(
        noisy.request(dataset="noisy", model="noisy", learner="metric", params={"metric": "euclidean"})
    )
    claim = noisy.queue.claim("test", job_id=job.id)
    loaded = Trainer(noisy.db, noisy.blobs, noisy.settings)._load(claim)
    test = split(loaded).parts.test
    X = np.asarray(noisy.datasets.load(dataset.id).X, dtype=np.float64)
    scores = -np.linalg.norm(X[test.left] - X[test.right], axis=1)
    point = noisy.store.calibrations.load(noisy.store.version("noisy", 1).calibration_id)[0].operating_point(
        0.3
    )
    wrong = {
        "false-match": np.sort(scores[~test.same & (scores > point.threshold)])[::-1],
        "false-non-match": np.sort(scores[test.same & (scores <= point.threshold)]),
    }
    for kind, expected in wrong.items():
        found = noisy.store.reports.errors("noisy", 1, kind=kind, fpr=0.3)
        assert found.dataset == "noisy:1"
        assert found.threshold == point.threshold
        assert found.of == int((test.same == (kind == "false-non-match")).sum())
        shown = [item.score for item in found.items]
        np.testing.assert_allclose(shown, expected[: len(shown)], rtol=1e-5)
        assert len(shown) == min(expected.size, KEPT)
        assert found.more == (expected.size > KEPT)
        for item in found.items:
            assert item.score == pytest.approx(-np.linalg.norm(X[item.left] - X[item.right]), rel=1e-5)


def test_without_a_rate_the_hardest_come_whatever_the_threshold(noisy):
    found = noisy.store.reports.errors("noisy", 1, kind="false-non-match", limit=5)
    assert found.threshold is None
    assert len(found.items) == 5
    assert found.more
    assert [item.score for item in found.items] == sorted(item.score for item in found.items)
    with pytest.raises(UnsupportedRate, match="cannot support"):
        noisy.store.reports.errors("noisy", 1, kind="false-match", fpr=1e-6)


def test_the_report_holds_everything(noisy):
    report = noisy.store.reports.report(noisy.store.version("noisy", 1))
    assert report.version.model == "noisy"
    assert report.leaderboard.items[0].value >= report.leaderboard.items[-1].value
    assert len(report.roc.fpr) == len(report.roc.tpr)
    histograms = report.histograms
    assert len(histograms.edges) == len(histograms.same) + 1 == len(histograms.different) + 1
    parts = report.version.facts["parts"]
    assert sum(histograms.same) + sum(histograms.different) == parts["test_pairs"]
    report.model_dump_json()


def test_the_report_is_a_page_of_its_own_with_every_picture(noisy):
    report = noisy.store.reports.report(noisy.store.version("noisy", 1))
    evidence = report.evidence
    loss = noisy.store.version("noisy", 1).metrics["likelihood_ratios"]["pav"]
    assert loss["cllr"] == evidence.likelihood_ratios[0].cllr >= loss["cllr_min"]
    assert evidence.by_samples.n_people == 12
    assert [one.fpr for one in report.promises] == [0.1, 0.01, 0.001]
    assert all(one.refused is not None or one.threshold is not None for one in report.promises)
    assert report.det.fnmr == [1 - value for value in report.roc.tpr]
    assert set(pictures_of(report)) >= {"roc", "det", "histograms", "tippett", "calibration"}
    page, policy = report_page(report)
    assert policy in html.unescape(page)
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert page.count("data:image/svg+xml") == len(pictures_of(report))
    for reason in evidence.left_out.values():
        assert re.sub("`(.*?)`", r"<code>\1</code>", html.escape(reason, quote=False)) in page


def test_a_report_that_no_training_writes_is_refused(noisy, monkeypatch):
    from pairmark.service.heldout import report

    read = report._read

    def tampered(folder):
        stored = read(folder)
        return replace(stored, meta={**stored.meta, "evidence": {"likelihood_ratios": [{"cllr": "much"}]}})

    monkeypatch.setattr(report, "_read", tampered)
    with pytest.raises(CorruptArtefact, match="report cannot be read"):
        noisy.store.reports.report(noisy.store.version("noisy", 1))


def test_a_version_of_before_has_a_report_without_errors(noisy, monkeypatch):
    from pairmark.service.store import reports

    bare = {"fpr", "tpr", "thresholds", "trained_rows", "trained_identities"}
    monkeypatch.setattr(
        reports,
        "read_arrays",
        lambda folder: {name: one for name, one in read_arrays(folder).items() if name in bare},
    )
    assert noisy.store.reports.report(noisy.store.version("noisy", 1)).histograms is None
    with pytest.raises(ModelNotCapable, match="before errors were kept"):
        noisy.store.reports.errors("noisy", 1, kind="false-match")
