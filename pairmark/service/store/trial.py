"""The first load and score of an imported version, in a separate process.

What an artefact's schema does not rule out ends here: a crash in native code, a loop without end, more memory than
there is. Only what survived is registered, and only then a process that serves loads it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pairmark.service.deferred import defer_unused
from pairmark.service.errors import InvalidInput
from pairmark.service.jobs.limits import confine_memory, memory_limit
from pairmark.service.settings import Settings

SECONDS = 120.0
_CPU_SECONDS = 100
_BATCH = 32


class Trial(BaseModel):
    """What the artefact turned out to hold."""

    kind: str
    params: dict[str, Any]
    capabilities: list[str]
    n_features: int
    n_labels: int | None
    n_classes: int | None
    artefact_sha256: str


def try_artefact(folder: Path, settings: Settings) -> Trial:
    """Load the artefact in a process of its own and score a few rows with it; `InvalidInput` says how that failed."""
    module = "pairmark.service.store.trial"
    command = [sys.executable, "-P", "-m", module, str(folder), str(memory_limit(settings))]
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidInput(
            f"cannot be used: its first load and first score did not end within {SECONDS:g} s"
        ) from None
    if process.returncode == 0:
        return Trial.model_validate_json(process.stdout.splitlines()[-1])
    if process.returncode == 1 and process.stdout:
        raise InvalidInput(f"cannot be loaded: {process.stdout.decode(errors='replace').strip()[:1_000]}")
    how = f"ended with status {process.returncode}"
    if process.returncode < 0:
        how = f"ended by {signal.Signals(-process.returncode).name}"
    raise InvalidInput(f"cannot be used: the process that loaded it and scored with it {how}")


def first_use(folder: Path) -> Trial:
    """Load the artefact in this process and score a few rows with it; says what it holds."""
    import numpy as np

    from pairmark.models.core.artefact import ArtefactError, read_artefact
    from pairmark.models.core.spec import capabilities_of
    from pairmark.models.records.schema import sample_cells
    from pairmark.models.registry import restored, schema_of_model, spec_of

    artefact = read_artefact(folder)
    model, spec = restored(artefact), spec_of(artefact.kind)
    if "scaling_" in vars(model):
        # Vectors are checked as they are parsed, and scored as they are.
        raise ArtefactError(
            "it scales columns itself, which no served model does: save the pipeline's last step alone, "
            "and scale vectors before they are sent"
        )
    n_features = int(model.n_features_in_)
    capabilities = capabilities_of(spec, model)
    # Some rows: as wide as the model, but no more numbers than a request may bring.
    rows: Any = np.zeros((max(2, min(_BATCH, 2**22 // n_features)), n_features), dtype=np.float32)
    rows[1::2] = 1.0
    if rows.shape[0] > 2:
        rows[2:] = np.random.default_rng(0).standard_normal(rows[2:].shape).astype(np.float32)
    if spec.takes_records:
        rows = sample_cells(model.schema_, _BATCH)
    elif schema_of_model(model) is not None:
        model.encoder_.transform(sample_cells(model.encoder_.schema, 2))
    if "similarity" in capabilities:
        model.pair_score(rows, rows[::-1].copy())
        model.pair_score(rows[:1], rows)
    if "embed" in capabilities:
        model.transform(rows)
    if "classify" in capabilities:
        model.predict_proba(rows)
    if "rank-labels" in capabilities:
        model.predict_scores(rows)
        model.pairwise_confidence(rows[:2])
    classes = getattr(model, "classes_", None)
    return Trial(
        kind=spec.kind,
        params=artefact.params,
        capabilities=sorted(capabilities),
        n_features=n_features,
        n_labels=int(model.n_labels_) if spec.needs == "rankings" else None,
        n_classes=None if classes is None else len(classes),
        artefact_sha256=artefact.sha256,
    )


def main(arguments: list[str]) -> int:
    """Try the artefact in a folder within so many bytes of memory; returns the exit status."""
    from pairmark.models.core.artefact import ArtefactError

    folder, limit = Path(arguments[0]), int(arguments[1])
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    confine_memory(limit)
    os.nice(5)
    try:
        trial = first_use(folder)
    except (ArtefactError, ValueError, LookupError, TypeError, AttributeError, MemoryError) as error:
        print(str(error) or type(error).__name__, flush=True)
        return 1
    print(json.dumps(trial.model_dump()), flush=True)
    return 0


if __name__ == "__main__":
    # Else importing `scipy.stats`, which no score needs, would be a fifth of its time.
    defer_unused()
    sys.exit(main(sys.argv[1:]))
