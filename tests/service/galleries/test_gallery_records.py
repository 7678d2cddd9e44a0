"""Galleries of records: what a search of candidates finds, and that it follows every write and erasure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.models import FellegiSunter, MetricSimilarity
from pairmark.models.records import neighbours
from pairmark.models.records.tables import declare_schema
from pairmark.schemas.galleries import ImportOptions
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import Identification, Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.imports import confined_batches, json_batches
from pairmark.service.galleries.rows import RecordForm, RowErrors, form_of
from pairmark.service.galleries.searches import Searches, parse_search
from pairmark.service.runtime.missing_columns import ComparedPairs
from pairmark.service.runtime.operating_points import ServedPoint
from pairmark.service.settings import Settings
from tests.models.records.people import people
from tests.service.galleries.gallery_cases import served

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


def enrol(
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
    answer = searches.search(galleries.state("g"), served(model), request, None).answer
    return dict(json.loads(answer))


def records_of(model: Any) -> list[dict[str, Any]]:
    return list(model.schema_.values(model._validated(TABLE, "table")))


def test_a_small_gallery_scores_everything_and_a_large_one_candidates(
    galleries: Galleries, model: FellegiSunter, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    galleries.put("g", served(model))
    enrol(galleries, model, range(0, 100, 2))
    enrol(galleries, model, range(100, 400, 2))
    probes = records_of(model)[1:200:2]
    everything = [search(galleries, model, settings, probe) for probe in probes]
    assert "candidates" not in everything[0]
    monkeypatch.setattr(type(model), "max_scored", 20)
    monkeypatch.setattr(neighbours, "N_CANDIDATES", 30)
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
    enrol(galleries, model, range(0, 150))
    probe = records_of(model)[161]
    assert search(galleries, model, settings, probe)["results"][0][0]["subject"] != "s80"
    enrol(galleries, model, range(160, 170))
    assert search(galleries, model, settings, probe)["results"][0][0]["id"] == "r161"
    # In a block, no longer in the rows that wait for one.
    enrol(galleries, model, range(170, 200))
    # What an item was before it was replaced is no candidate.
    replaced = records_of(model)[5]
    body = json.dumps({"items": [{"id": "r161", "subject": "s80", "vector": replaced}]}).encode()
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
    enrol(galleries, model, range(0, 6))
    with database.write() as session:
        item = repository.find_item(session, galleries.state("g").id, "r002")
        assert item is not None
        item.vector = b'{"given": '
    found = search(galleries, model, settings, records_of(model)[2])["results"][0]
    assert "r002" not in [hit["id"] for hit in found]


def test_vectors_and_records_do_not_mix(
    galleries: Galleries, model: FellegiSunter, settings: Settings
) -> None:
    galleries.put("g", served(model))
    enrol(galleries, model, range(0, 6))
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
    stored = [json.loads(body) for body in batches[0].form.bodies(batches[0].vectors)]
    assert stored == records
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
    enrol(galleries, model, range(0, 40))
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
    enrol(galleries, model, range(0, 200, 2))
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
        enrol(galleries, model, range(200, 210))
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
