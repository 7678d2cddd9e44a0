"""Label rankers, for the registry."""

from __future__ import annotations

from functools import partial

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.label_ranking.auto import LabelRankingAuto
from pairmark.models.label_ranking.pairwise import PairwiseLabelRanker
from pairmark.models.label_ranking.trees import LabelRankingForest, LabelRankingTree

_ranker = partial(LearnerSpec, capabilities=frozenset({"rank-labels"}), needs="rankings")

TREE = _ranker(
    kind="label-ranking-tree",
    title="Label ranking tree: one regression tree on the labels' positions; fast, small",
    estimator=LabelRankingTree,
    retired={"outputs": "joint"},
)

FOREST = _ranker(
    kind="label-ranking-forest",
    title="Label ranking forest: the mean of many label ranking trees; takes any rankings with little tuning",
    estimator=LabelRankingForest,
    retired={"outputs": "joint"},
)

PAIRWISE = _ranker(
    kind="label-ranking-pairwise",
    title="Pairwise label ranker: one classifier for each pair of labels; for incomplete and partial rankings",
    estimator=PairwiseLabelRanker,
    retired={"calibrate": ..., "verbose": ...},
)

AUTO = _ranker(
    kind="label-ranking-auto",
    title="Automatic label ranker: several rankers, blended by cross-validation; the most accurate, slower to train",
    estimator=LabelRankingAuto,
    retired={"max_validation_rows": ..., "time_budget": ...},
)
