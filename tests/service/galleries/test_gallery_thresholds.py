"""A calibrated gallery stays calibrated: kept probes score what a calibration made just now would say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from pairmark.models import MetricSimilarity
from pairmark.models.calibration.identification import GalleryCalibration
from pairmark.service.errors import Conflict
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import Identification, ScoredProbes, Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.rows import RowErrors, VectorForm
from pairmark.service.galleries.searches import Searches
from pairmark.service.runtime.operating_points import ServedPoint
from pairmark.service.settings import Settings
from pairmark.service.tables import GalleryCalibrationRow, GalleryProbe
from tests.service.galleries.gallery_cases import WIDTH, rows, served

PEOPLE = [f"p{number}" for number in range(20)]
PROBES = [f"p{number}" for number in range(12, 20)] + [f"q{number}" for number in range(60)]


def calibrate(galleries: Galleries, name: str, model: Any, vectors: np.ndarray) -> Any:
    identification = Identification(galleries, None, None)
    return identification.calibrate_rows(name, model, vectors, PROBES[: len(vectors)])


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
                    receipt = galleries.erase(name, subject=argument)
                    assert receipt.probes == (1 if argument in left else 0)
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
                assert point["gallery_size"] == len(truth)
                assert point["n_probes"] == len(best)
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
    point = thresholds.for_rate(galleries.state("g"), model, 0.2, 0.95)[0].public
    assert point["n_probes"] == 59


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
