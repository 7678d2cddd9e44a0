"""Doubtful labels among held-out pairs, in words. Nothing is removed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.suspects import TOLD, suspects
from pairmark.service.datasets.data import LabelledData
from pairmark.service.heldout.pairs import ScoredPairs

SHOWN = 3


def doubtful(pairs: ScoredPairs, scores: NDArray[np.float32], data: LabelledData) -> dict[str, Any] | None:
    """Identities and rows among scored pairs that look wrong, JSON-able; None where nobody is known by label.

    Returns
    -------
    ``rows`` (0-based) whose labels look wrong; ``double_names``, two labels each (open-set); how many there are of each
    (``n_rows``, ``n_double_names``); ``text``, a sentence, empty when there is nothing to say.
    """
    if data.y is None:
        return None
    y = np.asarray(data.y)
    rows = np.stack([pairs.left, pairs.right], axis=1)
    found = suspects(scores, pairs.same, rows, y[rows])
    names = found.double_names if pairs.protocol == "open-set" else found.double_names[:0]
    said = []
    if len(names):
        one, two = (data.identities[code] for code in names[0].tolist())
        said.append(
            f"{len(names)} pair(s) of identities score as one person does (first {one[:50]!r} and {two[:50]!r}): one "
            "person under two names?"
        )
    if found.labels.size:
        first = ", ".join(str(row) for row in found.labels[:SHOWN].tolist())
        said.append(
            f"{found.labels.size} row(s) score as strangers do with their own label (first rows {first}): wrong labels?"
        )
    return {
        "rows": found.labels[:TOLD].tolist(),
        "n_rows": int(found.labels.size),
        "double_names": [[data.identities[code] for code in both] for both in names[:TOLD].tolist()],
        "n_double_names": len(names),
        "text": " ".join([*said, "Promises count the labels as they are; nothing was removed."])
        if said
        else "",
    }
