"""What a pair's rivals score, in a compiled loop."""

from __future__ import annotations

import numpy as np

from pairmark.models.core.compiled import kernel


@kernel
def compare_with_rivals(starts, others, scores, own, other, own_scores, out):
    """Of one side of some pairs: how many rivals score more, the best rival's score and the second's, NaN without.

    Parameters
    ----------
    starts : (n + 1,) int64; candidates of row r are ``others`` and ``scores`` from ``starts[r]`` to ``starts[r + 1]``.
    own, other : (k,) int64, the row whose candidates are rivals, and the row on the other side, which is none.
    own_scores : (k,) float64 of the pairs. out : (k, 3) float64.
    """
    for at in range(own.shape[0]):
        above, best, second = 0, -np.inf, -np.inf
        for place in range(starts[own[at]], starts[own[at] + 1]):
            if others[place] == other[at]:
                continue
            score = scores[place]
            if score > own_scores[at]:
                above += 1
            if score > best:
                best, second = score, best
            elif score > second:
                second = score
        out[at, 0] = above
        out[at, 1] = best if best > -np.inf else np.nan
        out[at, 2] = second if second > -np.inf else np.nan
