"""From a dataset to a registered version of any kind: nothing leaks, nothing is half-made, seeds decide everything."""

import csv
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments._synthetic_rankings import make_ranking_data, truncated_gaussian, with_missing
from pairmark import MetricSimilarity, kendall_tau
from pairmark.models.core.artefact import read_artefact
from pairmark.models.pairs.splits import split_data
from pairmark.models.records import estimator
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.tables import cells_of
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.held_out import whole_dataset
from pairmark.service.errors import Fenced, InvalidInput, NotReady, UnknownModel
from pairmark.service.jobs.leases import Leases, Progress
from pairmark.service.tables import ModelVersion
from pairmark.service.training.fitting import FoldScorer, fit, score
from pairmark.service.training.splitting import ROWS, split
from pairmark.service.training.trainer import STAGES, Trainer
from pairmark.service.worker import attempt_error
from pairmark.version import code_version
from tests.service.conftest import SMALL_FOREST, people


def claimed(deployment, **changes):
    job = deployment.queue.submit(deployment.request(**changes))
    return deployment.queue.leases.claim("test", job_id=job.id)


def trainer(deployment):
    return Trainer(deployment.db, deployment.blobs, deployment.settings)


def row(deployment, version, name="faces"):
    return deployment.store.row(name, version)


def test_a_job_gives_a_served_calibrated_version_with_its_lineage(deployment):
    claim = claimed(deployment)
    assert trainer(deployment).run(claim) == 1
    job = deployment.queue.get(claim.job_id)
    assert (job.state, job.version, job.progress, job.stage) == ("succeeded", 1, 1.0, "succeeded")
    version = deployment.store.version("faces", 1)
    dataset = deployment.datasets.get("people")
    assert (version.aliases, version.lineage.dataset_sha256) == (["production"], dataset.sha256)
    assert version.lineage.job == job.id
    assert version.lineage.code_version == code_version()
    assert (
        version.lineage.artefact_sha256
        == read_artefact(deployment.blobs.folder(row(deployment, 1).artefact)).sha256
    )
    assert version.facts["protocol"] == "open-set"
    assert version.metrics["auc"]["value"] > 0.9
    low, high = version.metrics["auc"]["interval"]
    assert low <= version.metrics["auc"]["value"] <= high
    calibration, reported = deployment.store.calibrations.load(version.calibration_id)
    assert reported.protocol == calibration.protocol == "open-set"
    assert reported.dataset_sha256 == dataset.sha256
    assert calibration.operating_point(0.5).n_units == version.facts["parts"]["calibration_identities"]
    roc = deployment.store.reports.roc("faces", 1)
    assert roc.fpr[0] == roc.tpr[0] == 0.0
    assert roc.fpr[-1] == roc.tpr[-1] == 1.0
    assert len(roc.bands.fpr_low) == len(roc.fpr) == len(roc.thresholds)
    stages = [event.data["stage"] for event in deployment.queue.events(job.id) if event.event == "progress"]
    ordered = list(dict.fromkeys(stages))
    assert ordered == ["loading", "splitting", "fitting", "scoring", "calibrating", "evaluating", "storing"]
    shown = [event.data["progress"] for event in deployment.queue.events(job.id) if event.event == "progress"]
    assert shown == sorted(shown)


def test_the_held_out_people_are_in_no_other_part(deployment):
    deployment.train()
    data = deployment.datasets.load(deployment.datasets.get("people").id)
    split = split_data(np.asarray(data.y), protocol="open-set", random_state=0)
    parts = deployment.store.version("faces", 1).facts["parts"]
    assert parts["train_rows"] == split.train.size
    report = read_artefact(deployment.blobs.folder(row(deployment, 1).report))
    trained = report.arrays["trained_rows"]
    assert np.isin(data.row_hashes[split.train], trained).all()
    assert not np.isin(data.row_hashes[np.concatenate([split.calibration, split.test])], trained).any()
    assert report.arrays["trained_identities"].size == parts["train_identities"]


def test_the_same_seed_gives_the_same_artefact_and_operating_points(deployment):
    first, second = deployment.train(), deployment.train(params={**SMALL_FOREST, "n_jobs": 2})
    other = deployment.train(params={**SMALL_FOREST, "random_state": 7})
    arrays = [
        read_artefact(deployment.blobs.folder(row(deployment, version).artefact)).arrays
        for version in (first, second)
    ]
    assert arrays[0].keys() == arrays[1].keys()
    for name in arrays[0]:
        np.testing.assert_array_equal(arrays[0][name], arrays[1][name])
    points = [
        deployment.store.calibrations.load(deployment.store.version("faces", version).calibration_id)[
            0
        ].operating_point(0.5)
        for version in (first, second, other)
    ]
    assert points[0] == points[1]
    assert points[0] != points[2]
    versions = [deployment.store.version("faces", version) for version in (first, second)]
    assert versions[0].metrics == versions[1].metrics


def listed_people(
    deployment, n: int = 60, reach: int = 8, wrong: tuple[tuple[int, int, int], ...] = ()
) -> int:
    """Upload pairs of people near each other in a list, of whom nobody says who they are; returns how many pairs."""
    X, _ = people(n, 4)
    same = [(4 * who + i, 4 * who + j, 1) for who in range(n) for i in range(4) for j in range(i)]
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, n, 4_000)
    others = (drawn + rng.integers(1, reach, 4_000)) % n
    different = dict.fromkeys(zip((4 * drawn).tolist(), (4 * others + 1).tolist(), strict=True))
    lines = [
        f"{left},{right},{truth}"
        for left, right, truth in [*same, *((a, b, 0) for a, b in different), *wrong]
    ]
    deployment.upload("listed", X, pairs="\n".join(["left,right,same", *lines]) + "\n")
    return len(lines)


def test_listed_pairs_of_guessed_people_all_train_and_are_measured_by_folds(deployment):
    # One pair contradicts the others.
    n_pairs = listed_people(deployment, wrong=((0, 2, 0),)) - 1
    deployment.train(dataset="listed", model="listed")
    version = deployment.store.version("listed", 1)
    parts = version.facts["parts"]
    assert version.facts["protocol"] == "open-set"
    assert version.metrics["auc"]["value"] > 0.9
    assert "blocks of the list" in version.metrics["intervals"]
    assert (parts["train_pairs"], parts["folds"]) == (n_pairs, 5)
    assert parts["scored_pairs"] + parts["crossing_pairs"] == n_pairs
    assert parts["crossing_pairs"] < 0.5 * n_pairs
    assert (version.metrics["n_same_pairs"] + version.metrics["n_negative_pairs"]) == parts["scored_pairs"]
    job = deployment.queue.get(version.lineage.job)
    told = (job.message, " ".join(deployment.store.reports.report(version).limits))
    share = f"{parts['crossing_pairs']:,} ({100 * parts['crossing_pairs'] / n_pairs:.0f} %) join two folds"
    assert all(share in words and "All pairs but 1, which contradict" in words for words in told), told
    # Nobody was held out whom a calibration of subjects could be drawn from.
    report = read_artefact(deployment.blobs.folder(row(deployment, 1, "listed").report))
    assert report.arrays["calibration_rows"].size == 0


class Memory(MetricSimilarity):
    """A learner that scores a pair by how many of its sides it learned from."""

    def fit_pairs(self, left, right, same, sample_weight=None):
        self.seen_ = {tuple(side) for side in np.concatenate([left, right]).tolist()}
        return self

    def fit(self, X, y):
        return self.fit_pairs(X, X, y)

    def score_pairs(self, X, left, right, on_progress=None):
        seen = np.array([tuple(line) in self.seen_ for line in X.tolist()])
        return seen[left].astype(np.float32) + seen[right]


@pytest.mark.parametrize("n", [12, 25, 60])
@pytest.mark.parametrize("kind", ["listed", "identities"])
def test_every_figure_of_folds_is_of_people_whom_the_model_did_not_see(deployment, kind, n):
    evaluation: dict[str, object] = {"protocol": "open-set"}
    if kind == "listed":
        listed_people(deployment, n)
    else:
        deployment.upload("listed", *people(n, 4))
        evaluation["test_fraction"] = 0
    claim = claimed(deployment, dataset="listed", evaluation=evaluation).model_copy(update={"params": {}})
    loaded = trainer(deployment)._load(claim)
    job = split(replace(loaded, spec=replace(loaded.spec, estimator=Memory)))
    progress = Progress(Leases(deployment.db, deployment.settings), claim, STAGES)
    progress.stage("fitting")
    scored = score(fit(job, deployment.settings, progress), progress)
    test = job.parts.test
    assert len(scored.fold_models) == np.unique(test.folds).size > 1
    assert not scored.test_scores.any()
    assert scored.estimator.score_pairs(job.X, test.left, test.right).min() == 2
    if kind == "identities":
        assert not scored.calibration_scores.any()


def test_models_of_folds_keep_together_what_one_may_keep(monkeypatch):
    table = {"name": [f"{'abcd'[at % 4]}nna {'klm'[at % 3]}ell {at // 2}" for at in range(80)]}
    table["city"] = [f"{'xyz'[at % 5 % 3]}burg" for at in range(80)]
    types = {"name": "name", "city": "category"}
    models = [
        RecordSimilarity(n_estimators=4, n_pairs=200, columns=types, random_state=seed).fit(
            table, np.arange(80) // 2
        )
        for seed in range(3)
    ]
    # No pair is of the second fold; rows of the others are apart.
    fold, drawn = np.repeat([0, 2], 40), np.random.default_rng(0)
    left = drawn.permutation(80)
    right = np.where(fold[left] == 0, 0, 40) + drawn.integers(0, 40, 80)
    scorer = FoldScorer(SimpleNamespace(fold_models=models, estimator=models[0]), fold[left])
    cells = cells_of(table, models[0].schema_, "X")
    blanked = cells.copy()
    blanked[:, 1] = None
    scored = scorer.compare_once(cells, left, right)(np.array([False, True]), np.arange(80))
    np.testing.assert_array_equal(scored, scorer.score_pairs(blanked, left, right))
    keep = []
    for most in range(1_001, 10_001, 300):
        monkeypatch.setattr(estimator, "_MOST_KEPT", most)
        keep.append([kept.compare_once(cells, left, right) is None for kept in (models[0], scorer)])
    assert [True, True] in keep
    assert [False, False] in keep
    assert not any(one != all_folds for one, all_folds in keep)


def test_groups_are_not_torn_apart(deployment):
    X, y = people(6, 40)
    groups = np.arange(y.size) // 4
    file = deployment.folder / "grouped.csv"
    header = "who,session," + ",".join(f"f{i}" for i in range(X.shape[1]))
    body = [
        f"p{who},s{group}," + ",".join(map(str, line)) for who, group, line in zip(y, groups, X, strict=True)
    ]
    file.write_text("\n".join([header, *body]) + "\n")
    deployment.datasets.add(file, DatasetRequest(name="grouped", label="who", group="session"))
    deployment.train(
        dataset="grouped", model="grouped", evaluation={"protocol": "closed-set", "n_pairs": 2000}
    )
    data = deployment.datasets.load(deployment.datasets.get("grouped").id)
    trained = read_artefact(deployment.blobs.folder(row(deployment, 1, "grouped").report)).arrays[
        "trained_rows"
    ]
    in_training = np.isin(data.row_hashes, trained)
    for group in range(60):
        assert len(set(in_training[np.asarray(data.groups) == group])) == 1
    # One sample of a session stands for it, so no more units than held-out sessions.
    assert deployment.store.version("grouped", 1).calibrations[0].summary["n_units"] == 15


def test_data_that_is_too_small_fails_with_advice_and_leaves_nothing(deployment):
    deployment.upload("tiny", *people(3, 2))
    before = set(deployment.blobs.ages())
    claim = claimed(deployment, dataset="tiny", model="tiny", evaluation={"protocol": "open-set"})
    error = attempt_error(claim, trainer(deployment), 2**40)
    assert isinstance(error, InvalidInput)
    assert "tiny:1 cannot be split" in error.detail
    assert "bring more data" in error.detail
    with pytest.raises(UnknownModel):
        deployment.store.model("tiny")
    assert {key for key, _ in deployment.blobs.ages()} == {key for key, _ in before}


def test_a_superseded_attempt_registers_nothing_and_leaves_no_blob(deployment):
    claim = claimed(deployment)
    deployment.queue.cancel(claim.job_id)
    before = {key for key, _ in deployment.blobs.ages()}
    with pytest.raises(Fenced):
        trainer(deployment).run(claim)
    assert {key for key, _ in deployment.blobs.ages()} == before
    with deployment.db.read() as session:
        assert session.query(ModelVersion).count() == 0


def test_a_commit_whose_answer_was_lost_is_recognised(deployment, monkeypatch):
    claim, run = claimed(deployment), trainer(deployment)
    real, lost = type(deployment.db).write, []

    @contextmanager
    def write(self):
        with real(self) as session:
            yield session
            finishing = session.query(ModelVersion).count() == 1
        if finishing and not lost:
            lost.append(True)
            raise NotReady("the server closed the connection after COMMIT")

    monkeypatch.setattr(type(deployment.db), "write", write)
    assert run.run(claim) == 1
    assert lost
    assert deployment.queue.get(claim.job_id).state == "succeeded"
    assert len(deployment.store.model("faces").versions) == 1


@pytest.mark.parametrize("listing", [None, "all", "random-people"])
def test_a_list_that_is_cut_is_cut_by_people(deployment, listing):
    """Twenty people of ten photos and forty of one: by rows nearly all pairs would be of the twenty."""
    who = np.repeat(np.arange(60), np.where(np.arange(60) < 20, 10, 1))
    left, right = np.triu_indices(who.size, 1)
    lines = [f"{i},{j},{int(who[i] == who[j])}" for i, j in zip(left, right, strict=True)]
    X = np.random.default_rng(0).normal(size=(who.size, 4))
    deployment.upload("photos", X, who, pairs="\n".join(["left,right,same", *lines]) + "\n")
    data = deployment.datasets.load(deployment.datasets.get("photos").id)
    pairs = whole_dataset(data, protocol="open-set", n_pairs=1_000, random_state=0, listing=listing)
    edges = np.unique(np.sort(pairs.units[~pairs.same], axis=1), axis=0)
    assert len(edges) > 900
    assert abs((edges < 20).all(axis=1).mean() - 190 / 1_770) < 0.03
    assert pairs.listing == "random-people"


def drawn_lines(same: list[str], y: np.ndarray, n: int) -> list[str]:
    """Pairs of a file: those that are the same, and drawn ones of different people, up to n and none twice."""
    ends = np.random.default_rng(1).integers(0, y.size, (2 * n, 2))
    different = [f"{i},{j},0" for i, j in ends if y[i] != y[j]]
    return [*dict.fromkeys([*same, *different][:n])]


def test_units_of_a_pairs_file_are_people_or_said_to_be_assumed(deployment):
    """Photos of 60 people: with names or units at most 60 units, else a guess that promises nothing; and so does a list
    of which nobody says how it came about."""
    X, y = people(60, 6)
    plain = drawn_lines([f"{6 * who},{6 * who + 1},1" for who in range(60)], y, 3_000)
    owned = [f"{line},ann {y[int(line.split(',')[0])]},ann {y[int(line.split(',')[1])]}" for line in plain]
    deployment.upload("guessed", X, pairs="\n".join(["left,right,same", *plain]) + "\n")
    deployment.upload("owned", X, pairs="\n".join(["left,right,same,left_unit,right_unit", *owned]) + "\n")
    deployment.upload("named", X, y, pairs="\n".join(["left,right,same", *plain]) + "\n")
    for number, (name, listing, origin, guarantee) in enumerate(
        (
            ("guessed", "random-people", "assumed", "none"),
            ("owned", "random-people", "random", "finite-sample"),
            ("named", "random-rows", "random-rows", "none"),
            ("named", None, "unknown", "none"),
        )
    ):
        evaluation = {"calibration_fraction": 0.5, "listing": listing}
        model = f"{name}-{number}"
        deployment.train(learner="metric", dataset=name, model=model, params={}, evaluation=evaluation)
        calibration = deployment.store.calibrations.load(deployment.store.version(model, 1).calibration_id)[0]
        point = calibration.operating_point(calibration.smallest_fpr()["finite-sample"])
        assert (point.origin, point.guarantee) == (origin, guarantee)
        assert (point.n_units <= 60) == (origin != "assumed")
    with pytest.raises(InvalidInput, match=r"columns are .*left_unit"):
        deployment.upload("half", X, pairs="left,right,same,left_unit\n0,1,1,0\n0,9,0,0\n")


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
    claim = claimed(noisy, dataset="noisy", model="noisy", learner="metric", params={"metric": "euclidean"})
    test = split(trainer(noisy)._load(claim)).parts.test
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
        assert (found.dataset, found.threshold) == ("noisy:1", point.threshold)
        assert found.of == int((test.same == (kind == "false-non-match")).sum())
        shown = [item.score for item in found.items]
        np.testing.assert_allclose(shown, expected[: len(shown)], rtol=1e-5)
        assert len(shown) == min(expected.size, 200)
        assert found.more == (expected.size > 200)
        for item in found.items:
            assert item.score == pytest.approx(-np.linalg.norm(X[item.left] - X[item.right]), rel=1e-5)


def test_listed_pairs_give_a_model_that_compares_but_names_no_classes(deployment):
    X, y = people(40, 4)
    same = [f"{4 * who + i},{4 * who + j},1" for who in range(40) for i in range(4) for j in range(i)]
    lines = ["left,right,same", *drawn_lines(same, y, 2_000)]
    deployment.upload("listed", X, pairs="\n".join(lines) + "\n")
    deployment.train(learner="ghost", dataset="listed", model="listed", params={"random_state": 0})
    version = deployment.store.version("listed", 1)
    assert version.capabilities == ["embed", "match", "search", "similarity"]
    assert version.metrics["auc"]["value"] > 0.9
    assert version.facts["weights"]
    assert "strategy" not in version.facts


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
    return deployment.datasets.add(
        path, DatasetRequest(name=name, ranking=["ranking"], group=None if groups is None else "site")
    )


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
    assert kendall_tau(deployment.store.load("weather", 1).predict(sample.X), sample.truth).mean() > 0.75


def test_what_cannot_be_learned_from_is_refused_with_a_reason(deployment):
    sample = made(3)
    add(deployment, "few", sample.rankings, sample)
    with pytest.raises(InvalidInput, match="3 rows"):
        train(deployment, "few")
    with pytest.raises(InvalidInput, match="has none"):
        train(deployment, "people")
