"""Calibrated galleries stay calibrated; of records, a search finds candidates and follows every write and erasure."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from pairmark.models import FellegiSunter, MetricSimilarity
from pairmark.models.calibration.identification import GalleryCalibration
from pairmark.models.records import neighbors
from pairmark.models.records.tables import declare_schema
from pairmark.schemas.galleries import ImportOptions
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import Identification, ScoredProbes, Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.imports import confined_batches, json_batches
from pairmark.service.galleries.rows import RecordForm, RowErrors, VectorForm, form_of
from pairmark.service.galleries.searches import Searches, parse_search
from pairmark.service.runtime.missing_columns import ComparedPairs
from pairmark.service.runtime.operating_points import ServedPoint
from pairmark.service.settings import Settings
from pairmark.service.tables import GalleryCalibrationRow, GalleryProbe
from tests.models.records.people import people
from tests.service.galleries.conftest import WIDTH, rows, served

PEOPLE = [f"p{number}" for number in range(20)]
PROBES = [f"p{number}" for number in range(12, 20)] + [f"q{number}" for number in range(60)]


def calibrate(galleries: Galleries, name: str, model: Any, vectors: np.ndarray) -> Any:
    return Identification(galleries, None, None).calibrate_rows(name, model, vectors, PROBES[: len(vectors)])


def enrol(galleries: Galleries, name: str, items: dict[str, Any]) -> None:
    galleries.write(name, [rows(items)], RowErrors(), None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.integers(0, 13), min_size=1, max_size=9, unique=True)),
        st.tuples(st.just("item"), st.integers(0, 13)),
        st.tuples(st.just("subject"), st.sampled_from(PEOPLE)),
        st.tuples(st.just("look"), st.integers(0, 2)),
        st.tuples(st.just("store"), st.integers(0, 2)),
        st.tuples(st.just("restart"), st.integers(0, 2)),
    ),
    min_size=3,
    max_size=12,
)


@pytest.mark.parametrize(("kind", "examples"), [("metric", 8), ("similarity-forest", 3), ("plda", 8)])
def test_every_interleaving_scores_as_a_fresh_calibration_does(
    galleries: Galleries, estimators: dict[str, Any], kind: str, examples: int
) -> None:
    estimator = estimators[kind]
    model = served(estimator)
    count = 0

    @hypothesis_settings(
        max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(steps=STEPS, seed=st.integers(0, 2**16))
    def run(steps: list[Any], seed: int) -> None:
        nonlocal count
        count += 1
        name, rng = f"g{kind}{count}", np.random.default_rng(seed)
        galleries.put(name, model)
        truth: dict[str, Any] = {}

        def upsert(numbers: list[int]) -> None:
            new = {
                f"id-{number}": (
                    rng.integers(-2, 3, WIDTH).astype(np.float32) + 0.5,
                    str(rng.choice(PEOPLE)),
                    None,
                )
                for number in numbers
            }
            enrol(galleries, name, new)
            truth.update(new)

        upsert([0, 1, 2])
        probes = rng.normal(size=(30, WIDTH)).astype(np.float32)
        left = dict(zip(PROBES, probes, strict=False))
        made = calibrate(galleries, name, model, probes)
        # Three workers, each with its own memory.
        workers = [Thresholds(galleries) for _ in range(3)]
        for what, argument in [*steps, ("look", 0), ("look", 1)]:
            if what == "upsert":
                upsert(argument)
            elif what == "item":
                if f"id-{argument}" in truth and len(truth) > 1:
                    galleries.erase(name, id=f"id-{argument}")
                    del truth[f"id-{argument}"]
            elif what == "subject":
                gone = [id for id, item in truth.items() if item[1] == argument]
                if len(gone) < len(truth):
                    assert galleries.erase(name, subject=argument).probes == (1 if argument in left else 0)
                    left.pop(argument, None)
                    for id in gone:
                        del truth[id]
            elif what == "store":
                workers[argument].keep_up()
            elif what == "restart":
                workers[argument] = Thresholds(galleries)
            else:
                state = galleries.state(name)
                try:
                    served_point, view = workers[argument].for_rate(state, model, 0.4, 0.95)
                except Conflict:
                    continue
                point, threshold = served_point.public, served_point.threshold
                assert view.seq == state.seq == point["sequence"]
                kept = workers[argument]._probes.get(made.id)
                some = np.array([left[subject] for subject in left])
                best, mated = [], []
                for subject, vector in zip(left, some, strict=True):
                    b, m = brute_one(estimator, truth, subject, vector)
                    (mated if m is not None else best).append(b if m is None else m)
                assert np.sort(kept.records["best"][kept.records["own_items"] == 0]).tolist() == sorted(best)
                assert np.sort(kept.records["own"][kept.records["own_items"] > 0]).tolist() == sorted(mated)
                assert (point["gallery_size"], point["n_probes"]) == (len(truth), len(best))
                fresh = GalleryCalibration(best, gallery_size=len(truth), mated_scores=mated)
                assert fresh.operating_point(0.4).as_dict().items() <= point.items()
                assert float(threshold) == point["threshold"]

    run()


def brute_one(
    estimator: Any, truth: dict[str, Any], subject: str, vector: np.ndarray
) -> tuple[float, float | None]:
    names = sorted(truth)
    items = np.array([truth[name][0] for name in names], dtype=np.float32)
    scores = estimator.pair_score(np.repeat(vector[None], len(names), 0), items)
    own = [float(score) for name, score in zip(names, scores, strict=True) if truth[name][1] == subject]
    return float(scores.max()), max(own) if own else None


@pytest.fixture
def calibrated(galleries: Galleries, estimators: dict[str, Any]) -> tuple[Any, np.ndarray]:
    """A gallery ``g`` of 40 items and 60 probes of strangers."""
    model, rng = served(estimators["metric"]), np.random.default_rng(1)
    galleries.put("g", model)
    enrol(
        galleries,
        "g",
        {f"i{at}": (rng.normal(size=WIDTH).astype(np.float32), None, None) for at in range(40)},
    )
    return model, rng.normal(size=(60, WIDTH)).astype(np.float32)


def test_an_erased_subject_is_in_no_probe(
    galleries: Galleries, calibrated: tuple[Any, np.ndarray], settings: Settings
) -> None:
    model, probes = calibrated
    made = calibrate(galleries, "g", model, probes)
    thresholds = Thresholds(galleries)
    thresholds.for_rate(galleries.state("g"), model, 0.2, 0.95)
    subject, vector = PROBES[5], probes[5].astype("<f4").tobytes()
    receipt = galleries.erase("g", subject=subject)
    assert (receipt.items, receipt.probes) == (0, 1)
    with galleries.database.read() as session:
        row = session.get_one(GalleryCalibrationRow, made.id)
        kept = ScoredProbes.of_row(row, VectorForm(WIDTH), repository.probes_of(session, made.id))
        assert subject not in kept.subjects
        assert len(kept.records) == 59
    if galleries.database.is_sqlite:
        bytes_there = [path.read_bytes() for path in settings.home.rglob("*") if path.is_file()]
        assert not [body for body in bytes_there if vector in body]
    # A process that held them lets go of them, without a search.
    thresholds.keep_up()
    assert not thresholds._probes
    assert thresholds.for_rate(galleries.state("g"), model, 0.2, 0.95)[0].public["n_probes"] == 59


def test_a_newer_calibration_replaces_the_probes_of_an_older_one(
    galleries: Galleries, calibrated: tuple[Any, np.ndarray]
) -> None:
    model, probes = calibrated
    first = calibrate(galleries, "g", model, probes)
    second = calibrate(galleries, "g", model, probes[:50])
    with galleries.database.read() as session:
        assert set(session.scalars(select(GalleryProbe.calibration_id))) == {second.id}
        assert session.get_one(GalleryCalibrationRow, first.id).kept is None
    point = Thresholds(galleries).for_rate(galleries.state("g"), model, 0.2, 0.95)[0].public
    assert (point["calibration_id"], point["n_probes"]) == (second.id, 50)
    galleries.delete("g")
    with galleries.database.read() as session:
        assert not session.scalar(select(func.count()).select_from(GalleryProbe))


def test_probes_that_were_all_enrolled_promise_nothing(
    galleries: Galleries, calibrated: tuple[Any, np.ndarray]
) -> None:
    model, probes = calibrated
    calibrate(galleries, "g", model, probes[:3])
    enrol(galleries, "g", {f"n{at}": (probes[at], PROBES[at], None) for at in range(3)})
    with pytest.raises(Conflict, match="enrolled or erased"):
        Thresholds(galleries).for_rate(galleries.state("g"), model, 0.7, 0.95)


def test_a_subject_between_the_thresholds_is_for_review(galleries: Galleries, settings: Settings) -> None:
    rng = np.random.default_rng(0)
    estimator = MetricSimilarity(metric="euclidean").fit(
        rng.normal(size=(40, WIDTH)), np.repeat(np.arange(8), 5)
    )
    model, probe = served(estimator), np.zeros(WIDTH, dtype=np.float32)
    galleries.put("g", model)
    far = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    items = {f"i{at}": (probe + np.float32(by), f"s{at}", None) for at, by in enumerate(far)}
    galleries.write("g", [rows(items)], RowErrors(), None)
    scores = estimator.pair_score(
        np.repeat(probe[None], 6, 0), np.array([items[f"i{at}"][0] for at in range(6)])
    )
    # At a threshold a pair does not match, and at the lower one it is different.
    high, low = np.float32(scores[2]), np.float32(scores[4])
    public = {"fpr": 0.1, "fpr_upper_bound": 0.1}
    decision = ServedPoint(threshold=high, public=public, json=b"{}", lower=low)
    searches = Searches(galleries, Thresholds(galleries), settings)
    state = galleries.state("g")
    for at, expected in ((0, "match"), (2, "review"), (3, "review"), (4, "different"), (5, "different")):
        enrolled = searches.enrolled(state, model, f"s{at}")
        said = json.loads(searches.verify(model, f"s{at}", probe[None], enrolled, decision, None).answer)
        assert (said["decision"], said["match"]) == (expected, expected == "match")


TYPES = {
    "given": "name", "surname": "name", "address": "text", "born": "date:YYYY-MM-DD", "code": "text",
    "member": "boolean", "weight": "number", "home": "place",
}  # fmt: skip
TABLE, WHO = people(200, seed=3)
SIZES = (64, 16)


@pytest.fixture(scope="module")
def model() -> FellegiSunter:
    table, _ = people(200, seed=1)
    return FellegiSunter(columns=TYPES, n_pairs=5_000).fit(table)


def enrol_records(
    galleries: Galleries, model: Any, rows: range, *, name: str = "g", whose: Any = WHO.__getitem__
) -> None:
    form = form_of(model, int(model.n_features_in_))
    records = list(model.schema_.values(model._validated(TABLE, "table")))
    items = [{"id": f"r{row:03}", "subject": f"s{whose(row)}", "vector": records[row]} for row in rows]
    errors = RowErrors()
    galleries.write(name, json_batches(json.dumps({"items": items}).encode(), form, errors), errors, None)
    assert not errors.count


def search(galleries: Galleries, model: Any, settings: Settings, record: Any, **more: Any) -> dict[str, Any]:
    searches = Searches(galleries, Thresholds(galleries), settings)
    request = parse_search(json.dumps({"queries": record, "k": 5, **more}).encode(), settings)
    return dict(json.loads(searches.search(galleries.state("g"), served(model), request, None).answer))


def records_of(model: Any) -> list[dict[str, Any]]:
    return list(model.schema_.values(model._validated(TABLE, "table")))


def test_a_small_gallery_scores_everything_and_a_large_one_candidates(
    galleries: Galleries, model: FellegiSunter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    galleries.put("g", served(model))
    enrol_records(galleries, model, range(0, 100, 2))
    enrol_records(galleries, model, range(100, 400, 2))
    probes = records_of(model)[1:200:2]
    everything = [search(galleries, model, settings, probe) for probe in probes]
    assert "candidates" not in everything[0]
    monkeypatch.setattr(type(model), "max_scored", 20)
    monkeypatch.setattr(neighbors, "N_CANDIDATES", 30)
    narrowed = [search(galleries, model, settings, probe) for probe in probes]
    assert narrowed[0]["candidates"]["scored"] == 30
    # The right person is found as before; scores are those of comparing everything.
    best = [answer["results"][0][0] for answer in everything]
    assert sum(answer["results"][0][:1] == [hit] for answer, hit in zip(narrowed, best, strict=True)) >= 98
    assert sum(hit["subject"] == f"s{at}" for at, hit in enumerate(best)) >= 98


def test_candidates_follow_writes_and_erasures_and_another_process_sees_the_same(
    galleries: Galleries, database: Database, model: FellegiSunter, settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(type(model), "max_scored", 20)
    galleries.put("g", served(model))
    enrol_records(galleries, model, range(0, 150))
    probe = records_of(model)[161]
    assert search(galleries, model, settings, probe)["results"][0][0]["subject"] != "s80"
    enrol_records(galleries, model, range(160, 170))
    assert search(galleries, model, settings, probe)["results"][0][0]["id"] == "r161"
    # In a block, no longer in the rows that wait for one.
    enrol_records(galleries, model, range(170, 200))
    # What an item was before it was replaced is no candidate.
    body = json.dumps({"items": [{"id": "r161", "subject": "s80", "vector": records_of(model)[5]}]}).encode()
    errors = RowErrors()
    galleries.write("g", json_batches(body, form_of(model, 8), errors), errors, None)
    hits = {hit["id"]: hit["score"] for hit in search(galleries, model, settings, probe)["results"][0]}
    assert hits["r160"] == max(hits.values())
    galleries.erase("g", id="r161")
    assert search(galleries, model, settings, probe)["results"][0][0]["id"] == "r160"
    galleries.erase("g", subject="s80")
    other = Galleries(database, settings)
    for process in (galleries, other):
        hits = search(process, model, settings, probe)["results"][0]
        assert "s80" not in [hit["subject"] for hit in hits]
    other.close()
    # Nothing of the erased is in any file.
    erased = records_of(model)[160]["code"]
    files = [file for file in (settings.home / "galleries").rglob("*") if file.is_file()]
    kept = b"".join(file.read_bytes() for file in files)
    assert records_of(model)[100]["code"].encode("utf-32-le") in kept
    assert erased.encode("utf-32-le") not in kept
    assert erased.encode() not in kept


def test_a_damaged_record_is_left_out_and_named(
    galleries: Galleries, database: Database, model: FellegiSunter, settings: Settings
) -> None:
    galleries.put("g", served(model))
    enrol_records(galleries, model, range(0, 6))
    with database.write() as session:
        item = repository.find_item(session, galleries.state("g").id, "r002")
        item.vector = b'{"given": '
    found = search(galleries, model, settings, records_of(model)[2])["results"][0]
    assert "r002" not in [hit["id"] for hit in found]


def test_vectors_and_records_do_not_mix(
    galleries: Galleries, model: FellegiSunter, settings: Settings
) -> None:
    galleries.put("g", served(model))
    enrol_records(galleries, model, range(0, 6))
    vectors = MetricSimilarity().fit(np.eye(8, dtype=np.float32), [0, 0, 1, 1, 2, 2, 3, 3])
    with pytest.raises(Conflict, match="holds records of given"):
        galleries.put("g", served(vectors, version=2))
    with pytest.raises(InvalidInput, match="takes records"):
        search(galleries, model, settings, [1.0] * 8)


def test_files_hold_columns_of_the_model_and_name_what_does_not_fit(tmp_path: Path) -> None:
    form = RecordForm(declare_schema(TYPES))
    records = list(form.schema.values(form.schema.read(TABLE)))[:3]
    names = list(TYPES)
    lines = [",".join(["id", "who", *names])]
    for at, record in enumerate(records):
        cells = [record.get(name, "") for name in names]
        cells[-1] = " ".join(map(str, record["home"]))
        lines.append(",".join([f"r{at}", "", *map(str, cells)]))
    lines.append("bad,,ana,moreau,mill,31/01/1990,1,yes,much," + "52.1 4.3")
    lines.append("none" + "," * 9)

    def read(text: str, **options: Any) -> tuple[list[Any], RowErrors]:
        # Through the process that reads uploads, and what it sends back.
        scratch = tmp_path / f"scratch{len(list(tmp_path.iterdir()))}"
        scratch.mkdir()
        (scratch / "upload").write_text(text)
        errors = RowErrors()
        limits = replace(FileLimits.of(Settings(), 0), rows=100, stored_bytes=10**7)
        upload, picked = scratch / "upload", ImportOptions(**options)
        return list(confined_batches("csv", upload, scratch, form, errors, picked, limits)), errors

    batches, errors = read("\n".join(lines), subject="who")
    assert [rows.ids for rows in batches] == [["r0", "r1", "r2"]]
    assert [json.loads(body) for body in batches[0].form.bodies(batches[0].vectors)] == records
    assert [(error["row"], error["id"]) for error in errors.items] == [(3, "bad"), (4, "none")]
    assert "column 'born' is '31/01/1990'; expected a date" in errors.items[0]["detail"]
    assert "no cell" in errors.items[1]["detail"]
    with pytest.raises(InvalidInput, match="column 'nome' is none of the model's columns"):
        read("id,nome," + ",".join(names) + "\nr0,x" + "," * 8)
    with pytest.raises(InvalidInput, match="column 'born' is not in the file"):
        read("id," + ",".join(name for name in names if name != "born") + "\nr0" + "," * 7)


def test_results_are_decided_by_the_columns_that_both_records_have(
    galleries: Galleries, model: FellegiSunter, settings: Settings
) -> None:
    version = served(model)
    galleries.put("g", version)
    enrol_records(galleries, model, range(0, 40))
    searches = Searches(galleries, Thresholds(galleries), settings)
    probe = records_of(model)[5]
    lower = np.float32(-1e6)
    decision = ServedPoint(threshold=lower, public={"fpr": 0.1, "guarantee": "finite-sample"}, json=b"{}")

    scores: list[Any] = []

    def patterns(point: ServedPoint, lacked: Any, rescore: Any) -> ComparedPairs:
        scores.append(rescore(np.arange(len(lacked)), lacked))
        # Only pairs that have an address on both sides may match.
        upper = np.where(lacked[:, :, list(TYPES).index("address")].any(axis=1), np.nan, 0)
        return ComparedPairs(
            lacked, (upper.astype(np.float32), upper.astype(np.float32)), "more columns help"
        )

    def found(**more: Any) -> dict[str, Any]:
        asked = json.dumps({"queries": {**probe, **more}, "k": 3, "fpr": 0.1, "group_by": "subject"})
        request = parse_search(asked.encode(), settings)
        answer = searches.search(galleries.state("g"), version, request, decision, patterns=patterns).answer
        return dict(json.loads(answer))

    answer = found(address="1 mill road")
    assert all(hit["score"] > 0 and hit["match"] for hit in answer["results"][0])
    assert scores[-1].max() == np.float32(answer["results"][0][0]["score"]), "with nothing more left out"
    bare = found(address=None)
    assert (bare["results"], bare["warnings"][0]["code"]) == ([[]], "too-little-to-compare")
    items = searches.enrolled(galleries.state("g"), version, "s2")
    row = model._validated([{**probe, "address": None}], "probe")
    said = json.loads(searches.verify(version, "s2", row, items, decision, None, patterns=patterns).answer)
    assert (said["match"], said["reason"]) == (False, "too-little-to-compare")
    assert "address" in said["missing"]


def test_fpir_is_calibrated_on_candidates_and_verification_compares_the_subject(
    galleries: Galleries, model: FellegiSunter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(model), "max_scored", 20)
    version = served(model)
    galleries.put("g", version)
    enrol_records(galleries, model, range(0, 200, 2))
    strangers, _ = people(60, seed=21)
    probes = list(model.schema_.values(model._validated(strangers, "strangers")))[::2]
    cells, _ = form_of(model, model.n_features_in_).read_json(probes)
    identification = Identification(galleries, None, None)
    made = identification.calibrate_rows("g", version, cells, [f"new {at}" for at in range(60)])
    assert (made.n_probes, made.n_mated, made.stale) == (60, 0, False)
    for _ in range(2):
        answer = search(galleries, model, settings, records_of(model)[41], fpir=0.1)
        assert (answer["results"][0][0]["subject"], answer["operating_point"]["fpir"]) == ("s20", 0.1)
        # Kept probes follow the gallery, also in a process that reads them from the database.
        enrol_records(galleries, model, range(200, 210))
    for probe in probes[:5]:
        assert search(galleries, model, settings, probe, fpir=0.1)["results"] == [[]]
    galleries.erase("g", subject="new 3")
    searches = Searches(galleries, Thresholds(galleries), settings)
    items = searches.enrolled(galleries.state("g"), version, "s20")
    probe_row = model._validated([records_of(model)[41]], "probe")
    decision = ServedPoint(threshold=np.float32(0.0), public={"fpr": 0.1, "fpr_upper_bound": 0.1}, json=b"{}")
    said = json.loads(searches.verify(version, "s20", probe_row, items, decision, None).answer)
    assert (said["match"], said["id"]) == (True, "r040")
    assert said["score"] == float(model.score_pairs(TABLE, [40], [41])[0])


def test_records_are_searched_at_a_rate_after_all_of_a_block_were_erased(
    galleries: Galleries, model: FellegiSunter, settings: Settings
) -> None:
    galleries.put("g", served(model))
    enrol_records(galleries, model, range(0, 400, 2))
    strangers, _ = people(30, seed=21)
    probes = list(model.schema_.values(model._validated(strangers, "strangers")))[::2]
    cells, _ = form_of(model, model.n_features_in_).read_json(probes)
    names = [f"new {at}" for at in range(30)]
    Identification(galleries, None, None).calibrate_rows("g", served(model), cells, names)
    live = galleries.views.live(galleries.state("g"), model)
    live.view(galleries.state("g").seq)
    for row in range(0, 140, 2):
        galleries.erase("g", id=f"r{row:03}")
    while live.compact():
        pass
    answer = search(galleries, model, settings, records_of(model)[301], fpir=0.1)
    assert answer["results"][0][0]["subject"] == "s150"
