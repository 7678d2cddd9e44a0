"""Links to a register without duplicates, with a mean share of false ones below what is asked, and no label.

The best score of a row of the register within the register is that of a record whose own partner is not there: a null.
Where records of the other tables that have no partner score against the register as the register's own rows do, the
share of nulls at or above a record's best score, itself counted, is a conformal p-value (Vovk, Gammerman and Shafer
2005, "Algorithmic learning in a random world"; Bates et al. 2023, "Testing for outliers with conformal p-values"), and
Benjamini's and Hochberg's step-up rule keeps the expected share of false links at what is asked. It does not hold where
the register has duplicates (nulls are matches, and little is found: `doubles` says so) or where strangers are nearer to
the register than its own rows are to each other, as members of its rows' households are.
"""

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

    def meaning(self, expected: float) -> str:
        """What is said of these links, in a sentence."""
        return (
            f"on average at most {expected:.1%} of the links are expected to be false, if every row of the unique "
            f"table is another thing ({self.doubles:.1%} of them look like another), and records without a partner "
            "there are no nearer to its rows than these are to each other"
        )


def register_links(
    a: Int64, b: Int64, score: Float64, is_register: Bool, expected: float, likely: float
) -> ExpectedLinks:
    """`expected_links` of pairs of rows, of which (n,) ``is_register`` says which are the register's: its own pairs are
    the nulls."""
    left, right = is_register[a], is_register[b]
    nulls = np.full(is_register.size, -np.inf)
    for side in (a, b):
        np.maximum.at(nulls, side[left & right], score[left & right])
    one = np.flatnonzero(left ^ right)
    query = np.where(left, b, a)[one]
    found = expected_links(query, score[one], int((~is_register).sum()), nulls[is_register], expected, likely)
    return ExpectedLinks(np.isin(np.arange(a.size), one[found.is_link]), found.cut, found.doubles)


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
