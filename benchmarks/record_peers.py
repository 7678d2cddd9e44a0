"""Lone pairs of records beside splink, dedupe, recordlinkage and GoldenMatch, in one run on the same pairs.

As in `records`: models learn from the training pairs of DBLP-ACM, Amazon-Google and Abt-Buy, the threshold is the best
of the validation pairs, F1 is of the test pairs. Each peer compares with its own comparisons and learns with its own
model: dedupe and recordlinkage by logistic regression, splink the model of Fellegi and Sunter with m of the training
pairs; GoldenMatch, without a language model, weighs all fields alike and learns nothing here. XGBoost and logistic
regression learn from Pairmark's comparators. CPU is of everything from the table to the scores.

Needs ``records/`` in ``PAIRMARK_DATA``.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.common import Claim, Preset, Result
from benchmarks.records import GOALS, judged, peers, read_published, records_folder
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.schema import Records, Schema
from pairmark.models.records.tables import declaration

Score = Callable[[Any, Any], Any]
"""Scores of pairs of rows, from their left and right numbers."""


def by_pairmark(schema: Schema, cells: Records, train: Any) -> Score:
    """Pairmark with its defaults."""
    left, right, same = train
    model = RecordSimilarity(columns=declaration(schema), random_state=0)
    model.fit_pairs(cells[left], cells[right], same)
    return lambda a, b: model.score_pairs(cells, a, b)


def on_comparators(name: str) -> Callable[[Schema, Records, Any], Score]:
    """Another learner on Pairmark's comparators."""

    def fitted(schema: Schema, cells: Records, train: Any) -> Score:
        left, right, same = train
        comparators = Comparators(schema).fit(cells[np.unique(np.concatenate([left, right]))])
        prepared, learner = comparators.prepare(cells), peers()[name]
        learner.fit(comparators.compare(prepared, left, prepared, right), same)
        return lambda a, b: learner.predict_proba(comparators.compare(prepared, a, prepared, b))[:, 1]

    return fitted


def by_recordlinkage(schema: Schema, cells: Records, train: Any) -> Score:
    """Jaro-Winkler and q-grams of strings, Gaussian differences of numbers, logistic regression."""
    import pandas as pd
    import recordlinkage

    frame = pd.DataFrame({column.name: cells[:, at] for at, column in enumerate(schema.fields)})
    compare = recordlinkage.Compare()
    for column in schema.fields:
        name = column.name
        if column.type in ("number", "date"):
            frame[name] = frame[name].astype(float)
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

    numeric = {column.name for column in schema.fields if column.type in ("number", "date")}
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

    frame = pd.DataFrame({column.name: cells[:, at] for at, column in enumerate(schema.fields)})
    names = {name: f"field{at}" for at, name in enumerate(frame.columns)}
    frame = frame.rename(columns=names)
    comparisons = []
    for column in schema.fields:
        name = names[column.name]
        if column.type in ("number", "date"):
            frame[name] = frame[name].astype(float)
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
    "XGBoost on the same comparators": on_comparators("XGBoost"),
    "logistic regression on the same comparators": on_comparators("logistic regression"),
    "dedupe": by_dedupe,
    "recordlinkage": by_recordlinkage,
    "splink": by_splink,
    "GoldenMatch": by_goldenmatch,
}


def run(preset: Preset) -> Result:
    """All peers on all sets; ``quick`` takes the smallest set."""
    folder = records_folder()
    rows: list[dict[str, Any]] = []
    ahead = []
    for name in GOALS if preset == "full" else ("amazon-google",):
        schema, cells, pairs = read_published(folder / name)
        found = {}
        for peer, fitted in LEARNERS.items():
            started = time.process_time()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found[peer] = judged(fitted(schema, cells, pairs["train"]), pairs)
            except ImportError as error:
                rows.append({"set": name, "learner": peer, "F1": f"not installed: {error}", "CPU s": ""})
                continue
            spent = round(time.process_time() - started, 1)
            rows.append({"set": name, "learner": peer, "F1": round(found[peer], 4), "CPU s": spent})
        best = max(f1 for peer, f1 in found.items() if "comparators" not in peer and peer != "pairmark")
        ahead.append(
            Claim(what=f"{name}: test F1 beyond the best of other packages", goal="above 0",
                  measured=round(found["pairmark"] - best, 4), holds=found["pairmark"] > best)
        )  # fmt: skip
    return Result(rows=rows, claims=ahead, facts={})
