"""Scores, decisions, rankings, classes and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pairmark.client.calls import Calls
from pairmark.client.encoding import Side, Vectors, array, from_bytes, listed_rows, raw_pairs, without_none
from pairmark.client.errors import json_of
from pairmark.schemas.scoring import ClassesOut, ExplanationOut, ModelUsedOut, OperatingPointOut, RankingsOut

if TYPE_CHECKING:
    import httpx
    import numpy as np
    from numpy.typing import NDArray

OCTETS = "application/octet-stream"


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Decisions at a false positive rate.

    Attributes
    ----------
    matches : (n,) bool, ``scores > threshold``.
    scores : (n,) float32.
    operating_point : the threshold and its promise.
    model : the version that answered (None where the scores were given).
    decisions : (n,) match, review or different, where a false negative rate was asked for too.
    reasons : (n,) why a pair does not match whatever it scores, such as ``unlike-calibration``; else None.
    warnings : what limits the whole answer, each with ``code`` and ``detail``.
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: OperatingPointOut
    model: ModelUsedOut | None
    decisions: list[str] | None = None
    reasons: list[str | None] = field(default_factory=list)
    warnings: list[dict[str, str]] = field(default_factory=list)


class ScoringCalls(Calls):
    """What models answer; arrays are lists where NumPy is not installed."""

    async def similarity(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> NDArray[np.float32]:
        """Scores of pairs, (n,) float32; higher is more similar. Sizes n:n, 1:n or n:1.

        Parameters
        ----------
        left, right : vectors, or subjects of several samples ``{"samples": vectors}``.
        aggregation : how subjects are compared: ``auto``, ``mean``, ``plda``, ``best`` or ``median``.
        """
        params = {"aggregation": aggregation}
        raw = raw_pairs(left, right)
        if raw is None:
            body = {"model": model, "left": left, "right": right}
            answer = await self._send("POST", "/similarity", body, params=params)
            return cast("NDArray[np.float32]", array(answer["scores"], "float32"))
        response = await self._send_raw("/similarity", raw, {**params, "model": model}, accept=OCTETS)
        return cast("NDArray[np.float32]", from_bytes(response.content))

    async def match(
        self,
        left: Side = None,
        right: Side = None,
        *,
        fpr: float,
        confidence: float | None = None,
        method: str | None = None,
        calibration: str | None = None,
        model: str | None = None,
        scores: Sequence[float] | NDArray[Any] | None = None,
        fnr: float | None = None,
        simultaneous: bool = False,
        aggregation: str | None = None,
        refs: Sequence[Sequence[str]] | None = None,
    ) -> MatchResult:
        """Same or different at a false positive rate; or decide on ``scores`` with a stored ``calibration``.

        Subjects of several samples, ``{"samples": vectors}``, are decided as a whole, by a separate calibration.

        With ``fnr``, a false negative rate, `MatchResult.decisions` says match, review or different. ``refs`` are your
        names of both sides of each pair, kept for reviews if the model's policy says so.

        Raises
        ------
        InsufficientCalibration
            When the calibration data cannot support the rate; ``.facts`` holds ``smallest_fpr``.
        """
        params = {
            "fpr": fpr,
            "fnr": fnr,
            "confidence": confidence,
            "method": method,
            "calibration": calibration,
            "simultaneous": simultaneous or None,
            "aggregation": aggregation,
        }
        raw = None if scores is not None or refs is not None else raw_pairs(left, right)
        if raw is not None:
            answer = json_of(await self._send_raw("/match", raw, {**params, "model": model}))
        else:
            pairs = {"model": model, "left": left, "right": right, "refs": refs}
            body = pairs if scores is None else {"scores": scores}
            answer = await self._send("POST", "/match", body, params=params)
        matches = answer["matches"]
        return MatchResult(
            matches=array([entry["match"] for entry in matches], "bool"),
            scores=array([entry["score"] for entry in matches], "float32"),
            operating_point=OperatingPointOut.from_json(answer["operating_point"]),
            model=None if answer.get("model") is None else ModelUsedOut.from_json(answer["model"]),
            decisions=None if fnr is None else [entry["decision"] for entry in matches],
            reasons=[entry.get("reason") for entry in matches],
            warnings=answer.get("warnings", []),
        )

    async def _send_raw(
        self,
        path: str,
        raw: tuple[bytes, dict[str, int]],
        params: Mapping[str, Any],
        *,
        accept: str = "application/json",
    ) -> httpx.Response:
        content, shape = raw
        headers = {"Content-Type": OCTETS, "Accept": accept}
        query = without_none({**params, **shape})
        return await self.request("POST", path, content=content, params=query, headers=headers)

    async def explain(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> ExplanationOut:
        """Why one pair, of vectors or of subjects, scores as it does."""
        body, params = {"model": model, "left": left, "right": right}, {"aggregation": aggregation}
        return ExplanationOut.from_json(await self._send("POST", "/explain", body, params=params))

    async def rank_labels(
        self,
        features: Vectors | Mapping[str, float],
        *,
        model: str | None = None,
        top: int | None = None,
    ) -> RankingsOut:
        """Labels of each point, best first.

        Parameters
        ----------
        features : points by position, or by name (a mapping, or a list of them).
        top : return only this many labels, best first.
        """
        rows = features if isinstance(features, Mapping) else listed_rows(features)
        body = {"model": model, "features": rows, "top": top}
        return RankingsOut.from_json(await self._send("POST", "/rank-labels", body))

    async def classify(self, features: Vectors, *, model: str | None = None) -> ClassesOut:
        """``labels`` and ``probabilities`` of each point."""
        body = {"model": model, "features": features}
        return ClassesOut.from_json(await self._send("POST", "/classify", body))

    async def embed(self, features: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """The model's own vectors of each point, (n, n_components) float32."""
        answer = await self._send("POST", "/embed", {"model": model, "features": features})
        return cast("NDArray[np.float32]", array(answer["vectors"], "float32"))
