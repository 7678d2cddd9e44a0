"""``python -m tests.mutants [WORDS ...]``: break the code in a copy, and run the tests that must fail.

A mutant *dies* when its tests fail; one that *survives* shows a promise that no test watches. The tests of all chosen
mutants first have to pass on the code as it is. Exits with 1 when a mutant survives, no longer applies or breaks the
test run itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
# A place that stays: Numba keeps its compiled kernels beside the sources.
COPY = ROOT / "var" / "cache" / "mutants"
FAILED, PASSED = 1, 0
LIMIT_S = 600


def main() -> int:
    """Run the chosen mutants, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants whose name or guarantee holds one of these")
    parser.add_argument("--list", action="store_true", help="list them and stop")
    parser.add_argument("--no-baseline", action="store_true", help="skip the run on the unbroken code")
    options = parser.parse_args()
    chosen = [one for one in MUTANTS if not options.words or any(word in str(one) for word in options.words)]
    if options.list:
        for one in chosen:
            print(f"{one.name:44} {one.guarantee}")
        return 0
    if not chosen:
        parser.error(f"no mutant has {' or '.join(options.words)} in its name or guarantee")
    refresh_copy()
    if not options.no_baseline:
        tests = sorted({test for one in chosen for test in one.tests})
        status, said = run_tests(tests)
        if status != PASSED:
            print(f"{said[-4000:]}\nthe tests do not pass on the code as it is", file=sys.stderr)
            return 1
    failed = [one.name for one in chosen if not dies(one)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} mutants died")
    if failed:
        print(f"not killed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def dies(mutant: Mutant) -> bool:
    """Break the copy, run the mutant's tests, mend the copy; says whether they failed."""
    started = time.time()
    originals: dict[Path, tuple[str, float]] = {}
    try:
        for edit in mutant.edits:
            file = COPY / edit.file
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            if text.count(edit.old) != 1:
                print(
                    f"STALE     {mutant.name}: {edit.file} holds its text {text.count(edit.old)} times, not once"
                )
                return False
            originals.setdefault(file, (text, file.stat().st_mtime))
            put(file, text.replace(edit.old, edit.new), started + len(originals))
        status, said = run_tests(mutant.tests)
    finally:
        for file, (text, modified) in originals.items():
            put(file, text, modified)
    verdict = {FAILED: "died", PASSED: "SURVIVED"}.get(status, "BROKE THE RUN")
    print(f"{verdict:9} {mutant.name} ({time.time() - started:.0f} s)", flush=True)
    if status not in (FAILED, PASSED):
        print(said[-2000:])
    return status == FAILED


def put(file: Path, text: str, modified: float) -> None:
    """Write a file with a time of its own: Python and Numba take a source of the same second and size for unchanged."""
    file.write_text(text, encoding="utf-8")
    os.utime(file, (modified, modified))


def run_tests(tests: Sequence[str]) -> tuple[int, str]:
    """pytest's exit status and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(COPY)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
            cwd=COPY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"took more than {LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr


def refresh_copy() -> None:
    """Bring the copy to what the checkout's tracked and new files are; what is equal keeps its time."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = os.fsdecode(subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout)
    names = {name for name in listed.split("\0") if name and os.path.lexists(ROOT / name)}
    for old in sorted(COPY.rglob("*"), reverse=True):
        inside = old.relative_to(COPY)
        if (
            (old.is_file() or old.is_symlink())
            and "__pycache__" not in inside.parts
            and str(inside) not in names
        ):
            old.unlink()
    for name in names:
        source, target = ROOT / name, COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            if not target.is_symlink():
                target.symlink_to(os.readlink(source))
        elif not target.exists() or target.read_bytes() != source.read_bytes():
            # An interrupted run leaves its mutant here, which differs and is replaced.
            shutil.copy2(source, target)
    bring_compiled_kernels()


def bring_compiled_kernels() -> None:
    """Copy what Numba compiled in the checkout: copies keep the times of their sources, by which it knows them."""
    for source in (ROOT / "pairmark" / "models").rglob("*.nb[ic]"):
        target = COPY / source.relative_to(ROOT)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


if __name__ == "__main__":
    sys.exit(main())
