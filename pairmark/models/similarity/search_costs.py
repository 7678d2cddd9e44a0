"""What the parts of a search take, in seconds: counted by nodes, items and steps, and never by the clock.

The constants were measured once, roughly: they only decide which of several exact ways is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEP_TIME, NODE_TIME, ITEM_TIME = 0.03e-9, 6e-9, 150e-9
"""One step an item, one node a walked item, one item to begin walking."""
SCORE_NODE_TIME, SCORE_VALUE_TIME = 2.5e-9, 2e-9
"""One node and one feature of an item that is scored outright, in blocks: less than walking does."""
PROGRAM_TIME, WEIGH_TIME = 1e-6, 4e-3
"""One step to be written, and weighing finer cuts whatever is sampled for it."""
GATHER_TIME, LINE_TIME = 1e-9, 6e-9
"""Laying a byte beside the others, and fetching a line of memory for it."""
SAMPLE_TIME = 400e-9
"""A sampled item down one tree, weighing included."""
SPARE = 0.1
"""What a search may take beyond scoring everything, as a share of that."""


@dataclass(kw_only=True)
class Budget:
    """What a search took so far, beside what scoring would have taken.

    Attributes
    ----------
    walk, score : one item down one tree by itself; one item by all trees, scored in blocks.
    whole : scoring everything.
    cost_so_far : what the search took.
    """

    walk: float
    score: float
    whole: float
    cost_so_far: float

    @classmethod
    def of_sample(cls, n_visited: float, n_sampled: int, n_trees: int, width: int, n_items: int) -> Budget:
        """By the nodes that sampled items visited, of trees for rows of so many features."""
        nodes = n_visited / max(n_sampled, 1)
        score = SCORE_NODE_TIME * nodes + SCORE_VALUE_TIME * width
        return cls(
            walk=NODE_TIME * nodes / n_trees,
            score=score,
            whole=n_items * score,
            cost_so_far=n_sampled * n_trees * SAMPLE_TIME,
        )

    def room(self, n_remaining: int) -> float:
        """Seconds that may still be spent in vain: if the items left are scored outright after that, the whole takes no
        more than scoring everything and `SPARE` of it."""
        return (1.0 + SPARE) * self.whole - self.cost_so_far - n_remaining * self.score


def in_place(n_nodes: NDArray[np.int64], n_items: float) -> NDArray[np.float64]:
    """Bounding items where they lie, by programs of so many nodes."""
    return np.asarray(n_nodes * (PROGRAM_TIME + n_items * STEP_TIME), dtype=np.float64)


def apart(n_nodes: NDArray[np.int64], n_items: float, n_columns: int, n_lines: float) -> NDArray[np.float64]:
    """Laying items' columns side by side and bounding them there; all columns fill ``n_lines`` of memory."""
    n_bytes = n_columns * n_items
    laying = n_bytes * GATHER_TIME + min(n_bytes, n_lines) * LINE_TIME
    return in_place(n_nodes, n_items) + laying
