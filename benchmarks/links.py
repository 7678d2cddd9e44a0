"""Links without labels: made-up people of three kinds and febrl's, from a CSV to a file of links by one command.

F1 is of pairs in one entity, by default settings. CPU is of the whole process, its imports included, with one thread;
memory is its largest. ``quick``: 10,000 records of each kind, and 100,000 whose columns depend on each other; ``full``:
100,000 of each, and 1,000,000. febrl's sets need ``records/`` in ``PAIRMARK_DATA``.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._linked_people import STYLES, people
from benchmarks.common import Claim, Preset, Result, needed_data

GOAL_F1 = 0.995
GOAL_MB = 500
MILLION, GOAL_MILLION_S, GOAL_MILLION_MB = 1_000_000, 60, 2_500
_LINK = [sys.executable, "-m", "pairmark.service.cli", "link"]


def run(preset: Preset) -> Result:
    """A table a row."""
    sizes = [(style, 100_000 if preset == "full" else 10_000) for style in STYLES]
    sizes.append(("dependent", MILLION if preset == "full" else 100_000))
    rows = []
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        for style, n in sizes:
            who, columns = people(n, style)
            rows.append({"records": f"{style}, {n:,}", **_measured(Path(folder), who, columns)})
        for name, who, columns in _febrl():
            rows.append({"records": name, **_measured(Path(folder), who, columns)})
    f1 = min(row["F1"] for row in rows)
    large = [row for row in rows if row["records"].endswith(f"{MILLION:,}")]
    memory = max(row["MB"] for row in rows if row not in large)
    claims = [
        Claim(what="F1 of every table", goal=f"at least {GOAL_F1}", measured=f1, holds=f1 >= GOAL_F1),
        Claim(what="memory", goal=f"at most {GOAL_MB} MB", measured=memory, holds=memory <= GOAL_MB),
        *(
            Claim(
                what=f"{column} of {row['records']} records",
                goal=f"at most {most}",
                measured=row[column],
                holds=row[column] <= most,
            )
            for row in large
            for column, most in (("CPU s", GOAL_MILLION_S), ("MB", GOAL_MILLION_MB))
        ),
    ]
    return Result(rows=rows, claims=claims)


def _febrl() -> Iterator[tuple[str, list[int], dict[str, list[str]]]]:
    for number in (1, 3):
        path = needed_data("records") / "febrl" / f"dataset{number}.csv"
        with path.open(newline="") as stream:
            lines = list(csv.DictReader(stream, skipinitialspace=True))
        names = [name for name in lines[0] if name != "rec_id"]
        who = [int(line["rec_id"].split("-")[1]) for line in lines]
        yield f"febrl {number}, {len(lines):,}", who, {name: [line[name] for line in lines] for name in names}


def _measured(folder: Path, who: Sequence[int], columns: dict[str, list[str]]) -> dict[str, Any]:
    table, out = folder / "table.csv", folder / "links.csv"
    with table.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["id", *columns])
        lines.writerows([at, *row] for at, row in enumerate(zip(*columns.values(), strict=True)))
    environment = {**os.environ, "PAIRMARK_JOB_THREADS": "1", "PAIRMARK_HOME": str(folder / "home")}
    process = subprocess.Popen(
        [*_LINK, str(table), "-o", str(out), "--json"], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"pairmark link ended with {status}")
    entity = np.arange(len(who))
    with out.open(newline="") as stream:
        for line in csv.DictReader(stream):
            if line["decision"] == "match":
                entity[[int(line["left"]), int(line["right"])]] = int(line["entity"])
    true = np.array(who, dtype=np.int64)
    made, meant, both = (_pairs(of) for of in (entity, true, entity * (true.max() + 1) + true))
    return {
        "F1": round(2 * both / (made + meant), 4),
        "precision": round(both / max(made, 1), 4),
        "recall": round(both / meant, 4),
        "CPU s": round(usage.ru_utime + usage.ru_stime, 1),
        "MB": round(usage.ru_maxrss / 1024),
    }


def _pairs(of: np.ndarray[Any, Any]) -> float:
    """Pairs of rows that have the same number."""
    counts = np.unique(of, return_counts=True)[1]
    return float((counts * (counts - 1) / 2).sum())
