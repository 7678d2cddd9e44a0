"""Commands on the embedded deployment, as a person types them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pairmark.service.cli import main


@dataclass(frozen=True)
class Said:
    """What a command printed."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Pairmark = Callable[..., Said]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the module's tests share: uploads and trainings cost time."""
    return tmp_path_factory.mktemp("deployment")


@pytest.fixture
def pairmark(
    deployment: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Pairmark:
    """Run a command, which ends well or with ``ends``, in the shared deployment (or in another one, ``home=``)."""

    def run(*words: str, home: Path = deployment, ends: int = 0) -> Said:
        monkeypatch.setenv("PAIRMARK_HOME", str(home))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        said = capfd.readouterr()
        assert (ended.value.code or 0) == ends, (words, said)
        assert "Traceback" not in said.err
        return Said(said.out, said.err)

    return run


@pytest.fixture(scope="module")
def flowers(deployment: Path) -> Path:
    X, y = load_iris(return_X_y=True)
    path = deployment / "iris.csv"
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    lines = [",".join([*(f"{value:.6g}" for value in row), name]) for row, name in zip(X, names, strict=True)]
    path.write_text("a,b,c,d,species\n" + "\n".join(lines) + "\n")
    return path


def small(*more: str) -> list[str]:
    """A training that takes a moment."""
    return [
        "train",
        "--learner",
        "similarity-forest",
        "--param",
        "n_estimators=3",
        "--param",
        "n_pairs=2000",
        *more,
    ]


@pytest.fixture
def trained(pairmark: Pairmark, deployment: Path, flowers: Path) -> str:
    """The model ``flowers`` with version 1 in production."""
    pairmark("datasets", "add", "iris", flowers, "--classes", "species")
    if "flowers" not in pairmark("models", "list").out:
        pairmark(*small("--dataset", "iris", "--model", "flowers"))
    return "flowers"


def test_empty_lists_name_the_next_command(pairmark: Pairmark, tmp_path: Path) -> None:
    assert "pairmark keys create" in pairmark("keys", "list", home=tmp_path).out
    assert "pairmark datasets add" in pairmark("datasets", "list", home=tmp_path).out
    assert "pairmark train" in pairmark("models", "list", home=tmp_path).out


def test_a_question_with_nobody_to_ask_says_how_to_start_a_service(
    pairmark: Pairmark, tmp_path: Path
) -> None:
    asked = pairmark("models", "list", home=tmp_path / "new", ends=1)
    assert "`pairmark serve`" in asked.err
    assert "PAIRMARK_URL" in asked.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", ["5%", "5 %", "0.05"])
def test_a_rate_is_taken_in_percent_too(pairmark: Pairmark, text: str) -> None:
    assert pairmark("plan", "--fpr", text, "--json").json["fpr"] == 0.05


@pytest.mark.parametrize("text", ["5", "0", "100%", "%", "one", "nan%"])
def test_what_is_no_rate_is_refused_in_words(pairmark: Pairmark, text: str) -> None:
    refused = pairmark("plan", "--fpr", text, ends=2)
    assert "such as 0.01 or 1%" in " ".join(refused.err.replace("│", " ").split())


def test_a_dataset_is_added_shown_and_deleted(pairmark: Pairmark, flowers: Path) -> None:
    added = pairmark("datasets", "add", "tmp", flowers, "--label", "species", "--exclude", "a", "--json")
    assert (added.json["rows"], added.json["features"]) == (150, 3)
    assert added.json["label_counts"] == {"setosa": 50, "versicolor": 50, "virginica": 50}
    shown = pairmark("datasets", "show", "tmp").out
    assert "versicolor: 50" in shown
    assert "pairs" not in shown
    assert [entry["name"] for entry in pairmark("datasets", "list", "--json").json["items"]].count("tmp") == 1
    pairmark("datasets", "delete", "tmp", "--yes")
    assert pairmark("datasets", "show", "tmp", ends=1).err.startswith("error: ")


def test_a_file_is_inspected_without_being_kept(pairmark: Pairmark, flowers: Path) -> None:
    reported = pairmark("datasets", "inspect", flowers, "--json").json
    assert (reported["request"], reported["promise"]) == ({"label": "species"}, None)
    assert [choice["promise"]["counted"] for choice in reported["choices"]] == ["people", "samples"]
    said = pairmark("datasets", "inspect", flowers).out
    assert "species" in said
    assert f"pairmark datasets add NAME {flowers}" in said
    assert (
        "it would be refused: label: there is no column 'nobody'"
        in pairmark("datasets", "inspect", flowers, "--label", "nobody", ends=1).out
    )


def test_training_shows_stages_and_promotes(pairmark: Pairmark, flowers: Path) -> None:
    pairmark("datasets", "add", "iris", flowers, "--classes", "species")
    said = pairmark(*small("--dataset", "iris", "--model", "staged", "--protocol", "closed-set"))
    # The job is polled, so a short stage may go unseen.
    assert "training: 100 % done" in said.err
    assert "now staged@production: the first version" in said.out
    assert "auc" in said.out
    assert "samples held out of training: estimates, none guaranteed" in said.out
    assert not {"estimand", "resolved:", "reference_seconds"} & set(said.out.split())
    assert "whitened cosine" in said.out
    assert "whitened cosine" in pairmark("models", "show", "staged").out


def test_a_rate_that_is_not_supported_promotes_nothing_and_ends_with_3(
    pairmark: Pairmark, tmp_path: Path
) -> None:
    rows = np.random.default_rng(0).normal(size=(130, 3)).repeat(2, axis=0)
    lines = [",".join([f"p{at // 2}", *map(str, row)]) for at, row in enumerate(rows)]
    (tmp_path / "crowd.csv").write_text("\n".join(["who,a,b,c", *lines]))
    home = tmp_path / "home"
    said = pairmark("datasets", "add", "crowd", tmp_path / "crowd.csv", "--identity", "who", home=home)
    assert "and 118 more" in said.out.replace("\n", " ")
    words = ("train", "--learner", "metric", "--dataset", "crowd", "--model", "crowd", "--target-fpr", "1%")
    assert "a false positive rate of 1 % will be refused" in pairmark(*words, home=home, ends=3).err
    assert pairmark("models", "list", "--json", home=home).json["items"][0]["aliases"] == []


def test_models_are_shown_promoted_moved_and_deleted(
    pairmark: Pairmark, trained: str, tmp_path: Path
) -> None:
    assert "production = 1" in pairmark("models", "list").out
    shown = pairmark("models", "show", f"{trained}@production", "--json").json
    assert shown["kind"] == "similarity-forest"
    assert "lineage" in pairmark("models", "show", trained).out
    pairmark("models", "promote", f"{trained}:1", "--alias", "staging")
    file = tmp_path / "flowers.zip"
    pairmark("models", "export", f"{trained}@staging", file)
    imported = pairmark("models", "import", file, "--name", "moved", "--json")
    assert imported.json["lineage"]["artefact_sha256"] == shown["lineage"]["artefact_sha256"]
    pairmark("models", "delete", f"{trained}:1", "--yes", ends=1)
    pairmark("models", "delete", "moved:1", "--yes")
    pairmark("models", "show", "moved:1", ends=1)
    pairmark("models", "delete", trained, ends=2)


def test_evaluate_measures_on_another_dataset(pairmark: Pairmark, trained: str) -> None:
    said = pairmark("evaluate", "--model", trained, "--dataset", "iris", "--json")
    assert said.json["metrics"]["auc"]["value"] > 0.8
    assert said.json["overlap"]["rows"] > 0
    assert "warning:" in pairmark("evaluate", "--model", trained, "--dataset", "iris").out


def test_plan_says_how_many_people(pairmark: Pairmark) -> None:
    said = pairmark("plan", "--fpr", "0.001", "--json")
    needs = {need["method"]: need for need in said.json["needs"]}
    # log(0.05) / log(0.999) = 2994.2 independent blocks, each of two people.
    assert needs["finite-sample"] == {
        "method": "finite-sample",
        "calibration_people": 5990,
        "dataset_people": 2 * 5990,
        "calibration_samples": 2 * 5990,
        "dataset_samples": 2 * 2 * 5990,
        "calibration_pairs": 5990 * 5989 // 2,
        "independent_pairs": 2995,
    }
    assert 30 <= needs["bootstrap"]["calibration_people"] < 1000
    assert said.json["ample"] == 4 * 5990
    assert (said.json["labeled_people"], said.json["strangers"]) == (60, 5930)
    shown = pairmark("plan", "--fpr", "0.001").out
    assert "5990" in shown
    assert "comfortable" in shown
    more = pairmark("plan", "--fpr", "0.001", "--samples", "5", "--json").json["needs"][0]
    assert more["dataset_samples"] == 5 * 2 * 5990
    closed = pairmark("plan", "--fpr", "0.001", "--classes", "10", "--json").json
    assert (closed["protocol"], closed["needs"][0]["calibration_people"]) == ("closed-set", None)
    assert closed["needs"][0]["calibration_samples"] > 5990
    assert (
        pairmark("plan", "--fpr", "0.001", "--confidence", "0.8", "--json").json["needs"][1][
            "calibration_people"
        ]
        is None
    )
    pairmark("plan", "--fpr", "0", ends=2)
    pairmark("plan", ends=2)


def test_plan_says_what_more_people_bring_to_a_model(pairmark: Pairmark, trained: str) -> None:
    rates = pairmark("report", trained, "--json").json["promises"]
    said = pairmark("plan", "--model", trained, "--json")
    assert [each["by_people"] for each in said.json] == [rate["by_people"] for rate in rates]
    shown = pairmark("plan", "--model", trained)
    assert (
        "TPR to expect" if any(rate["by_people"] for rate in rates) else "change nothing"
    ) in shown.out + shown.err
    pairmark("plan", "--model", trained, "--fpr", "0.01", ends=2)


def test_keys_are_shown_once_and_revoked(pairmark: Pairmark, tmp_path: Path) -> None:
    made = pairmark(
        "keys", "create", "--scope", "score", "--scope", "train", "--name", "ci", "--json", home=tmp_path
    )
    assert made.json["scopes"] == ["score", "train"]
    assert made.json["key"].startswith(f"pm_{made.json['id']}_")
    listed = pairmark("keys", "list", home=tmp_path).out
    assert made.json["id"] in listed
    assert made.json["key"] not in listed
    pairmark("keys", "revoke", made.json["id"], home=tmp_path)
    assert pairmark("keys", "list", "--json", home=tmp_path).json["items"][0]["revoked_at"] is not None
    pairmark("keys", "revoke", "nobody", home=tmp_path, ends=1)
    pairmark("keys", "create", "--scope", "everything", home=tmp_path, ends=1)
    # Whoever can read the database needs no key to it.
    pairmark("datasets", "list", home=tmp_path)


@pytest.mark.usefixtures("trained")
def test_what_is_not_understood_ends_with_2(pairmark: Pairmark, tmp_path: Path) -> None:
    for words in (
        ["nonsense"],
        ["train", "--learner", "similarity-tree"],
        ["train", "--learner", "a", "--dataset", "b", "--model", "c", "--param", "novalue"],
        ["datasets", "add", "name", tmp_path / "absent.csv"],
        ["models", "promote", "name:first"],
        ["serve", "--port", "99999"],
    ):
        pairmark(*words, ends=2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,c,d\n1,2,3,4\n\n5,6,7,8\n1,2,x,4\n", "line 5, column 'c': 'x' is not a number"),
        ("a,b,c,d\n1,2,3,4\n\n5,6,7\n", "line 4 has 3 fields; expected 4"),
        ("a,b,c,d\n", "expected a line of names"),
        ("", "expected a line of names"),
    ],
)
def test_a_line_that_does_not_fit_is_named_as_editors_count(
    pairmark: Pairmark, trained: str, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "points.csv").write_text(text)
    refused = pairmark("similarity", tmp_path / "points.csv", "1,2,3,4", "--model", trained, ends=2)
    assert said in " ".join(refused.err.replace("│", " ").split())


def test_what_fails_ends_with_1_and_says_why(pairmark: Pairmark, trained: str, flowers: Path) -> None:
    said = pairmark("train", "--learner", "nobody", "--dataset", "iris", "--model", "m", ends=1)
    assert "similarity-forest" in said.err
    said = pairmark("datasets", "add", "x", flowers, "--label", "absent", "--json", ends=1)
    assert json.loads(said.err.splitlines()[-1])["error"]["type"].endswith("/invalid-input")
    pairmark("models", "show", "nobody", ends=1)
    assert "does not answer" in pairmark("datasets", "list", "--url", "http://pairmark.invalid", ends=1).err


def test_a_wrong_setting_is_named(pairmark: Pairmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMARK_LEASE_S", "soon")
    assert "PAIRMARK_LEASE_S" in pairmark("datasets", "list", ends=2).err


def test_setup_makes_password_tables_and_first_key_once(
    pairmark: Pairmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRMARK_POSTGRES_PASSWORD", "generate")
    words = ("setup", "--secrets", tmp_path, "--cluster", tmp_path, "--json")
    assert pairmark(*words, home=tmp_path / "home").json["key"].startswith("pm_")
    password = (tmp_path / "password").read_text()
    assert len(password) > 30
    assert (tmp_path / "pgpass").read_text() == f"*:*:*:*:{password}\n"
    assert (tmp_path / "pgpass").stat().st_mode & 0o077 == 0
    certificate = (tmp_path / "cluster.pem").read_bytes()
    assert (tmp_path / "cluster.pem").stat().st_mode & 0o077 == 0
    again = pairmark(*words, home=tmp_path / "home")
    assert (tmp_path / "cluster.pem").read_bytes() == certificate
    assert again.json == {"key": None}
    assert (tmp_path / "password").read_text() == password


def test_a_learning_curve_is_measured_drawn_and_followed_to_twice_the_people(
    pairmark: Pairmark, deployment: Path, flowers: Path
) -> None:
    random = np.random.default_rng(0)
    people = np.repeat(random.normal(size=(40, 4)), 4, axis=0)
    rows = people + random.normal(scale=0.3, size=people.shape)
    lines = [
        ",".join([*(f"{value:.6g}" for value in row), f"p{at // 4}"]) for at, row in enumerate(rows.tolist())
    ]
    (deployment / "people.csv").write_text("a,b,c,d,person\n" + "\n".join(lines) + "\n")
    pairmark("datasets", "add", "few", deployment / "people.csv", "--identity", "person")
    command = ["learning-curve", "few", "--fpr", "5%", "--learner", "similarity-forest"]
    command += ["--param", "n_estimators=3", "--param", "n_pairs=2000", "-o", str(deployment / "curve.svg")]
    curve = pairmark(*command, "--json").json
    measured = [point for point in curve["points"] if point["measured"]]
    assert [point["people"] for point in measured] == [8, 15, 22, 30]
    assert [point["people"] for point in curve["points"] if not point["measured"]] == [40, 60, 80]
    assert all(0 < point["tpr"] <= 1 for point in curve["points"])
    assert measured[0]["tpr"] < measured[-1]["tpr"]
    assert pairmark(*command, "--json").json == curve
    assert b"trend" in (deployment / "curve.svg").read_bytes()
    shown = pairmark(*command).out
    assert "a trend, no guarantee" in shown
    assert "80" in shown
    assert "do not show the TPR at a rate below" in pairmark(*command, "--fpr", "0.0001", ends=1).err
    pairmark("datasets", "add", "iris", flowers, "--classes", "species")
    assert "expected twelve or more" in pairmark("learning-curve", "iris", ends=1).err
    pairmark("learning-curve", "few", "-o", "curve.gif", ends=2)
