"""Label rankers, for the registry."""

from __future__ import annotations

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.label_ranking.auto import LabelRankingAuto
from pairmark.models.label_ranking.estimators import LabelRankingForest, LabelRankingTree
from pairmark.models.label_ranking.pairwise import PairwiseLabelRanker
from pairmark.models.label_ranking.params import (
    LabelRankingAutoParams,
    LabelRankingForestParams,
    LabelRankingTreeParams,
    PairwiseLabelRankerParams,
)
from pairmark.models.label_ranking.state import (
    auto_from_state,
    auto_to_state,
    pairwise_from_state,
    pairwise_to_state,
    trees_from_state,
    trees_to_state,
)

TREE = LearnerSpec(
    kind="label-ranking-tree",
    title="Label ranking tree: one regression tree on the labels' positions; fast, small",
    estimator=LabelRankingTree,
    capabilities=frozenset({"rank-labels"}),
    params=LabelRankingTreeParams,
    to_state=trees_to_state,
    from_state=trees_from_state,
    needs="rankings",
)

FOREST = LearnerSpec(
    kind="label-ranking-forest",
    title="Label ranking forest: the mean of many label ranking trees; takes any rankings with little tuning",
    estimator=LabelRankingForest,
    capabilities=frozenset({"rank-labels"}),
    params=LabelRankingForestParams,
    to_state=trees_to_state,
    from_state=trees_from_state,
    needs="rankings",
)

PAIRWISE = LearnerSpec(
    kind="label-ranking-pairwise",
    title="Pairwise label ranker: one classifier a pair of labels; made for incomplete and partial rankings",
    estimator=PairwiseLabelRanker,
    capabilities=frozenset({"rank-labels"}),
    params=PairwiseLabelRankerParams,
    to_state=pairwise_to_state,
    from_state=pairwise_from_state,
    needs="rankings",
)

AUTO = LearnerSpec(
    kind="label-ranking-auto",
    title="Automatic label ranker: several rankers, blended by cross-validation; the most accurate, slower to train",
    estimator=LabelRankingAuto,
    capabilities=frozenset({"rank-labels"}),
    params=LabelRankingAutoParams,
    to_state=auto_to_state,
    from_state=auto_from_state,
    needs="rankings",
)
