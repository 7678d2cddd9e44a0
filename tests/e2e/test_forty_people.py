"""40 people from a file to a decision: at every step it is said what can be promised."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np

from pairmark.models.calibration.promises import askable
from tests.serving import Serve


def words(page: str) -> str:
    """The text of a page as people read it."""
    return re.sub(r"(?:<[^>]+>|\s|\u00a0)+", " ", page)


def test_forty_people_learn_at_every_step_what_can_be_promised(serve: Serve, tmp_path: Path) -> None:
    deployment = serve()
    at = ("--url", deployment.url)
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(40, 6)) * 2, 5, axis=0) + rng.normal(size=(200, 6)) * 0.5
    file = tmp_path / "forty.csv"
    lines = [",".join([f"p{row // 5}", *(f"{value:.5f}" for value in X[row])]) for row in range(200)]
    file.write_text("\n".join(["person,a,b,c,d,e,f", *lines, ""]))
    promise = (
        "10 of 40 people calibrate. At 95 % confidence they support false positive rates of 46 % and above; "
        "10 % takes 76 more people"
    )

    def said(*given: str) -> str:
        reported = deployment.cli(*given, *at)
        assert reported.returncode == 0, reported.stderr
        return " ".join(reported.stdout.split())

    def page(path: str) -> str:
        return words(deployment.http.get(path, headers={"Accept": "text/html"}).text)

    # Before anything is kept, at upload, and of the dataset ever after; on its page too.
    assert promise in said("datasets", "inspect", str(file))
    assert promise in said("datasets", "add", "forty", str(file), "--label", "person")
    assert promise in said("datasets", "show", "forty")
    assert promise in page("/console/datasets/forty:1")
    # A target that is out of reach, when the job is queued; what the version can promise, when it is done.
    job = deployment.http.post(
        "/jobs",
        json={
            "learner": "similarity-tree",
            "dataset": "forty",
            "model": "forty",
            "params": {"n_pairs": 1_000, "max_depth": 3},
            "evaluation": {"target_fpr": 0.01},
        },
    ).json()
    assert "The target rate 1 % cannot be promised from this dataset" in job["message"]
    done = deployment.finished(job["id"])
    assert done["state"] == "succeeded", done
    # Half of the people calibrate, since a target was named.
    version = deployment.http.get("/models/forty/versions/1").json()
    smallest = version["promise"]["smallest_fpr"]
    assert version["promise"]["calibration_units"] == 20
    assert smallest < 0.27
    assert (
        f"false positive rates of {math.ceil(100 * smallest)} % and above (95 % confidence)"
        in done["message"]
    )
    assert version["promise"]["text"] in said("models", "show", "forty")
    assert version["promise"]["text"] in page("/console/models/forty/1")
    # Asked for more than that: a refusal with the way out, and what other methods would answer.
    left, right = (",".join(f"{value:.5f}" for value in X[row]) for row in (0, 1))
    refused = deployment.cli("match", left, right, "--fpr", "0.01", "--model", "forty", *at)
    assert refused.returncode == 1
    assert f"supports rates of {askable(smallest):g} and above" in " ".join(refused.stderr.split())
    reported = deployment.http.post("/match?fpr=0.01", json={"left": X[0].tolist(), "right": X[1].tolist()})
    assert reported.status_code == 422
    assert reported.json()["alternatives"]["estimate"]["guarantee"] == "none"
    assert reported.json()["required_units"]["finite-sample"] > 500
    guess = said("match", left, right, "--fpr", "0.01", "--model", "forty", "--method", "estimate")
    assert "Nothing is promised: the threshold is an estimate" in guess
    # Asked for what they support: a decision with a promise that holds.
    decided = deployment.cli(
        "match", left, right, "--fpr", f"{smallest * 1.01:.4f}", "--model", "forty", "--json", *at
    )
    assert decided.returncode == 0, decided.stderr
    point = json.loads(decided.stdout)["operating_point"]
    assert (point["guarantee"], point["promise"], point["n_units"]) == ("finite-sample", "pointwise", 20)
