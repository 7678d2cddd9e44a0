"""Training jobs that combine registered versions: what is pinned, what is learned anew, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.core.registry import load
from pairmark.service.errors import InvalidInput, ModelNotCapable, UnknownModel
from pairmark.service.tables import JobRow

pytestmark = pytest.mark.database("postgresql")

FIXED = {"marginals": "raw", "length_norm": False, "shrink_within": 0.1, "shrink_between": 0.1}


def parts(deployment) -> None:
    deployment.train(learner="plda", model="shapes", params=FIXED, promote=True)
    deployment.train(learner="metric", model="sizes", params={"metric": "euclidean"}, promote=False)


def fused(deployment, **changes):
    given = {
        "learner": "fusion",
        "model": "both",
        "params": {"models": ["shapes", "sizes:1"], "keep": "always"},
    }
    return {**given, **changes}


def artefact(deployment, name: str, version: int):
    return load(deployment.blobs.folder(deployment.store._versions.row(name, version).artefact))


def test_versions_are_pinned_and_learned_anew_without_the_calibration_people(deployment) -> None:
    parts(deployment)
    version = deployment.train(**fused(deployment))
    reported = deployment.store.version("both", version)
    assert [one["version"] for one in reported.facts["fusion"]["models"]] == ["shapes:1", "sizes:1"]
    assert reported.params["models"][0]["params"]["shrink_within"] == 0.1
    assert {"similarity", "match", "search"} <= set(reported.capabilities)
    assert "own" in reported.metrics["likelihood_ratios"]
    # The same split and seed: what the named version learned is what the part of the fused one has learned.
    rows = np.asarray(deployment.datasets.load(deployment.datasets.get("people").id).X)[:8]
    whole, part = artefact(deployment, "both", version), artefact(deployment, "shapes", 1)
    assert (
        whole.models_[0].pair_score(rows[:4], rows[4:]).tobytes()
        == part.pair_score(rows[:4], rows[4:]).tobytes()
    )
    # It stands alone: what it was made of can go.
    deployment.train(learner="metric", model="shapes", params={}, promote=True)
    deployment.store.delete("shapes", 1)
    again = artefact(deployment, "both", version)
    assert again.pair_score(rows[:4], rows[4:]).tobytes() == whole.pair_score(rows[:4], rows[4:]).tobytes()


def test_a_name_means_the_version_that_it_names_when_the_job_is_submitted(deployment) -> None:
    parts(deployment)
    job = deployment.queue.submit(deployment.request(**fused(deployment)))
    deployment.train(learner="metric", model="shapes", params={}, promote=True)
    with deployment.db.read() as session:
        kept = session.get(JobRow, job.id).params
    assert kept["models"][0]["version"] == "shapes:1"
    assert kept["models"][0]["learner"] == "plda"


def test_what_cannot_be_combined_is_refused_before_it_is_queued(deployment) -> None:
    parts(deployment)
    X = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    deployment.upload("classes", X, np.repeat(np.arange(4), 20))
    deployment.train(
        learner="rsbl", dataset="classes", model="classes", params={"depth": 1, "k_max": 3}, promote=False
    )
    for models, error, words in [
        (["shapes", "nobody"], UnknownModel, "nobody"),
        (["shapes", "sizes"], UnknownModel, "production"),
        (["shapes", "sizes:9"], UnknownModel, "no version 9"),
        (["shapes", "classes:1"], ModelNotCapable, "rsbl"),
        (["shapes"], InvalidInput, "at least 2"),
        (["shapes", {"learner": "poem"}], InvalidInput, r"params\.models"),
        ("shapes", InvalidInput, r"params\.models"),
        (["shapes", "sizes:x"], InvalidInput, "version"),
    ]:
        with pytest.raises(error, match=words):
            deployment.queue.submit(deployment.request(**fused(deployment, params={"models": models})))
