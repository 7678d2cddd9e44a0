"""Versions, aliases, calibrations and evaluations."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from pairmark.client.calls import Calls
from pairmark.client.encoding import Progress, ProgressReader, path_part, without_none
from pairmark.client.errors import json_of, unanswered
from pairmark.client.results import CandidateScores
from pairmark.schemas.base import Answer
from pairmark.schemas.models import AliasOut, CalibrationOut, EvaluationOut, LearnerOut, ModelOut, VersionOut
from pairmark.schemas.scoring import ModelUsedOut, OperatingPointOut


class ModelCalls(Calls):
    """What was learned, and what it promises."""

    async def learners(self) -> list[LearnerOut]:
        """Learner kinds with capabilities and the JSON Schema of their parameters."""
        answer = await self._get("/learners")
        return [LearnerOut.from_json(entry) for entry in answer["items"]]

    async def models(self, *, limit: int | None = None) -> list[ModelOut]:
        """Models with their aliases."""
        return [ModelOut.from_json(model) async for model in self.pages("/models", limit=limit)]

    async def model(self, name: str) -> ModelOut:
        """One model."""
        return ModelOut.from_json(await self._get(f"/models/{path_part(name)}"))

    async def version(self, name: str, version: int) -> VersionOut:
        """One version: kind, params, metrics with intervals, lineage."""
        return VersionOut.from_json(
            await self._get(f"/models/{path_part(name)}/versions/{path_part(version)}")
        )

    async def leaderboard(self, name: str, version: int) -> Answer:
        """The version among cheap baselines on the same held-out data, best first."""
        return Answer.from_json(
            await self._get(f"/models/{path_part(name)}/versions/{path_part(version)}/leaderboard")
        )

    async def errors(
        self,
        name: str,
        version: int,
        *,
        kind: str = "false-match",
        fpr: float | None = None,
        limit: int | None = None,
    ) -> Answer:
        """The hardest held-out pairs by row of the dataset: ``false-match`` or ``false-non-match``; with ``fpr``, those
        that are wrong at that operating point."""
        path = f"/models/{path_part(name)}/versions/{path_part(version)}/errors"
        return Answer.from_json(await self._get(path, kind=kind, fpr=fpr, limit=limit))

    async def report(self, name: str, version: int) -> Answer:
        """Everything that is known of a version: promise, error rates, groups, evidence, limits and a model card."""
        return Answer.from_json(
            await self._get(f"/models/{path_part(name)}/versions/{path_part(version)}/report")
        )

    async def report_page(self, name: str, version: int) -> str:
        """The report as one HTML page, which asks nothing from elsewhere."""
        path = f"/models/{path_part(name)}/versions/{path_part(version)}/report"
        answer = await self.request("GET", path, params={"format": "html"})
        return str(answer.text)

    async def promote(
        self,
        name: str,
        version: int,
        alias: str = "production",
        *,
        if_match: str | None = None,
        reason: str | None = None,
    ) -> AliasOut:
        """Move an alias to a version.

        Parameters
        ----------
        if_match : the alias's ETag, to move it only if nobody else did.
        reason : why it moves, at most 500 characters; kept in the alias's history and the audit log.
        """
        path = f"/models/{path_part(name)}/aliases/{path_part(alias)}"
        headers = without_none({"If-Match": if_match})
        body = {"version": version, "reason": reason}
        return AliasOut.from_json(await self._send("PUT", path, body, headers=headers))

    async def set_policy(self, /, name: str, **policy: Any) -> Answer:
        """Set what a model may promise and what is kept of its decisions; what is left out stays as it is.

        Parameters
        ----------
        allow_asymptotic : whether ``method="auto"`` may answer by bootstrap (asymptotic); None: the server's setting.
        rates : false positive rates at which keys with ``decide`` alone are answered; None: .1, .03, .01 ... .0001.
        reviews : ``{"share", "per_hour", "days", "sides"}``, all optional: which decisions are kept for
            reviews; None: none.
        """
        path = f"/models/{path_part(name)}/policy"
        # Here None says something.
        return Answer.from_json(json_of(await self.request("PUT", path, json=policy)))

    async def calibrate(self, /, name: str, version: int, dataset: str, **options: Any) -> CalibrationOut:
        """Calibrate a version on another dataset; ``options`` are ``protocol``, ``n_pairs``, ``groups``,
        ``listing``, ``random_state`` and ``default``, which makes it the one that answers from now on."""
        path = f"/models/{path_part(name)}/versions/{path_part(version)}/calibrations"
        return CalibrationOut.from_json(
            await self._send("POST", path, {"dataset": dataset, **options}, timeout=None)
        )

    async def score_candidates(
        self,
        name: str,
        version: int,
        dataset: str,
        pairs: Sequence[Sequence[str]],
        *,
        fpr: float | None = None,
        confidence: float | None = None,
    ) -> CandidateScores:
        """Score pairs of rows of a stored table, or of two, each among its rivals; with ``fpr`` decide too.

        Parameters
        ----------
        dataset : ``name`` or ``name:version``. pairs : row ids of both sides of each pair.
        fpr : false positive rate among the different pairs of the list that the dataset's drawn pairs are of.
        """
        path = f"/models/{path_part(name)}/versions/{path_part(version)}/candidates"
        body = {"dataset": dataset, "pairs": [[str(end) for end in pair] for pair in pairs], "fpr": fpr}
        body["confidence"] = confidence
        answer = await self._send("POST", path, without_none(body), timeout=None)
        matches, point = answer.get("matches"), answer.get("operating_point")
        return CandidateScores(
            scores=np.asarray(answer["scores"], dtype=np.float32),
            matches=None
            if matches is None
            else np.array([each["match"] for each in matches], dtype=np.bool_),
            operating_point=None if point is None else OperatingPointOut.from_json(point),
            model=ModelUsedOut.from_json(answer["model"]),
        )

    async def calibrate_scores(
        self,
        name: str,
        scores: Sequence[float] | Sequence[Sequence[float]] | NDArray[Any],
        same: Sequence[int] | NDArray[Any],
        *,
        left_unit: Sequence[int | str] | NDArray[Any] | None = None,
        right_unit: Sequence[int | str] | NDArray[Any] | None = None,
        protocol: str | None = None,
        independent: bool = False,
        listing: str | None = None,
        blocks: str | Sequence[int | str] | NDArray[Any] | None = None,
        population: int | None = None,
    ) -> CalibrationOut:
        """Calibrate scores of another system; decide further ones with `match(scores=.., calibration=answer["id"])`.

        Units are the identity (open-set) or the sample (closed-set) on each side; ``protocol`` says which, where no
        same pair has one unit twice. Without them nothing is guaranteed,
        unless pairs are declared ``independent``, or a random sample of a ``population`` of so many pairs. ``listing``
        (``all``, ``drawn``, ``random-people``, ``random-rows``) or ``blocks`` (``components``, or each pair's) say how
        the pairs were listed; a list of unknown origin that is not all pairs guarantees nothing.
        With several scores a pair, (n, n_systems), half of the units weigh the systems and the others calibrate.
        """
        body = {
            "name": name,
            "scores": scores,
            "same": same,
            "left_unit": left_unit,
            "right_unit": right_unit,
            "protocol": protocol,
            "independent": independent or None,
            "listing": listing,
            "blocks": blocks,
            "population": population,
        }
        return CalibrationOut.from_json(await self._send("POST", "/calibrations", body, timeout=None))

    async def calibration(self, calibration_id: str) -> CalibrationOut:
        """A calibration: what it is of, its counts, the smallest rates it supports, and its curve."""
        return CalibrationOut.from_json(await self._get(f"/calibrations/{path_part(calibration_id)}"))

    async def evaluate(
        self, /, name: str, version: int, dataset: str, *, protocol: str | None = None, **options: Any
    ) -> EvaluationOut:
        """Measure a version on another dataset: metrics, ROC, and what its thresholds do there; ``options`` are
        ``n_pairs``, ``groups`` and ``random_state``."""
        path = f"/models/{path_part(name)}/versions/{path_part(version)}/evaluations"
        body = {"dataset": dataset, "protocol": protocol, **options}
        return EvaluationOut.from_json(await self._send("POST", path, body, timeout=None))

    async def export_version(self, name: str, version: int, file: str | os.PathLike[str]) -> None:
        """Write a version with its calibration to one file, whole or not at all."""
        target = Path(file)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            path = f"/models/{path_part(name)}/versions/{path_part(version)}/export"
            async with contextlib.aclosing(self._http.streamed(path)) as chunks:
                with part.open("wb") as stream:
                    async for chunk in chunks:
                        stream.write(chunk)
            part.replace(target)
        except httpx.TransportError as error:
            raise unanswered(self.url, error) from error
        finally:
            part.unlink(missing_ok=True)

    async def import_version(
        self, file: str | os.PathLike[str], *, name: str | None = None, progress: Progress | None = None
    ) -> VersionOut:
        """Register a version from an exported file, under its own or another name."""
        with Path(file).open("rb") as stream:
            files = {"file": (Path(file).name, ProgressReader(stream, progress) if progress else stream)}
            data = without_none({"name": name})
            return VersionOut.from_json(
                json_of(await self.request("POST", "/models", data=data, files=files))
            )

    async def delete_version(self, name: str, version: int) -> None:
        """Delete a version that no alias holds."""
        await self.request("DELETE", f"/models/{path_part(name)}/versions/{path_part(version)}")
