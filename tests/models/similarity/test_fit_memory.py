"""What a fit adds to a process's memory, beside the matrix of pair features that it does not write."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FITS = """
import ctypes, gc, json, resource
from pathlib import Path
import numpy as np
from pairmark.models import SimilarityTree

def peak():
    lines = Path("/proc/self/status").read_text().splitlines() if FORGETTING.exists() else []
    kib = [int(line.split()[1]) for line in lines if "VmHWM" in line]
    return 1024 * (kib + [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])[0]

FORGETTING = Path("/proc/self/clear_refs")
rng = np.random.default_rng(0)
y = np.repeat(np.arange(200), 25)
X = (rng.normal(size=(200, 64))[y] + 0.7 * rng.normal(size=(5_000, 64))).astype(np.float32)
shares = {}
for n_rows, n_pairs in ((1_250, 2_000), (1_250, 100_000), (5_000, 1_000_000)):
    gc.collect()
    if FORGETTING.exists():
        ctypes.CDLL(None).malloc_trim(0)
        FORGETTING.write_text("5")
    before = peak()
    SimilarityTree(n_pairs=n_pairs, random_state=0).fit(X[:n_rows], y[:n_rows])
    shares[n_pairs] = (peak() - before) / (n_pairs * 2 * 64 * 4)
print(json.dumps(shares))
"""


@pytest.mark.nightly
def test_a_fit_needs_a_sixteenth_of_the_memory_that_writing_out_pairs_would() -> None:
    done = subprocess.run([sys.executable, "-c", FITS], check=True, stdout=subprocess.PIPE, text=True)
    shares = json.loads(done.stdout)
    # 24 bytes a pair (its rows, its weight, room to move them), and some megabytes of tables whatever the pairs.
    assert shares["100000"] <= 0.1
    assert shares["1000000"] <= 1 / 16
