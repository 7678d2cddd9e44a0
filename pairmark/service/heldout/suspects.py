"""Doubtful labels among held-out pairs, in words. Nothing is removed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.suspects import TOLD, suspects
from pairmark.models.pairs.splits import HeldOutPairs
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.leaks import naming_features, naming_warning

SHOWN = 3


def doubtful(pairs: HeldOutPairs, scores: NDArray[np.float32], data: LabelledData) -> dict[str, Any] | None:
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
    double_names, labels = suspects(scores, pairs.same, rows, y[rows])
    names = double_names if pairs.protocol == "open-set" else double_names[:0]
    n_rows = int(labels.size)
    naming = naming_features(data.X, y, data.feature_names, data.schema)
    sentences = [f"A feature {line}." for line in naming_warning(naming)]
    if len(names):
        first_name, second_name = (data.identities[code] for code in names[0].tolist())
        sentences.append(
            f"{len(names)} pair{'s' * (len(names) != 1)} of identities score{'s' * (len(names) == 1)} like one person "
            f"(first {first_name[:50]!r} and {second_name[:50]!r}): is it one person under two names?"
        )
    if n_rows:
        first = ", ".join(str(row) for row in labels[:SHOWN].tolist())
        sentences.append(
            f"{n_rows} row{'s' * (n_rows != 1)} score{'s' * (n_rows == 1)} as if the label were wrong (first: {first})."
        )
    return {
        "rows": labels[:TOLD].tolist(),
        "n_rows": n_rows,
        "double_names": [[data.identities[code] for code in codes] for codes in names[:TOLD].tolist()],
        "n_double_names": len(names),
        "text": " ".join([*sentences, "Nothing was removed: the promise counts the labels as they are."])
        if sentences
        else "",
    }
