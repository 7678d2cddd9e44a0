"""Links that are judged one at a time, as a link job's review hands them out: how often the bound is ever below the
truth, and how many judgements it takes.

Links are false by themselves, in bunches (one wrong merge makes many), where scores are low (families), or where scores
are high (a telephone number that stands for none).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmark.models.reviews.evidence import Judgements, share_bound
from pairmark.service.reviews.reviews import NEAR

WORLDS: Final = ("false by themselves", "in bunches", "families", "wrong blocking")
AT_MOST: Final = 0.02
EASY: Final = 0.005
N_LINKS: Final = 10_000
MOST: Final = 1_200
_LOOK: Final = 5
_BUNCH: Final = 40


def judged(world: str, wrong: int, seed: int) -> tuple[bool, int]:
    """Whether the bound was ever below the truth, and after how many judgements it was as low as was asked for.

    Parameters
    ----------
    wrong : false links. Links nearest the cut are drawn as a stratum of their own, once strata are seen to differ.
    """
    rng = np.random.default_rng([49, WORLDS.index(world), wrong, seed])
    is_wrong = _links(world, wrong, rng)
    sizes = [N_LINKS // NEAR, N_LINKS - N_LINKS // NEAR]
    order = rng.permutation(N_LINKS)
    of_stratum = [iter(order[order < sizes[0]]), iter(order[order >= sizes[0]])]
    alike = [int(link >= sizes[0]) for link in order]
    stratum: list[int] = []
    found: list[int] = []
    turned: int | None = None
    below = False
    while len(found) < MOST:
        so_far = Judgements.of(sizes, stratum, found, turned)
        if turned is None and not so_far.draws_alike():
            turned = len(found)
        stratum.append(alike[len(found)] if turned is None else so_far.next_stratum(AT_MOST))
        found.append(int(is_wrong[next(of_stratum[stratum[-1]])]))
        if len(found) % _LOOK == 0:
            bound = share_bound(Judgements.of(sizes, stratum, found, turned), AT_MOST, 0.95)
            below = below or bound < wrong / N_LINKS
            if bound <= AT_MOST:
                return below, len(found)
    return below, MOST


def _links(world: str, wrong: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which links are false, the lowest score first."""
    is_wrong = np.zeros(N_LINKS, dtype=np.bool_)
    if world == "in bunches":
        starts = rng.permutation(N_LINKS // _BUNCH)[: -(-wrong // _BUNCH)] * _BUNCH
        is_wrong[(starts[:, None] + np.arange(_BUNCH)).ravel()[:wrong]] = True
    else:
        weight = np.ones(N_LINKS)
        if world == "families":
            weight[: N_LINKS // NEAR] = 50
        elif world == "wrong blocking":
            weight[-N_LINKS // NEAR :] = 50
        is_wrong[rng.choice(N_LINKS, wrong, replace=False, p=weight / weight.sum())] = True
    return is_wrong
