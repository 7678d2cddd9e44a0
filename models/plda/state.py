"""A fitted PLDA as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.marginals import NormalMarginals
from pairmark.models.core.spec import Arrays
from pairmark.models.plda.estimator import Plda
from pairmark.models.plda.mapping import Preparation, RowMap
from pairmark.models.plda.params import MOST_COMPONENTS


class _Facts(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)

    settings: dict[str, bool | int | float | str]
    validated_tpr: list[tuple[float, float]]
    length: float | None = Field(gt=0.0, le=1e6)
    n_features_in: int = Field(ge=1)


def to_state(estimator: Plda) -> tuple[Arrays, dict[str, Any]]:
    """The map from rows to latent coordinates, and the model's variances."""
    rows = estimator._map
    preparation = rows.preparation
    arrays: Arrays = {
        "centre": preparation.centre,
        "scale": preparation.scale,
        "weights": rows.weights,
        "bias": rows.bias,
        "psi": estimator.psi_,
    }
    if preparation.normal is not None:
        arrays["knots"], arrays["values"] = preparation.normal.knots, preparation.normal.values
    if preparation.components is not None:
        arrays["components"] = preparation.components
    return arrays, {
        "settings": estimator.settings_,
        "validated_tpr": [[rate, tpr] for rate, tpr in estimator.validated_tpr_.items()],
        "length": rows.length,
    }


def from_state(estimator: Plda, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]) -> Plda:
    """The estimator, fitted with what `to_state` gave.

    Raises
    ------
    ArtefactError
        Where arrays do not fit each other, or hold what no fit writes.
    """
    try:
        facts = _Facts.model_validate_json(_as_json(meta))
    except ValidationError as error:
        line = error.errors(include_url=False)[0]
        raise ArtefactError(f"{'.'.join(map(str, line['loc']))}: {line['msg']}: train again") from None
    d = facts.n_features_in
    q = _array(arrays, "psi", np.float64, (None,)).size
    centre, scale = (_array(arrays, name, np.float64, (d,)) for name in ("centre", "scale"))
    components = normal = None
    p = d
    if "components" in arrays:
        components = _array(arrays, "components", np.float32, (d, None))
        p = components.shape[1]
    if "knots" in arrays:
        knots = _array(arrays, "knots", np.float32, (d, None), infinite=True)
        normal = NormalMarginals(knots, _array(arrays, "values", np.float32, knots.shape))
        # Rows of knots end with +inf, which makes differences NaN.
        if not np.isfinite(knots[:, 0]).all() or (knots[:, 1:] < knots[:, :-1]).any():
            raise ArtefactError("array 'knots' falls within a row: restore the artefact or train again")
    if not 1 <= p <= max(d, MOST_COMPONENTS):
        raise ArtefactError(f"array 'components' has {p} columns: restore the artefact or train again")
    weights, bias = _array(arrays, "weights", np.float32, (p, q)), _array(arrays, "bias", np.float32, (q,))
    psi = _array(arrays, "psi", np.float64, (q,))
    if psi.size < 1 or (psi < 0).any():
        raise ArtefactError("array 'psi' is empty or below 0: restore the artefact or train again")
    estimator.settings_ = dict(facts.settings)
    estimator.validated_tpr_ = dict(facts.validated_tpr)
    preparation = Preparation(normal=normal, centre=centre, scale=scale, components=components)
    rows = RowMap(preparation=preparation, length=facts.length, weights=weights, bias=bias)
    return estimator._restored(rows, psi)


def _as_json(meta: Mapping[str, Any]) -> str:
    import json

    return json.dumps(dict(meta))


def _array(
    arrays: Mapping[str, np.ndarray[Any, Any]],
    name: str,
    dtype: Any,
    shape: tuple[int | None, ...],
    *,
    infinite: bool = False,
) -> Any:
    """A copy, so that kernels meet one kind of array whether the file was mapped or read."""
    if name not in arrays:
        raise ArtefactError(f"array {name!r} is missing: restore the artefact or train again")
    found = np.array(arrays[name], dtype=dtype, order="C")
    fits = found.ndim == len(shape) and all(
        n is None or n == m for n, m in zip(shape, found.shape, strict=True)
    )
    if not fits:
        raise ArtefactError(
            f"array {name!r} has shape {found.shape}; expected {shape}: restore the artefact or train again"
        )
    if np.isnan(found).any() or not (infinite or np.isfinite(found).all()):
        raise ArtefactError(f"array {name!r} holds NaN or infinities: restore the artefact or train again")
    return found
