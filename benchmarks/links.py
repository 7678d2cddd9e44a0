"""Links without labels, beside splink in the same run: from CSV files to entities, each by one process.

Made-up people with households and firms in groups at two sizes (``quick``: 2,000 and 10,000 records; ``full``: 20,000
and 100,000, and 1,000,000 people), febrl's sets, and four public pairs of tables, of which F1 counts the judged pairs;
those need ``records/`` in ``PAIRMARK_DATA``. Default settings, one thread; CPU is of the whole process, its imports
included, memory its largest. ``stated`` is the share of false links as it was said without labels, ``true`` what it is.
splink is set in three ways (`benchmarks._splink_links`), and the best by F1 is shown with its own CPU.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._linked_people import companies, people
from benchmarks.common import (
    Claim,
    Preset,
    Result,
    Skip,
    columns_of,
    needed_data,
    published_records,
    read_csv,
    run_alone,
    write_csv,
)
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
            claims.append(Claim.at_most(f"{tables.name}: CPU s", GOAL_CPU * best["CPU s"], own["CPU s"]))
        kind = tables.name.split(",")[0]
        goal = next((goal for start, goal in GOALS.items() if kind.startswith(start)), None)
        if goal is not None:
            claims.append(Claim.at_least(f"{tables.name}: F1", goal, own["F1"]))
        else:
            public.append(own["F1"])
        if isinstance(own["stated"], float):
            what = f"{tables.name}: stated false share, of half of the true one"
            claims.append(Claim.at_least(what, own["true"] / 2, own["stated"]))
        claims.append(Claim.at_most(f"{tables.name}: MB", GOAL_MB, own["MB"]))
    claims.append(Claim.at_least("public pairs of tables: mean F1", GOAL_PUBLIC, float(np.mean(public))))
    return Result(rows=rows, claims=claims)


def _tables(preset: Preset) -> Iterator[Tables]:
    for n in (20_000, 100_000) if preset == "full" else (2_000, 10_000):
        for name, (who, columns) in (("families", people(n, "families")), ("companies", companies(n))):
            yield Tables(f"{name}, {n:,}", columns, [n], Identities(np.array(who)))
    if preset == "full":
        who, columns = people(1_000_000, "dependent")
        yield Tables("febrl-like people, 1,000,000", columns, [len(who)], Identities(np.array(who)))
    for number in (1, 3):
        lines = read_csv(needed_data("records", "febrl", f"dataset{number}.csv"))
        who = [int(line.pop("rec_id").split("-")[1]) for line in lines]
        yield Tables(f"febrl {number}", columns_of(lines), [len(who)], Identities(np.array(who)))
    for name in PUBLIC:
        lines, parts = published_records(name)
        n_left = [line.pop("source") for line in lines].count("a")
        for line in lines:
            del line["id"]
        truth = ListedPairs(*(np.concatenate(sides) for sides in zip(*parts.values(), strict=True)))
        yield Tables(name, columns_of(lines), [n_left, len(lines) - n_left], truth)


def _write(folder: Path, tables: Tables) -> list[str]:
    """A CSV file a table, each row with its number over all as its id."""
    columns = {"id": range(sum(tables.sizes)), **tables.columns}
    ends = np.cumsum([0, *tables.sizes]).tolist()
    return [
        str(
            write_csv(
                folder / f"table{start}.csv", {name: cells[start:end] for name, cells in columns.items()}
            )
        )
        for start, end in pairwise(ends)
    ]


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
    environment = {"PAIRMARK_JOB_THREADS": "1", "PAIRMARK_HOME": f"{folder}/home"}
    done = run_alone(command, environment, errors=subprocess.DEVNULL, check=False)
    if done.status:
        raise Skip(f"{command[2:5]} ended with {done.status}")
    first: dict[str, int] = {}
    entity = np.arange(len(next(iter(tables.columns.values()))))
    for line in read_csv(Path(folder) / "links.csv"):
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
    share = json.loads(done.printed)["false_links"] if is_own else {}
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
        "CPU s": round(done.cpu, 1),
        "MB": round(done.mb),
    }
