"""Matching records of tables: published splits, identities never met, no labels at all, and what comparing costs.

DBLP-ACM (clean and dirty), Amazon-Google and Abt-Buy come with training, validation and test pairs. Models learn
from the
training pairs; the threshold is the best of the validation pairs; F1 is of the test pairs, each scored alone. The
IDF of
tokens comes from records of training pairs. febrl3 has 5,000 made-up people with duplicates: half of the
identities train,
a quarter sets the threshold, a quarter is judged; and once without any label, over all pairs, at the threshold that the
fitted share of same pairs gives. Different seeds give different trees: the mean of five is shown, with the lowest
and highest.
XGBoost and logistic regression learn from the same comparators; RapidFuzz compares the same strings.

Besides: F1 by the number of labelled pairs, chosen as `pairmark label` does and drawn at random; searches of one record
among 1,000,000; server CPU of a decision about two records; whether thresholds keep their rate among candidate pairs
and for lone pairs, where households make both depend on fields; and the four commands from a messy CSV to a decision.

Needs ``records/`` in ``PAIRMARK_DATA``.
"""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._record_labels import learning_curve, promise_among_candidates, promise_of_lone_pairs
from benchmarks._record_service import decision, journey, search
from benchmarks.common import Claim, Preset, Result, Skip
from pairmark.models.records.blocking import candidate_pairs, recall
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.fellegi_sunter import FellegiSunter
from pairmark.models.records.inference import infer
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import declaration

GOALS = {"dblp-acm": 0.985, "dblp-acm-dirty": 0.98, "amazon-google": 0.75, "abt-buy": 0.925}
PARTS = ("train", "valid", "test")
CURVE = "test F1 by labelled pairs, chosen and drawn at random:"
CURVES, N_LABELS = ("abt-buy", "amazon-google"), (100, 200, 400, 800)
SHORT, LONG = "ten short fields, three scorers each, and tokens of all fields", "long text"
PROMISED = 0.05 + 3 * (0.05 * 0.95 / 50) ** 0.5
"""Of 50 calibrations of one world, how many may be beyond the rate: the 5 % promised, and three standard errors."""


def table(folder: Path, file: str) -> tuple[Schema, Records, dict[str, list[str]]]:
    """A CSV as cells of the schema that it is taken for."""
    with (folder / file).open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, skipinitialspace=True))
    columns = {name.strip(): [row[name] for row in rows] for name in rows[0]}
    schema = infer(columns, {"source": "ignore"} if "source" in columns else {}).schema
    return schema, schema.read(columns), columns


def best_threshold(scores: np.ndarray, same: np.ndarray) -> float:
    """The threshold of greatest F1, halfway to the next score."""
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order].astype(np.float64), np.cumsum(same[order])
    f1 = 2 * hits / (np.arange(1, hits.size + 1) + same.sum())
    f1[:-1][ranked[1:] == ranked[:-1]] = 0
    at = int(f1.argmax())
    return float(ranked[at] + ranked[min(at + 1, ranked.size - 1)]) / 2


def f1_at(scores: np.ndarray, same: np.ndarray, threshold: float, n_same: int | None = None) -> float:
    """F1 of the pairs above a threshold."""
    called = scores > threshold
    return float(2 * (called & same).sum() / (called.sum() + (same.sum() if n_same is None else n_same)))


def read_published(folder: Path) -> tuple[Schema, Records, dict[str, Any]]:
    """Records of a set with published splits, and left rows, right rows and truth of the pairs of each part."""
    schema, cells, columns = table(folder, "records.csv")
    row_of = {name: row for row, name in enumerate(columns["id"])}
    pairs = {}
    for part in PARTS:
        with (folder / f"pairs-{part}.csv").open() as stream:
            lines = list(csv.DictReader(stream))
        sides = (np.array([row_of[line[side]] for line in lines]) for side in ("left", "right"))
        pairs[part] = (*sides, np.array([line["same"] == "1" for line in lines]))
    return schema, cells, pairs


def published(folder: Path, seeds: int) -> dict[str, Any]:
    """Test F1 of a set with published splits."""
    schema, cells, pairs = read_published(folder)
    left, right, same = pairs["train"]
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        model = RecordSimilarity(columns=declaration(schema), random_state=seed)
        model.fit_pairs(cells[left], cells[right], same)
        found.setdefault("pairmark", []).append(
            judged(lambda a, b, m=model: m.score_pairs(cells, a, b), pairs)
        )
    comparators = Comparators(schema).fit(cells[np.unique(np.concatenate([left, right]))])
    prepared = comparators.prepare(cells)
    features = comparators.compare(prepared, left, prepared, right)
    for name, peer in peers().items():
        peer.fit(features, same)

        def scored(a: Any, b: Any, peer: Any = peer) -> Any:
            return peer.predict_proba(comparators.compare(prepared, a, prepared, b))[:, 1]

        found[name] = [judged(scored, pairs)]
    linked = FellegiSunter(columns=declaration(schema), random_state=0).fit(cells)
    found["fellegi-sunter, no labels"] = [judged(lambda a, b: linked.score_pairs(cells, a, b), pairs)]
    return {name: (float(np.mean(f1)), min(f1), max(f1)) for name, f1 in found.items()}


def peers() -> dict[str, Any]:
    """Learners of others on the same comparators."""
    plain = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=2_000))
    try:
        from xgboost import XGBClassifier
    except ImportError:
        return {"logistic regression": plain}
    boosted = XGBClassifier(n_estimators=300, learning_rate=0.05, max_depth=6, colsample_bytree=0.3, n_jobs=1)
    return {"logistic regression": plain, "XGBoost": boosted}


def judged(score: Callable[[Any, Any], Any], pairs: Mapping[str, Any]) -> float:
    """Test F1 at the threshold of the validation pairs."""
    threshold = best_threshold(score(*pairs["valid"][:2]), pairs["valid"][2])
    return f1_at(score(*pairs["test"][:2]), pairs["test"][2], threshold)


def same_pairs(who: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of rows of one identity."""
    i, j = np.triu_indices(rows.size, 1)
    same = who[rows[i]] == who[rows[j]]
    return rows[i[same]], rows[j[same]]


def febrl(folder: Path, seeds: int) -> dict[str, Any]:
    """febrl3: F1 over all pairs, of identities never met and without labels, with the recall of candidates."""
    schema, cells, columns = table(folder, "dataset3.csv")
    who = np.array([int(name.split("-")[1]) for name in columns["rec_id"]])
    linked = FellegiSunter(columns=declaration(schema), random_state=0).fit(cells)
    prepared = linked._comparators.prepare(cells)
    left, right = candidate_pairs(linked._comparators, prepared)
    scores, same = linked.score_pairs(cells, left, right), who[left] == who[right]
    everyone = same_pairs(who, np.arange(who.size))
    prior = linked.prior_
    unlabelled = f1_at(scores, same, -np.log(prior / (1 - prior)), everyone[0].size)
    supervised = []
    for seed in range(seeds):
        part = np.random.default_rng(seed).permutation(np.unique(who))
        own = {name: np.isin(who, ids) for name, ids in zip(PARTS, np.split(part, [part.size // 2, 3 * part.size // 4]),
                                                            strict=True)}  # fmt: skip
        model = RecordSimilarity(columns=declaration(schema), n_pairs=40_000, random_state=seed)
        model.fit(cells[own["train"]], who[own["train"]])
        among = {name: own[name][left] & own[name][right] for name in ("valid", "test")}
        n_same = {name: same_pairs(who, np.flatnonzero(own[name]))[0].size for name in among}
        got = {name: model.score_pairs(cells, left[mask], right[mask]) for name, mask in among.items()}
        supervised.append(
            f1_at(
                got["test"],
                same[among["test"]],
                best_threshold(got["valid"], same[among["valid"]]),
                n_same["test"],
            )
        )
    return {
        "supervised": (float(np.mean(supervised)), min(supervised), max(supervised)),
        "unlabelled": unlabelled,
        "recall": recall((left, right), everyone),
        "candidates": left.size / who.size,
    }


def rates(folder: Path, n: int) -> dict[str, float]:
    """Pairs a CPU minute: ten short fields with all comparators, with RapidFuzz's three scorers, and long text."""
    from rapidfuzz import process
    from rapidfuzz.distance import Jaro, JaroWinkler, Levenshtein

    def measured(schema: Schema, cells: Records) -> float:
        comparators = Comparators(schema).fit(cells)
        prepared = comparators.prepare(cells)
        left, right = np.random.default_rng(0).integers(0, len(cells), (2, n))
        comparators.compare(prepared, left[:100], prepared, right[:100])
        started = time.process_time()
        comparators.compare(prepared, left, prepared, right)
        return 60 * n / (time.process_time() - started)

    schema, cells, columns = table(folder / "febrl", "dataset3.csv")
    fields = {column.name: "category" for column in schema.fields}
    plain = infer(columns, fields | {"rec_id": "id"}).schema
    found = {
        "ten short fields, all comparators": measured(schema, cells),
        SHORT: measured(plain, plain.read(columns)),
        LONG: measured(*table(folder / "abt-buy", "records.csv")[:2]),
    }
    left, right = np.random.default_rng(0).integers(0, len(cells), (2, n))
    sides = [
        [[str(cell or "") for cell in cells[rows, at]] for rows in (left, right)]
        for at in range(cells.shape[1])
    ]
    started = time.process_time()
    for a, b in sides:
        for scorer in (Jaro, JaroWinkler, Levenshtein):
            process.cpdist(a, b, scorer=scorer.normalized_similarity, workers=1)
    found["RapidFuzz cpdist, three scorers each"] = 60 * n / (time.process_time() - started)
    return found


def claims_of(facts: dict[str, Any], mean_f1: dict[str, float]) -> list[Claim]:
    """The goals, beside what was measured."""
    speed, febrl3, search_, cost = (facts[key] for key in ("pairs a CPU minute", "febrl3", "search", "match"))
    listed, lone = facts["promise among candidates"], facts["promise of lone pairs"]
    least = {
        **{f"{name}: test F1": (goal, mean_f1[name]) for name, goal in GOALS.items()},
        "febrl3, identities unseen: F1": (0.9995, febrl3["supervised"][0]),
        "febrl3, no labels: F1": (0.999, febrl3["unlabelled"]),
        "pairs of ten short fields, three scorers each, a CPU minute": (5e6, speed[SHORT]),
        "pairs of long text a CPU minute": (5e5, speed[LONG]),
        "recall of candidates of a search": (0.99, search_["recall of candidates"]),
    }
    most = {
        f"one search in {search_['records']:,} records, p50 CPU ms": (20.0, search_["p50 CPU ms"]),
        "/match of two records of ten fields, times the CPU of two vectors": (2.0, cost["ratio"]),
        "calibrations beyond the rate among candidates, worst world": (PROMISED, listed["worst world"]),
        "calibrations beyond the rate of lone pairs, worst world": (PROMISED, lone["worst world"]),
        "CPU seconds of four commands from a messy CSV to a decision": (
            120.0,
            facts["four commands"]["CPU seconds"],
        ),
    }
    return [
        Claim(what=what, goal=f"at {word} {goal:,g}", measured=round(float(got), 4), holds=holds(got, goal))
        for word, goals, holds in (
            ("least", least, lambda got, goal: bool(got >= goal)),
            ("most", most, lambda got, goal: bool(got <= goal)),
        )
        for what, (goal, got) in goals.items()
    ]


def run(preset: Preset) -> Result:
    """All sets; ``quick`` uses a single seed, smaller tables and fewer calibrations."""
    data = os.environ.get("PAIRMARK_DATA")
    folder = Path(data or "") / "records"
    if not data or not folder.is_dir():
        raise Skip("needs records/ in PAIRMARK_DATA")
    parts = {name: part() for name, part in parts_of(folder, full=preset == "full").items()}
    return result_of(parts)


def parts_of(folder: Path, *, full: bool) -> dict[str, Callable[[], Any]]:
    """What is measured, by name: each part by itself takes about a minute."""
    seeds, worlds = (5, (6, 50)) if full else (1, (4, 25))
    curves, labels = (CURVES, N_LABELS) if full else (CURVES[:1], N_LABELS[:2])
    return {
        **{name: partial(published, folder / name, seeds) for name in GOALS},
        **{f"{CURVE} {name}": partial(curve_of, folder / name, labels) for name in curves},
        "febrl3": partial(febrl, folder / "febrl", seeds),
        "pairs a CPU minute": partial(rates, folder, 100_000 if full else 20_000),
        "search": partial(search, *(1_000_000, 500) if full else (20_000, 100)),
        "match": partial(decision, *(15, 400) if full else (5, 100)),
        "promise among candidates": partial(promise_among_candidates, *worlds),
        "promise of lone pairs": partial(promise_of_lone_pairs, *worlds),
        "four commands": partial(journey, 5_000 if full else 500),
    }


def result_of(parts: dict[str, Any]) -> Result:
    """Rows, claims and facts of what was measured."""
    rows = [
        {"set": name, "learner": learner, "F1": round(mean, 4), "from": round(low, 4), "to": round(high, 4)}
        for name in GOALS
        for learner, (mean, low, high) in parts[name].items()
    ]
    facts = {name: part for name, part in parts.items() if name not in GOALS}
    return Result(
        rows=rows, claims=claims_of(facts, {name: parts[name]["pairmark"][0] for name in GOALS}), facts=facts
    )


def curve_of(folder: Path, labels: tuple[int, ...]) -> dict[str, tuple[float, float]]:
    """Test F1 of a set by the number of labels, chosen and drawn."""
    schema, cells, pairs = read_published(folder)
    return learning_curve(schema, cells, pairs, labels, judged)
