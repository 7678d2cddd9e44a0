"""splink on the tables of `benchmarks.links`, in a process of its own: ``SETTING OUT TABLE [TABLE]``.

Its documentation's way: levels for each column, u from random pairs, the prior from deterministic rules, m by EM under
two rules in turn, clusters at a chance of one half. Rules are columns, and pairs of columns, that make few pairs.
"""

import logging
import sys
from itertools import combinations
from typing import Any

import pandas as pd
import splink.comparison_library as cl
from splink import DuckDBAPI, Linker, SettingsCreator, block_on

SETTINGS = ("alike", "frequencies", "kinds")
_PAIRS_A_ROW = 20
_NAMES = ("first", "last", "given_name", "surname", "company")


def compared(name: str, setting: str, words: float) -> Any:
    """``alike``: Jaro-Winkler, or Jaccard for texts; ``frequencies``: with term frequency; ``kinds``: by its name."""
    if setting == "kinds" and name in _NAMES:
        return cl.NameComparison(name)
    if words > 3:
        return cl.JaccardAtThresholds(name, [0.9, 0.7, 0.5])
    found = cl.JaroWinklerAtThresholds(name, [0.92, 0.8])
    return found if setting == "alike" else found.configure(term_frequency_adjustments=True)


def main(setting: str, out: str, *files: str) -> None:
    logging.getLogger("splink").setLevel(logging.ERROR)
    frames = [pd.read_csv(file, dtype=str).rename(columns={"id": "unique_id"}) for file in files]
    whole = pd.concat(frames)
    columns = [name for name in frames[0] if name != "unique_id" and whole[name].nunique() > 1]
    rules, kept = [], []
    for by in [*((name,) for name in columns), *combinations(columns, 2)]:
        n = whole.dropna(subset=list(by)).groupby(list(by)).size()
        if 0 < (n * (n - 1) / 2).sum() <= _PAIRS_A_ROW * len(whole):
            rules.append(block_on(*by))
            kept.append(by)
    words = {name: whole[name].dropna().str.count(" ").mean() + 1 for name in columns}
    settings = SettingsCreator(
        link_type="dedupe_only" if len(files) == 1 else "link_only",
        comparisons=[compared(name, setting, words[name]) for name in columns],
        blocking_rules_to_generate_predictions=rules,
    )
    api = DuckDBAPI()
    linker = Linker(
        [api.register(frame) for frame in frames] if len(frames) > 1 else api.register(frames[0]), settings
    )
    sure = [rule for rule, by in zip(rules, kept, strict=True) if len(by) == 2] or rules
    linker.training.estimate_probability_two_random_records_match(sure, recall=0.8)
    linker.training.estimate_u_using_random_sampling(max_pairs=1e6, seed=0)
    for rule in rules[:2]:
        linker.training.estimate_parameters_using_expectation_maximisation(rule)
    pairs = linker.inference.predict(threshold_match_probability=0.5)
    linker.clustering.cluster_pairwise_predictions_at_threshold(pairs, 0.5).as_pandas_dataframe()[
        ["unique_id", "cluster_id"]
    ].to_csv(out, index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
