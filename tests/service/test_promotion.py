"""A version takes production only if it is not worse there, and baselines stand beside every figure."""

import numpy as np
import pytest

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.errors import InvalidInput
from pairmark.service.training.trainer import Trainer
from tests.service.conftest import people

GOOD = {"learner": "metric", "params": {"metric": "euclidean"}, "promote": "if-better"}
BAD = {"learner": "metric", "params": {"metric": "dot"}, "promote": "if-better"}


def trained(deployment, **changes):
    """The job's message, and the version's facts."""
    job = deployment.queue.submit(deployment.request(**changes))
    version = Trainer(deployment.db, deployment.blobs, deployment.settings).run(
        deployment.queue.leases.claim("test", job_id=job.id)
    )
    model = changes.get("model", "faces")
    return deployment.queue.get(job.id).message, deployment.store.version(model, version).facts


def test_a_worse_version_is_registered_and_does_not_take_production(deployment):
    message, facts = trained(deployment, **GOOD)
    assert message.startswith("registered faces:1, now faces@production: the first version")
    assert "promotion" not in facts
    message, facts = trained(deployment, **BAD)
    assert message.startswith("registered faces:2, not promoted: mean TPR at FPR 10 %, 3 %")
    assert "of faces:1 in production on the same held-out data (difference -" in message
    reported = facts["promotion"]
    assert (reported["promoted"], reported["against"]) == (False, 1)
    assert reported["difference"] < -reported["margin"]
    assert reported["difference_interval"][1] < 0
    assert deployment.store.resolve("faces") == ("faces", 1)
    # As good as what is there: on the same data, nothing is lost.
    message, _ = trained(deployment, **GOOD)
    assert message.startswith("registered faces:3, now faces@production: mean TPR")
    message, _ = trained(deployment, **{**BAD, "promote": True})
    assert deployment.store.resolve("faces") == ("faces", 4)
    message, facts = trained(deployment, **GOOD)
    assert facts["promotion"]["difference"] > 0
    assert deployment.store.resolve("faces") == ("faces", 5)


def test_what_is_neither_as_good_nor_worse_is_undecided_and_says_what_would_decide(deployment):
    X, y = people(60, 3, seed=4)
    deployment.upload("close", X + 2 * np.random.default_rng(0).normal(size=X.shape).astype(np.float32), y)
    plain = {
        "learner": "metric",
        "dataset": "close",
        "promote": "if-better",
        "evaluation": {"target_fpr": 0.25},
    }
    trained(deployment, **plain, params={"metric": "euclidean"})
    message, facts = trained(deployment, **plain, params={"metric": "manhattan"})
    reported = facts["promotion"]
    low, high = reported["difference_interval"]
    assert low < -0.01 < 0 <= high
    assert (reported["promoted"], reported["undecided"], reported["judged_by"]) == (
        False,
        True,
        "mean TPR at FPR 25 %",
    )
    assert message.startswith("registered faces:2, not promoted: undecided: mean TPR at FPR 25 %")
    assert reported["units_to_decide"] > 12
    assert f"about {reported['units_to_decide']:,} people (12 now) would decide" in message
    assert deployment.store.resolve("faces") == ("faces", 1)


def test_who_learned_from_everything_is_compared_by_its_own_folds(deployment):
    X, y = people(60, 4)
    ends = np.random.default_rng(1).integers(0, y.size, (3_000, 2))
    ends = np.concatenate([ends, np.stack([np.arange(239), np.arange(1, 240)], axis=1)])
    listed = dict.fromkeys((int(a), int(b)) for a, b in ends if a != b)
    lines = [f"{a},{b},{int(y[a] == y[b])}" for a, b in listed]
    deployment.upload("listed", X, pairs="\n".join(["left,right,same", *lines]) + "\n")
    trained(deployment, dataset="listed", promote="if-better")
    message, facts = trained(deployment, dataset="listed", promote="if-better")
    assert message.startswith("registered faces:2, now faces@production: mean TPR")
    reported = facts["promotion"]
    assert (reported["difference"], reported["n_left_out"]) == (0, 0)
    assert "overlap" not in reported
    message, _ = trained(deployment, **BAD, dataset="listed")
    assert message.startswith("registered faces:3, not promoted")


def test_what_cannot_be_compared_is_not_promoted(deployment):
    trained(deployment, **GOOD)
    deployment.upload("wide", *people(40, 5, width=9))
    message, facts = trained(deployment, **GOOD, dataset="wide")
    assert "takes 6 features and this data has 9" in message
    assert facts["promotion"]["promoted"] is False
    assert deployment.store.resolve("faces") == ("faces", 1)


def test_an_alias_that_was_moved_during_the_comparison_stays(deployment, monkeypatch):
    trained(deployment, **GOOD)
    trained(deployment, **{**GOOD, "promote": False})
    from pairmark.service.training import evaluating

    real = evaluating.promotion

    def meanwhile(*given):
        decided = real(*given)
        deployment.store.promote("faces", "production", 2, actor="somebody")
        return decided

    monkeypatch.setattr(evaluating, "promotion", meanwhile)
    message, _ = trained(deployment, **GOOD)
    assert "not promoted, since faces@production was moved meanwhile" in message
    assert deployment.store.resolve("faces") == ("faces", 2)


def test_who_names_no_learner_gets_the_one_for_the_data(deployment):
    request = deployment.request(learner=None, params={})
    assert deployment.queue.submit(request).learner in ("similarity-auto", "similarity-forest")
    # A budget is no reason to refuse a learner that nobody named; one that was named has to take it.
    file = deployment.folder / "ranked.csv"
    file.write_text("x,a,b,c\n" + "".join(f"{row},{row % 2},{1 - row % 2},2\n" for row in range(60)))
    deployment.datasets.add(file, DatasetRequest(name="ranked", ranking=["a", "b", "c"]))
    asked = deployment.request(dataset="ranked", learner=None, params={}, budget_seconds=5)
    assert deployment.queue.submit(asked).learner == "label-ranking-auto"
    with pytest.raises(InvalidInput, match="takes no budget"):
        deployment.queue.submit(deployment.request(budget_seconds=5))


def test_the_calibration_part_follows_from_the_rate_that_will_be_asked_for(deployment):
    deployment.upload("many", *people(1_000, 2))

    def fraction(**evaluation):
        job = deployment.queue.submit(deployment.request(dataset="many", model="many", evaluation=evaluation))
        return job.evaluation.calibration_fraction

    assert fraction() == 0.25
    assert fraction(target_fpr=0.1) == 0.116
    assert fraction(target_fpr=0.05) == 0.236
    assert fraction(target_fpr=0.001) == 0.5
    assert fraction(target_fpr=0.001, calibration_fraction=0.2) == 0.2
    assert np.isclose(fraction(target_fpr=0.4), 0.1)
