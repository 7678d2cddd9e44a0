"""Versions, aliases, calibrations and evaluations."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from numpy.typing import NDArray

from pairmark.client.errors import Unreachable, problem_of
from pairmark.client.transport import Transport
from pairmark.client.wire import Progress, Told, as_dict, path_part, without_none


class Models(Transport):
    """What was learned, and what it promises."""

    def learners(self) -> list[dict[str, Any]]:
        """Learner kinds with capabilities and the JSON Schema of their parameters."""
        answer = self.get("/learners")
        return list(answer["items"] if isinstance(answer, dict) else answer)

    def models(self, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Models with their aliases."""
        return list(self.pages("/models", limit=limit))

    def model(self, name: str) -> dict[str, Any]:
        """One model."""
        return as_dict(self.get(f"/models/{path_part(name)}"))

    def version(self, name: str, version: int) -> dict[str, Any]:
        """One version: kind, params, metrics with intervals, lineage."""
        return as_dict(self.get(f"/models/{path_part(name)}/versions/{version}"))

    def leaderboard(self, name: str, version: int) -> dict[str, Any]:
        """The version among cheap baselines on the same held-out data, best first."""
        return as_dict(self.get(f"/models/{path_part(name)}/versions/{version}/leaderboard"))

    def errors(
        self,
        name: str,
        version: int,
        *,
        kind: str = "false-match",
        fpr: float | None = None,
        limit: int | None = None,
    ) -> dict[str, Any]:
        """The hardest held-out pairs by row of the dataset: ``false-match`` or ``false-non-match``; with ``fpr``, those
        that are wrong at that operating point."""
        path = f"/models/{path_part(name)}/versions/{version}/errors"
        return as_dict(self.get(path, kind=kind, fpr=fpr, limit=limit))

    def report(self, name: str, version: int) -> dict[str, Any]:
        """Everything that is known of a version: facts, metrics, leaderboard, ROC and score histograms."""
        return as_dict(self.get(f"/models/{path_part(name)}/versions/{version}/report"))

    def promote(
        self, name: str, version: int, alias: str = "production", *, if_match: str | None = None
    ) -> dict[str, Any]:
        """Move an alias to a version; ``if_match`` is the alias's ETag, to move it only if nobody else did."""
        headers = without_none({"If-Match": if_match})
        return as_dict(
            self.send(
                "PUT",
                f"/models/{path_part(name)}/aliases/{path_part(alias)}",
                {"version": version},
                headers=headers,
            ).json()
        )

    def set_policy(self, name: str, *, allow_asymptotic: bool | None) -> dict[str, Any]:
        """Whether ``method="auto"`` may answer by bootstrap (asymptotic) for this model; None: the server's setting."""
        path = f"/models/{path_part(name)}/policy"
        return as_dict(self.send("PUT", path, {"allow_asymptotic": allow_asymptotic}).json())

    def calibrate(self, name: str, version: int, dataset: str, **options: Any) -> dict[str, Any]:
        """Calibrate a version on another dataset; ``options`` are ``protocol``, ``n_pairs`` and ``default``, which
        makes it the one that answers from now on."""
        path = f"/models/{path_part(name)}/versions/{version}/calibrations"
        return as_dict(self.post(path, {"dataset": dataset, **options}, timeout=None))

    def calibrate_scores(
        self,
        name: str,
        scores: Sequence[float] | NDArray[Any],
        same: Sequence[int] | NDArray[Any],
        *,
        left_unit: Sequence[int | str] | NDArray[Any] | None = None,
        right_unit: Sequence[int | str] | NDArray[Any] | None = None,
    ) -> dict[str, Any]:
        """Calibrate scores made elsewhere; decide others with `match(scores=.., calibration=answer["id"])`.

        Units are the identity (open-set) or the sample (closed-set) on each side; none when pairs are independent.
        """
        body = {
            "name": name,
            "scores": scores,
            "same": same,
            "left_unit": left_unit,
            "right_unit": right_unit,
        }
        return as_dict(self.post("/calibrations", without_none(body), timeout=None))

    def calibration(self, calibration_id: str) -> dict[str, Any]:
        """A calibration: what it is of, its counts, the smallest rates it supports, and its curve."""
        return as_dict(self.get(f"/calibrations/{path_part(calibration_id)}"))

    def evaluate(
        self, name: str, version: int, dataset: str, *, protocol: str | None = None
    ) -> dict[str, Any]:
        """Measure a version on another dataset: metrics, ROC, and what its thresholds do there."""
        body = without_none({"dataset": dataset, "protocol": protocol})
        return as_dict(
            self.post(f"/models/{path_part(name)}/versions/{version}/evaluations", body, timeout=None)
        )

    def export_version(self, name: str, version: int, file: str | os.PathLike[str]) -> None:
        """Write a version with its calibration to one file, whole or not at all."""
        target = Path(file)
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with self._http.stream("GET", f"/models/{path_part(name)}/versions/{version}/export") as response:
                if response.status_code >= 300:
                    response.read()
                    raise problem_of(response)
                with part.open("wb") as stream:
                    for chunk in response.iter_bytes(1 << 20):
                        stream.write(chunk)
            part.replace(target)
        except httpx.TransportError as error:
            raise Unreachable(f"{self.url} stopped answering: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def import_version(
        self, file: str | os.PathLike[str], *, name: str | None = None, progress: Progress | None = None
    ) -> dict[str, Any]:
        """Register a version from an exported file, under its own or another name."""
        with Path(file).open("rb") as stream:
            files = {"file": (Path(file).name, Told(stream, progress) if progress else stream)}
            return as_dict(
                self.request("POST", "/models", data=without_none({"name": name}), files=files).json()
            )

    def delete_version(self, name: str, version: int) -> None:
        """Delete a version that no alias holds."""
        self.request("DELETE", f"/models/{path_part(name)}/versions/{version}")
