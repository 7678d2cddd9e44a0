"""The full chain with a million unlabelled rows: labelled rows and a memory map in, vectors on disk out.

Rows are made like the challenge's: 50,000 labelled, a million unlabelled, a million columns, about 115 active a row.
The kernel is learned, 1,000 pivots are drawn from the unlabelled rows, and all of them are embedded in 100 dimensions,
a block at a time, into a file. It runs in a process of its own; peak memory counts mapped pages, too.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import roc_auc_score

from benchmarks import _sparse
from benchmarks.common import Claim, Preset, Result

WIDTH, SHARD, BLOCK = 1_000_000, 100_000, 50_000


def run(preset: Preset) -> Result:
    """Full: a million unlabelled rows. Quick: 200,000."""
    n = 1_000_000 if preset == "full" else 200_000
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), n)
        for weak, criterion in (("stump", "r"), ("stump", "z"), ("grid", "r")):
            command = [sys.executable, "-m", "benchmarks.rankboost_scale", folder, str(n), weak, criterion]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    slowest, largest = max(row["wall s"] for row in rows), max(row["peak MiB"] for row in rows)
    claims = [
        Claim(
            what=f"minutes for the chain on {n} unlabelled rows, the slowest kernel",
            goal="under 15",
            measured=slowest / 60,
            holds=slowest < 900,
        ),
        Claim(what="peak memory, GiB", goal="under 4", measured=largest / 1024, holds=largest < 4096),
    ]
    return Result(rows=rows, claims=claims, facts={"labelled": 50_000, "columns": WIDTH})


def _write(folder: Path, n: int) -> None:
    """Unlabelled rows as the three arrays of one CSR matrix, a shard at a time."""
    starts = [np.zeros(1, dtype=np.int32)]
    with (folder / "data").open("wb") as data, (folder / "indices").open("wb") as indices:
        for shard in range(0, n, SHARD):
            rows, _ = _sparse.challenge_rows(min(SHARD, n - shard), WIDTH, 100 + shard)
            rows.data.tofile(data)
            rows.indices.tofile(indices)
            starts.append(rows.indptr[1:] + starts[-1][-1])
    np.save(folder / "indptr.npy", np.concatenate(starts))


def _main(folder: Path, n: int, weak: str, criterion: str) -> None:
    from pairmark.models import RankBoostKernel

    X, y = _sparse.challenge_rows(50_000, WIDTH, 1, noise=0.1)
    X_test, y_test = _sparse.challenge_rows(10_000, WIDTH, 2)
    data = np.memmap(folder / "data", dtype=np.float32, mode="r")
    indices = np.memmap(folder / "indices", dtype=np.int32, mode="r")
    unlabelled = csr_array((data, indices, np.load(folder / "indptr.npy")), shape=(n, WIDTH))
    cpu, wall = time.process_time(), time.perf_counter()
    model = RankBoostKernel(
        n_estimators=200, n_bags=1, weak=weak, criterion=criterion, n_pivots=1_000, random_state=0
    )
    model.fit(X, y, unlabelled=unlabelled)
    fitted = time.perf_counter() - wall
    with (folder / "vectors").open("wb") as out:
        for start in range(0, n, BLOCK):
            model.transform(unlabelled[start : start + BLOCK]).tofile(out)
    reported = {
        "kernel": f"{weak}s by {criterion}",
        "unlabelled rows": n,
        "fit s": fitted,
        "wall s": time.perf_counter() - wall,
        "CPU s": time.process_time() - cpu,
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "AUC": float(roc_auc_score(y_test, model.svm_score(X_test))),
    }
    print(json.dumps(reported))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
