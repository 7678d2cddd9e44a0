"""Matching records of tables: published splits, identities never met, no labels at all, and what comparing costs.

DBLP-ACM (clean and dirty), Amazon-Google and Abt-Buy come with training, validation and test pairs. Models learn
from the training pairs; the threshold is the best of the validation pairs; F1 is of the test pairs, each scored alone,
and among its rivals in the two tables (`RecordSimilarity.score_among`), which no label decides. The IDF of tokens comes
from records of training pairs. febrl3 has 5,000 made-up people with duplicates: half of the identities train, a quarter
sets the threshold, a quarter is judged; and once without any label, over all pairs, at the threshold that the fitted
share of same pairs gives. Different seeds give different trees: the mean of five is shown, with the lowest and highest.
XGBoost and logistic regression learn from the same comparators; RapidFuzz compares the same strings.

Labels and promises are measured in `record_labels`, searches, decisions and first steps in `record_service`, other
packages in `record_peers`.

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

from benchmarks.common import Claim, Preset, Result, Skip
from pairmark.models.records.blocking import candidate_pairs, recall
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.fellegi_sunter import FellegiSunter
from pairmark.models.records.inference import infer
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import declaration

AMONG = "pairmark, among candidates"
GOALS_AMONG = {"dblp-acm": 0.99, "dblp-acm-dirty": 0.99, "amazon-google": 0.81, "abt-buy": 0.95}
GOALS = {"dblp-acm": 0.985, "dblp-acm-dirty": 0.98, "amazon-google": 0.75, "abt-buy": 0.925}
PARTS = ("train", "valid", "test")
SHORT, LONG = "ten short fields, three scorers each, and tokens of all fields", "long text"


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
    n_left = table(folder, "records.csv")[2]["source"].count("a")
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        model = RecordSimilarity(columns=declaration(schema), random_state=seed)
        model.fit_among(cells, left, right, same, n_left=n_left)
        for name, score in (
            ("pairmark", model.score_pairs),
            (AMONG, partial(model.score_among, n_left=n_left)),
        ):
            found.setdefault(name, []).append(judged(partial(score, cells), pairs))
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


def run(preset: Preset) -> Result:
    """All sets; ``quick`` uses a single seed."""
    folder = records_folder()
    full = preset == "full"
    return result_of({name: part() for name, part in parts_of(folder, full=full).items()})


def records_folder() -> Path:
    """Where the tables are, or `Skip`."""
    data = os.environ.get("PAIRMARK_DATA")
    if not data or not (Path(data) / "records").is_dir():
        raise Skip("needs records/ in PAIRMARK_DATA")
    return Path(data) / "records"


def parts_of(folder: Path, *, full: bool) -> dict[str, Callable[[], Any]]:
    """What is measured, by name: each part by itself takes a minute or two."""
    seeds = 5 if full else 1
    return {
        **{name: partial(published, folder / name, seeds) for name in GOALS},
        "febrl3": partial(febrl, folder / "febrl", seeds),
        "pairs a CPU minute": partial(rates, folder, 100_000 if full else 20_000),
    }


def result_of(parts: dict[str, Any]) -> Result:
    """Rows, claims and facts of what was measured."""
    rows = [
        {"set": name, "learner": learner, "F1": round(mean, 4), "from": round(low, 4), "to": round(high, 4)}
        for name in GOALS
        for learner, (mean, low, high) in parts[name].items()
    ]
    speed, febrl3 = parts["pairs a CPU minute"], parts["febrl3"]
    goals = {
        **{f"{name}: test F1": (goal, parts[name]["pairmark"][0]) for name, goal in GOALS.items()},
        **{
            f"{name}: test F1 among candidates": (goal, parts[name][AMONG][0])
            for name, goal in GOALS_AMONG.items()
        },
        "febrl3, identities unseen: F1": (0.9995, febrl3["supervised"][0]),
        "febrl3, no labels: F1": (0.999, febrl3["unlabelled"]),
        "pairs of ten short fields, three scorers each, a CPU minute": (5e6, speed[SHORT]),
        "pairs of long text a CPU minute": (5e5, speed[LONG]),
    }
    claims = [
        Claim(what=what, goal=f"at least {goal:,g}", measured=round(float(got), 4), holds=bool(got >= goal))
        for what, (goal, got) in goals.items()
    ]
    return Result(rows=rows, claims=claims, facts={"febrl3": febrl3, "pairs a CPU minute": speed})
