"""Links to a register without duplicates, with a mean share of false ones below what is asked, and no label.

The best score of a row of the register within the register is that of a record whose own partner is not there: a null.
Where records of the other tables that have no partner score against the register as the register's own rows do, the
share of nulls at or above a record's best score, itself counted, is a conformal p-value (Vovk, Gammerman and Shafer
2005, "Algorithmic learning in a random world"; Bates et al. 2023, "Testing for outliers with conformal p-values"), and
Benjamini's and Hochberg's step-up rule keeps the expected share of false links at what is asked. It does not hold where
the register has duplicates (nulls are matches, and little is found: `doubles` says so) or where strangers are nearer to
the register than its own rows are to each other, as members of its rows' households are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pairmark.models.core.arrays import Bool, Float64, Int64


@dataclass(frozen=True)
class ExpectedLinks:
    """What is linked, of the candidates.

    Attributes
    ----------
    is_link : (c,) of each. cut : the least score of a link; infinite where there is none.
    doubles : the share of the register's rows whose null is likely a match: the register may have duplicates.
    """

    is_link: Bool
    cut: float
    doubles: float


def expected_links(
    query: Int64, score: Float64, n_queries: int, nulls: Float64, expected: float, likely: float
) -> ExpectedLinks:
    """Link each record to its best of the register where false links are to be ``expected`` of all on average.

    Parameters
    ----------
    query, score : (c,) the record and the score of each candidate that has one row of the register.
    n_queries : records of all other tables. nulls : (m,) of each row of the register, -inf where it has no candidate.
    likely : score above which two records are taken for one where nothing is known of a register.
    """
    # Of equal scores the first candidate.
    order = np.lexsort((np.arange(query.size), -score, query))
    best = order[np.unique(query[order], return_index=True)[1]]
    ranked = best[np.argsort(-score[best], kind="stable")]
    above = nulls.size - np.searchsorted(np.sort(nulls), score[ranked], side="left")
    p = (1 + above) / (1 + nulls.size)
    kept = np.flatnonzero(p <= expected * np.arange(1, ranked.size + 1) / n_queries)
    linked = ranked[: kept[-1] + 1] if kept.size else ranked[:0]
    cut = float(score[linked].min(initial=np.inf))
    return ExpectedLinks(np.isin(np.arange(query.size), linked), cut, float((nulls > likely).mean()))
