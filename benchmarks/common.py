"""What benchmarks share: claims, data, earlier commits, facts about the machine, results on disk and as tables.

A benchmark is a function ``run(preset) -> Result``; ``preset`` is ``quick`` (at most ten minutes) or ``full`` (what the
published tables show). Only ratios measured in one run, interleaved, are claims: absolute times are this machine's.
"""

import hashlib
import json
import os
import platform
import statistics
import subprocess
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

Preset = Literal["quick", "full"]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
KNOWN_MISSES = ROOT / "benchmarks" / "known_misses.toml"
EARLIER = "acb9ee2f"
"""The commit that others are compared with, where ``PAIRMARK_AGAINST`` (``--against``) names none."""
PACKAGES = (
    "numpy", "numba", "scipy", "scikit-learn", "fastapi", "uvicorn", "pydantic",
    "xgboost-cpu", "xgboost", "lightgbm", "metric-learn", "faiss-cpu",
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
        files = [sorted(ROOT.joinpath(folder).rglob("*.py")) for folder in code]
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


def needed_data(*parts: str) -> Path:
    """A file or folder below the one that ``PAIRMARK_DATA`` names; raises `Skip` where it is not there."""
    path = Path(os.environ.get("PAIRMARK_DATA", "PAIRMARK_DATA")).joinpath(*parts)
    if not path.exists():
        raise Skip(f"needs {path}: set PAIRMARK_DATA to the folder that holds {'/'.join(parts)}")
    return path


def earlier_commit() -> tuple[str, Path]:
    """A commit to compare with, and its files, kept under ``var/`` with the kernels that they compile."""
    commit = os.environ.get("PAIRMARK_AGAINST", EARLIER)
    folder = ROOT / "var" / "cache" / "earlier" / commit
    if not folder.exists():
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise Skip(f"needs commit {commit} in this clone: {archive.stderr.decode().strip()[:200]}")
        folder.mkdir(parents=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return commit, folder


def is_known_miss(benchmark: str, what: str) -> bool:
    """Whether ``known_misses.toml`` says why a claim does not hold."""
    listed = tomllib.loads(KNOWN_MISSES.read_text(encoding="utf-8")).get(benchmark, {})
    return any(fnmatchcase(what, pattern) for pattern in listed)


def new_misses(benchmark: str, claims: Sequence[Claim]) -> list[Claim]:
    """Claims that do not hold, and are not known not to."""
    return [claim for claim in claims if not claim.holds and not is_known_miss(benchmark, claim.what)]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    installed = {one.name: one.version for one in metadata.distributions()}
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
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
    columns = list(rows[0]) if rows else []
    return laid_out(columns, [[_cell(row.get(column)) for column in columns] for row in rows])


def laid_out(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    head, *rows = ("| " + " | ".join(cells) + " |" for cells in [titles, *lines])
    return "\n".join([head, "|" + "---|" * len(titles), *rows])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
