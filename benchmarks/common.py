"""What benchmarks share: fair timing, facts about the machine, results on disk and as tables.

A benchmark is a module ``benchmarks/NAME.py`` with ``run(preset) -> Result``; ``preset`` is ``quick`` (at most ten
minutes) or ``full`` (what the published tables show). Only ratios measured in one run, interleaved, are claims:
absolute times are this machine's.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

Preset = Literal["quick", "full"]
RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "numpy", "numba", "scipy", "scikit-learn", "fastapi", "uvicorn", "pydantic",
    "xgboost-cpu", "xgboost", "lightgbm", "tl2cgen", "metric-learn", "faiss-cpu", "usearch",
)  # fmt: skip


class Skip(Exception):
    """A benchmark cannot run here; the message says what it needs."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Something the project promises, and what was measured.

    Attributes
    ----------
    goal : in words, e.g. ``at least 40 times less CPU``.
    measured : the number the goal is about.
    holds : whether it does.
    """

    what: str
    goal: str
    measured: float
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a benchmark found: a table's rows (equal keys), its claims, and anything worth keeping."""

    rows: Sequence[Mapping[str, Any]]
    claims: Sequence[Claim] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds of one contestant, one entry a round."""

    cpu: list[float]
    wall: list[float]

    @property
    def median_cpu(self) -> float:
        """Median CPU seconds."""
        return statistics.median(self.cpu)

    @property
    def median_wall(self) -> float:
        """Median wall seconds."""
        return statistics.median(self.wall)


def interleaved(
    contestants: Mapping[str, Callable[[], Any]], *, rounds: int, warmups: int = 1
) -> dict[str, Timing]:
    """Time contestants in turns, so that a machine that slows down slows all of them.

    Parameters
    ----------
    warmups : untimed calls of each first (kernels compile, caches fill).
    """
    for call in contestants.values():
        for _ in range(warmups):
            call()
    timings = {name: Timing(cpu=[], wall=[]) for name in contestants}
    for turn in range(rounds):
        order = list(contestants)
        for name in order if turn % 2 == 0 else reversed(order):
            wall, cpu = time.perf_counter(), time.process_time()
            contestants[name]()
            timings[name].cpu.append(time.process_time() - cpu)
            timings[name].wall.append(time.perf_counter() - wall)
    return timings


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Median of the rounds' own ratios, which drift hits less than the ratio of medians."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


class Parts:
    """Finished parts of a benchmark that takes an hour, kept on disk so that a run that was cut goes on.

    Parts are of one question put to one state of the learners' code; of any other they are forgotten.

    Parameters
    ----------
    name : of the benchmark.
    question : what the parts answer: preset, scenarios, sizes.
    code : folders of the code that the parts depend on.
    """

    def __init__(self, name: str, question: str, code: Sequence[str] = ("pairmark/models",)) -> None:
        state = hashlib.sha256(question.encode())
        root = Path(__file__).parent.parent
        files = [sorted(root.joinpath(folder).rglob("*.py")) for folder in code]
        if not all(files):
            raise FileNotFoundError(f"one of {', '.join(code)} holds no code")
        for file in sorted(file for folder in files for file in folder):
            state.update(file.read_bytes())
        self._of = state.hexdigest()
        self._path = RESULTS / f"{name}.part.json"
        self._parts: dict[str, Any] = {}
        if self._path.exists():
            kept = json.loads(self._path.read_text())
            self._parts = kept["parts"] if kept["of"] == self._of else {}

    def get(self, part: str, made: Callable[[], Any]) -> Any:
        """What was kept of a part, or else what ``made`` returns (JSON-able), kept from now on."""
        if part not in self._parts:
            self._parts[part] = made()
            RESULTS.mkdir(exist_ok=True)
            written = self._path.with_suffix(".tmp")
            written.write_text(json.dumps({"of": self._of, "parts": self._parts}, default=_plain))
            written.replace(self._path)
        return self._parts[part]

    def __contains__(self, part: str) -> bool:
        return part in self._parts

    def forget(self) -> None:
        """Delete what was kept: the run is whole."""
        self._path.unlink(missing_ok=True)


def data_folder() -> Path | None:
    """Folder of larger data sets, from ``PAIRMARK_DATA``; None where it is not set."""
    given = os.environ.get("PAIRMARK_DATA")
    return Path(given) if given else None


def needed_data(*parts: str) -> Path:
    """A file of `data_folder`; raises `Skip` where it is not there."""
    folder = data_folder()
    if folder is None:
        raise Skip(f"needs {'/'.join(parts)}: set PAIRMARK_DATA to the folder that holds it")
    path = folder.joinpath(*parts)
    if not path.exists():
        raise Skip(f"needs {path}, which does not exist: PAIRMARK_DATA names the folder that holds it")
    return path


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    cpu = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.partition(":")[2].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        cpu = models[0] if models else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": versions,
    }


def write(
    name: str,
    preset: Preset,
    result: Result,
    seconds: float,
    code: tuple[str | None, bool],
    folder: Path = RESULTS,
) -> Path:
    """Keep a result as ``NAME.json`` of a folder, with the commit and the dirty flag of the ``code`` that was run."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    revision, dirty = code
    kept = {
        "benchmark": name,
        "commit": revision,
        "dirty": dirty,
        "preset": preset,
        "seconds": round(seconds, 1),
        "machine": machine(),
        **asdict(result),
    }
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps(kept, indent=1, default=_plain) + "\n")
    part.replace(path)
    return path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table."""
    if not rows:
        return "(no rows)"
    columns = list(rows[0])
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[at]) for line in [columns, *cells]) for at in range(len(columns))]
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
