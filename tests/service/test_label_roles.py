"""What labels are, said at upload and named by every answer; groups of people, and people without labels."""

import io
import json
from unicodedata import normalize

import numpy as np
import pytest
from pydantic import ValidationError
from starlette.datastructures import UploadFile
from typer.testing import CliRunner

from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.api.models import report_page
from pairmark.service.cli import app
from pairmark.service.datasets.guarantees import expected_guarantee, shares_for, ways_from
from pairmark.service.errors import CalibrationOverlap, ChooseProtocol, InvalidInput
from pairmark.service.runtime.operating_points import PointRequest
from pairmark.service.runtime.runtime import Runtime
from tests.service.conftest import SMALL_FOREST, Deployment, people


def added(deployment: Deployment, name: str, n: int = 20, rows: int = 30, **roles: str):
    X, y = people(n, rows)
    file = deployment.folder / f"{name}.npz"
    np.savez(file, X=X, y=y)
    return deployment.datasets.add(file, DatasetRequest(name=name, **roles))


def submitted(deployment: Deployment, **changes):
    job = deployment.queue.submit(deployment.request(model="m", **changes))
    deployment.queue.cancel(job.id)
    return job


@pytest.mark.parametrize("roles", [{}, {"label": "y"}])
def test_a_bare_label_of_few_values_is_asked_about_with_what_each_answer_could_promise(deployment, roles):
    dataset = added(deployment, "few", **roles)
    assert (dataset.label, dataset.label_role, dataset.promise) == ("y", "label", None)
    with pytest.raises(ChooseProtocol) as asked:
        submitted(deployment, dataset="few")
    choices = {choice["protocol"]: choice for choice in asked.value.facts["choices"]}
    assert choices.keys() == {"open-set", "closed-set"}
    for protocol, role in (("open-set", "identity"), ("closed-set", "classes")):
        named = added(deployment, role, **{role: "y"})
        assert choices[protocol]["role"] == role
        assert choices[protocol]["promise"] == named.promise.model_dump()
        assert named.promise.protocol == protocol
        assert named.promise.text in asked.value.detail
    # Five people to calibrate on are two disjoint pairs: next to nothing; 150 samples promise far more.
    rates = {name: choice["promise"]["smallest_fpr"] for name, choice in choices.items()}
    assert rates["open-set"] > 0.7
    assert rates["closed-set"] < 0.1
    assert deployment.queue.page().items == []


@pytest.mark.parametrize("protocol", ["open-set", "closed-set"])
def test_a_stated_protocol_decides_whatever_the_labels_were_called(deployment, protocol):
    for role in ("identity", "classes", "label"):
        added(deployment, "few", **{role: "y"})
        job = submitted(deployment, dataset="few", evaluation={"protocol": protocol})
        assert ("people calibrate" in job.message) == (protocol == "open-set")


def test_thirty_values_and_more_are_identities_unless_they_are_classes(deployment):
    added(deployment, "many", n=30, rows=4, label="y")
    assert "people calibrate" in submitted(deployment, dataset="many").message
    added(deployment, "many", n=29, rows=4, label="y")
    with pytest.raises(ChooseProtocol):
        submitted(deployment, dataset="many")
    added(deployment, "many", n=40, rows=4, classes="y")
    assert "samples calibrate" in submitted(deployment, dataset="many").message


@pytest.mark.parametrize(
    "roles",
    [
        {"identity": "a", "classes": "a"},
        {"identity": "a", "label": "b"},
        {"classes": "a", "unlabelled": True},
    ],
)
def test_roles_that_contradict_each_other_are_refused(roles):
    with pytest.raises(ValidationError, match=r"identity, classes and label|unlabelled"):
        DatasetRequest(name="x", **roles)


def test_a_closed_set_promise_names_its_population(deployment):
    added(deployment, "ten", n=10, rows=40, classes="y")
    deployment.train(dataset="ten", model="m")
    version = deployment.store.version("m", 1)
    assert version.promise.population == "these 10 classes"
    assert "among these 10 classes" in version.promise.text
    limits = deployment.store.reports.report(version).limits
    assert any("new samples of these 10 classes" in one for one in limits)
    assert decision(deployment, version.calibration_id, 0.2)["population"] == {"classes": 10}
    assert decision(deployment, version.calibration_id, 0.2)["meaning"].endswith(
        "It holds among these 10 classes."
    )
    deployment.upload("people-named", *people(60, 3))
    deployment.train(dataset="people-named", model="open")
    open_set = decision(deployment, deployment.store.version("open", 1).calibration_id, 0.4)
    assert open_set["population"] is None
    assert "classes" not in open_set["meaning"]


def decision(deployment: Deployment, calibration_id: str, fpr: float):
    """What `/match` states of its threshold."""
    runtime = Runtime(deployment.store, deployment.db, deployment.settings)
    return runtime.points.compute(PointRequest(calibration_id, fpr, 0.95, "auto")).public


def test_what_is_promised_of_few_people_holds_for_people_never_met(deployment):
    """20 people of 30 rows: a promise about new people either is refused or holds; one about classes would not."""
    refused, rates = 0, []
    for seed in range(3):
        X, y = people(220, 30, seed=seed, width=4)
        X[:, :] += np.random.default_rng(seed).normal(size=X.shape) * 0.7
        few = y < 20
        file = deployment.folder / f"few-{seed}.npz"
        np.savez(file, X=X[few], y=y[few])
        deployment.datasets.add(file, DatasetRequest(name=f"few-{seed}", identity="y"))
        deployment.train(dataset=f"few-{seed}", model=f"m-{seed}", params=SMALL_FOREST)
        version = deployment.store.version(f"m-{seed}", 1)
        calibration = deployment.store.calibrations.load(version.calibration_id)[0]
        for fpr in (0.1, 0.8):
            try:
                point = calibration.operating_point(fpr)
            except InsufficientCalibrationData:
                refused += 1
                continue
            assert (point.protocol, point.guarantee) == ("open-set", "finite-sample")
            model = deployment.store.load(f"m-{seed}", 1)
            fresh = X[~few][::30]
            left, right = np.triu_indices(len(fresh), 1)
            rates.append(float((model.pair_score(fresh[left], fresh[right]) > point.threshold).mean()))
    assert (refused, len(rates)) == (3, 3)
    # Each is above with a chance of 5 % at most; their mean hardly ever.
    assert np.mean(rates) <= 0.8


def table(deployment: Deployment, names: list[str], **roles: str):
    lines = "".join(f"{name},{at % 7},{at % 5}\n" for at, name in enumerate(names))
    return deployment.datasets.add(
        UploadFile(io.BytesIO(f"who,a,b\n{lines}".encode()), filename="table.csv"),
        DatasetRequest(name="table", **roles),
    )


def test_labels_of_one_spelling_are_one(deployment):
    names = [f"é{at // 2}" for at in range(80)]
    spelled = [f"{normalize('NFD', name)} " if at % 2 else name for at, name in enumerate(names)]
    assert table(deployment, spelled, identity="who").label_counts == dict.fromkeys(sorted(set(names)), 2)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        (("Ann", "ANN"), "'ANN' and 'Ann'"),
        (("0012", "12"), "'0012' and '12'"),
        (("3", "3.0"), "'3' and '3.0'"),
        (("a b", "ab"), "'a b' and 'ab'"),
    ],
)
def test_labels_that_hardly_differ_are_listed(deployment, pair, said):
    found = table(deployment, [*pair * 2, *(f"p{at // 2}x" for at in range(40))], identity="who")
    assert f"tell apart (1): {said}." in " ".join(found.warnings)
    assert "tell apart" not in " ".join(
        table(deployment, ["1.05", "1.5", "10", "1"] * 20, identity="who").warnings
    )


@pytest.mark.parametrize("word", ["unknown", "NA", "-"])
def test_nobody_is_called_by_a_word_for_no_value(deployment, word):
    names = [word] * 6 + [f"p{at // 2}" for at in range(80)]
    for roles in ({"identity": "who"}, {"label": "who"}):
        with pytest.raises(InvalidInput, match=f"6 of 86 rows name nobody.*'{word}' 6.*Leave them out"):
            table(deployment, names, **roles)
    assert table(deployment, names, classes="who").label_counts[word] == 6


def test_what_is_promised_at_upload_is_what_the_version_keeps(deployment):
    reported = deployment.upload("some", *people(200, 3)).promise
    assert (reported.protocol, reported.units, reported.calibration_units) == ("open-set", 200, 50)
    job = deployment.queue.submit(
        deployment.request(dataset="some", model="some", params={}, learner="similarity-forest")
    )
    assert reported.text in job.message
    deployment.queue.cancel(job.id)
    deployment.train(dataset="some", model="some")
    version = deployment.store.version("some", 1)
    assert version.promise == reported
    calibration = deployment.store.calibrations.load(version.calibration_id)[0]
    at_least = reported.smallest_fpr
    assert (
        calibration.operating_point(at_least * 1.001, method="finite-sample").fpr_upper_bound
        <= at_least * 1.001
    )
    with pytest.raises(InsufficientCalibrationData):
        calibration.operating_point(at_least * 0.98, method="finite-sample")


def test_the_people_that_the_next_rate_takes_are_enough(deployment):
    reported = deployment.upload("few", *people(60, 2)).promise
    assert reported.next_fpr == 0.1
    deployment.upload("enough", *people(reported.units + reported.more_units, 2))
    job = deployment.queue.submit(
        deployment.request(dataset="enough", evaluation={"target_fpr": reported.next_fpr})
    )
    assert "58 of 116 people calibrate" in job.message
    assert "cannot be guaranteed" not in job.message
    assert f"10 % takes {reported.more_units} more people" in reported.text


def test_few_people_hear_what_they_can_have_instead_of_their_target(deployment):
    deployment.upload("dozen", *people(12, 10))
    job = deployment.queue.submit(
        deployment.request(dataset="dozen", evaluation={"protocol": "open-set", "target_fpr": 0.01})
    )
    _, _, ways = job.message.partition("The target rate 1 % cannot be guaranteed from this dataset. What can")
    own, closed, more = (
        ways.index(words) for words in ("from these data", "closed-set", "people in the dataset")
    )
    assert own < closed < more
    assert "1,184 more than it has" in ways
    # Two of them would have been tested: folds test the nine who train.
    assert (job.evaluation.test_fraction, job.evaluation.calibration_fraction) == (0, 0.5)


def test_a_refusal_says_what_is_to_be_had_and_what_the_rate_takes() -> None:
    ways = ways_from(0.001, expected_guarantee(400, 0.25, protocol="open-set").smallest_fpr, 5990, "people")
    assert [(way["fpr"], way["command"], way["text"]) for way in ways] == [
        (0.059, "fpr=0.059", "5.9 %: retry with this rate"),
        (0.001, None, "0.1 %: calibrate on 5,990 people"),
    ]


@pytest.mark.parametrize(("people_there", "tested"), [(400, 30), (330, 4), (300, 60)])
def test_a_target_leaves_thirty_people_to_test_on_where_it_can(people_there: int, tested: int) -> None:
    shares = shares_for(
        people_there,
        0.02,
        test_fraction=0.2,
        different_share=1.0,
        fewest=4,
        learns=True,
        fixed_test=False,
    )
    assert round(people_there * shares[1]) == tested


@pytest.mark.parametrize("share", [0.25, 0.4983])
def test_plan_and_dataset_name_one_number_of_people(share: float) -> None:
    plan = json.loads(CliRunner().invoke(app, ["plan", "--fpr", "0.001", "--json"]).output)
    promise = expected_guarantee(2_400, share, protocol="open-set", calibration_units=598)
    assert plan["needs"][0]["dataset_people"] == 2_400 + promise.more_units == 11_980
    assert plan["text"].startswith(
        "0.1 %: 11,980 people in the dataset; with the target rate 0.1 % half of them, 5,990"
    )


def listed(kind: str) -> str:
    """A file of pairs of 120 rows, 60 people with two rows each."""
    rng = np.random.default_rng(0)
    same = [(2 * who, 2 * who + 1) for who in range(60)]
    if kind == "all":
        different = [(2 * a, 2 * b) for b in range(60) for a in range(b)]
    else:
        drawn = rng.integers(0, 120, (1_200, 2))
        different = [(a, b) for a, b in dict.fromkeys(map(tuple, drawn.tolist())) if a // 2 != b // 2]
    named = kind != "guessed"
    lines = ["left,right,same" + (",left_unit,right_unit" if named else "")]
    for pairs, is_same in ((same, 1), (different, 0)):
        lines += [f"{a},{b},{is_same}" + (f",p{a // 2},p{b // 2}" if named else "") for a, b in pairs]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("kind", "listing", "guarantee"),
    [
        ("identities", None, "finite-sample"),
        ("guessed", None, "none"),
        ("guessed", "random-people", "none"),
        ("named", None, "none"),
        ("named", "random-rows", "none"),
        ("named", "random-people", "finite-sample"),
        ("all", None, "finite-sample"),
    ],
)
def test_upload_job_version_report_and_decision_tell_one_promise(
    deployment, kind: str, listing: str | None, guarantee: str
) -> None:
    X, y = people(60, 2)
    added = deployment.upload(
        "told",
        X,
        *((y,) if kind == "identities" else ()),
        **({} if kind == "identities" else {"pairs": listed(kind)}),
    )
    evaluation = {"listing": listing} if listing else {}
    queued = deployment.queue.submit(
        deployment.request(dataset="told", model="queued", evaluation={"n_pairs": 20_000, **evaluation})
    )
    deployment.queue.cancel(queued.id)
    deployment.train(dataset="told", model="told", evaluation={"n_pairs": 20_000, **evaluation})
    version = deployment.store.version("told", 1)
    ended = deployment.queue.get(version.lineage.job).message
    card = " ".join(deployment.store.reports.report(version).limits)
    point = deployment.store.calibrations.load(version.calibration_id)[0].operating_point(0.5)
    assert point.guarantee == guarantee
    # What was said at upload is said when the job is queued, unless the job declared how the list came about.
    if listing is None:
        assert added.promise.text in queued.message
        assert (added.promise.confidence is None) == (guarantee == "none")
    for words in (ended, card, *([queued.message] if listing != "random-people" else [])):
        assert ("Nothing is guaranteed" in words) == (guarantee == "none"), words
    assert ("supports false positive rates" in ended) == (guarantee != "none")
    assert "supports" not in card or guarantee != "none"
    if guarantee == "none":
        assert version.promise.text in ended
        assert version.promise.text in point.meaning
        assert (point.method, point.confidence, point.fpr_upper_bound) == (None, None, None)
        assert (version.promise.confidence, version.promise.smallest_fpr) == (None, None)
    else:
        assert point.confidence == 0.95


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
    assert deployment.datasets.add(sited_file(kind, X, y), request).features == 6
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
    assert {entry["group"] for entry in calibration.operating_point(0.5).groups or ()} == {"north", "south"}


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
    assert tpr.interval[0] <= tpr.difference <= tpr.interval[1]
    again = deployment.store.reports.compare("faces", better, better, fpr=0.05, dataset="later")
    assert (again.differences[0].difference, again.differences[0].interval) == (0, (0, 0))
    with pytest.raises(
        InvalidInput, match=r"new to faces:1 and faces:2: of .*, .* were learned from and .* others"
    ):
        deployment.store.reports.compare("faces", worse, better)
