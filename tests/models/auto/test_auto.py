"""The race: who wins, that it is fair and repeatable, and that the winner is what the estimator then is."""

import hashlib
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, load_iris

import pairmark
from pairmark import MetricSimilarity, Plda, SimilarityAuto, load
from pairmark.models.auto.average import finalists, scale_of
from pairmark.models.auto.candidates import CANDIDATES, Candidate, Data
from pairmark.models.auto.race import Entry, Race, leaderboard, winner
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.progress import listening
from pairmark.models.evaluation.validation import Fold, validation_folds
from tests.models.saving import reloaded

QUICK = 0.001
FOLDS = [
    Fold(
        train=np.arange(0),
        test=np.arange(0),
        test_codes=np.arange(40),
        test_units=np.arange(40),
        repeat=at // 4,
    )
    for at in range(8)
]


def people(n: int, each: int, seed: int = 0, d: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(99).standard_normal((d, d))
    y = np.repeat(np.arange(n), each)
    centres = rng.standard_normal((n, d)) * np.linspace(3.0, 0.2, d)
    return ((centres[y] + rng.standard_normal((y.size, d))) @ mix).astype(np.float32), y


X, Y = people(40, 6)


@cache
def fitted() -> SimilarityAuto:
    """To `X` and `Y`; where tests are listed only, nothing is fitted."""
    return SimilarityAuto(budget_seconds=QUICK).fit(X, Y)


def entry(at: int, rates: list[float]) -> Entry:
    return Entry(candidate=CANDIDATES[at], params={}, rates=np.array(rates)[:, None])


def test_the_simplest_within_one_standard_error_of_the_best_wins() -> None:
    simple, strong = [0.50, 0.60, 0.70, 0.40], [0.52, 0.58, 0.72, 0.39]
    assert winner([entry(0, simple), entry(1, strong)]).candidate is CANDIDATES[0]
    ahead = [value + 0.05 for value in simple]
    assert winner([entry(0, simple), entry(1, ahead)]).candidate is CANDIDATES[1]
    gone = entry(2, [0.9])
    gone.status = "left after 1 of 4 folds"
    assert winner([entry(0, simple), gone]).candidate is CANDIDATES[0]


def test_a_leaderboard_compares_fold_by_fold() -> None:
    entries = [entry(0, [0.5, 0.7]), entry(1, [0.6, 0.8])]
    first, second = leaderboard(entries, entries[1], (0.01,), FOLDS[:2])
    assert (first["name"], first["chosen"], second["chosen"]) == (CANDIDATES[1].name, True, False)
    assert second["difference"]["value"] == pytest.approx(-0.1)
    assert second["difference"]["interval"] == pytest.approx([-0.1, -0.1])
    assert second["tpr_at_fpr"] == {"0.01": pytest.approx(0.6)}


def test_plda_wins_on_its_own_data_and_is_what_scores() -> None:
    assert fitted().winner_ == "plda"
    model = fitted().model_
    assert isinstance(model, Plda)
    alone = Plda(**model.get_params()).fit(X, Y)
    assert fitted().pair_score(X[:30], X[30:60]).tobytes() == alone.pair_score(X[:30], X[30:60]).tobytes()
    assert fitted().transform(X).tobytes() == alone.transform(X).tobytes()
    assert fitted().explain(X[0], X[1])["learner"] == "plda"
    assert fitted().subject_score([X[:3]], [X[3:6]]).shape == (1,)
    board = fitted().leaderboard_
    assert [line["name"] for line in board if line["chosen"]] == ["plda"]
    assert {line["status"] for line in board if line["name"] in ("cosine", "plda")} == {"raced"}
    (forest,) = (line for line in board if line["name"] == "similarity forest")
    assert forest["status"] == "skipped (budget)"
    assert forest["reference_seconds"] > 3
    assert fitted().model_facts()["race"]["candidates"] == board


def test_cosine_wins_where_directions_are_all_there_is() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(45), 6)
    rows = rng.standard_normal((45, 16))[y] + 0.5 * rng.standard_normal((270, 16))
    rows *= rng.lognormal(0, 2, (270, 1))
    model = SimilarityAuto(budget_seconds=QUICK).fit(rows, y)
    assert model.winner_ == "cosine"
    assert model.pair_score(rows[:9], rows[9:18]).tobytes() == (
        MetricSimilarity().fit(rows, y).pair_score(rows[:9], rows[9:18]).tobytes()
    )


def test_shared_classes_that_no_line_parts_are_left_to_a_forest() -> None:
    digits, y = load_digits(return_X_y=True)
    model = SimilarityAuto(candidates=["cosine", "plda", "similarity forest"]).fit(digits[::3], y[::3])
    (best,) = (line for line in model.leaderboard_ if line["chosen"])
    assert best["params"].get("members", [best["name"]])[0] == "similarity forest"
    assert not hasattr(model, "transform")
    assert model.unavailable_ == {"embed"}
    ids, _ = model.top_k(digits[1:20:3], model.index(digits[::3]), 1)
    assert (y[::3][ids[:, 0]] == y[1:20:3]).mean() > 0.8


def test_sparse_rows_of_few_features_race_as_dense_ones() -> None:
    model = SimilarityAuto(budget_seconds=QUICK).fit(csr_array(X), Y)
    assert model.winner_ == "plda"
    # A service that holds sparse rows hands them over unchecked.
    sides = csr_array(X[:5]), csr_array(X[5:10])
    assert model._pair_score(*sides).tobytes() == fitted().pair_score(X[:5], X[5:10]).tobytes()
    assert (
        model.pair_score(csr_array(X[:5]), X[5:10]).tobytes() == fitted().pair_score(X[:5], X[5:10]).tobytes()
    )


def test_listed_pairs_race_on_pairs_held_out() -> None:
    left, right = np.triu_indices(Y.size, 1)
    same = Y[left] == Y[right]
    keep = same | (np.random.default_rng(0).random(same.size) < 0.2)
    left, right, same = left[keep], right[keep], same[keep]
    reported: dict[str, dict[str, Any]] = {}
    with listening(lambda *_: None, lambda _, facts: reported.update({facts["candidate"]: facts})):
        model = SimilarityAuto(budget_seconds=QUICK).fit_pairs(X[left], X[right], same)
    # Whoever watches the race sees what the leaderboard says in the end.
    judged = {line["name"]: line for line in model.leaderboard_ if line["folds"]}
    assert set(reported) == set(judged)
    for name, facts in reported.items():
        assert (facts["mean_tpr"], facts["folds"]) == (judged[name]["mean_tpr"], judged[name]["folds"])
    assert model.winner_ in ("plda", "discriminant cosine", "residual forest")
    assert max(line["folds"] for line in model.leaderboard_) == 8
    sparse = SimilarityAuto(candidates=["cosine"]).fit_pairs(csr_array(X)[left], csr_array(X)[right], same)
    assert sparse.winner_ == "cosine"


def test_too_few_rows_to_race_give_the_simplest() -> None:
    model = SimilarityAuto().fit(X[[0, 1, 6]], Y[[0, 1, 6]])
    assert model.winner_ == "cosine"
    assert "not raced" in model.leaderboard_[0]["status"]


def test_the_race_is_repeatable_and_saved_with_its_winner(tmp_path: Path) -> None:
    again = SimilarityAuto(budget_seconds=QUICK).fit(X, Y)
    loaded = reloaded(again, tmp_path / "model")
    for other in (again, loaded):
        assert other.pair_score(X[:9], X[9:18]).tobytes() == fitted().pair_score(X[:9], X[9:18]).tobytes()
        assert other.leaderboard_ == fitted().leaderboard_
    assert loaded.winner_ == "plda"
    assert loaded.top_k(X[:2], X, 3)[0].tolist() == fitted().top_k(X[:2], X, 3)[0].tolist()


def test_a_settled_one_learns_the_winner_with_its_settings_and_compares_nobody() -> None:
    chosen = fitted()
    # Ten people: too few for a race that would choose the same.
    settled = chosen.settled().fit(X[:60], Y[:60])
    assert (settled.winner_, settled.leaderboard_) == (chosen.winner_, chosen.leaderboard_)
    models: list[Any] = [settled.model_, chosen.model_]
    assert type(models[0]) is type(models[1])
    assert models[0].get_params() == models[1].get_params()
    assert not np.array_equal(settled.pair_score(X[:5], X[5:10]), chosen.pair_score(X[:5], X[5:10]))


def test_a_busy_machine_and_a_slow_candidate_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = SimilarityAuto(budget_seconds=8, n_jobs=2).fit(X, Y)
    fit, over = MetricSimilarity.fit, threading.Event()

    def slow_fit(self: MetricSimilarity, *given: Any) -> MetricSimilarity:
        time.sleep(1.0)
        return fit(self, *given)

    def spin() -> None:
        # A loop of Python would hold the interpreter for 5 ms each time that a kernel comes back.
        while not over.is_set():
            hashlib.sha256(bytes(1 << 20))

    busy = threading.Thread(target=spin)
    busy.start()
    try:
        monkeypatch.setattr(MetricSimilarity, "fit", slow_fit)
        beside = SimilarityAuto(budget_seconds=8, n_jobs=2).fit(X, Y)
    finally:
        over.set()
        busy.join()
    (arrays, facts), (others, their_facts) = alone.to_state(), beside.to_state()
    assert facts == their_facts
    assert {name: array.tobytes() for name, array in arrays.items()} == {
        name: array.tobytes() for name, array in others.items()
    }


class Graded:
    """A task whose TPR are those of a candidate's setting ``shrinkage``, fold by fold."""

    data = Data(
        n=100, d=4, raced=100, cells=400, n_classes=20, closed=False, sparse=False, pairs=False, work=22.5
    )
    folds = tuple(FOLDS)

    def __init__(self, rates: dict[float, list[float]]) -> None:
        self._rates = rates

    def scores(self, estimator: Any, fold: Any) -> tuple[np.ndarray, np.ndarray]:
        number = next(at for at, other in enumerate(FOLDS) if other is fold) % 4
        return np.arange(100) - 99.5 + 100 * self._rates[estimator.shrinkage][number], np.zeros(100)


@pytest.mark.parametrize(("other", "chosen"), [([0.9, 0.3, 0.6, 0.5], 0.0), ([0.6, 0.7, 0.65, 0.55], 1.0)])
def test_a_default_setting_is_left_for_one_that_is_ahead_beyond_chance(
    other: list[float], chosen: float
) -> None:
    task = Graded({0.0: [0.5, 0.6, 0.6, 0.5], 1.0: other})
    candidate = Candidate(name="logistic", kind="metric", grid=({"shrinkage": 0.0}, {"shrinkage": 1.0}))
    (found,) = Race(task, fprs=(0.1,), shared={"n_jobs": 1}).run([candidate])
    assert (found.params, found.rates.shape) == ({"shrinkage": chosen}, (8, 1))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"candidates": []}, "candidates is empty"),
        ({"candidates": ["nobody"]}, "candidates"),
        ({"budget_seconds": 0.0}, "budget_seconds"),
        ({"target_fpr": 1.0}, "target_fpr"),
    ],
)
def test_bad_settings_are_named(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SimilarityAuto(**params).fit(X, Y)


def test_a_winner_that_never_raced_is_refused() -> None:
    arrays, meta = fitted().to_state()
    meta = {**meta, "n_features_in": 8}
    without = {name: array for name, array in arrays.items() if not name.endswith("psi")}
    for state, said in (
        ((arrays, {**meta, "winner": "nobody"}), "expected a candidate of leaderboard"),
        ((arrays, {**meta, "model": {**meta["model"], "kind": "other"}}), r"model\.kind"),
        ((without, meta), "psi"),
        (({**arrays, "stranger": arrays["winner-psi"]}, meta), "stranger"),
    ):
        with pytest.raises(ArtefactError, match=said):
            SimilarityAuto().from_state(*state)


def test_a_rate_is_shown_where_a_folds_people_can_show_it_and_without_the_optimism_of_choosing() -> None:
    rng = np.random.default_rng(0)
    at = (0.1, 0.003)
    entries = [entry(number, []) for number in range(4)]
    for one in entries:
        # Equally good, and each of them lucky on some folds.
        one.rates = np.stack([rng.normal(0.6, 0.1, 8), rng.normal(0.4, 0.1, 8)], axis=1)
    best = winner(entries)
    few = [replace(fold, test_units=np.arange(8)) for fold in FOLDS]
    line = next(line for line in leaderboard(entries, best, at, few) if line["chosen"])
    assert (line["tpr_at_fpr"]["0.003"], line["validated_tpr"]["0.003"]) == (None, None)
    assert line["validated_tpr"]["0.1"] < line["tpr_at_fpr"]["0.1"]
    many = next(line for line in leaderboard(entries, best, at, FOLDS) if line["chosen"])
    assert many["validated_tpr"]["0.003"] < many["tpr_at_fpr"]["0.003"]


@pytest.mark.parametrize(
    ("first", "cost", "behind", "n_judged"),
    [
        ("cosine", 20.0, 0.02, 4),
        ("cosine", 20.0, 0.0, 4),
        ("cosine", 20.0, -0.02, 8),
        ("cosine", 0.2, 0.3, 8),
        ("logistic", 20.0, 0.02, 8),
        ("logistic", 20.0, 0.2, 4),
    ],
)
def test_a_costly_candidate_leaves_halfway_behind_a_simpler_one_or_far_behind_another(
    first: str, cost: float, behind: float, n_judged: int
) -> None:
    fair = [0.8, 0.75, 0.7, 0.72]
    task = Graded({0.0: fair, 1.0: [rate - behind for rate in fair]})
    quick = Candidate(name="cosine", kind="metric", params={"shrinkage": 0.0})
    slow = Candidate(name="logistic", kind="metric", params={"shrinkage": 1.0}, cost=lambda data: cost)
    race = Race(task, fprs=(0.1,), shared={"n_jobs": 1})
    entries = {
        entry.candidate.name: entry
        for entry in race.run(sorted((quick, slow), key=lambda candidate: candidate.name != first))
    }
    assert {name: entry.rates.shape[0] for name, entry in entries.items()} == {
        "cosine": 8,
        "logistic": n_judged,
    }
    assert entries["logistic"].status == ("raced" if n_judged == 8 else "left after 4 of 8 folds")


@pytest.mark.parametrize(
    ("closed", "trees", "races"), [(False, 0.5, False), (False, 0.8, True), (True, 0.5, True)]
)
def test_a_forest_of_new_identities_races_where_trees_over_the_ratio_help(
    closed: bool, trees: float, races: bool
) -> None:
    task = Graded({0.0: [0.7] * 4, 1.0: [trees] * 4, 2.0: [0.9] * 4})
    task.data = replace(Graded.data, closed=closed)
    candidates = [
        Candidate(name=name, kind="metric", params={"shrinkage": number})
        for number, name in enumerate(("plda", "residual forest", "similarity forest"))
    ]
    forest = Race(task, fprs=(0.1,), shared={"n_jobs": 1}).run(candidates)[-1]
    assert (forest.status == "raced") == races
    assert races or forest.status == "skipped (trees over the ratio gain nothing)"


def test_the_cheapest_race_as_long_as_their_work_fits_the_budget() -> None:
    task = Graded({0.0: [0.5] * 4, 1.0: [0.6] * 4})
    costs = {"cosine": 50.0, "logistic": 0.0, "similarity forest": 20.0, "plda": 12.0}
    candidates = [
        Candidate(
            name=name,
            kind="metric",
            params={"shrinkage": float(name == "plda")},
            cost=lambda data, cost=cost: cost,
        )
        for name, cost in costs.items()
    ]
    race = Race(task, fprs=(0.1,), shared={"n_jobs": 1})
    status = {one.candidate.name: one.status for one in race.run(candidates)}
    assert status == {
        "cosine": "skipped (budget)",
        "logistic": "raced",
        "similarity forest": "skipped (budget)",
        "plda": "raced",
    }


@pytest.mark.parametrize("way", ["mean", "best"])
def test_how_samples_are_put_together_is_learned_from_people_of_several(way: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    # One look and much noise, which a mean takes out; or four looks a person, of which two samples share one.
    looks, noise = (1, 1.5) if way == "mean" else (4, 0.3)
    centers = rng.standard_normal((40, looks, 12))
    rows = (centers[:, np.arange(8) % looks] + noise * rng.standard_normal((40, 8, 12))).reshape(-1, 12)
    model = SimilarityAuto(candidates=["cosine"]).fit(rows, np.repeat(np.arange(40), 8))
    model.save(tmp_path / "model")
    again = pairmark.load(tmp_path / "model")
    assert (model.aggregation_, again.aggregations[0]) == (way, way)
    sides = rows[:4], rows[8:12]
    assert again.subject_score([sides[0]], [sides[1]]) == model.subject_score(
        [sides[0]], [sides[1]], aggregation=way
    )
    assert model.settled().fit(rows, np.repeat(np.arange(40), 8)).aggregation_ == way


@pytest.mark.nightly
def test_wide_rows_and_a_small_budget_stay_within_it() -> None:
    rows, y = people(40, 6, d=600)
    begun = time.process_time()
    SimilarityAuto(budget_seconds=0.5).fit(rows, y)
    assert time.process_time() - begun < 1.2 * 0.5 + 8


@pytest.mark.parametrize(
    ("rows", "labels", "protocol"),
    [
        pytest.param(*people(10, 2), "open-set", id="10 people of 2 rows"),
        pytest.param(*people(60, 2, d=300), "open-set", id="300 features of 60 people"),
        pytest.param(
            np.hstack([X * np.float32(1e6) ** np.linspace(-1, 1, 8), np.ones_like(X)]),
            Y,
            "open-set",
            id="scales from 1e-6 to 1e6 and constant columns",
        ),
        pytest.param(
            np.vstack([X, X[:1] + np.random.default_rng(1).standard_normal((240, 8))]),
            np.append(Y, np.zeros(240)),
            "open-set",
            id="one person with half of all rows",
        ),
        pytest.param(X, Y % 3, "closed-set", id="three classes"),
        pytest.param(np.tile(X[::6], (6, 1)), np.tile(Y[::6], 6), "open-set", id="equal rows"),
    ],
)
def test_odd_data_give_a_model_that_tells_something_apart(
    rows: np.ndarray, labels: np.ndarray, protocol: Any
) -> None:
    model = SimilarityAuto(protocol=protocol, budget_seconds=QUICK).fit(rows, labels)
    assert model.score(rows, labels) > 0.55
    (chosen,) = (one for one in model.leaderboard_ if one["chosen"])
    assert chosen["folds"] > 1
    assert all(0 <= value <= 1 for value in chosen["validated_tpr"].values() if value is not None)
    assert np.isfinite(model.score_against(rows[:5], rows)).all()


IRISES, SPECIES = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def averaged() -> SimilarityAuto:
    return SimilarityAuto(protocol="closed-set").fit(IRISES[::2], SPECIES[::2])


def test_level_candidates_are_averaged_and_serve_as_one(averaged: SimilarityAuto, tmp_path: Path) -> None:
    assert averaged.winner_ == "average"
    line = next(line for line in averaged.leaderboard_ if line["chosen"])
    assert sorted(line["params"]["members"]) == ["class trees", "classes"]
    # No forest, PLDA or logistic regression on pairs beside them.
    raced = {line["name"] for line in averaged.leaderboard_ if line["folds"]}
    assert raced == {"average", "classes", "class trees", "cosine"}
    for rate, interval in line["validated_interval"].items():
        assert interval is None or interval[0] <= line["validated_tpr"][rate] <= interval[1]
    averaged.save(tmp_path / "model")
    again = load(tmp_path / "model")
    grid = averaged.score_against(IRISES[1::2], IRISES[::2])
    assert again.score_against(IRISES[1::2], again.index(IRISES[::2])).tobytes() == grid.tobytes()
    assert averaged.pair_score(IRISES[1:2], IRISES[::2]).tobytes() == grid[0].tobytes()
    rows, scores = again.top_k(IRISES[1:2], IRISES[::2], 5)
    assert scores[0].tolist() == grid[0, rows[0]].tolist() == sorted(grid[0], reverse=True)[:5]
    assert averaged.score(IRISES[1::2], SPECIES[1::2]) > 0.96
    reason = averaged.explain(IRISES[1], IRISES[0])
    assert (
        reason["score"]
        == grid[0, 0]
        == pytest.approx(sum(part["contribution"] for part in reason["members"]))
    )
    assert averaged.settled().fit(IRISES, SPECIES).winner_ == "average"


def test_neither_the_order_of_rows_nor_names_of_classes_play_a_part(
    averaged: SimilarityAuto, tmp_path: Path
) -> None:
    order = np.random.default_rng(0).permutation(75)
    named = np.array(["c", "a", "b"])[SPECIES]
    again = SimilarityAuto(protocol="closed-set").fit(IRISES[::2][order], named[::2][order])
    again.save(tmp_path / "model")
    scores = averaged.score_against(IRISES[1::2], IRISES[::2])
    for model in (again, load(tmp_path / "model")):
        assert model.score_against(IRISES[1::2], IRISES[::2]).tobytes() == scores.tobytes()
        with pytest.raises(ValueError, match="class 'd' was not in training"):
            model.score(IRISES, np.where(np.arange(150) == 0, "d", named))


def test_a_damaged_member_is_named(averaged: SimilarityAuto) -> None:
    arrays, meta = averaged.to_state()
    name = next(name for name in arrays if name.startswith("winner-0-") and arrays[name].dtype.kind == "f")
    damaged = {**arrays, name: np.full_like(arrays[name], np.nan)}
    with pytest.raises(ArtefactError, match=name):
        SimilarityAuto().from_state(damaged, {**meta, "n_features_in": 4, "feature_names_in": None})


def test_finalists_are_the_best_and_those_that_raise_what_they_reach_together() -> None:
    means = np.array([[0.5], [0.9], [0.88], [0.86], [0.84]])
    together = {(1,): 0.9, (1, 2): 0.93, (1, 2, 3): 0.9, (1, 2, 4): 0.94}
    assert finalists(means, lambda numbers: together[tuple(numbers)], 0.0) == [1, 2, 4]
    assert finalists(means, lambda numbers: 0.8, 0.0) == [1]
    # A loss that counts as level is no reason to leave one out.
    assert finalists(means[:3], lambda numbers: 0.8, 0.11) == [1, 2]
    assert finalists(means, lambda numbers: 0.8, 0.09) == [1]


def test_folds_that_find_every_pair_leave_room_for_what_few_rows_cannot_show() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    rows = 50 * np.eye(3)[labels] + rng.normal(size=(90, 3))
    model = SimilarityAuto(protocol="closed-set", candidates=["class trees"]).fit(rows, labels)
    line = next(line for line in model.leaderboard_ if line["chosen"])
    assert line["validated_tpr"]["0.1"] == 1.0
    assert line["validated_interval"]["0.1"] == pytest.approx([1 - 3 / 90, 1.0])


def test_a_scale_rises_with_the_rank_among_negative_pairs() -> None:
    scale = scale_of(np.random.default_rng(0).normal(size=5_000))
    values = np.interp(np.array([-1e3, -2.0, 0.0, 1.0, 2.33, 10.0, 1e3]), scale["knots"], scale["values"])
    assert (np.diff(values) > 0).all()
    assert values[4] == pytest.approx(np.log(100), abs=0.2)
    constant = scale_of(np.zeros(9))
    assert np.isfinite(constant["values"]).all()
    assert (np.diff(constant["knots"]) > 0).all()


@pytest.mark.parametrize(("protocol", "n_independent"), [("closed-set", 6), ("open-set", 6 * 5 // 2)])
def test_no_fold_splits_a_group(protocol: Literal["closed-set", "open-set"], n_independent: int) -> None:
    groups, rng = np.repeat(np.arange(24), 8), np.random.default_rng(0)
    # Everybody does both of two things, or is two of 48 that come along together.
    codes = np.tile(np.repeat([0, 1], 4), 24) if protocol == "closed-set" else np.arange(192) // 4
    folds = validation_folds(codes, protocol, rng, groups=groups)
    assert len(folds) == 8
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert fold.n_independent == n_independent
