"""How many of the items that a search is meant to find are among the candidates that it scores."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np

from pairmark.service.db import Database
from pairmark.service.galleries.index.gallery_view import GalleryView, candidates_of, scores_candidates
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.rows import RecordForm

MAX_PAIRS = 200
"""Pairs of items of one subject that are looked at."""
CHANGED_SHARE = 0.1
"""Measured again when so much of the gallery was written or removed."""


class CandidateRecall(NamedTuple):
    """Of ``pairs`` items drawn from subjects with several, the share whose search scores another item of the subject;
    None where no subject has two items in one block. ``seq`` : of the view that it was measured in."""

    recall: float | None
    pairs: int
    seq: int

    def is_old(self, view: GalleryView) -> bool:
        return view.seq - self.seq > CHANGED_SHARE * max(view.n_items, 1)


def measure_recall(
    database: Database, gallery_id: int, form: RecordForm, view: GalleryView, stop: threading.Event
) -> CandidateRecall | None:
    """Search for items of the gallery among all others; None where ``stop`` was set before the last search."""
    rng = np.random.default_rng(0)
    pairs: list[tuple[int, int, Any]] = []
    for at, part in enumerate(view.parts):
        alive = np.arange(len(part.block)) if part.alive is None else np.flatnonzero(part.alive)
        codes = np.asarray(part.block.subjects)[alive]
        distinct, counts = np.unique(codes[codes >= 0], return_counts=True)
        repeated_codes = distinct[counts > 1]
        for code in rng.permutation(repeated_codes)[:MAX_PAIRS].tolist():
            rows = alive[codes == code]
            pairs.append((at, int(rows[0]), rows[1:]))
    pairs = [pairs[place] for place in rng.permutation(len(pairs))[:MAX_PAIRS].tolist()]
    n_hits = n_searched = 0
    for at, row, other_rows in pairs:
        if stop.is_set():
            return None
        block = view.parts[at].block
        with database.read() as session:
            item = item_repository.find_item(session, gallery_id, block.ids[row])
        if item is None:
            continue
        cells, sound = form.rows([item.vector])
        if not sound[0]:
            continue
        masks = [part.alive for part in view.all_parts]
        own = np.ones(len(block), dtype=np.bool_) if masks[at] is None else np.array(masks[at])
        own[row] = False
        masks[at] = own
        blocks = [(part.block, mask) for part, mask in zip(view.all_parts, masks, strict=True)]
        n_searched += 1
        for candidate_block, mask in candidates_of(
            view.estimator, cells, scores_candidates(view.estimator), blocks
        ):
            if candidate_block is block and mask is not None and mask[other_rows].any():
                n_hits += 1
    return CandidateRecall(n_hits / n_searched if n_searched else None, n_searched, view.seq)
