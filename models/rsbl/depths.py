"""Errors at every depth of one fitted space, at the cost of the deepest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.inputs import checked_identities, checked_matrix
from pairmark.models.rsbl.choosing import Judge
from pairmark.models.rsbl.estimator import RSBL, seed_of


@dataclass(frozen=True, kw_only=True)
class Depths:
    """What each depth did.

    Attributes
    ----------
    accuracy : on the other rows, at depth 0 (the inputs), 1, ...
    inner_errors : on inner folds of the training rows, for the same depths.
    """

    accuracy: list[float]
    inner_errors: list[float]

    @property
    def best(self) -> int:
        """The depth that errs least on inner folds; the smaller of equals."""
        return int(np.argmin(self.inner_errors))


def scores_by_depth(model: RSBL, X: ArrayLike, y: ArrayLike, others: ArrayLike, labels: ArrayLike) -> Depths:
    """Grow ``model``'s space once on (X, y) and classify other rows at every depth of it.

    Parameters
    ----------
    model : its parameters are used; nothing of it is fitted. ``choose_depth`` has to be set.
    X, y : (n, d) training rows, at most 2,000, and their classes.
    others, labels : (m, d) rows to classify and their classes, all of them classes of ``y``.

    Raises
    ------
    ValueError
        As `RSBL.fit`, and for more rows.
    """
    rows = checked_matrix(model, X, "X", reset=True)
    classes, codes = checked_identities(y, rows.shape[0])
    if rows.shape[0] > 2_000 or not model.choose_depth:
        raise ValueError("expected at most 2000 rows, and a model with choose_depth=True")
    rng = np.random.default_rng(seed_of(model.random_state))
    chosen, _, beta, relative = model.choose_settings(rows, codes, classes.size, rng)
    truth = np.searchsorted(classes, np.asarray(labels))
    both = np.concatenate([rows, checked_matrix(model, others, "others")])
    train, held = np.arange(rows.shape[0]), np.arange(rows.shape[0], both.shape[0])
    judge: Judge = model.judge(
        both, np.concatenate([codes, truth]), classes.size, train, held, beta, relative
    )
    wrong = [judge.error()]
    for k in chosen.all_ks:
        judge.commit(k)
        wrong.append(judge.error())
    return Depths(accuracy=[1.0 - errors / held.size for errors in wrong], inner_errors=chosen.depth_errors)
