"""Scores, decisions, rankings, classes and embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.client.calls import Steps, ask, operation
from pairmark.client.results import (
    BayesResult,
    Classes,
    Explanation,
    MatchResult,
    ModelUsed,
    OperatingPoint,
    Rankings,
)
from pairmark.client.transport import Calls
from pairmark.client.wire import Side, Vectors, listed_rows, raw_pairs, subjects_npz, without_none


class Scoring(Calls):
    """What models answer."""

    @operation
    def similarity(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> Steps[NDArray[np.float32]]:
        """Scores of pairs, (n,) float32; higher is more similar. Sizes n:n, 1:n or n:1.

        Parameters
        ----------
        left, right : vectors, or subjects of several samples ``{"samples": vectors}``.
        aggregation : how subjects are compared: ``auto``, ``mean``, ``plda``, ``best`` or ``median``.
        """
        params = without_none({"aggregation": aggregation})
        packed = subjects_npz(left, right)
        if packed is not None:
            response = yield from ask(
                self,
                "POST",
                "/similarity",
                content=packed,
                params={**params, **without_none({"model": model})},
                headers={"Content-Type": "application/x-npz", "Accept": "application/octet-stream"},
            )
            return np.frombuffer(response.content, dtype="<f4").astype(np.float32, copy=False)
        raw = raw_pairs(left, right)
        if raw is not None:
            response = yield from ask(
                self,
                "POST",
                "/similarity",
                content=raw[0],
                params=without_none({**raw[1], **params, "model": model}),
                headers={"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"},
            )
            return np.frombuffer(response.content, dtype="<f4").astype(np.float32, copy=False)
        answer = yield from self._send(
            "POST",
            "/similarity",
            without_none({"model": model, "left": left, "right": right}),
            params=params,
        )
        return np.asarray(answer["scores"], dtype=np.float32)

    @operation
    def match(
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
    ) -> Steps[MatchResult]:
        """Same or different at a false positive rate; or decide on ``scores`` with a stored ``calibration``.

        Subjects of several samples, ``{"samples": vectors}``, are decided as a whole, by a separate calibration.

        With ``fnr``, a false negative rate, `MatchResult.decisions` says match, review or different; with ``log_lr``,
        `MatchResult.log_lr` holds natural log likelihood ratios (``lr_method`` pav, logistic or own).

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
                "aggregation": aggregation,
                "log_lr": "true" if log_lr else None,
                "lr_method": lr_method,
            }
        )
        raw = None if scores is not None else raw_pairs(left, right)
        packed = None if scores is not None else subjects_npz(left, right)
        if packed is not None:
            answer = (
                yield from ask(
                    self,
                    "POST",
                    "/match",
                    content=packed,
                    params={**params, **without_none({"model": model})},
                    headers={"Content-Type": "application/x-npz"},
                )
            ).json()
        elif raw is not None:
            answer = (
                yield from ask(
                    self,
                    "POST",
                    "/match",
                    content=raw[0],
                    params={**params, **without_none({**raw[1], "model": model})},
                    headers={"Content-Type": "application/octet-stream"},
                )
            ).json()
        elif scores is not None:
            answer = yield from self._send("POST", "/match", {"scores": scores}, params=params)
        else:
            answer = yield from self._send(
                "POST", "/match", without_none({"model": model, "left": left, "right": right}), params=params
            )
        return MatchResult(
            matches=np.array([entry["match"] for entry in answer["matches"]], dtype=np.bool_),
            scores=np.array([entry["score"] for entry in answer["matches"]], dtype=np.float32),
            operating_point=OperatingPoint.of(answer["operating_point"]),
            model=None if answer.get("model") is None else ModelUsed.of(answer["model"]),
            decisions=None if fnr is None else [entry["decision"] for entry in answer["matches"]],
            log_lr=np.array([entry["log_lr"] for entry in answer["matches"]]) if log_lr else None,
        )

    @operation
    def log_lr(
        self,
        left: Side,
        right: Side,
        *,
        method: str = "pav",
        calibration: str | None = None,
        model: str | None = None,
        aggregation: str | None = None,
    ) -> Steps[NDArray[np.float64]]:
        """Natural log likelihood ratios of pairs, (n,): how much likelier their scores are for the same than for two.

        Parameters
        ----------
        left, right, aggregation : as `similarity`.
        method : ``pav``, ``logistic``, or ``own`` of learners whose score is a log likelihood ratio.
        calibration : id; None: the version's own.
        """
        answer = yield from self._send(
            "POST",
            "/similarity",
            without_none({"model": model, "left": left, "right": right}),
            params=without_none(
                {
                    "log_lr": "true",
                    "lr_method": method,
                    "calibration": calibration,
                    "aggregation": aggregation,
                }
            ),
        )
        return np.asarray(answer["log_lr"], dtype=np.float64)

    @operation
    def decide(
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
    ) -> Steps[BayesResult]:
        """Decide at the lowest average cost, without a guaranteed error rate; `match` gives one.

        Parameters
        ----------
        prior : probability that a pair is the same before its score is known.
        cost_ratio : the cost of a false match divided by the cost of a missed match.
        method, calibration : as `log_lr`. scores : instead of pairs, with a stored ``calibration``.
        """
        body = {"scores": scores} if scores is not None else {"model": model, "left": left, "right": right}
        params = {
            "prior": prior,
            "cost_ratio": cost_ratio,
            "lr_method": method,
            "calibration": calibration,
            "aggregation": aggregation,
        }
        answer = yield from self._send("POST", "/match", without_none(body), params=without_none(params))
        found = answer["decisions"]
        shown = bool(found) and "score" in found[0]
        return BayesResult(
            same=np.array([entry["same"] for entry in found], dtype=np.bool_),
            log_lr=np.array([entry["log_lr"] for entry in found]) if shown else None,
            posterior=np.array([entry["posterior"] for entry in found]) if shown else None,
            scores=np.array([entry["score"] for entry in found], dtype=np.float32) if shown else None,
            bayes=answer["bayes"],
            model=None if answer.get("model") is None else ModelUsed.of(answer["model"]),
        )

    @operation
    def explain(
        self, left: Side, right: Side, *, model: str | None = None, aggregation: str | None = None
    ) -> Steps[Explanation]:
        """Why one pair, of vectors or of subjects, scores as it does."""
        return Explanation.of(
            (
                yield from self._send(
                    "POST",
                    "/explain",
                    without_none({"model": model, "left": left, "right": right}),
                    params=without_none({"aggregation": aggregation}),
                )
            )
        )

    @operation
    def rank_labels(
        self,
        features: Vectors | Mapping[str, float],
        *,
        model: str | None = None,
        top: int | None = None,
        detail: bool = False,
        abstain: float | None = None,
    ) -> Steps[Rankings]:
        """Labels of each point, best first.

        Parameters
        ----------
        features : points by position, or by name (a mapping, or a list of them).
        top : return only this many labels, best first.
        detail : add the confidence of the ranking and of each pair of labels.
        abstain : keep only preferences with at least this confidence; other labels share a place.
        """
        given = features if isinstance(features, Mapping) else listed_rows(features)
        body = {"model": model, "features": given, "top": top, "detail": detail or None, "abstain": abstain}
        body = without_none(body)
        return Rankings.of((yield from self._send("POST", "/rank-labels", body)))

    @operation
    def classify(self, features: Vectors, *, model: str | None = None) -> Steps[Classes]:
        """``labels`` and ``probabilities`` of each point."""
        return Classes.of(
            (yield from self._send("POST", "/classify", without_none({"model": model, "features": features})))
        )

    @operation
    def embed(self, features: Vectors, *, model: str | None = None) -> Steps[NDArray[np.float32]]:
        """The model's own vectors of each point, (n, n_components) float32."""
        answer = yield from self._send("POST", "/embed", without_none({"model": model, "features": features}))
        return np.asarray(answer["vectors"], dtype=np.float32)
