"""What benchmarks share: claims, data, earlier commits, facts about the machine, results on disk and as tables.

A benchmark is a function ``run(preset) -> Result``; ``preset`` is ``quick`` (at most ten minutes) or ``full`` (what the
published tables show). Only ratios measured in one run, interleaved, are claims: absolute times are this machine's.
"""

import csv
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from joblib import Memory

from pairmark.version import commit

Preset = Literal["quick", "full"]
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PARTS = ROOT / "var" / "cache" / "parts"
KNOWN_MISSES = ROOT / "benchmarks" / "known_misses.toml"
EARLIER = "acb9ee2f"
"""The commit that others are compared with, where ``PAIRMARK_AGAINST`` (``--against``) names none."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
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

    @classmethod
    def at_most(cls, what: str, most: float, measured: float) -> "Claim":
        """A number that may not be greater."""
        return cls(what=what, goal=f"at most {most:.4g}", measured=measured, holds=bool(measured <= most))

    @classmethod
    def at_least(cls, what: str, least: float, measured: float) -> "Claim":
        """A number that may not be less."""
        return cls(what=what, goal=f"at least {least:.4g}", measured=measured, holds=bool(measured >= least))


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a benchmark found: a table's rows (equal keys), its claims, and anything worth keeping."""

    rows: Sequence[Mapping[str, Any]]
    claims: Sequence[Claim] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def ratio(of: Sequence[float], to: Sequence[float]) -> float:
    """Median of the rounds' own ratios, which drift hits less than the ratio of medians."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))


def in_turns(
    work: Mapping[str, Callable[[int], Any]], rounds: int, clock: Callable[[], float] = time.process_time
) -> tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Seconds and answers of each contestant, a round at a time, whose number it is given."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    answers: dict[str, list[Any]] = {name: [] for name in work}
    for turn in range(rounds):
        for name in work if turn % 2 == 0 else reversed(work):
            started = clock()
            answers[name].append(work[name](turn))
            seconds[name].append(clock() - started)
    return seconds, answers


class Run(NamedTuple):
    """A process that ended: its status, CPU seconds and most MB of it and what it waited for, and what it printed."""

    status: int
    cpu: float
    mb: float
    printed: str


def run_alone(
    command: Sequence[str],
    environment: Mapping[str, str] = MappingProxyType({}),
    errors: int | None = None,
    *,
    check: bool = True,
) -> Run:
    """Run a command to its end, with these environment variables beside ours; ``check`` wants it to end well."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=said, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        status = os.waitstatus_to_exitcode(status)
        if check and status:
            raise subprocess.CalledProcessError(status, command)
        said.seek(0)
        return Run(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said.read())


def people(
    n: int, each: int, width: int, noise: float = 1.0, seed: Any = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of people around random centres, (n * each, width), whose they are, and the centres."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((n, width), dtype=np.float32)
    rows = random.standard_normal((n, each, width), dtype=np.float32)
    rows *= np.float32(noise)
    rows += centres[:, None]
    return rows.reshape(-1, width), np.repeat(np.arange(n), each), centres


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows by column."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, skipinitialspace=True))


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Left rows, right rows, and which are the same."""


def published_records(name: str) -> tuple[list[dict[str, str]], dict[str, Pairs]]:
    """Records of a set with published splits, its left table (``source`` a) first, and the pairs of each part."""
    folder, pairs = needed_data("records", name), {}
    lines = sorted(read_csv(folder / "records.csv"), key=lambda line: line["source"])
    row_of = {line["id"]: row for row, line in enumerate(lines)}
    for part in ("train", "valid", "test"):
        listed = read_csv(folder / f"pairs-{part}.csv")
        left, right = (np.array([row_of[pair[side]] for pair in listed]) for side in ("left", "right"))
        pairs[part] = left, right, np.array([pair["same"] == "1" for pair in listed])
    return lines, pairs


def columns_of(lines: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Rows by column as columns."""
    return {name: [line[name] for line in lines] for name in lines[0]}


def write_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    """A CSV file of columns."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([[*columns], *zip(*columns.values(), strict=True)])
    return path


def kept(work: Callable[..., Any]) -> Any:
    """A part of a benchmark that takes an hour, whose answers at a commit stay on disk, so that a run that was cut goes
    on; a run that is whole forgets them. Where tracked files differ from the commit, nothing is kept."""
    revision, dirty = commit()
    folder = None if dirty or revision is None else PARTS / work.__module__ / revision
    return Memory(folder, verbose=0).cache(work)


def needed_data(*parts: str) -> Path:
    """A file or folder below the one that ``PAIRMARK_DATA`` names; raises `Skip` where it is not there."""
    path = Path(os.environ.get("PAIRMARK_DATA", "PAIRMARK_DATA")).joinpath(*parts)
    if not path.exists():
        raise Skip(f"needs {path}: set PAIRMARK_DATA to the folder that holds {'/'.join(parts)}")
    return path


def earlier_commit() -> tuple[str, Path]:
    """A commit to compare with, and its files, kept under ``var/`` with the kernels that they compile."""
    revision = os.environ.get("PAIRMARK_AGAINST", EARLIER)
    folder = ROOT / "var" / "cache" / "earlier" / revision
    if not folder.exists():
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            raise Skip(f"needs commit {revision} in this clone: {archive.stderr.decode().strip()[:200]}")
        folder.mkdir(parents=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
    return revision, folder


def is_known_miss(benchmark: str, claim: Claim) -> bool:
    """Whether ``known_misses.toml`` says why a claim does not hold, and that it may miss its goal so far."""
    listed = tomllib.loads(KNOWN_MISSES.read_text(encoding="utf-8")).get(benchmark, {})
    is_least = claim.goal.startswith(("at least", "not below", "all"))
    return any(
        fnmatchcase(claim.what, pattern)
        and (claim.measured >= bound if is_least else claim.measured <= bound)
        for pattern, (bound, _) in listed.items()
    )


def new_misses(benchmark: str, claims: Sequence[Claim]) -> list[Claim]:
    """Claims that do not hold, and are not known not to."""
    return [claim for claim in claims if not claim.holds and not is_known_miss(benchmark, claim)]


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


def laid_out(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    head, *rows = ("| " + " | ".join(cells) + " |" for cells in [titles, *lines])
    return "\n".join([head, "|" + "---|" * len(titles), *rows])


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")
