"""Scores, decisions, rankings, classes and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from pairmark.client.calls import Calls
from pairmark.client.encoding import Side, Vectors, listed_rows, raw_pairs, subjects_npz, without_none
from pairmark.client.errors import json_of
from pairmark.client.results import BayesResult, MatchResult
from pairmark.schemas.scoring import ClassesOut, ExplanationOut, ModelUsedOut, OperatingPointOut, RankingsOut

OCTETS = "application/octet-stream"
Packed = tuple[bytes, str, dict[str, int]]


class ScoringCalls(Calls):
    """What models answer."""

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
        packed = _packed(left, right)
        if packed is None:
            answer = await self._send("POST", "/similarity", _body(model, left, right), params=params)
            return np.asarray(answer["scores"], dtype=np.float32)
        response = await self._send_packed("/similarity", packed, {**params, "model": model}, accept=OCTETS)
        return np.frombuffer(response.content, dtype="<f4").astype(np.float32, copy=False)

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
        log_lr: bool = False,
        lr_method: str | None = None,
        refs: Sequence[Sequence[str]] | None = None,
    ) -> MatchResult:
        """Same or different at a false positive rate; or decide on ``scores`` with a stored ``calibration``.

        Subjects of several samples, ``{"samples": vectors}``, are decided as a whole, by a separate calibration.

        With ``fnr``, a false negative rate, `MatchResult.decisions` says match, review or different; with ``log_lr``,
        `MatchResult.log_lr` holds natural log likelihood ratios (``lr_method`` pav, logistic or own). ``refs`` are your
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
            "log_lr": log_lr or None,
            "lr_method": lr_method,
        }
        packed = None if scores is not None or refs is not None else _packed(left, right)
        if packed is not None:
            answer = json_of(await self._send_packed("/match", packed, {**params, "model": model}))
        else:
            body = {"scores": scores} if scores is not None else {**_body(model, left, right), "refs": refs}
            answer = await self._send("POST", "/match", body, params=params)
        return MatchResult(
            matches=np.array([entry["match"] for entry in answer["matches"]], dtype=np.bool_),
            scores=np.array([entry["score"] for entry in answer["matches"]], dtype=np.float32),
            operating_point=OperatingPointOut.from_json(answer["operating_point"]),
            model=None if answer.get("model") is None else ModelUsedOut.from_json(answer["model"]),
            decisions=None if fnr is None else [entry["decision"] for entry in answer["matches"]],
            log_lr=np.array([entry["log_lr"] for entry in answer["matches"]]) if log_lr else None,
            reasons=[entry.get("reason") for entry in answer["matches"]],
            warnings=answer.get("warnings", []),
        )

    async def log_lr(
        self,
        left: Side,
        right: Side,
        *,
        method: str = "pav",
        calibration: str | None = None,
        model: str | None = None,
        aggregation: str | None = None,
    ) -> NDArray[np.float64]:
        """Natural log likelihood ratios of pairs, (n,): how much likelier their scores are for the same than for two.

        Parameters
        ----------
        left, right, aggregation : as `similarity`.
        method : ``pav``, ``logistic``, or ``own`` of learners whose score is a log likelihood ratio.
        calibration : id; None: the version's own.
        """
        answer = await self._send(
            "POST",
            "/similarity",
            _body(model, left, right),
            params={
                "log_lr": True,
                "lr_method": method,
                "calibration": calibration,
                "aggregation": aggregation,
            },
        )
        return np.asarray(answer["log_lr"], dtype=np.float64)

    async def decide(
        self,
        left: Side = None,
        right: Side = None,
        *,
        prior: float,
        cost_ratio: float = 1.0,
        method: str = "pav",
        calibration: str | None = None,
        model: str | None = None,
        aggregation: str | None = None,
        scores: Sequence[float] | NDArray[Any] | None = None,
    ) -> BayesResult:
        """Decide at the lowest average cost, without a guaranteed error rate; `match` gives one.

        Parameters
        ----------
        prior : probability that a pair is the same before its score is known.
        cost_ratio : the cost of a false match divided by the cost of a missed match.
        method, calibration : as `log_lr`. scores : instead of pairs, with a stored ``calibration``.
        """
        body = {"scores": scores} if scores is not None else _body(model, left, right)
        params = {
            "prior": prior,
            "cost_ratio": cost_ratio,
            "lr_method": method,
            "calibration": calibration,
            "aggregation": aggregation,
        }
        answer = await self._send("POST", "/match", body, params=params)
        decisions = answer["decisions"]
        has_scores = bool(decisions) and "score" in decisions[0]
        return BayesResult(
            same=np.array([entry["same"] for entry in decisions], dtype=np.bool_),
            log_lr=np.array([entry["log_lr"] for entry in decisions]) if has_scores else None,
            posterior=np.array([entry["posterior"] for entry in decisions]) if has_scores else None,
            scores=np.array([entry["score"] for entry in decisions], dtype=np.float32)
            if has_scores
            else None,
            bayes=answer["bayes"],
            model=None if answer.get("model") is None else ModelUsedOut.from_json(answer["model"]),
        )

    async def explain(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> ExplanationOut:
        """Why one pair, of vectors or of subjects, scores as it does."""
        params = {"aggregation": aggregation}
        return ExplanationOut.from_json(
            await self._send("POST", "/explain", _body(model, left, right), params=params)
        )

    async def rank_labels(
        self,
        features: Vectors | Mapping[str, float],
        *,
        model: str | None = None,
        top: int | None = None,
        detail: bool = False,
        abstain: float | None = None,
    ) -> RankingsOut:
        """Labels of each point, best first.

        Parameters
        ----------
        features : points by position, or by name (a mapping, or a list of them).
        top : return only this many labels, best first.
        detail : add the confidence of the ranking and of each pair of labels.
        abstain : keep only preferences with at least this confidence; other labels share a place.
        """
        rows = features if isinstance(features, Mapping) else listed_rows(features)
        body = {"model": model, "features": rows, "top": top, "detail": detail or None, "abstain": abstain}
        return RankingsOut.from_json(await self._send("POST", "/rank-labels", body))

    async def classify(self, features: Vectors, *, model: str | None = None) -> ClassesOut:
        """``labels`` and ``probabilities`` of each point."""
        body = {"model": model, "features": features}
        return ClassesOut.from_json(await self._send("POST", "/classify", body))

    async def embed(self, features: Vectors, *, model: str | None = None) -> NDArray[np.float32]:
        """The model's own vectors of each point, (n, n_components) float32."""
        answer = await self._send("POST", "/embed", {"model": model, "features": features})
        return np.asarray(answer["vectors"], dtype=np.float32)

    async def _send_packed(
        self, path: str, packed: Packed, params: dict[str, Any], *, accept: str = "application/json"
    ) -> httpx.Response:
        content, kind, shape = packed
        headers = {"Content-Type": kind, "Accept": accept}
        query = without_none({**params, **shape})
        return await self.request("POST", path, content=content, params=query, headers=headers)


def _body(model: str | None, left: Side, right: Side) -> dict[str, Any]:
    return {"model": model, "left": left, "right": right}


def _packed(left: Side, right: Side) -> Packed | None:
    """A binary body of both sides, its media type and query parameters; None where JSON says it better."""
    subjects = subjects_npz(left, right)
    if subjects is not None:
        return subjects, "application/x-npz", {}
    raw = raw_pairs(left, right)
    return None if raw is None else (raw[0], OCTETS, raw[1])
