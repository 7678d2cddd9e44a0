"""Links without labels: made-up people of three kinds and febrl's, from a CSV to a file of links by one command.

F1 is of pairs in one entity, by default settings. CPU is of the whole process, its imports included, with one thread;
memory is its largest. ``quick``: 10,000 records of each kind, and 100,000 whose columns depend on each other; ``full``:
100,000 of each, and 1,000,000. febrl's sets need ``records/`` in ``PAIRMARK_DATA``.

``link_models``: products and papers of two tables, linked by a model that their training pairs taught. F1 is of the
test pairs, which a link joins or does not; the cut is the best of the validation pairs.
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
from benchmarks.records import GOALS_AMONG, best_threshold, read_published, table
from pairmark.models.linking.engine import Scorer
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.tables import declaration
from pairmark.schemas.links import LinksRequest
from pairmark.service.links.linking import linked
from pairmark.service.settings import Settings

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


class _Trained:
    """A model as a link job sees it: it scores pairs of rows."""

    notes: tuple[str, ...] = ()

    def __init__(self, score: Scorer, cut: float) -> None:
        self.score, self.cut = score, cut

    def scorer(self, connection: Any, tables: Any) -> Scorer:
        return self.score


def link_models(preset: Preset) -> Result:
    """A set a row; ``quick`` takes the smallest set."""
    rows, claims = [], []
    for name in GOALS_AMONG if preset == "full" else ("amazon-google",):
        folder = needed_data("records", name)
        schema, cells, pairs = read_published(folder)
        columns = table(folder, "records.csv")[2]
        n_left = columns["source"].count("a")
        model = RecordSimilarity(columns=declaration(schema), random_state=0)
        model.fit_among(cells, *pairs["train"], n_left=n_left)

        def score(a: Any, b: Any) -> Any:
            return model.score_among(cells, a, b, n_left=n_left).astype(float)  # noqa: B023

        a, b, same = pairs["test"]
        trained = _Trained(score, best_threshold(score(*pairs["valid"][:2]), pairs["valid"][2]))
        with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as scratch:
            files = [Path(scratch) / f"{side}.csv" for side in "ab"]
            for file, of in zip(files, (slice(n_left), slice(n_left, None)), strict=True):
                _write(file, {column: texts[of] for column, texts in columns.items() if column != "source"})
            for one_to_one in (False, True):
                work = Path(scratch) / str(one_to_one)
                work.mkdir()
                request = LinksRequest(left=name, one_to_one=one_to_one)
                options: Any = {"id_column": "id", "learned": trained}
                with linked(files, work, Settings(job_threads=1), request, **options) as found:
                    kept = {*found.connection.execute("SELECT a, b FROM links WHERE kept").fetchall()}
                    rules = found.linking
                is_link = np.array([pair in kept for pair in zip(a.tolist(), b.tolist(), strict=True)])
                f1 = 2 * float((is_link & same).sum()) / float(is_link.sum() + same.sum())
                row = {"set": name, "one to one": one_to_one, "F1": round(f1, 4), "links": rules.n_links}
                rows.append(row | {"candidates": rules.n_candidates})
        best = max(float(row["F1"]) for row in rows if row["set"] == name)
        goal = GOALS_AMONG[name]
        claims.append(
            Claim(what=f"{name}: F1 of links", goal=f"at least {goal:g}", measured=best, holds=best >= goal)
        )
    return Result(rows=rows, claims=claims)


def _write(path: Path, columns: dict[str, list[str]]) -> None:
    with path.open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))


def _febrl() -> Iterator[tuple[str, list[int], dict[str, list[str]]]]:
    for number in (1, 3):
        path = needed_data("records") / "febrl" / f"dataset{number}.csv"
        with path.open(newline="") as stream:
            lines = list(csv.DictReader(stream, skipinitialspace=True))
        names = [name for name in lines[0] if name != "rec_id"]
        who = [int(line["rec_id"].split("-")[1]) for line in lines]
        yield f"febrl {number}, {len(lines):,}", who, {name: [line[name] for line in lines] for name in names}


def _measured(folder: Path, who: Sequence[int], columns: dict[str, list[str]]) -> dict[str, Any]:
    file, out = folder / "table.csv", folder / "links.csv"
    _write(file, {"id": [str(at) for at in range(len(who))], **columns})
    environment = {**os.environ, "PAIRMARK_JOB_THREADS": "1", "PAIRMARK_HOME": str(folder / "home")}
    process = subprocess.Popen(
        [*_LINK, str(file), "-o", str(out), "--json"], env=environment, stdout=subprocess.DEVNULL
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
