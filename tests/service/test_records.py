"""Tables of records: from a messy file to decisions about two records, with everything that does not fit named."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.client import Client, Problem
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.errors import CalibrationOverlap
from pairmark.service.errors import InvalidInput as Refused
from tests.models.records.people import people
from tests.service.conftest import Deployment
from tests.serving import RunningServer, answered, csv_table, serving, until

SMALL: dict[str, Any] = {"n_estimators": 30, "n_pairs": 3_000, "random_state": 0}
TYPES = {"given": "name", "surname": "name", "code": "text"}


def written(file: Path, table: dict[str, list[Any]], **more: list[Any]) -> Path:
    """A CSV of columns."""
    file.write_bytes(csv_table({**more, **table}))
    return file


def table_of(deployment: Deployment, n: int = 120, name: str = "customers", seed: int = 1) -> Any:
    table, who = people(n, seed=seed)
    file = written(
        deployment.folder / f"{name}.csv", table,
        rec=[f"r{row}" for row in range(len(who))], person=[f"{name}-{one}" for one in who],
    )  # fmt: skip
    return deployment.datasets.add(
        file, DatasetRequest(name=name, columns={"person": "identity", "rec": "id", **TYPES})
    )


def drawn_pairs(deployment: Deployment, n_chosen: int, n_drawn: int) -> dict[str, Any]:
    """A dataset ``labelled`` of pairs that share a given name, some chosen and some drawn from the others."""
    table, who = people(200, seed=5)
    file = written(deployment.folder / "labelled.csv", table)
    left, right = np.triu_indices(len(who), 1)
    names = np.array(table["given"])
    listed = (who[left] == who[right]) | ((names[left] == names[right]) & (names[left] != ""))
    left, right = left[listed], right[listed]
    same = who[left] == who[right]
    chosen = np.concatenate([np.flatnonzero(same == kind)[: n_chosen // 2] for kind in (True, False)])
    order = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(left.size), chosen))
    lines = [(left[at], right[at], int(same[at]), 0) for at in chosen]
    lines += [(left[at], right[at], int(same[at]), len(order)) for at in order[:n_drawn]]
    pairs = deployment.folder / "labels.csv"
    pairs.write_text("left,right,same,drawn_from\n" + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in lines))
    deployment.datasets.add(file, DatasetRequest(name="labelled", columns=TYPES), pairs=pairs)
    return {"population": len(order)}


def record(table: dict[str, list[Any]], row: int) -> dict[str, Any]:
    """A row as a request brings it."""
    kept = {name: cells[row] for name, cells in table.items() if cells[row] != ""}
    kept["member"] = kept["member"] == "yes"
    kept["weight"] = float(kept["weight"])
    kept["home"] = [float(part) for part in kept["home"].split(",")]
    return kept


class TestDatasets:
    def test_a_table_is_stored_with_types_and_missing_cells(self, deployment: Deployment) -> None:
        added = table_of(deployment)
        assert {column.name: column.type for column in added.columns} == {
            "rec": "id", "person": "identity", "given": "name", "surname": "name", "address": "street", "born": "date",
            "code": "text", "member": "boolean", "weight": "number", "home": "place",
        }  # fmt: skip
        assert (added.label, added.n_labels, added.rows, added.features) == ("person", 120, 240, 8)
        data = deployment.datasets.load(added.id)
        original, _ = people(120, seed=1)
        for at, name in enumerate(("given", "surname", "address")):
            assert data.X[:, at].tolist() == [cell or None for cell in original[name]]
        assert deployment.datasets.rows("customers", [0]).items[0].vector == record(original, 0)
        assert table_of(deployment).existing

    def test_a_cell_of_another_type_is_named_and_nothing_is_stored(self, deployment: Deployment) -> None:
        file = written(deployment.folder / "bad.csv", {"who": ["a", "a", "b"], "age": ["1", "2", "old"]})
        request = DatasetRequest(name="bad", columns={"who": "identity", "age": "number"})
        with pytest.raises(Refused, match="line 4, column 'age': is 'old'; expected a number") as refused:
            deployment.datasets.add(file, request)
        assert (refused.value.facts["row"], refused.value.facts["column"]) == (3, "age")

    def test_an_inspection_tells_types_and_doubts(self, deployment: Deployment) -> None:
        file = written(
            deployment.folder / "seen.csv",
            {"entity": ["1", "1", "2", "2"], "name": ["JosÃ© a", "ana b", "carl d", "dora"], "zip": ["01", "02",
            "03", "04"]},
        )  # fmt: skip
        found = deployment.datasets.inspect(file, DatasetRequest(name="seen", columns={}))
        assert found.problem is None
        assert {column.name: column.role for column in found.columns} == {
            "entity": "identity",
            "name": "name",
            "zip": "postcode",
        }
        assert found.request["columns"]["zip"] == "postcode"
        assert "wrong encoding" in " ".join(found.warnings)

    def test_two_tables_are_joined_by_their_own_ids(self, deployment: Deployment) -> None:
        table, who = people(60, seed=4)
        sides = [{name: cells[side::2] for name, cells in table.items()} for side in (0, 1)]
        ids = [str(one) for one in range(60)]
        left, right = (
            written(deployment.folder / f"{name}.csv", side, key=ids)
            for name, side in zip(("a", "b"), sides, strict=True)
        )
        rng = np.random.default_rng(0)
        lines = [(one, one, 1) for one in range(60)] + [
            (int(a), int((a + 1 + b) % 60), 0) for a, b in rng.integers(0, 58, (200, 2))
        ]
        pairs = deployment.folder / "pairs.csv"
        pairs.write_text(
            "left,right,same\n" + "".join(f"{a},{b},{same}\n" for a, b, same in dict.fromkeys(lines))
        )
        added = deployment.datasets.add(
            left, DatasetRequest(name="two", columns={"key": "id"}), pairs=pairs, right=right
        )
        data = deployment.datasets.load(added.id)
        assert (np.asarray(data.pairs.left) < 60).all()
        assert (np.asarray(data.pairs.right) >= 60).all()
        assert data.row_ids[:1] + data.row_ids[60:61] == ("left:0", "right:0")
        assert not (
            np.asarray(data.pairs.same) != (who[::2][data.pairs.left] == who[1::2][data.pairs.right - 60])
        ).any()


class TestTraining:
    @pytest.mark.parametrize(
        ("learner", "params"),
        [
            (None, SMALL),
            ("fellegi-sunter", {"n_pairs": 2_000}),
            ("plda", {}),
            ("similarity-logistic", {"n_pairs": 2_000}),
            ("similarity-forest", {"n_estimators": 3, "max_depth": 4, "n_pairs": 2_000}),
        ],
    )
    def test_every_kind_of_learner_takes_a_table(
        self, deployment: Deployment, learner: str | None, params: dict[str, Any]
    ) -> None:
        table_of(deployment)
        number = deployment.train(learner=learner, dataset="customers", model="m", params=params)
        version = deployment.store.version("m", number)
        assert version.kind == (learner or "record-trees")
        assert version.metrics["auc"]["value"] > 0.85
        assert version.facts["columns"]["born"] == "date:YYYY-MM-DD"
        rivals = {
            item["name"] for item in version.facts["leaderboard"]["items"] if item["role"] == "baseline"
        }
        # Those that one would train instead, and never a model against itself.
        of_kind = {"record-trees": "boosted comparisons", "fellegi-sunter": "Fellegi-Sunter"}
        assert rivals == {"boosted comparisons", "Fellegi-Sunter"} - {of_kind.get(version.kind)}
        table_of(deployment, 60, "others", seed=9)
        calibrated = deployment.store.calibrations.calibrate("m", number, "others")
        assert calibrated.dataset_sha256 == deployment.datasets.get("others").sha256

    def test_what_is_drawn_calibrates_a_promise_about_the_list(self, deployment: Deployment) -> None:
        labelled = drawn_pairs(deployment, n_chosen=80, n_drawn=240)
        added = deployment.datasets.get("labelled")
        assert added.population == labelled["population"]
        assert added.promise.population == f"a list of {labelled['population']:,} pairs"
        number = deployment.train(learner=None, dataset="labelled", model="m", params=SMALL)
        parts = deployment.store.version("m", number).facts["parts"]
        assert parts["train_pairs"] == 80
        assert parts["calibration_pairs"] + parts["test_pairs"] == 240
        # Link jobs score a pair among its rivals in the tables.
        assert deployment.store.load("m", number).context_ is not None
        calibration, _ = deployment.store.calibrations.load(
            deployment.store.version("m", number).calibration_id
        )
        point = calibration.operating_point(added.promise.smallest_fpr * 1.01)
        assert (point.guarantee, point.origin) == ("finite-population", "population")
        # Chosen pairs calibrate nothing afterwards either.
        with pytest.raises(CalibrationOverlap, match="rows that m:1 was trained on"):
            deployment.store.calibrations.calibrate("m", number, "labelled")

    @pytest.mark.parametrize(
        ("drawn_from", "problem"),
        [
            ([0, 0, 9, 8], "line 5: drawn_from is 8; expected 9 as before"),
            ([0, 1, 1, 1], "line 3: drawn_from is 1; expected at least 3"),
            ([0, 0.5, 0, 0], "line 3: drawn_from is 0.5; expected a whole number"),
            ([0, -4, 0, 0], "line 3: drawn_from is -4; expected a whole number"),
        ],
    )
    def test_a_draw_that_cannot_be_one_is_named(
        self, deployment: Deployment, drawn_from: list[float], problem: str
    ) -> None:
        table, _ = people(4, seed=3)
        file = written(deployment.folder / "few.csv", table)
        pairs = deployment.folder / "draws.csv"
        lines = [f"{at},{at + 1},{at % 2},{number}" for at, number in enumerate(drawn_from)]
        pairs.write_text("\n".join(["left,right,same,drawn_from", *lines]))
        with pytest.raises(Refused, match=problem):
            deployment.datasets.add(file, DatasetRequest(name="few", columns={}), pairs=pairs)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with two models of one table: of comparators, and of encoded rows."""
    home = tmp_path_factory.mktemp("records")
    with serving(home / "home", f"sqlite:///{home / 'records.db'}") as server:
        table, who = people(160, seed=1)
        file = written(
            home / "customers.csv", table, rec=list(range(len(who))), person=[f"p{one}" for one in who]
        )
        words = [f"--column={name}:{kind}" for name, kind in TYPES.items()]
        server.cli("datasets", "add", "customers", str(file), "--column", "person:identity", *words)
        server.train(dataset="customers", model="customers", params=SMALL, promote=True)
        server.train(
            dataset="customers",
            model="encoded",
            learner="similarity-logistic",
            params={"n_pairs": 2_000},
            promote=True,
        )
        yield server


OTHERS, OTHER_WHO = people(40, seed=7)


class TestServing:
    def test_two_records_are_compared_matched_and_explained(self, served: RunningServer) -> None:
        left, right, stranger = (record(OTHERS, row) for row in (0, 1, 2))
        for model in ("customers", "encoded"):
            scores = served.http.post(
                "/similarity", json={"model": model, "left": left, "right": [right, stranger]}
            ).json()["scores"]
            assert scores[0] > scores[1]
            swapped = {"model": model, "left": [right, stranger], "right": left}
            assert served.http.post("/similarity", json=swapped).json()["scores"] == scores
            # Some strangers may lie above a threshold that is to pass a fifth of them.
            strangers = [record(OTHERS, row) for row in range(2, 80, 2)]
            answer = served.http.post(
                "/match?fpr=0.2", json={"model": model, "left": left, "right": [right, *strangers]}
            ).json()
            matches = [entry["match"] for entry in answer["matches"]]
            assert matches == [
                entry["score"] > answer["operating_point"]["threshold"] for entry in answer["matches"]
            ]
            assert matches[0]
            # The encoded one leans on `rec`, which these records lack: its rate is that of other records.
            assert model == "encoded" or sum(matches[1:]) < 16, "at a rate of 20 %, 8 of 39 strangers"
        said = served.http.post(
            "/explain", json={"model": "customers", "left": left, "right": stranger}
        ).json()
        fields = {entry["field"]: entry for entry in said["explanation"]["fields"]}
        assert fields["surname"]["left"] == left["surname"]
        assert fields["surname"]["right"] == stranger["surname"]

    def test_records_that_lack_columns_are_decided_by_the_others(self, served: RunningServer) -> None:
        left, right = record(OTHERS, 0), record(OTHERS, 1)
        part = {name: value for name, value in left.items() if name not in ("given", "code")}
        url, body = "/match?fpr=0.2", {"model": "customers", "left": left, "right": [right, part]}
        answer = served.http.post(url, json=body).json()
        entry = answer["matches"][1]
        assert entry["match"] == (entry["score"] > entry["threshold"])
        assert "home" in entry["compared"]
        assert "given" not in entry["compared"]
        assumed = {one["assumption"]: one["status"] for one in answer["operating_point"]["assumes"]}
        assert assumed["missing-at-random"] == "declared"

        def by_its_own_columns() -> dict[str, Any] | None:
            again = served.http.post(url, json=body).json()
            return again if set(left) - set(again["matches"][1]["compared"]) == {"given", "code"} else None

        # What is rounded up at first is decided by its own choice of columns a little later.
        again = until(by_its_own_columns, "the columns that both have decide")
        swapped = served.http.post(url, json={**body, "left": [right, part], "right": left}).json()
        assert swapped["matches"] == again["matches"]

    def test_many_choices_of_columns_are_decided_in_one_request(self, served: RunningServer) -> None:
        left, right = record(OTHERS, 0), record(OTHERS, 1)
        names = [name for name in left if name not in ("surname", "given")]
        parts = [
            {name: value for name, value in right.items() if name not in lacked}
            for size in (1, 2, 3)
            for lacked in combinations(names, size)
        ][:40]
        body = {"model": "customers", "left": left, "right": parts * 12}
        answer = answered(served.http.post("/match?fpr=0.2", json=body))
        for entry, part in zip(answer.json()["matches"], parts, strict=False):
            # Nothing is compared that a side lacks, and what decides is told.
            assert entry["match"] == (entry["score"] > entry["threshold"])
            assert set(entry["compared"]) <= set(part)

    def test_subjects_are_decided_by_the_columns_that_all_their_samples_have(
        self, served: RunningServer
    ) -> None:
        left, right = record(OTHERS, 0), record(OTHERS, 1)
        part = {name: value for name, value in left.items() if name not in ("weight", "home")}
        bare = {name: value for name, value in right.items() if name not in ("weight", "home")}
        body = {"model": "customers", "left": {"samples": [left, part]}, "right": right}
        answer = served.http.post("/match?fpr=0.2", json=body).json()
        (entry,) = answer["matches"]
        assert entry["match"] == (entry["score"] > entry["threshold"])
        assert "surname" in entry["compared"]
        assert "weight" not in entry["compared"]
        # What one sample lacks plays no part in the others either.
        same = served.http.post(
            "/similarity", json={**body, "left": {"samples": [part, part]}, "right": bare}
        )
        assert same.json()["scores"] == [entry["score"]]
        why = served.http.post("/explain", json=body).json()
        assert (why["compared"], why["score"]) == (entry["compared"], entry["score"])
        # Of more choices of columns than are worked out at once none is refused.
        names = [name for name in left if name != "surname"]
        parts = [
            {name: value for name, value in left.items() if name not in lacked}
            for lacked in combinations(names, 2)
        ][:12]
        answer = served.http.post(
            "/match?fpr=0.2", json={**body, "left": [{"samples": [left, part]} for part in parts]}
        ).json()
        for entry, part in zip(answer["matches"], parts, strict=True):
            assert entry["match"] == (entry["score"] > entry["threshold"])
            assert set(entry["compared"]) <= set(part)

    def test_the_report_says_what_leaving_columns_out_costs(self, served: RunningServer) -> None:
        path = "/models/customers/versions/1/report"
        complete, *costs = served.http.get(path).json()["columns"]
        assert complete["missing"] == []
        assert {("surname",), ("weight",)} <= {tuple(cost["missing"]) for cost in costs}
        assert all(cost["tpr"] is None or 0 <= cost["tpr"] <= 1 for cost in costs)
        assert all(cost["fpr"] == complete["fpr"] for cost in costs)
        assert "Records that lack columns" in served.http.get(path, headers={"Accept": "text/html"}).text

    def test_precision_recall_and_f1_are_measured_with_a_curve(self, served: RunningServer) -> None:
        for model in ("customers", "encoded"):
            path = f"/models/{model}/versions/1"
            measured = served.http.get(path).json()["metrics"]
            for name in ("f1", "precision", "recall", "average_precision"):
                low, high = measured[name]["interval"]
                assert 0 <= low <= measured[name]["value"] <= high <= 1
            curve = served.http.get(f"{path}/pr").json()
            recall, precision = np.array(curve["recall"]), np.array(curve["precision"])
            assert recall[-1] == 1
            assert (np.diff(recall) >= 0).all()
            assert (np.diff(curve["thresholds"]) < 0).all()
            f1 = 2 * recall * precision / np.maximum(recall + precision, 1e-9)
            best = int(f1.argmax())
            assert f1[best] >= measured["f1"]["value"] - 0.02
            above = np.inf if best == 0 else curve["thresholds"][best - 1]
            assert curve["thresholds"][best] <= curve["best_f1"] < above
            # What the ROC says at a threshold, with each pair counted once.
            assert len(served.http.get(f"{path}/pr?points=9").json()["recall"]) == 9
        seen = served.http.post(f"{path}/evaluations", json={"dataset": "customers"}).json()
        assert seen["metrics"]["f1"]["value"] > 0.5
        assert 'data-curve="pr"' in served.http.get("/console/models/customers/1").text

    def test_records_are_decided_where_f1_is_best(self, served: RunningServer) -> None:
        left, right = record(OTHERS, 0), [record(OTHERS, 1), record(OTHERS, 2), {"surname": "moreau"}]
        url, body = "/match?decision=best-f1", {"model": "customers", "left": left, "right": right}
        answer = served.http.post(url, json=body).json()
        point = answer["operating_point"]
        path = "/models/customers/versions/1"
        assert point["threshold"] == served.http.get(f"{path}/pr").json()["best_f1"]
        assert (point["guarantee"], "fpr_upper_bound" in point) == ("none", False)
        assert point["f1"] == served.http.get(path).json()["metrics"]["f1"]
        assert [entry["match"] for entry in answer["matches"][:2]] == [True, False]
        assert all(
            entry["match"] == (entry["score"] > point["threshold"])
            for entry in answer["matches"]
            if "reason" not in entry
        )
        assert "surname" in answer["matches"][2]["compared"]
        served.http.put("/models/customers/policy", json={"missing": "refuse"}).raise_for_status()
        try:
            (*_, refused) = served.http.post(url, json=body).json()["matches"]
        finally:
            served.http.put("/models/customers/policy", json={"missing": "assume-random"})
        assert (refused["match"], refused["reason"]) == (False, "too-little-to-compare")
        with Client(str(served.http.base_url)) as client:
            assert client.match(
                [left], right[:1], decision="best-f1", model="customers"
            ).matches.tolist() == [True]
        for query, more, field in (
            ("", {}, "fpr"),
            ("?decision=best-f1&fpr=0.1", {}, "fpr"),
            ("?decision=best-f1&fnr=0.1", {}, "fnr"),
            ("?decision=best-f1", {"left": {"samples": [left, left]}, "right": left}, "decision"),
        ):
            problem = served.http.post(f"/match{query}", json={**body, **more})
            assert (problem.status_code, problem.json().get("field")) == (422, field), problem.text

    def test_too_little_to_compare_names_the_columns_that_would_help(self, served: RunningServer) -> None:
        left, bare = record(OTHERS, 0), {"member": record(OTHERS, 1)["member"]}
        url, body = "/match?fpr=0.2&fnr=0.2", {"model": "customers", "left": left, "right": bare}
        served.http.put("/models/customers/policy", json={"missing": "refuse"}).raise_for_status()
        try:
            answer = served.http.post(url, json=body).json()
            raw = served.http.post(url, json=body, headers={"Accept": "application/octet-stream"})
        finally:
            served.http.put("/models/customers/policy", json={"missing": "assume-random"})
        (entry,) = answer["matches"]
        assert (entry["match"], entry["reason"]) == (False, "too-little-to-compare")
        assert entry["decision"] == "review"
        assert "surname" in entry["missing"]
        assert "member" not in entry["missing"]
        (warning,) = answer["warnings"]
        assert "surname" in warning["detail"]
        assert raw.content == bytes([4])
        assumed = {one["assumption"]: one["status"] for one in answer["operating_point"]["assumes"]}
        assert "missing-at-random" not in assumed

    def test_missing_columns_are_missing_cells_and_ids_may_come_along(self, served: RunningServer) -> None:
        full = record(OTHERS, 0)
        part = {"given": full["given"], "surname": full["surname"], "rec": 17, "born": None}
        for model in ("customers", "encoded"):
            answered(served.http.post("/similarity", json={"model": model, "left": full, "right": part}))

    def test_a_number_in_quotes_is_a_number_as_in_a_file(self, served: RunningServer) -> None:
        plain, other = record(OTHERS, 0), record(OTHERS, 1)
        quoted = plain | {"weight": str(plain["weight"])}
        for path in ("/similarity", "/match?fpr=0.2"):
            answers = [
                served.http.post(path, json={"model": "customers", "left": left, "right": other}).json()
                for left in (plain, quoted)
            ]
            assert answers[0] == answers[1]
            assert "model" in answers[0]

    @pytest.mark.parametrize(
        ("change", "field", "said"),
        [
            ({"nome": "ana"}, "left.nome", "is none of the model's columns"),
            ({"weight": "heavy"}, "left.weight", "expected a number"),
            ({"weight": True}, "left.weight", "expected a number"),
            ({"born": "31/01/1990"}, "left.born", "expected a date, YYYY-MM-DD"),
            ({"given": 5}, "left.given", "expected text"),
            ({"member": "yes"}, "left.member", "expected true or false"),
            ({"home": [100, 2]}, "left.home", "latitude"),
            ({"address": "x" * 40_000}, "left.address", "40000 characters"),
        ],
    )
    def test_what_does_not_fit_is_422_with_the_field(
        self, served: RunningServer, change: dict[str, Any], field: str, said: str
    ) -> None:
        for model in ("customers", "encoded"):
            body = {"model": model, "left": record(OTHERS, 0) | change, "right": record(OTHERS, 1)}
            answer = answered(served.http.post("/similarity", json=body), 422)
            assert answer.json()["field"] == field
            assert said in answer.json()["detail"]

    @pytest.mark.parametrize(
        "value",
        [[1.0, 2.0], {"indices": [0], "values": [1.0]}, {"indices": [0]}, {"samples": [[1.0]]}, {"samples": "x"},
         {"values": 1}, [], [{}, [1.0]], [[1.0], {}], "record", {"given": {"deep": 1}}, {"given": ["a"]}],
    )  # fmt: skip
    def test_nothing_that_is_no_record_gives_a_5xx(self, served: RunningServer, value: Any) -> None:
        for path in ("/similarity", "/match?fpr=0.2", "/explain"):
            for model in ("customers", "encoded"):
                for sides in (
                    {"left": value, "right": record(OTHERS, 0)},
                    {"left": record(OTHERS, 0), "right": value},
                ):
                    answer = served.http.post(path, json={"model": model, **sides})
                    assert answer.status_code == 422, (answer.status_code, answer.text)

    def test_the_client_sends_dicts_and_frames(self, served: RunningServer) -> None:
        class Frame:
            """As pandas has them."""

            columns = ("given",)

            def to_dict(self, orient: str) -> list[dict[str, Any]]:
                assert orient == "records"
                return [record(OTHERS, 1), record(OTHERS, 2) | {"weight": np.float64("nan")}]

        with Client(served.url) as client:
            one = client.similarity(record(OTHERS, 0), Frame(), model="customers")
            same = client.similarity(
                record(OTHERS, 0),
                [
                    record(OTHERS, 1),
                    {name: cell for name, cell in record(OTHERS, 2).items() if name != "weight"},
                ],
                model="customers",
            )
            assert one.tolist() == same.tolist()
            with pytest.raises(Problem, match="nome"):
                client.similarity({"nome": "x"}, {"given": "ana"}, model="customers")

    def test_the_command_line_matches_two_files(
        self, served: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, row in (("a", 0), ("b", 1)):
            (tmp_path / f"{name}.json").write_text(json.dumps(record(OTHERS, row)))
        sides = (str(tmp_path / "a.json"), str(tmp_path / "b.json"))
        found = served.cli("match", *sides, "--fpr", "0.2", "--model", "customers", "--json")
        assert json.loads(found.stdout)["pairs"][0]["decision"] == "match"
        # Files of a spreadsheet are the same records, whatever the model's columns hold; so is what comes in by a pipe.
        for name, row in (("a", 0), ("b", 1)):
            written(tmp_path / f"{name}.csv", {column: [cells[row]] for column, cells in OTHERS.items()})
        sides = (str(tmp_path / "a.csv"), str(tmp_path / "b.csv"))
        with open(sides[0]) as pipe:
            monkeypatch.setattr("sys.stdin", pipe)
            again = served.cli("match", "-", sides[1], "--fpr", "0.2", "--model", "customers", "--json")
        assert json.loads(again.stdout)["pairs"] == json.loads(found.stdout)["pairs"], again.stderr
        (tmp_path / "a.csv").write_text("given,weight\nana,heavy\n")
        refused = served.cli("match", *sides, "--fpr", "0.2", "--model", "customers", ends=2)
        assert "line 2, column 'weight': is 'heavy'; expected a number" in " ".join(
            refused.stderr.replace("│", " ").split()
        )
