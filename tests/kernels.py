"""``python -m tests.kernels``: compile every kernel once, in two processes, before many processes need them at once.

Otherwise each process of pytest, and each server and worker it starts, compiles for itself what none has cached yet.
"""

from __future__ import annotations

import multiprocessing
import sys

from pairmark.models.registry import LEARNERS
from pairmark.models.warmup import warm


def main() -> int:
    """Trees take about as long as all the rest, and share no kernel of weight with it."""
    trees = {spec.kind for spec in LEARNERS if spec.kind.startswith("similarity-")}
    parts = [sorted(trees), sorted({spec.kind for spec in LEARNERS} - trees)]
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=warm, args=(part,)) for part in parts]
    for process in running:
        process.start()
    for process in running:
        process.join()
    # What both compiled at once is kept by one of them; the rest, if any, is compiled here.
    warm()
    return max(abs(process.exitcode or 0) for process in running)


if __name__ == "__main__":
    sys.exit(main())
