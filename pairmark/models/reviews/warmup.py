"""Compile the kernels of reviews ahead of the first one."""

from __future__ import annotations

from pairmark.models.reviews.evidence import Judgements, missed_bound, next_group, share_bound


def warm_reviews() -> None:
    """Bound and continue small reviews of both kinds."""
    judged = Judgements.of([5, 20], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0], 3)
    share_bound(judged, 0.3, 0.95)
    missed_bound(Judgements.of([9], [0], [0], 0), judged, 0.3, 0.95)
    next_group(Judgements.of([9], [0], [0], 0), judged, 0.3)
