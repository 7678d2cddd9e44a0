"""Points in, labels and their probabilities out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from pairmark.models.core.arrays import Float32
from pairmark.service.errors import TooLarge
from pairmark.service.runtime.vectors import Features, check_finite, to_rows
from pairmark.service.runtime.versions import LoadedVersion

MAX_PROBABILITIES = 2_000_000
"""Most probabilities in one answer."""


def classified(version: LoadedVersion, features: Features) -> tuple[NDArray[np.int64], Float32]:
    """The most probable class of each point, (n,), and the probabilities of all, (n, n_classes)."""
    assert version.class_names is not None
    k = len(version.class_names)
    if len(features) * k > MAX_PROBABILITIES:
        raise TooLarge(
            f"{len(features)} points and {k} labels make {len(features) * k} probabilities; at most "
            f"{MAX_PROBABILITIES} are given at a time: send fewer points",
            limit=MAX_PROBABILITIES // k,
        )
    form = {"accepts_sparse": version.accepts_sparse, "estimator": version.estimator}
    rows = to_rows(features.rows, "features", version.n_features, **form)
    probabilities = np.asarray(version.estimator.predict_proba(rows))
    check_finite(probabilities, noun="point", what="distribution", field="features")
    best = probabilities.argmax(axis=1).astype(np.int64)
    return best, np.ascontiguousarray(probabilities, dtype=np.float32)


def classes_json(version: LoadedVersion, features: Features) -> bytes:
    """The JSON answer: model, labels, and each point's probabilities by label."""
    names = version.class_names
    assert names is not None
    best, probabilities = classified(version, features)
    # Names are written once a request rather than once a point.
    marks = [to_json(name) + b":" for name in names]
    rows = []
    for row in probabilities.tolist():
        parts = [mark + repr(value).encode() for mark, value in zip(marks, row, strict=True)]
        rows.append(b"{" + b",".join(parts) + b"}")
    labels = to_json([names[at] for at in best.tolist()])
    return b'{"model":%b,"labels":%b,"probabilities":[%b]}' % (version.json, labels, b",".join(rows))
