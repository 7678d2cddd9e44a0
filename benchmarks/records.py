"""Matching records of tables: published splits, identities never met, and other packages.

DBLP-ACM (clean and dirty), Amazon-Google and Abt-Buy come with training, validation and test pairs. Models learn
from the training pairs; the threshold is the best of the validation pairs; F1 is of the test pairs.

``records``: a job trains the first seed's model, as a service trains it: twelve fits, for its folds and for the models
that it is held against. The other seeds take one fit each, of the same pairs. Each pair is scored alone, and among its
rivals in the two tables (`RecordSimilarity.score_among`), which no label decides. The IDF of tokens comes from records
of training pairs. A job's CPU counts its children; its goal is that for 8,000 listed pairs, and no set has more to
train from. febrl3 has 5,000 made-up people with duplicates: half of the identities train, a quarter sets the threshold,
a quarter is judged; and once without any label, over all pairs, at the threshold that the fitted share of same pairs
gives. Different seeds give different trees: the mean of five is shown, with the lowest and highest.

``record_peers``: lone pairs beside splink, dedupe, recordlinkage and GoldenMatch. Each compares with its own
comparisons and learns with its own model: dedupe and recordlinkage by logistic regression, splink the model of Fellegi
and Sunter with m of the training pairs; GoldenMatch, without a language model, weighs all fields alike and learns
nothing here. CPU is of everything from the table to the scores.

All need ``records/`` in ``PAIRMARK_DATA``.
"""

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._served import trained
from benchmarks.common import (
    Claim,
    Pairs,
    Preset,
    Result,
    columns_of,
    in_turns,
    needed_data,
    published_records,
    read_csv,
    write_csv,
)
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.linking.fellegi_sunter import FellegiSunter
from pairmark.models.pairs.lists import contradictory_pairs
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.inference import infer
from pairmark.models.records.neighbors import candidate_pairs
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import declaration
from pairmark.service.blobs import open_blobs
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import open_database
from pairmark.service.store.store import ModelStore

AMONG, RATE = "pairmark, among candidates", 0.01
GOALS_AMONG = {"dblp-acm": 0.99, "dblp-acm-dirty": 0.99, "amazon-google": 0.81, "abt-buy": 0.95}
GOALS = {"dblp-acm": 0.985, "dblp-acm-dirty": 0.98, "amazon-google": 0.75, "abt-buy": 0.925}
NUMERIC = ("number", "date")
PARTS = ("train", "valid", "test")
Score = Callable[[Any, Any], Any]
"""Scores of pairs of rows, from their left and right numbers."""


def run(preset: Preset) -> Result:
    """All sets; ``quick`` uses a single seed."""
    folder, seeds = needed_data("records"), 5 if preset == "full" else 1
    measured = {name: published(name, seeds) for name in GOALS}
    found = {name: f1 for name, (f1, _) in measured.items()}
    supervised, unlabelled = febrl(folder / "febrl", seeds)
    rows = [
        {
            "set": name,
            "learner": learner,
            "F1": round(float(np.mean(f1)), 4),
            "from": round(min(f1), 4),
            "to": round(max(f1), 4),
        }
        for name, learners in found.items()
        for learner, f1 in learners.items()
    ]
    goals = {
        **{f"{name}: test F1": (goal, np.mean(found[name]["pairmark"])) for name, goal in GOALS.items()},
        **{
            f"{name}: test F1 among candidates": (goal, np.mean(found[name][AMONG]))
            for name, goal in GOALS_AMONG.items()
        },
        "febrl3, identities unseen: F1": (0.9995, np.mean(supervised)),
        "febrl3, no labels: F1": (0.999, unlabelled),
    }
    claims = [Claim.at_least(what, goal, round(float(got), 4)) for what, (goal, got) in goals.items()]
    claims += [
        Claim.at_most(f"{what}, any set", most, round(max(told[fact] for _, told in measured.values()), 3))
        for what, fact, most in (
            ("TPR at FPR 1 % by the job's folds, less that of test pairs", "optimism", 0.03),
            ("share of pairs that no fold scores", "not scored", 0.25),
            ("CPU s of a job", "CPU s a job", 40),
            ("CPU us of a score of one pair", "CPU us a pair", 80),
        )
    ]
    return Result(rows=rows, claims=claims)


def record_peers(preset: Preset) -> Result:
    """All peers on all sets; ``quick`` takes the smallest set."""
    rows: list[dict[str, Any]] = []
    claims = []
    for name in GOALS if preset == "full" else ("amazon-google",):
        lines, pairs = published_records(name)
        schema, cells, _ = read_records(lines)
        found = {}
        for peer, fitted in LEARNERS.items():
            started = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[peer] = judged(fitted(schema, cells, pairs["train"]), pairs)
            spent = round(time.process_time() - started, 1)
            rows.append({"set": name, "learner": peer, "F1": round(found[peer], 4), "CPU s": spent})
        best = max(f1 for peer, f1 in found.items() if "comparators" not in peer and peer != "pairmark")
        claims.append(
            Claim(what=f"{name}: test F1 beyond the best of other packages", goal="above 0",
                  measured=round(found["pairmark"] - best, 4), holds=found["pairmark"] > best)
        )  # fmt: skip
    return Result(rows=rows, claims=claims)


# ---------------------------------------------------------------- published sets


def read_records(lines: list[dict[str, str]]) -> tuple[Schema, Records, dict[str, list[str]]]:
    """Cells of the schema that a table is taken for, and its columns."""
    columns = columns_of(lines)
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


def published(name: str, seeds: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Test F1 by seed of a set with published splits, whose pairs train by a job, as a service trains; and what the job
    says: TPR at FPR 1 % by its folds, less that of the test pairs, the share of pairs that no fold scores, its CPU, and
    that of a score of one pair."""
    lines, pairs = published_records(name)
    schema, cells, columns = read_records(lines)
    before = cpu_with_children()
    first, records, listed, version = trained_by_job(columns, pairs["train"])
    spent = cpu_with_children() - before
    n_left = columns["source"].count("a")
    others = (
        clone(first).set_params(random_state=seed).fit_among(records, *listed, n_left=n_left)
        for seed in range(1, seeds)
    )
    models = [first, *others]
    found: dict[str, list[float]] = {
        "pairmark": [judged(partial(model.score_pairs, records), pairs) for model in models],
        AMONG: [judged(partial(model.score_among, records, n_left=n_left), pairs) for model in models],
    }
    for peer in ("XGBoost", "logistic regression"):
        found[peer] = [judged(on_comparators(peer, schema, cells, pairs["train"]), pairs)]
    linked = FellegiSunter(columns=declaration(schema), random_state=0).fit(cells)
    found["fellegi-sunter, no labels"] = [judged(partial(linked.score_pairs, cells), pairs)]
    left, right, same = pairs["test"]
    fpr, tpr, _ = roc_curve_pairs(first.score_pairs(records, left, right), same)
    held_out = tpr[np.searchsorted(fpr, RATE, side="right") - 1]
    parts, validated = version.facts["parts"], version.metrics["tpr_at_fpr"][f"{RATE:g}"]["value"]
    ones = [(records[[a]], records[[b]]) for a, b in zip(left[:500], right[:500], strict=True)]
    one_pair = in_turns({"score": lambda at: first.pair_score(*ones[at])}, len(ones))[0]["score"]
    return found, {
        "optimism": float(validated - held_out),
        "not scored": parts["crossing_pairs"] / parts["train_pairs"],
        "CPU s a job": spent,
        "CPU us a pair": 1e6 * float(np.median(one_pair)),
    }


def cpu_with_children() -> float:
    """Seconds of this process and of those that it waited for."""
    return sum(os.times()[:4])


def trained_by_job(columns: dict[str, list[str]], train: Pairs) -> tuple[Any, Any, Any, Any]:
    """The model of a job, from training pairs that do not contradict each other, the records of its two tables, those
    pairs, and the version."""
    ids, sources = columns["id"], np.array(columns["source"])
    left, right, same = (np.delete(side, contradictory_pairs(*train)) for side in train)
    listed = {"left": [ids[at] for at in left], "right": [ids[at] for at in right], "same": same.astype(int)}
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as home:
        tables = {
            side: {
                name: np.array(cells, dtype=object)[sources == side]
                for name, cells in columns.items()
                if name != "source"
            }
            for side in "ab"
        }
        files = {"file": tables["a"], "right": tables["b"], "pairs": listed}
        settings = trained(
            {"PAIRMARK_HOME": home},
            [{"model": "set", "params": {"random_state": 0}}],
            request={"id": "id"},
            files={name: write_csv(Path(home, f"{name}.csv"), cells) for name, cells in files.items()},
        )
        with open_database(settings) as database:
            blobs = open_blobs(settings)
            store, datasets = ModelStore(database, blobs, settings), Datasets(database, blobs, settings)
            data = datasets.load(datasets.get("points").id)
            return (
                store.load("set", 1),
                np.array(data.X),
                [np.array(side) for side in (data.pairs.left, data.pairs.right, data.pairs.same)],
                store.version("set", 1),
            )


def judged(score: Callable[[Any, Any], Any], pairs: Mapping[str, Any]) -> float:
    """Test F1 at the threshold of the validation pairs."""
    threshold = best_threshold(score(*pairs["valid"][:2]), pairs["valid"][2])
    return f1_at(score(*pairs["test"][:2]), pairs["test"][2], threshold)


def same_pairs(who: np.ndarray, rows: np.ndarray) -> int:
    """How many pairs of rows are of one identity."""
    counts = np.unique(who[rows], return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def febrl(folder: Path, seeds: int) -> tuple[list[float], float]:
    """febrl3: F1 over all pairs, of identities never met by seed, and without labels."""
    schema, cells, columns = read_records(read_csv(folder / "dataset3.csv"))
    who = np.array([int(name.split("-")[1]) for name in columns["rec_id"]])
    linked = FellegiSunter(columns=declaration(schema), random_state=0).fit(cells)
    prepared = linked._comparators.prepare(cells)
    left, right = candidate_pairs(linked._comparators, prepared)
    scores, same = linked.score_pairs(cells, left, right), who[left] == who[right]
    unlabelled = f1_at(
        scores, same, -np.log(linked.prior_ / (1 - linked.prior_)), same_pairs(who, np.arange(who.size))
    )
    supervised = []
    for seed in range(seeds):
        part = np.random.default_rng(seed).permutation(np.unique(who))
        own = {name: np.isin(who, ids) for name, ids in zip(PARTS, np.split(part, [part.size // 2, 3 * part.size // 4]),
                                                            strict=True)}  # fmt: skip
        model = RecordSimilarity(columns=declaration(schema), n_pairs=40_000, random_state=seed)
        model.fit(cells[own["train"]], who[own["train"]])
        among = {name: own[name][left] & own[name][right] for name in ("valid", "test")}
        got = {name: model.score_pairs(cells, left[mask], right[mask]) for name, mask in among.items()}
        supervised.append(
            f1_at(
                got["test"],
                same[among["test"]],
                best_threshold(got["valid"], same[among["valid"]]),
                same_pairs(who, np.flatnonzero(own["test"])),
            )
        )
    return supervised, unlabelled


# ---------------------------------------------------------------- other packages


def by_pairmark(schema: Schema, cells: Records, train: Any) -> Score:
    """Pairmark with its defaults."""
    left, right, same = train
    model = RecordSimilarity(columns=declaration(schema), random_state=0)
    model.fit_pairs(cells[left], cells[right], same)
    return lambda a, b: model.score_pairs(cells, a, b)


def on_comparators(name: str, schema: Schema, cells: Records, train: Any) -> Score:
    """XGBoost or logistic regression on Pairmark's comparators."""
    from xgboost import XGBClassifier

    learner: Any = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=2_000))
    if name == "XGBoost":
        learner = XGBClassifier(
            n_estimators=300, learning_rate=0.05, max_depth=6, colsample_bytree=0.3, n_jobs=1
        )
    left, right, same = train
    comparators = Comparators(schema).fit(cells[np.unique(np.concatenate([left, right]))])
    prepared = comparators.prepare(cells)
    learner.fit(comparators.compare(prepared, left, prepared, right), same)
    return lambda a, b: learner.predict_proba(comparators.compare(prepared, a, prepared, b))[:, 1]


def frame_of(schema: Schema, cells: Records) -> Any:
    """Columns by name, of floats where they are numbers or dates."""
    import pandas as pd

    return pd.DataFrame(
        {
            column.name: cells[:, at].astype(float) if column.type in NUMERIC else cells[:, at]
            for at, column in enumerate(schema.fields)
        }
    )


def by_recordlinkage(schema: Schema, cells: Records, train: Any) -> Score:
    """Jaro-Winkler and q-grams of strings, Gaussian differences of numbers, logistic regression."""
    import pandas as pd
    import recordlinkage

    frame, compare = frame_of(schema, cells), recordlinkage.Compare()
    for column in schema.fields:
        name = column.name
        if column.type in NUMERIC:
            compare.numeric(name, name, method="gauss", scale=max(frame[name].std(), 1e-9) / 2, label=name)
        else:
            compare.string(name, name, method="jarowinkler", label=f"{name} jw")
            compare.string(name, name, method="qgram", label=f"{name} qgram")

    def features(left: Any, right: Any) -> Any:
        return compare.compute(pd.MultiIndex.from_arrays([left, right]), frame, frame).fillna(0)

    learner, own = recordlinkage.LogisticRegressionClassifier(), features(*train[:2])
    learner.fit(own, own.index[train[2]])
    return lambda a, b: learner.prob(features(a, b)).to_numpy()


def by_dedupe(schema: Schema, cells: Records, train: Any) -> Score:
    """Its string and text distances and its regularised logistic regression."""
    import dedupe
    from dedupe import variables

    numeric = {column.name for column in schema.fields if column.type in NUMERIC}
    fields = [
        (variables.Price if name in numeric else variables.Text if kind == "text" else variables.String)(
            name, has_missing=True
        )
        for name, kind in ((column.name, column.type) for column in schema.fields)
    ]
    linker = dedupe.RecordLink(fields, num_cores=1)
    rows = [
        {
            column.name: None if cell is None or (column.name in numeric and cell <= 0) else cell
            for column, cell in zip(schema.fields, row, strict=True)
        }
        for row in cells
    ]

    def features(left: Any, right: Any) -> Any:
        return linker.data_model.distances([(rows[a], rows[b]) for a, b in zip(left, right, strict=True)])

    learner = linker.classifier
    learner.fit(features(*train[:2]), train[2].astype(int))
    return lambda a, b: learner.predict_proba(features(a, b))[:, 1]


def by_splink(schema: Schema, cells: Records, train: Any) -> Score:
    """Levels of each field, u of random pairs, m of the training pairs that are the same."""
    import pandas as pd
    import splink.comparison_level_library as cll
    import splink.comparison_library as cl
    from splink import DuckDBAPI, Linker, SettingsCreator, block_on

    frame, comparisons = frame_of(schema, cells), []
    frame.columns = pd.Index([f"field{at}" for at in range(frame.shape[1])])
    for name, column in zip(frame.columns, schema.fields, strict=True):
        if column.type in NUMERIC:
            spread = float(frame[name].std()) or 1.0
            steps = [cll.AbsoluteDifferenceLevel(name, share * spread) for share in (1e-6, 0.05, 0.25)]
            levels = [cll.NullLevel(name), *steps, cll.ElseLevel()]
            comparisons.append(cl.CustomComparison(levels, output_column_name=name))
        elif column.type == "text":
            comparisons.append(cl.JaccardAtThresholds(name, [0.95, 0.85, 0.75]))
        else:
            comparisons.append(cl.JaroWinklerAtThresholds(name, [0.95, 0.88, 0.7]))
    logging.getLogger("splink").setLevel(logging.ERROR)
    left, right, same = train
    frame["unique_id"] = np.arange(len(frame))
    # Same pairs of one entity each: a record of several is taken with its first.
    frame["entity"] = pd.array([None] * len(frame), dtype="string")
    for number, (a, b) in enumerate(zip(left[same], right[same], strict=True)):
        if frame.at[a, "entity"] is pd.NA and frame.at[b, "entity"] is pd.NA:
            frame.loc[[a, b], "entity"] = str(number)
    api = DuckDBAPI()
    settings = SettingsCreator(link_type="dedupe_only", comparisons=comparisons)
    learner = Linker(api.register(frame), settings)
    learner.training.estimate_u_using_random_sampling(max_pairs=1e6, seed=0)
    learner.training.estimate_m_from_label_column("entity")
    model = learner.misc.save_model_to_json()
    model |= {"link_type": "link_only", "additional_columns_to_retain": ["pair"]}
    model["blocking_rules_to_generate_predictions"] = [block_on("pair").get_blocking_rule("duckdb").as_dict()]

    def scores(a: Any, b: Any) -> Any:
        api = DuckDBAPI()
        sides = [
            frame.iloc[rows].assign(pair=np.arange(len(rows)), unique_id=np.arange(len(rows)))
            for rows in (a, b)
        ]
        linker = Linker([api.register(side) for side in sides], model)
        told = linker.inference.predict(threshold_match_weight=-1e6).as_pandas_dataframe()
        weight = np.full(len(a), -1e6)
        weight[told["pair_l"].to_numpy(int)] = told["match_weight"]
        return weight

    return scores


def by_goldenmatch(schema: Schema, cells: Records, train: Any) -> Score:
    """The mean of its similarities of all fields, without a language model."""
    import goldenmatch

    names = [column.name for column in schema.fields]
    rows = [
        dict(zip(names, ("" if cell is None else str(cell) for cell in row), strict=True)) for row in cells
    ]
    return lambda a, b: np.array(
        [
            goldenmatch.score_pair_df(rows[x], rows[y], fuzzy=dict.fromkeys(names, 1.0), scorer="token_sort")
            for x, y in zip(a, b, strict=True)
        ]
    )


LEARNERS: Mapping[str, Callable[[Schema, Records, Any], Score]] = {
    "pairmark": by_pairmark,
    "XGBoost on the same comparators": partial(on_comparators, "XGBoost"),
    "logistic regression on the same comparators": partial(on_comparators, "logistic regression"),
    "dedupe": by_dedupe,
    "recordlinkage": by_recordlinkage,
    "splink": by_splink,
    "GoldenMatch": by_goldenmatch,
}
