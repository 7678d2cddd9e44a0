"""What fits, calibrations, searches, links and label rankings cost at three sizes, and at which size they end.

Each is a process of its own on one thread: CPU seconds and memory are what the work adds to the imports and to a first
run of a hundredth of the size, which compiles. The exponent is that of CPU between the smallest and the largest size. A
machine of 16 GB ends where memory does, a patience of an hour where CPU does: the smaller is named, drawn on from the
two largest sizes as if nothing changed on the way, and in proportion where less was seen (fixed costs).

``ten_million_links`` (full; quick: one million) links people with 3 GiB of tables: what that takes, or where it stops.
By the default of 1 GiB it stops, with a message that names the setting.
"""

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._linked_people import people as linked_people
from benchmarks.common import ONE_THREAD, Preset, Result, people, run_alone, write_csv
from pairmark import LabelRankingForest, MetricSimilarity, SimilarityAuto, operating_point
from pairmark.service.cli import main

SIZES = {
    "fit of the default": (600, 1_800, 5_400),
    "calibration": (500, 1_000, 2_000),
    "search by cosine, 100 queries": (20_000, 60_000, 200_000),
    "links of people": (10_000, 100_000, 1_000_000),
    "links of two tables of texts": (10_000, 30_000, 100_000),
    "label ranking forest": (1_000, 3_000, 9_000),
}
"""People of three rows, people of two, vectors, records, records of each table, and rows: three times as many with the
preset ``full``."""
MOST = {"CPU, s": 3_600.0, "memory, MB": 16_000.0}


def run(preset: Preset) -> Result:
    """A work and a size a row."""
    rows: list[dict[str, Any]] = []
    for work, sizes in SIZES.items():
        for size in sizes:
            command = [
                sys.executable,
                "-m",
                "benchmarks.sizes",
                work,
                str(size * (3 if preset == "full" else 1)),
            ]
            rows.append({"work": work, **json.loads(run_alone(command, ONE_THREAD).printed.splitlines()[-1])})
        first, middle, last = rows[-3:]
        at, ending = min(
            (last["size"] * (most / last[name]) ** (1 / max(_exponent(name, middle, last), 1)), name)
            for name, most in MOST.items()
        )
        last["exponent"] = round(_exponent("CPU, s", first, last), 2)
        last["ends at"] = f"{float(f'{at:.1g}'):,.0f}: {ending.partition(',')[0]}"
    return Result(rows=rows, facts={"load_average": os.getloadavg()[0]})


def _exponent(name: str, less: dict[str, Any], more: dict[str, Any]) -> float:
    return log(more[name] / less[name]) / log(more["size"] / less["size"])


def _measured(work: str, size: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        WORKS[work](max(60, size // 100), Path(folder, "small"))
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        n_pairs = WORKS[work](size, Path(folder, "large"))
        cpu, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        disk = sum(file.stat().st_size for file in Path(folder).glob("large*/**/*") if file.is_file())
    return {
        "size": size,
        "CPU, s": round(cpu, 2),
        "pairs a second": n_pairs and round(n_pairs / cpu),
        "memory, MB": max(1, round((after - before) / 1e3)),
        "disk, MB": round(disk / 1e6, 1),
        "exponent": None,
        "ends at": None,
    }


def _fit(n: int, folder: Path) -> None:
    SimilarityAuto(random_state=0, n_jobs=1, budget_seconds=10).fit(*people(n, 3, 32, 0.6)[:2]).save(folder)


def _calibration(n: int, folder: Path) -> int:
    X, y, _ = people(n, 2, 32, 0.6)
    left, right = np.triu_indices(2 * n, 1)
    scores = np.einsum("ij,ij->i", X[left], X[right])
    operating_point(scores, y[left] == y[right], 0.1, units=np.stack([y[left], y[right]], axis=1))
    return len(left)


def _search(n: int, folder: Path) -> int:
    X = people(n, 1, 32)[0]
    MetricSimilarity(metric="cosine").fit(X[:2].repeat(2, axis=0), [0, 0, 1, 1]).top_k(X[:100], X, 10)
    folder.mkdir()
    np.save(folder / "vectors.npy", X)
    return 100 * n


def ten_million_links(preset: Preset) -> Result:
    """One row."""
    n = 10_000_000 if preset == "full" else 1_000_000
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        _write_people(n, Path(folder))
        command = [sys.executable, "-m", "pairmark.service.cli", "link", f"{folder}/people.csv"]
        limited = ["prlimit", f"--cpu={MOST['CPU, s']:.0f}", *command, "-o", f"{folder}/links.csv"]
        limits = {"PAIRMARK_JOB_THREADS": "1", "PAIRMARK_LINK_MEMORY_BYTES": str(3 << 30), "TMPDIR": folder}
        started = time.perf_counter()
        done = run_alone(limited, limits, errors=subprocess.STDOUT, check=False)
        last = done.printed.strip().rpartition("\n")[2]
        row = {
            "people": n,
            "ended": "linked" if not done.status else f"stopped: {last}",
            "CPU, s": round(done.cpu),
            "seconds": round(time.perf_counter() - started),
            "memory, MB": round(done.mb),
        }
    return Result(rows=[row], facts={"load_average": os.getloadavg()[0]})


def _write_people(n: int, folder: Path) -> None:
    """A CSV, made a million people at a time."""
    with (folder / "people.csv").open("w", newline="") as file:
        for seed, start in enumerate(range(0, n, 1_000_000)):
            cells = linked_people(min(n - start, 1_000_000), "plain", seed)[1]
            csv.writer(file).writerows([cells, *zip(*cells.values(), strict=True)][bool(seed) :])


def _links(n: int, folder: Path) -> None:
    folder.mkdir()
    _write_people(n, folder)
    with suppress(SystemExit):
        main(["link", str(folder / "people.csv"), "-o", str(folder / "links.csv"), "--json"])


def _texts(n: int, folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(word) for word in rng.choice(letters, (5_000, 6))]
    titles = [[words[at % 5_000] for at in row] for row in rng.zipf(1.3, (n, 12)).tolist()]
    for side in ("left", "right"):
        # A twelfth of the words is lost, and their order, and half of the codes.
        codes = [[f"x{number:06d}"] * int(rng.integers(2)) for number in range(n)]
        texts = [
            " ".join([*rng.permutation(title)[:11], *code]) for title, code in zip(titles, codes, strict=True)
        ]
        write_csv(folder / f"{side}.csv", {"id": [f"{side}{at}" for at in range(n)], "title": texts})
    files = [str(folder / f"{name}.csv") for name in ("left", "right", "links")]
    with suppress(SystemExit):
        main(["link", *files[:2], "--id", "id", "-o", files[2], "--json"])


def _ranks(n: int, folder: Path) -> None:
    X = people(n, 1, 32)[0]
    ranks = np.argsort(np.argsort(X[:, :6] + X[:, 6:12], axis=1), axis=1).astype(float)
    LabelRankingForest(random_state=0, n_jobs=1).fit(X, ranks).save(folder)


WORKS: dict[str, Callable[[int, Path], Any]] = dict(
    zip(SIZES, (_fit, _calibration, _search, _links, _texts, _ranks), strict=True)
)

if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], int(sys.argv[2]))))
