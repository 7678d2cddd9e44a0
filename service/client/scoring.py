"""Scores, decisions, rankings, classes and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.client.transport import Transport
from pairmark.client.wire import Vectors, as_dict, listed_rows, raw_pairs, without_none


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Decisions at a false positive rate.

    Attributes
    ----------
    matches : (n,) bool, ``scores > threshold``.
    scores : (n,) float32.
    operating_point : threshold, fpr, fpr_upper_bound, confidence, method, tpr, ... as the service states them.
    model : name, version and kind (None where the scores were given).
    decisions : (n,) match, review or different, where a false negative rate was asked for too.
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: dict[str, Any]
    model: dict[str, Any] | None
    decisions: list[str] | None = None


class Scoring(Transport):
    """What models answer."""

    def similarity(self, left: Vectors, right: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """Scores of pairs, (n,) float32; higher is more similar. Sizes n:n, 1:n or n:1."""
        raw = raw_pairs(left, right)
        if raw is not None:
            response = self.request(
                "POST",
                "/similarity",
                content=raw[0],
                params=without_none({**raw[1], "model": model}),
                headers={"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"},
            )
            return np.frombuffer(response.content, dtype="<f4").astype(np.float32, copy=False)
        answer = self.post("/similarity", without_none({"model": model, "left": left, "right": right}))
        return np.asarray(answer["scores"], dtype=np.float32)

    def match(
        self,
        left: Vectors = None,
        right: Vectors = None,
        *,
        fpr: float,
        confidence: float | None = None,
        method: str | None = None,
        calibration: str | None = None,
        model: str | None = None,
        scores: Sequence[float] | NDArray[Any] | None = None,
        fnr: float | None = None,
        simultaneous: bool = False,
    ) -> MatchResult:
        """Same or different at a false positive rate; or decide on ``scores`` with a stored ``calibration``.

        With ``fnr``, a false negative rate, `MatchResult.decisions` says match, review or different.

        Raises
        ------
        InsufficientCalibration
            When the calibration data cannot support the rate; ``.facts`` holds ``smallest_fpr``.
        """
        params = without_none(
            {
                "fpr": fpr,
                "fnr": fnr,
                "confidence": confidence,
                "method": method,
                "calibration": calibration,
                "simultaneous": "true" if simultaneous else None,
            }
        )
        raw = None if scores is not None else raw_pairs(left, right)
        if raw is not None:
            answer = self.request(
                "POST",
                "/match",
                content=raw[0],
                params={**params, **without_none({**raw[1], "model": model})},
                headers={"Content-Type": "application/octet-stream"},
            ).json()
        elif scores is not None:
            answer = self.post("/match", {"scores": scores}, params=params)
        else:
            answer = self.post(
                "/match", without_none({"model": model, "left": left, "right": right}), params=params
            )
        return MatchResult(
            matches=np.array([entry["match"] for entry in answer["matches"]], dtype=np.bool_),
            scores=np.array([entry["score"] for entry in answer["matches"]], dtype=np.float32),
            operating_point=answer["operating_point"],
            model=answer.get("model"),
            decisions=None if fnr is None else [entry["decision"] for entry in answer["matches"]],
        )

    def explain(self, left: Vectors, right: Vectors, *, model: str | None = None) -> dict[str, Any]:
        """Why one pair scores as it does."""
        return as_dict(self.post("/explain", without_none({"model": model, "left": left, "right": right})))

    def rank_labels(
        self,
        features: Vectors | Mapping[str, float],
        *,
        model: str | None = None,
        top: int | None = None,
        detail: bool = False,
        abstain: float | None = None,
    ) -> dict[str, Any]:
        """Labels of each point, best first.

        Parameters
        ----------
        features : points by position, or by name (a mapping, or a list of them).
        top : only the first so many labels.
        detail : also how sure the ranking and each pair of labels is.
        abstain : keep only order that is at least this sure; other labels share a place.
        """
        given = features if isinstance(features, Mapping) else listed_rows(features)
        body = {"model": model, "features": given, "top": top, "detail": detail or None, "abstain": abstain}
        body = without_none(body)
        return as_dict(self.post("/rank-labels", body))

    def classify(self, features: Vectors, *, model: str | None = None) -> dict[str, Any]:
        """``labels`` and ``probabilities`` of each point."""
        return as_dict(self.post("/classify", without_none({"model": model, "features": features})))

    def embed(self, features: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """The model's own vectors of each point, (n, n_components) float32."""
        answer = self.post("/embed", without_none({"model": model, "features": features}))
        return np.asarray(answer["vectors"], dtype=np.float32)
