"""State of models that are part of another one: their arrays stand in its file behind a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.core.state import current_params


def prefixed(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Arrays with the prefix before their names."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def without_prefix(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those arrays that have the prefix, by their names behind it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def model_of(kinds: Mapping[str, LearnerSpec], kind: str, params: Mapping[str, Any], before: str) -> Any:
    """An unfitted model of stored parameters; an `OutdatedModel` names, behind ``before``, a kind that is not known."""
    if kind not in kinds:
        raise OutdatedModel(f"{before}kind is {kind[:80]!r}; expected one of {', '.join(kinds)}")
    return kinds[kind].estimator(**current_params(kinds[kind], params, f"{before}params."))


def restore(
    model: Any, arrays: Mapping[str, Any], prefix: str, meta: Mapping[str, Any], n_features: int
) -> Any:
    """The model, fitted with its arrays among those of the other; an `ArtefactError` names them as they stand there."""
    own_meta = {**meta, "n_features_in": n_features, "feature_names_in": None}
    try:
        return model.from_state(without_prefix(arrays, prefix), own_meta)
    except ArtefactError as error:
        raise type(error)(str(error).replace("array '", f"array '{prefix}")) from error
