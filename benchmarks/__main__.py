"""``make bench``: run benchmarks, each in a process of its own, and print their tables."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import Result, Skip, table, write


def names() -> list[str]:
    """Every benchmark."""
    own = {"__init__", "__main__", "common"}
    return sorted(
        path.stem
        for path in Path(__file__).parent.glob("*.py")
        if path.stem not in own and path.stem[0] != "_"
    )


def main() -> int:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(names())}")
    parser.add_argument("--preset", choices=("quick", "full"), default="quick")
    parser.add_argument(
        "--data", help="other data for label_ranking (a folder) or rsbl_tables (a CSV, or a folder of them)"
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(names()))
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(names())}")
    chosen = options.names or names()
    if options.data:
        # Each benchmark runs in a process of its own, which inherits it.
        os.environ["PAIRMARK_RANKINGS"] = os.environ["PAIRMARK_CLASSES"] = options.data
    if options.here:
        for name in chosen:
            _run(name, options.preset)
        return 0
    failed = []
    for name in chosen:
        command = [sys.executable, "-m", "benchmarks", name, "--preset", options.preset, "--here"]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str, preset: str) -> None:
    started = time.perf_counter()
    try:
        result = importlib.import_module(f"benchmarks.{name}").run(preset)
    except Skip as reason:
        print(f"\n## {name} ({preset})\n\nskipped: {reason}", flush=True)
        return
    if not isinstance(result, Result):
        raise TypeError(
            f"benchmarks/{name}.py: run() returned {type(result).__name__}; expected benchmarks.common.Result"
        )
    path = write(name, "full" if preset == "full" else "quick", result, time.perf_counter() - started)
    print(f"\n## {name} ({preset})\n\n{table(result.rows)}\n")
    for claim in result.claims:
        print(f"{'held' if claim.holds else 'NOT HELD'}: {claim.what}: {claim.measured:.4g} ({claim.goal})")
    print(f"\nwrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
