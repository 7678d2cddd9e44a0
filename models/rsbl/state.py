"""A fitted space and its classifier as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.core.spec import Arrays
from pairmark.models.rsbl.estimator import RSBL
from pairmark.models.rsbl.growth import Layer
from pairmark.models.rsbl.inputs import Inputs


def to_state(estimator: RSBL) -> tuple[Arrays, dict[str, Any]]:
    """Inputs, references, layers and the final classifier."""
    arrays, meta = estimator._inputs.to_state()
    classes = estimator.classes_
    arrays["classes"] = classes.astype(str) if classes.dtype.kind not in "biufSU" else classes
    for at, (refs, layer) in enumerate(zip(estimator._refs, estimator.layers_, strict=True)):
        arrays[f"refs_{at}"], arrays[f"columns_{at}"] = refs, layer.columns
        arrays[f"counts_{at}"] = layer.counts
    if estimator._final_rows is not None and estimator._final_codes is not None:
        arrays["final_codes"] = estimator._final_codes
        for at, rows in enumerate(estimator._final_rows):
            arrays[f"final_rows_{at}"] = rows
    elif estimator._coef is not None and estimator._intercept is not None:
        arrays["coef"], arrays["intercept"] = estimator._coef, estimator._intercept
    return arrays, {
        **meta,
        "betas": [float(layer.beta) for layer in estimator.layers_],
        "k": [int(k) for k in estimator.k_],
        "errors": [[float(error) for error in tried] for tried in estimator.errors_],
        "depth_errors": [float(error) for error in estimator.depth_errors_],
        "sharpness": float(estimator._sharpness),
        "gamma": float(estimator._gamma),
        "n_components": int(estimator.n_components_),
    }


def from_state(estimator: RSBL, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]) -> RSBL:
    """The estimator, fitted with what `to_state` gave."""

    # Copies, so that kernels meet one kind of array whether the file was mapped or read.
    def plain(name: str) -> Any:
        return np.array(arrays[name], order="C")

    estimator._inputs = Inputs.from_state(arrays, meta)
    estimator.classes_ = plain("classes")
    estimator.k_, estimator.errors_ = list(meta["k"]), [list(tried) for tried in meta["errors"]]
    estimator.depth_errors_ = list(meta["depth_errors"])
    estimator.n_components_ = int(meta["n_components"])
    estimator._sharpness, estimator._gamma = float(meta["sharpness"]), float(meta["gamma"])
    estimator.layers_ = [
        Layer(columns=plain(f"columns_{at}"), counts=plain(f"counts_{at}"), beta=float(beta))
        for at, beta in enumerate(meta["betas"])
    ]
    estimator._coef = estimator._intercept = estimator._final_rows = estimator._final_codes = None
    if "final_codes" in arrays:
        estimator._final_codes = plain("final_codes")
        estimator._final_rows = [plain(f"final_rows_{at}") for at in range(len(estimator.layers_) + 1)]
    else:
        estimator._coef, estimator._intercept = plain("coef"), plain("intercept")
    estimator._refs = [plain(f"refs_{at}") for at in range(len(estimator.layers_))]
    return estimator
