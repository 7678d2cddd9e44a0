"""``make bench``: run benchmarks, each in a process of its own, and print their tables.

Exits with 1 where a benchmark fails or a claim does not hold that is not among the known misses.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import PARTS, ROOT, Skip, is_known_miss, new_misses, write
from benchmarks.tables import plain
from pairmark.version import commit

SHARED = {
    "default_search": "gallery_search",
    "record_peers": "records",
    "ten_million_links": "sizes",
}
"""Benchmarks that are functions of their names in another's file; all others are ``run`` of their own."""


def names(package: str) -> list[str]:
    """Every benchmark, or every experiment."""
    own = {"common", "tables"}
    files = {path.stem for path in (ROOT / package).glob("*.py") if path.stem[0] != "_"}
    return sorted(files - own | ({*SHARED} if package == "benchmarks" else set()))


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
        print(f"failed, missed a claim, or lack their data: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run_one(package: str, name: str, preset: str) -> bool:
    """Run one and keep its result; says whether every claim holds or is a known miss."""
    # Before the run: some benchmarks draw pictures into the working tree.
    code, started = commit(), time.perf_counter()
    try:
        module = importlib.import_module(f"{package}.{SHARED.get(name, name)}")
        result = getattr(module, name if name in SHARED else "run")(preset)
    except Skip as reason:
        print(f"\n## {name} ({preset})\n\nskipped: {reason}", flush=True)
        # Experiments are asked for one by one: without data there is nothing that they could say.
        return package != "experiments"
    folder = ROOT / package / "results"
    seconds = time.perf_counter() - started
    shutil.rmtree(PARTS / module.__name__, ignore_errors=True)
    path = write(name, "full" if preset == "full" else "quick", result, seconds, code, folder)
    print(f"\n## {name} ({preset})\n\n{plain(result.rows)}\n")
    for claim in result.claims:
        missed = "NOT HELD (known)" if is_known_miss(name, claim) else "NOT HELD"
        verdict = "held" if claim.holds else missed
        print(f"{verdict}: {claim.what}: {claim.measured:.4g} ({claim.goal})")
    print(f"\nwrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}", flush=True)
    return not new_misses(name, result.claims)


if __name__ == "__main__":
    sys.exit(main())
