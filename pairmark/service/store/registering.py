"""What is stored, and is to be registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class NewCalibration:
    """A calibration whose blob is stored, to be registered."""

    name: str
    blob: str
    protocol: str
    summary: dict[str, Any]
    dataset_id: str | None
    dataset_sha256: str | None
    parent_id: str | None = None
    subjects: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewVersion:
    """A version whose blobs are stored, to be registered."""

    model: str
    kind: str
    capabilities: list[str]
    params: dict[str, Any]
    metrics: dict[str, Any]
    lineage: dict[str, Any]
    facts: dict[str, Any]
    artefact: str
    artefact_sha256: str
    report: str | None
    calibration: NewCalibration | None
    job_id: str | None

    def columns(self) -> dict[str, Any]:
        """What its row holds as it is."""
        return {name: value for name, value in vars(self).items() if name not in ("model", "calibration")}
