"""``make bench``: run benchmarks, each in a process of its own, and print their tables.

Exits with 1 where a benchmark fails or a claim does not hold that is not among the known misses.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import misses
from benchmarks.common import Result, Skip, table, write
from pairmark.version import commit


def names(package: str) -> list[str]:
    """Every benchmark, or every experiment."""
    own = {"__init__", "__main__", "common", "misses", "stale", "tables"}
    folder = Path(__file__).parents[1] / package
    return sorted(path.stem for path in folder.glob("*.py") if path.stem not in own and path.stem[0] != "_")


def main(package: str = "benchmarks") -> int:
    """Run the named ones, or all."""
    there = names(package)
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(there)}")
    parser.add_argument("--preset", choices=("quick", "full"), default="quick")
    parser.add_argument(
        "--data", help="other data for label_ranking (a folder) or rsbl_tables (a CSV, or a folder of them)"
    )
    parser.add_argument("--against", metavar="COMMIT", help="the commit that rates compares this one with")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(there))
    if unknown:
        parser.error(f"nothing called {', '.join(unknown)} in {package}/; there are: {', '.join(there)}")
    chosen = options.names or there
    if options.data:
        # Each benchmark runs in a process of its own, which inherits it.
        os.environ["PAIRMARK_RANKINGS"] = os.environ["PAIRMARK_CLASSES"] = options.data
    if options.against:
        os.environ["PAIRMARK_AGAINST"] = options.against
    if options.here:
        return 0 if all(run_one(package, name, options.preset) for name in chosen) else 1
    failed = []
    for name in chosen:
        command = [sys.executable, "-m", package, name, "--preset", options.preset, "--here"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed, or missed a claim: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_one(package: str, name: str, preset: str) -> bool:
    """Run one and keep its result; says whether every claim holds or is a known miss."""
    # Before the run: some benchmarks draw pictures into the working tree.
    code, started = commit(), time.perf_counter()
    try:
        result = importlib.import_module(f"{package}.{name}").run(preset)
    except Skip as reason:
        print(f"\n## {name} ({preset})\n\nskipped: {reason}", flush=True)
        return True
    if not isinstance(result, Result):
        raise TypeError(
            f"{package}/{name}.py: run() returned {type(result).__name__}; expected benchmarks.common.Result"
        )
    folder = Path(__file__).parents[1] / package / "results"
    seconds = time.perf_counter() - started
    path = write(name, "full" if preset == "full" else "quick", result, seconds, code, folder)
    print(f"\n## {name} ({preset})\n\n{table(result.rows)}\n")
    for claim in result.claims:
        known = misses.known(name, claim.what)
        verdict = "held" if claim.holds else "NOT HELD (known)" if known else "NOT HELD"
        print(f"{verdict}: {claim.what}: {claim.measured:.4g} ({claim.goal})")
    print(f"\nwrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}", flush=True)
    return not misses.new(name, result.claims)


if __name__ == "__main__":
    sys.exit(main())
