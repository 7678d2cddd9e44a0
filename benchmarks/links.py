"""Links without labels, beside splink in the same run: from CSV files to entities, each by one process.

Made-up people with households and firms in groups at two sizes (``quick``: 2,000 and 10,000 records; ``full``: 20,000
and 100,000, and 1,000,000 people), febrl's sets, and four public pairs of tables, of which F1 counts the judged pairs;
those need ``records/`` in ``PAIRMARK_DATA``. Default settings, one thread; CPU is of the whole process, its imports
included, memory its largest. ``stated`` is the share of false links as it was said without labels, ``true`` what it is.
splink is set in three ways (`benchmarks._splink_links`), and the best by F1 is shown with its own CPU.
"""

import csv
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._linked_people import companies, people
from benchmarks.common import Claim, Preset, Result, Skip, needed_data
from pairmark.models.linking.evaluation import Identities, ListedPairs, evaluate_links

GOALS = {"families": 0.93, "companies": 0.94, "febrl": 0.995}
GOAL_PUBLIC, GOAL_CPU, GOAL_MB = 0.79, 2.0, 2_000
PUBLIC = ("abt-buy", "amazon-google", "dblp-acm", "dblp-acm-dirty")
_LINK = [sys.executable, "-m", "pairmark.service.cli", "link"]
_SPLINK = [sys.executable, "-m", "benchmarks._splink_links"]


class Tables(NamedTuple):
    """Rows of one table or two, one after the other, and what is known of them."""

    name: str
    columns: dict[str, list[str]]
    sizes: Sequence[int]
    truth: Identities | ListedPairs


def run(preset: Preset) -> Result:
    """Each set a row for each linker."""
    rows, claims, public = [], [], []
    for tables in _tables(preset):
        with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
            files = _write(Path(folder), tables)
            own = _measured(tables, folder, [*_LINK, *files, "-o", f"{folder}/links.csv", "--json"])
            rows.append({"records": tables.name, "linker": "pairmark", **own})
            best = _splink(tables, folder, files)
        if best is not None:
            rows.append({"records": tables.name, **best})
            most = GOAL_CPU * best["CPU s"]
            claims.append(_claim(f"{tables.name}: CPU s", "at most", most, own["CPU s"]))
        kind = tables.name.split(",")[0]
        goal = next((goal for start, goal in GOALS.items() if kind.startswith(start)), None)
        if goal is not None:
            claims.append(_claim(f"{tables.name}: F1", "at least", goal, own["F1"]))
        else:
            public.append(own["F1"])
        if isinstance(own["stated"], float):
            claims.append(
                _claim(f"{tables.name}: stated false share", "at least half of", own["true"], own["stated"])
            )
        claims.append(_claim(f"{tables.name}: MB", "at most", GOAL_MB, own["MB"]))
    if public:
        claims.append(
            _claim("public pairs of tables: mean F1", "at least", GOAL_PUBLIC, float(np.mean(public)))
        )
    return Result(rows=rows, claims=claims)


def _claim(what: str, side: str, goal: float, measured: float) -> Claim:
    holds = measured <= goal if side == "at most" else measured >= goal / (2 if "half" in side else 1)
    return Claim(what=what, goal=f"{side} {goal:.4g}", measured=measured, holds=bool(holds))


def _tables(preset: Preset) -> Iterator[Tables]:
    for n in (20_000, 100_000) if preset == "full" else (2_000, 10_000):
        for name, (who, columns) in (("families", people(n, "families")), ("companies", companies(n))):
            yield Tables(f"{name}, {n:,}", columns, [n], Identities(np.array(who)))
    if preset == "full":
        who, columns = people(1_000_000, "dependent")
        yield Tables("febrl-like people, 1,000,000", columns, [len(who)], Identities(np.array(who)))
    data = needed_data("records")
    for number in (1, 3):
        lines = _read(data / "febrl" / f"dataset{number}.csv")
        who = [int(line.pop("rec_id").split("-")[1]) for line in lines]
        yield Tables(f"febrl {number}", _columns(lines), [len(who)], Identities(np.array(who)))
    for name in PUBLIC:
        lines = sorted(_read(data / name / "records.csv"), key=lambda line: line["source"])
        place = {line.pop("id"): at for at, line in enumerate(lines)}
        n_left = sum(line.pop("source") == "a" for line in lines)
        pairs = [
            pair for part in ("train", "valid", "test") for pair in _read(data / name / f"pairs-{part}.csv")
        ]
        a, b = (np.array([place[pair[side]] for pair in pairs]) for side in ("left", "right"))
        truth = ListedPairs(a, b, np.array([pair["same"] == "1" for pair in pairs]))
        yield Tables(name, _columns(lines), [n_left, len(lines) - n_left], truth)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, skipinitialspace=True))


def _columns(lines: list[dict[str, str]]) -> dict[str, list[str]]:
    return {name: [line[name] for line in lines] for name in lines[0]}


def _write(folder: Path, tables: Tables) -> list[str]:
    """A CSV file a table, each row with its number over all as its id."""
    files, rows = [], enumerate(zip(*tables.columns.values(), strict=True))
    for number, size in enumerate(tables.sizes):
        files.append(str(folder / f"table{number}.csv"))
        with Path(files[-1]).open("w", newline="") as stream:
            lines = csv.writer(stream)
            lines.writerow(["id", *tables.columns])
            lines.writerows([at, *cells] for (at, cells), _ in zip(rows, range(size), strict=False))
    return files


def _splink(tables: Tables, folder: str, files: list[str]) -> dict[str, Any] | None:
    if importlib.util.find_spec("splink") is None:
        return None
    from benchmarks._splink_links import SETTINGS

    found = []
    for setting in SETTINGS:
        command = [*_SPLINK, setting, f"{folder}/links.csv", *files]
        try:
            found.append({"linker": f"splink, {setting}", **_measured(tables, folder, command)})
        except Skip:
            continue
    return max(found, key=lambda row: row["F1"], default=None)


def _measured(tables: Tables, folder: str, command: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "PAIRMARK_JOB_THREADS": "1", "PAIRMARK_HOME": f"{folder}/home"}
    said = Path(folder) / "said.json"
    with said.open("w") as stream:
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise Skip(f"{command[2:5]} ended with {status}")
    first: dict[str, int] = {}
    entity = np.arange(len(next(iter(tables.columns.values()))))
    for line in _read(Path(folder) / "links.csv"):
        if "cluster_id" in line:
            entity[int(line["unique_id"])] = first.setdefault(line["cluster_id"], int(line["unique_id"]))
        elif line["decision"] == "match":
            entity[[int(line["left"]), int(line["right"])]] = first.setdefault(
                line["entity"], int(line["left"])
            )
    nothing = dict.fromkeys(("a", "b", "score", "kept"), np.empty(0))
    side = np.repeat(np.arange(len(tables.sizes)), tables.sizes)
    members = {"row": np.arange(entity.size), "first": entity}
    figures = evaluate_links(nothing, members, tables.truth, side, within=len(tables.sizes) == 1).decided
    shares = (figures.precision[0], figures.recall[0], figures.f1[0])
    p, r, f1 = np.array(shares, dtype=np.float64).round(4).tolist()
    is_own = command[:4] == _LINK
    share = json.loads(said.read_text())["false_links"] if is_own else {}
    return {
        "P": p,
        "R": r,
        "F1": f1,
        "interval": "{:.3f} to {:.3f}".format(*figures.f1[1:]),
        "B-cubed": None if figures.b_cubed is None else round(figures.b_cubed[2][0], 4),
        "stated": share.get("estimate")
        if share.get("estimate") is not None
        else "unknown"
        if is_own
        else None,
        "true": round(1 - p, 4),
        "CPU s": round(usage.ru_utime + usage.ru_stime, 1),
        "MB": round(usage.ru_maxrss / 1024),
    }
