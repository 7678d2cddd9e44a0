"""The explicit list of learners, and saving and loading by kind.

A new family adds a file or a folder, and a line for each kind to ``KINDS``; nothing else lists them.
"""

import os
from importlib import import_module
from typing import Any

import numpy as np

from pairmark.models.core.artefact import (
    Artefact,
    ArtefactError,
    OutdatedModel,
    read_artefact,
    write_artefact,
)
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.scaling import SCALING, ColumnScaling, from_pipeline
from pairmark.models.core.spec import LearnerSpec, jsonable_params
from pairmark.models.core.state import current_params
from pairmark.models.records.encoder import RecordEncoder
from pairmark.models.records.schema import sample_cells, schema_of_model

_ENCODER = "encoder."
"""In front of the names of an encoder's arrays."""

KINDS = {
    "similarity-auto": "auto.estimator.AUTO",
    "plda": "plda.estimator.PLDA",
    "similarity-tree": "similarity.estimators.TREE",
    "similarity-forest": "similarity.estimators.FOREST",
    "metric": "metric.estimator.METRIC",
    "similarity-classes": "classes.estimator.CLASSES",
    "similarity-logistic": "logistic.estimator.LOGISTIC",
    "record-trees": "records.estimator.RECORDS",
    "fellegi-sunter": "linking.fellegi_sunter.FELLEGI_SUNTER",
    "rsbl": "rsbl.estimator.RSBL_SPEC",
    "ghost": "ghost.estimator.GHOST",
    "rankboost-kernel": "rankboost.estimator.KERNEL",
    "aligned-kernel": "rankboost.aligned.ALIGNED",
    "label-ranking-tree": "label_ranking.trees.TREE",
    "label-ranking-forest": "label_ranking.trees.FOREST",
    "label-ranking-pairwise": "label_ranking.pairwise.PAIRWISE",
    "label-ranking-auto": "label_ranking.auto.AUTO",
}
"""Every learner's kind, in the order of lists: where its spec is."""


def learner_specs() -> list[LearnerSpec]:
    """Every learner; all are imported, where `spec_of` imports one."""
    return [spec_of(kind) for kind in KINDS]


def spec_of(kind: str) -> LearnerSpec:
    """The learner of that kind; ``KeyError`` names the known kinds."""
    if kind not in KINDS:
        raise KeyError(f"unknown learner {kind!r}; known: {', '.join(KINDS)}")
    module, _, name = KINDS[kind].rpartition(".")
    spec: LearnerSpec = getattr(import_module(f"pairmark.models.{module}"), name)
    return spec


def spec_for(estimator: object) -> LearnerSpec:
    for kind, place in KINDS.items():
        # A family is a file or a folder; others are not imported for the question.
        family = f"pairmark.models.{place.partition('.')[0]}."
        if f"{type(estimator).__module__}.".startswith(family) and type(estimator) is spec_of(kind).estimator:
            return spec_of(kind)
    raise KeyError(f"{type(estimator).__name__} is not a registered learner")


def save(estimator: Any, path: str | os.PathLike[str]) -> str:
    """Save a fitted learner, or pipeline that `from_pipeline` takes, as an artefact folder; returns its sha256.

    Examples
    --------
    >>> import tempfile
    >>> from pairmark import MetricSimilarity, load, save
    >>> model = MetricSimilarity().fit([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], ["ana", "ana", "bo"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sha256 = save(model, f"{folder}/faces")
    ...     again = load(f"{folder}/faces", mmap=False)
    >>> len(sha256), type(again).__name__
    (64, 'MetricSimilarity')
    """
    if hasattr(estimator, "steps"):
        estimator = from_pipeline(estimator)
    spec = spec_for(estimator)
    arrays, meta = estimator.to_state()
    if "scaling_" in vars(estimator):
        arrays = arrays | {SCALING: np.stack(estimator.scaling_)}
    encoder = estimator.encoder_
    if encoder is not None:
        its_arrays, its_meta = encoder.to_state()
        arrays = arrays | {f"{_ENCODER}{name}": array for name, array in its_arrays.items()}
        meta = meta | {"encoder": its_meta}
    names = getattr(estimator, "feature_names_in_", None)
    meta = {
        **meta,
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
    }
    return write_artefact(
        path, kind=spec.kind, params=jsonable_params(spec, estimator), meta=meta, arrays=arrays
    )


def load(path: str | os.PathLike[str], *, mmap: bool = True) -> Any:
    """Load a learner saved by `save`. Runs no code from the file, and trusts nothing in it.

    Raises
    ------
    ArtefactError
        When the folder is not a whole, unchanged artefact of a known kind, or its arrays are none that a fit writes
        (`Stateful.from_state`): the message names the array and its row.

    Examples
    --------
    >>> import tempfile
    >>> from pairmark import MetricSimilarity, load, save
    >>> model = MetricSimilarity().fit([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], ["ana", "ana", "bo"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sha256 = save(model, f"{folder}/faces")
    ...     again = load(f"{folder}/faces", mmap=False)
    >>> bool(again.pair_score([[1.0, 0.0]], [[0.9, 0.1]]) == model.pair_score([[1.0, 0.0]], [[0.9, 0.1]]))
    True
    """
    artefact = read_artefact(path, mmap=mmap)
    try:
        return restore_learner(artefact)
    except ArtefactError as error:
        raise type(error)(f"{path}: {error}") from error


def restore_learner(artefact: Artefact) -> Any:
    """The fitted learner that an artefact holds, once its state is found to be one that a fit writes; see `load`."""
    try:
        spec = spec_of(artefact.kind)
    except KeyError as error:
        raise ArtefactError(str(error.args[0])) from error
    try:
        params = current_params(spec, artefact.params)
        arrays, encoder = _without_encoder(artefact)
        scaling = _popped_scaling(spec, artefact, arrays)
        learner: Any = spec.estimator(**params).from_state(arrays, artefact.meta)
    except OutdatedModel as error:
        raise OutdatedModel(
            f"{error}. An earlier version trained it; train it again: pairmark train --learner {spec.kind} "
            "--dataset DATASET --model MODEL"
        ) from error
    except (ValueError, LookupError, TypeError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ArtefactError(f"no {spec.kind} that can be used: {reason[:1_000]}") from error
    learner.encoder_ = encoder
    if scaling is not None:
        learner.scaling_ = scaling
    return learner


def _popped_scaling(spec: LearnerSpec, artefact: Artefact, arrays: dict[str, Any]) -> ColumnScaling | None:
    """How columns are scaled first, out of the learner's own arrays; None where they are not."""
    array = arrays.pop(SCALING, None)
    if array is None:
        return None
    if not issubclass(spec.estimator, PairScorerMixin) or spec.takes_records:
        raise ArtefactError(f"array {SCALING!r}: expected of a similarity of vectors")
    return ColumnScaling.of_array(array, artefact.meta["n_features_in"])


def _without_encoder(artefact: Artefact) -> tuple[dict[str, Any], RecordEncoder | None]:
    """The learner's own arrays, and the encoder of records that is kept beside them, if there is one."""
    meta = artefact.meta.get("encoder")
    if meta is None:
        return dict(artefact.arrays), None
    parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name, array in artefact.arrays.items():
        parts[name.startswith(_ENCODER)][name.removeprefix(_ENCODER)] = array
    encoder = RecordEncoder.from_state(parts[True], meta)
    n_features = len(encoder.feature_names)
    if n_features != artefact.meta.get("n_features_in"):
        raise ArtefactError(
            f"the encoder makes {n_features} columns for {artefact.meta.get('n_features_in')} features"
        )
    return parts[False], encoder


def sample_rows(estimator: Any, n: int) -> Any:
    """Made-up rows that a fitted learner takes, the same ones each time: (n, d) float32, or cells of records."""
    schema = schema_of_model(estimator)
    if schema is not None and estimator.encoder_ is None:
        return sample_cells(schema, n)
    rows = np.random.default_rng(0).standard_normal((n, int(estimator.n_features_in_)))
    return rows.astype(np.float32)
